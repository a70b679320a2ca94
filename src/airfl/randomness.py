"""Keyed random streams: (seed, purpose, trial, round, ...) -> generator.

Every draw of the simulator names what it is for. A stream depends on its key alone, so adding a draw never
shifts another one, and results do not depend on how trials or devices are batched, on the compute device, on
the number of workers, or on where a run was resumed. Two schemes with the same seed see the same channels,
data order and unit noise (common random numbers), which makes their difference sharper.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    import torch

Purpose = Literal[
    "partition",
    "positions",
    "line-of-sight",
    "shadowing",
    "rays",
    "fading",
    "participation",
    "multiplicity",
    "perturbation",
    "estimation",
    "predictions",
    "phases",
    "model-init",
    "batches",
    "receiver-noise",
    "antenna-noise",
    "dither",
    "phase-errors",
    "timing",
    "rotation",
    "device-noise",
    "masks",
    "common-dither",
    "fresh-fading",
    "mask-graph",
    "dropout",
    "colluding",
    "angles",
    "eavesdropper",
    "foresight",
    "canaries",
    "standardise",
]


def stream(seed: int, purpose: Purpose, *key: int) -> np.random.Generator:
    """Return the generator of one keyed stream (Philox, counter based, 128-bit key).

    Args:
        seed: the run's seed.
        purpose: what the draw is for.
        key: the rest of the address, usually trial and round, sometimes a block number.
    """
    text = f"airfl/1:{seed}:{purpose}:" + ":".join(str(part) for part in key)
    digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def complex_normal(generator: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Draw CN(0, 1): real and imaginary part each N(0, 1/2)."""
    pairs = generator.standard_normal((*shape, 2)) * np.sqrt(0.5)
    draws: np.ndarray = pairs.view(np.complex128)[..., 0]
    return draws


def torch_seed(seed: int, purpose: Purpose, *key: int) -> int:
    """Return a 63-bit integer for code that can only be seeded, such as ``torch.manual_seed``."""
    return int(stream(seed, purpose, *key).integers(0, 2**63 - 1))


def normal_like(generator: np.random.Generator, size: int, device: torch.device) -> torch.Tensor:
    """Draw ``size`` standard normals in float32 on the CPU and move them once."""
    import torch  # here, so that what only draws channels need not load it

    return torch.from_numpy(generator.standard_normal(size, dtype=np.float32)).to(device)
