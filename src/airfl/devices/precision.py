"""Precision of matrix products; master weights, losses and updates are float32 throughout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from airfl.errors import InputError


def resolve_precision(wanted: str, device: torch.device) -> str:
    """``auto`` is bf16 on GPUs of the Hopper class and later, else float32; tf32 exists on GPUs only."""
    if wanted == "auto":
        hopper = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9
        return "bf16" if hopper else "float32"
    if wanted == "tf32" and device.type != "cuda":
        raise InputError("precision `tf32` is for CUDA GPUs; use `float32` or `bf16` on a CPU")
    return wanted


@contextmanager
def tf32_allowed(wanted: bool) -> Iterator[None]:
    """Whether a GPU's matrix units may read float32 as tf32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
