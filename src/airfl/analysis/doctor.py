"""What this machine has for airfl: versions, data sets, devices, threads."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from airfl.devices import idx
from airfl.devices.fleets import FLEETS, kept_at
from airfl.imports import source_sha256
from airfl.runs.sameness import processor
from airfl.version import __version__

PACKAGES = ("torch", "numpy", "scipy", "pydantic", "matplotlib", "pyarrow", "safetensors")
EXTRAS = ("scikit-learn", "cvxpy", "dp-accounting", "mpmath", "sionna-no-rt")


def examine() -> dict[str, Any]:
    """Return versions, a fingerprint of the code, data sets found (folder or null), devices and threads."""
    folder = idx.locate(idx.FASHION_MNIST)
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "versions": {"airfl": __version__, **{name: _version(name) for name in PACKAGES}},
        "source": source_sha256(),
        "extras": {name: _version(name) for name in EXTRAS},
        "datasets": {
            "fashion-mnist": None if folder is None else str(folder),
            "digits": "bundled with scikit-learn" if _version("scikit-learn") else None,
            **{name: kept_at(name) for name in FLEETS},
        },
        "cache": str(idx.cache_folder()),
        "devices": {"cpu": processor(), "cuda": gpus},
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
