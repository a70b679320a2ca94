"""A combiner for thousands of devices: follow the weakest ones uphill, from a few starts at once."""

from __future__ import annotations

import math

import torch

from airfl.parallel import one_per_thread
from airfl.transceiver.design import Design, check_channels, finish

STARTS, STEPS = 6, 150
#: Devices × antennas above which single precision is enough to search; the winner is scaled in double.
LARGE = 20_000
#: How sharply the soft minimum looks at the weakest device: from the first step to the last.
FIRST_SHARPNESS, LAST_SHARPNESS = 1.0, 100.0
FIRST_STEP, LAST_STEP = 0.5, 0.02


def ascent(channels: torch.Tensor) -> Design:
    """Maximise min_i |wᴴ h_i|² over ‖w‖ = 1 by normalised gradient steps on a soft minimum that grows sharper.

    f_β(w) = −(1/β)·log Σ_i |wᴴ h_i|^(−2β); its gradient is Σ_i p_i h_i (h_iᴴ w)/|h_iᴴ w|² with p_i ∝ |wᴴ h_i|^(−2β).
    Two thin matrix products a step: K·m·starts, where ``multicast`` needs eigenvectors. For K ≫ m.

    Args:
        channels: [..., K, m], any K and m.
    """
    flat, usable = check_channels(channels)
    # One by one: products of a whole batch round differently, and many steps would make much of that.
    found = torch.zeros(len(flat), flat.shape[2], dtype=torch.complex128)
    for number, w in enumerate(one_per_thread(lambda i: uphill(flat[i : i + 1])[0], range(len(flat)))):
        found[number] = w
    return finish(found, channels, usable, STEPS)


def uphill(channels: torch.Tensor) -> torch.Tensor:
    """The best direction found for channels [1, K, m], [1, m]."""
    rows = _scaled(channels.conj())
    best, value = climb(rows, _starts(rows))
    winner = value.argmax(dim=1)
    return best.gather(2, winner[:, None, None].expand(-1, channels.shape[2], 1)).squeeze(-1)


def climb(rows: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The best direction on the way from every start w [1, m, S], and its smallest |h_iᴴ w|² at length one, [1, S]."""
    w = w.to(rows.dtype)
    w = w / torch.linalg.vector_norm(w, dim=1, keepdim=True)
    best, value = w, torch.full((1, w.shape[2]), -math.inf, dtype=rows.real.dtype)
    for number in range(STEPS + 1):
        heard = rows @ w
        power = torch.view_as_real(heard).square().sum(dim=-1).clamp(min=1e-30)
        least = power.amin(dim=1)
        better = least > value
        best, value = torch.where(better[:, None], w, best), torch.where(better, least, value)
        done = number / STEPS
        sharpness = FIRST_SHARPNESS * (LAST_SHARPNESS / FIRST_SHARPNESS) ** done
        weight = (least[:, None] / power) ** sharpness
        gradient = rows.mH @ (heard * (weight / power))
        gradient = gradient / torch.linalg.vector_norm(gradient, dim=1, keepdim=True).clamp(min=1e-30)
        w = w + FIRST_STEP * (LAST_STEP / FIRST_STEP) ** done * gradient
        w = w / torch.linalg.vector_norm(w, dim=1, keepdim=True)
    return best, value


def _scaled(rows: torch.Tensor) -> torch.Tensor:
    """Rows of moderate size, in the precision that suits their number."""
    _, num_devices, num_antennas = rows.shape
    small = num_devices * num_antennas <= LARGE
    return (rows / rows.abs().max()).to(torch.complex128 if small else torch.complex64)


def _starts(rows: torch.Tensor) -> torch.Tensor:
    """The directions that `mrc` takes, and fixed random ones, [B, m, starts]; the same for every instance."""
    together = (rows.conj() / rows.abs().square().sum(dim=2, keepdim=True).clamp(min=1e-30)).sum(dim=1)
    drawn = torch.randn(rows.shape[2], STARTS - 1, 2, generator=torch.Generator().manual_seed(1))
    fixed = torch.view_as_complex(drawn).expand(len(rows), -1, -1)
    return torch.cat([together[:, :, None], fixed.to(rows.dtype)], dim=2)
