"""IDX files, the format of MNIST and its relatives: finding, fetching, checking, reading.

A data set is four files. They are looked for in an explicit folder (then nowhere else), the cache folder and the
system folders, plain or gzipped; if they are nowhere, they are downloaded into the cache. Files are checked by the
SHA-256 of the decompressed bytes, because the gzip wrapping differs between sources.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import struct
import tempfile
import urllib.request
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from airfl.errors import InputError, in_words

FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True)
class Source:
    """Where a data set may be found and how it is recognised.

    Attributes:
        name: also the name of its folder in the cache.
        sha256: of the decompressed bytes of each file; empty: no check.
        system_folders: where distributions put it.
        mirrors: base URLs that hold the gzipped files.
    """

    name: str
    sha256: Mapping[str, str] = field(default_factory=dict)
    system_folders: Sequence[Path] = ()
    mirrors: Sequence[str] = ()


FASHION_MNIST = Source(
    name="fashion-mnist",
    sha256={
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    system_folders=(Path("/usr/share/datasets/fashion-mnist"),),
    mirrors=(
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
)


def cache_folder() -> Path:
    """Return the folder for downloads: $AIRFL_CACHE, else $XDG_CACHE_HOME/airfl, else ~/.cache/airfl."""
    if explicit := os.environ.get("AIRFL_CACHE"):
        return Path(explicit)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airfl"


def locate(source: Source, explicit: str | None = None) -> Path | None:
    """Return the first folder of the search order that holds all four files, or None."""
    candidates = [Path(explicit)] if explicit else [cache_folder() / source.name, *source.system_folders]
    return next((folder for folder in candidates if all(_find(folder, name) for name in FILES)), None)


def load(source: Source, explicit: str | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return (train images, train labels, test images, test labels), uint8, images [N, height, width]."""
    folder = locate(source, explicit)
    if folder is None and explicit:
        missing = next(name for name in FILES if not _find(Path(explicit), name))
        raise InputError(f"`learning.data_dir` = {explicit} must hold the four IDX files; `{missing}[.gz]` is missing")
    folder = folder or download(source)
    arrays = []
    for name in FILES:
        path = _find(folder, name)
        assert path is not None
        data = _decompressed(path)
        _check_hash(source, name, data, str(path))
        arrays.append(_parse(data, path))
    for images, labels in ((arrays[0], arrays[1]), (arrays[2], arrays[3])):
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise InputError(
                f"the IDX files in {folder} do not fit together: images {images.shape}, labels {labels.shape}; "
                "expected [N, height, width] and [N]"
            )
    return arrays[0], arrays[1], arrays[2], arrays[3]


def download(source: Source) -> Path:
    """Fetch the four files from the first mirror that answers, check them, and put them into the cache folder.

    A file appears under its final name only after its hash was checked.
    """
    target = cache_folder() / source.name
    reasons = []
    for mirror in source.mirrors:
        try:
            target.mkdir(parents=True, exist_ok=True)
            for name in FILES:
                if not _find(target, name):
                    _fetch(source, f"{mirror.rstrip('/')}/{name}.gz", name, target / f"{name}.gz")
            return target
        except (InputError, OSError, http.client.HTTPException) as error:
            reasons.append(f"{mirror}: {in_words(error)}")
    raise InputError(
        f"data set `{source.name}` was not found and could not be downloaded ({'; '.join(reasons) or 'no mirror'}); "
        f"put its four IDX files into {target} or name their folder in `learning.data_dir`"
    )


def _fetch(source: Source, url: str, name: str, target: Path) -> None:
    with urllib.request.urlopen(url, timeout=60) as response:
        data: bytes = response.read()
    _check_hash(source, name, _gunzip(data, url), url)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as temporary:
        temporary.write(data)
    os.replace(temporary.name, target)


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _decompressed(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"data file {path} cannot be read: {in_words(error)}") from None
    return _gunzip(data, str(path)) if path.suffix == ".gz" else data


def _gunzip(data: bytes, where: str) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"data file {where} is truncated or not gzip: {error}") from None


def _check_hash(source: Source, name: str, data: bytes, where: str) -> None:
    expected = source.sha256.get(name)
    found = hashlib.sha256(data).hexdigest()
    if expected is not None and found != expected:
        raise InputError(
            f"data file {where} has the wrong hash (SHA-256 {found[:12]}…, expected {expected[:12]}…); it is damaged "
            'or another data set: delete it, or use dataset = "idx" for your own files'
        )


def _parse(data: bytes, path: Path) -> np.ndarray:
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != 0x08:
        raise InputError(f"data file {path} is not an IDX file of unsigned bytes")
    header = 4 + 4 * data[3]
    if len(data) < header:
        raise InputError(f"data file {path} is truncated inside its header")
    shape = struct.unpack(f">{data[3]}I", data[4:header])
    size = int(np.prod(shape, dtype=np.int64))
    if len(data) - header != size:
        raise InputError(f"data file {path} is truncated or too long: {len(data) - header} bytes, header says {size}")
    return np.frombuffer(data, dtype=np.uint8, offset=header).reshape(shape)
