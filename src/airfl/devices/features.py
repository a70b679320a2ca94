"""What models see of the inputs: themselves, or fixed features of them, by name or by import path."""

from __future__ import annotations

from collections.abc import Callable

import torch

from airfl.devices.imports import import_callable, is_import_path
from airfl.devices.scattering import scattering
from airfl.errors import InputError

FEATURES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"none": lambda inputs: inputs, "scattering": scattering}


def make_features(name: str, inputs: torch.Tensor) -> torch.Tensor:
    """Features [N, ...] of inputs [N, ...], by name or by a callable given as ``package.module:callable``.

    A callable takes the inputs of all samples, on the compute device, and returns as many features. For a promise to
    hold, features of a sample must not depend on others: a mean over the data set is a release that nobody has paid.
    """
    if name in FEATURES:
        return FEATURES[name](inputs)
    if not is_import_path(name):
        raise InputError(f"unknown features `{name}`; known: {', '.join(FEATURES)}, or package.module:callable")
    make = import_callable(name, "features")
    try:
        made = torch.as_tensor(make(inputs), dtype=torch.float32, device=inputs.device)
    except InputError:
        raise
    except Exception as error:  # user code may fail in any way
        raise InputError(f"features `{name}` failed: {error}; they are called with inputs [N, ...]") from error
    if made.ndim < 2 or len(made) != len(inputs) or not made.isfinite().all():
        raise InputError(
            f"features `{name}` must return finite numbers [N, ...] for inputs [N, ...], N = {len(inputs):,}; "
            f"got {list(made.shape)}" + ("" if made.isfinite().all() else " with NaN or infinity")
        )
    return made
