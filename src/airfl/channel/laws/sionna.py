"""Sionna at work: found or asked for in one sentence, and drawing by our keys.

Its import takes seconds, so it is imported where a law first draws.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from airfl.errors import InputError

#: Sionna has one generator for all, and one process may draw in several threads.
_DRAWING = threading.Lock()
#: What it computes with: drawn on the CPU in double precision, so that bits do not depend on the machine's GPU.
WHERE = {"precision": "double", "device": "cpu"}


def require_sionna(fading: str) -> None:
    """Refuse in one sentence where it is not installed; loads nothing."""
    try:
        found = importlib.util.find_spec("sionna.phy") is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise InputError(
            f"fading `{fading}` is drawn by Sionna, which is not installed; `pip install 'airfl[sionna]'` gets it, and "
            "`rayleigh` and `rician` do without"
        )


@contextmanager
def drawing(seed: int) -> Iterator[None]:
    """Sionna's draws follow from the seed; PyTorch's own generator is left as it was found."""
    import torch
    from sionna.phy import config

    with _DRAWING, torch.random.fork_rng(devices=[]):
        before = config.seed
        config.seed = seed
        try:
            yield
        finally:
            config.seed = before
