"""Precision of matrix products; master weights, losses and updates are float32 throughout."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

import torch

from airfl.errors import InputError

#: What PyTorch calls units that multiply bfloat16.
BF16_UNITS = ("avx512_bf16", "amx_bf16")


def resolve_precision(wanted: str, device: torch.device) -> str:
    """``auto`` is bf16 on GPUs of the Hopper class and later, else float32; tf32 exists on GPUs only.

    On a CPU convolutions may have another one: see ``choose_engine``, and an engine's own ``precision``.
    """
    if wanted == "auto":
        hopper = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9
        return "bf16" if hopper else "float32"
    if wanted == "tf32" and device.type != "cuda":
        raise InputError("precision `tf32` is for CUDA GPUs; use `float32` or `bf16` on a CPU")
    return wanted


@lru_cache(maxsize=1)
def has_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 in hardware, so far as PyTorch can tell; elsewhere it would be emulated."""
    if hasattr(torch.cpu, "get_capabilities"):
        found = torch.cpu.get_capabilities()
        return any(bool(found.get(name)) for name in BF16_UNITS)
    asks = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return any(ask is not None and bool(ask()) for ask in asks)


@contextmanager
def tf32_allowed(wanted: bool) -> Iterator[None]:
    """Whether a GPU's matrix units may read float32 as tf32."""
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
