"""Data sets as float tensors, by name or by import path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from airfl.catalogue import no_such
from airfl.devices import idx
from airfl.devices.dataset import Dataset
from airfl.devices.fleets import FLEETS
from airfl.devices.fleets.table import load_table
from airfl.errors import InputError, about_file
from airfl.imports import import_object, is_import_path

BUILT_IN = ("fashion-mnist", "fashion-mnist-standard", "idx", "digits", *FLEETS, "table")
#: Mean and deviation of the training pixels in [0, 1], as published: nothing of a run's own data is used.
FASHION_MNIST_SCALE = (0.2860, 0.3530)
#: Images converted at a time: they stay in the caches.
BLOCK = 2048


def load_dataset(name: str, data_dir: str | None = None, declared: str = "") -> Dataset:
    """Load a data set by name, or from outside by its path, ``package.module:name``.

    That names a ``Dataset``, four arrays (train inputs, train labels, test inputs, test labels), two torch datasets
    (train, test), or a function without arguments that returns one of these.

    Args:
        declared: what the configuration says of a table, ``Learning.declared``.
    """
    if name == "fashion-mnist":
        return _from_images(*idx.load(idx.FASHION_MNIST, data_dir))
    if name == "fashion-mnist-standard":
        return _from_images(*idx.load(idx.FASHION_MNIST, data_dir), scale=FASHION_MNIST_SCALE)
    if name == "idx":
        if data_dir is None:
            raise InputError('dataset = "idx" needs `learning.data_dir`, the folder with the four IDX files')
        return _from_images(*idx.load(idx.Source("idx"), data_dir), num_classes=None)
    if name == "digits":
        return _digits()
    if name in FLEETS:
        return FLEETS[name](data_dir)
    if name == "table":
        return load_table(declared, data_dir)
    if is_import_path(name):
        return _from_outside(name)
    raise InputError(no_such("data set", name, BUILT_IN, ", or package.module:callable"))


def is_here(name: str, data_dir: str | None = None) -> bool:
    """Whether a data set is one of images whose files are on this machine: reading it is plain work."""
    published = name in ("fashion-mnist", "fashion-mnist-standard")
    return published and idx.locate(idx.FASHION_MNIST, data_dir) is not None


def _from_images(*arrays: np.ndarray, scale: tuple[float, float] = (0.5, 0.5), num_classes: int | None = 10) -> Dataset:
    """Pixels in [0, 1], less the first number, over the second."""
    train_images, train_labels, test_images, test_labels = arrays
    count = len(train_images)
    pixels = np.empty((count + len(test_images), 1, *train_images.shape[1:]), dtype=np.float32)
    halves = (train_images, pixels[:count, 0]), (test_images, pixels[count:, 0])
    blocks = [(old[i : i + BLOCK], new[i : i + BLOCK]) for old, new in halves for i in range(0, len(old), BLOCK)]

    def convert(block: tuple[np.ndarray, np.ndarray]) -> None:
        old, new = block
        np.divide(old, np.float32(255.0 * scale[1]), out=new, dtype=np.float32)
        np.subtract(new, np.float32(scale[0] / scale[1]), out=new)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(convert, blocks))
    labels = np.concatenate([train_labels, test_labels]).astype(np.int64)
    return Dataset(pixels, labels, len(train_labels), num_classes)


def _digits() -> Dataset:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError('data set `digits` needs scikit-learn; install it with: pip install "airfl[digits]"') from None
    images, labels = load_digits(return_X_y=True)
    # The bundled file is ordered by writer; a fixed shuffle makes the last 360 a fair test part.
    order = np.random.Generator(np.random.Philox(key=8)).permutation(len(labels))
    inputs = (images[order].reshape(-1, 1, 8, 8) / 8.0 - 1.0).astype(np.float32)
    return Dataset(inputs, labels[order].astype(np.int64), len(labels) - 360, 10)


def _from_outside(path: str) -> Dataset:
    """The data set that an import path names: a factory of one, or the data themselves."""
    made = import_object(path, "data set")
    what = f"data set `{path}`"
    if callable(made):
        what = f"data-set factory `{path}`"
        try:
            made = made()
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{what} failed: {about_file(error)}; it is called without arguments") from error
    if isinstance(made, Dataset):
        return made
    if not isinstance(made, tuple | list) or len(made) not in (2, 4):
        got = f"{type(made).__name__}{f' of {len(made)}' if isinstance(made, tuple | list) else ''}"
        found = f"must return one of these, not a {got}" if "factory" in what else f"is a {got}, not a callable"
        raise InputError(
            f"{what} {found}: an airfl Dataset, four arrays (train inputs, train labels, test inputs, test labels), "
            "two torch datasets (train, test)"
        )
    return _joined(made if len(made) == 4 else [part for half in made for part in _halves(half, what)], what)


def _halves(half: Any, what: str) -> tuple[Any, Any]:
    """Inputs and labels of a torch dataset, or of a pair of arrays."""
    try:
        tensors = getattr(half, "tensors", half if isinstance(half, tuple | list) else None)
        inputs, labels = tensors if tensors is not None else zip(*(half[i] for i in range(len(half))), strict=True)
        return inputs, labels
    except Exception as error:  # whatever somebody's dataset runs into
        raise InputError(f"{what}: a torch dataset must hold pairs of an input and a label; {error}") from error


def _joined(arrays: Sequence[Any], what: str) -> Dataset:
    names = ("train inputs", "train labels", "test inputs", "test labels")
    parts = [_array(array, f"{what}: the {name}") for name, array in zip(names, arrays, strict=True)]
    for which, (inputs, labels) in {"train": parts[:2], "test": parts[2:]}.items():
        if inputs.ndim < 2 or labels.ndim != 1 or len(inputs) != len(labels):
            raise InputError(
                f"{what}: the {which} inputs must be [N, ...] and the {which} labels [N]; got shapes {inputs.shape} "
                f"and {labels.shape}"
            )
    if parts[0].shape[1:] != parts[2].shape[1:]:
        raise InputError(
            f"{what}: train and test inputs must be of one shape; got {parts[0].shape[1:]} and {parts[2].shape[1:]}"
        )
    return Dataset(np.concatenate(parts[::2]), np.concatenate(parts[1::2]), len(parts[1]))


def _array(values: Any, what: str) -> np.ndarray:
    """An array of numbers, also where a tensor or a list of them was given."""
    try:
        values = [np.asarray(value) for value in values] if isinstance(values, tuple | list) else values
        array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} are no array: {error}") from None
    if not np.issubdtype(array.dtype, np.number) and array.dtype != bool:
        wanted = "whole numbers 0, 1, 2, …" if what.endswith("labels") else "numbers"
        raise InputError(f"{what} must be {wanted}; got an array of {array.dtype}")
    return array
