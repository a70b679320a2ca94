"""A combiner of given norm that reaches as many devices as it can: the mirror of ``selection``, which fixes the number.

With channels in units in which that norm is one,

    maximise |𝒮|   subject to   |wᴴ h_i| ≥ 1 for i ∈ 𝒮,  ‖w‖ = 1.

Two ways, and the larger 𝒮 is taken; whoever w reaches anyway is in it.

- Hinge ascent: minimise Σ_i max(0, 1 − |h_iᴴ w|²). With |h_iᴴ w|² replaced by its tangent at the last w the problem is
  convex, and w is Σ_i λ_i h_i h_iᴴ w_last, normalised, with λ_i in [0, 1] by projected subgradient steps (after Kim,
  Swindlehurst, Park 2023). It starts at the matched filter that reaches most.
- Dropping: a combiner for all, and while it is too long the dearest by the certificate's price are left out.

Yang, Jiang, Shi, Ding (Federated learning via over-the-air computation, 2020) solve the same by differences of convex
functions, a semidefinite program per step.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from airfl.transceiver.certificates import prices
from airfl.transceiver.design import Design, modulus, times

#: Tangents, and subgradient steps at each.
TANGENTS, STEPS = 40, 12
#: Of those that are left, the share that is dropped at a time.
DROPPED = 0.1
#: A combiner for fewer than this share of what is reached otherwise is not tried: it may reach others anyway.
ANYWAY = 0.75
#: A device whose |wᴴh| is so little below one is reached: far below the 1e-9 that powers are checked to.
ROUNDING = 1e-11


def reach_most(channels: torch.Tensor, combiner: Callable[[torch.Tensor], Design]) -> tuple[torch.Tensor, torch.Tensor]:
    """w of norm 1, [N, m], and whom it reaches, [N, K], for channels [N, K, m] in units of the norm that is allowed.

    Args:
        combiner: finds a short w with |wᴴ h_i| ≥ 1 for all of some channels [N, K', m].
    """
    best = hinge_ascent(channels)
    found = reached(best, channels).sum(dim=1)
    dropped = dropping(channels, combiner, found)
    take = reached(dropped, channels).sum(dim=1) > found
    best = torch.where(take.unsqueeze(1), dropped, best)
    return best, reached(best, channels)


def reached(combiner: torch.Tensor, channels: torch.Tensor) -> torch.Tensor:
    """Who is reached, [N, K], by w [N, m] among channels [N, K, m]."""
    return modulus(times(channels.conj(), combiner)) >= 1.0 - ROUNDING


def hinge_ascent(channels: torch.Tensor) -> torch.Tensor:
    """The w, [N, m], of those met on the way that reaches most."""
    current = _normalised(_best_matched(channels))
    best, most = current, reached(current, channels).sum(dim=1)
    conjugate = channels.conj()
    for _ in range(TANGENTS):
        heard = times(conjugate, current)  # h_iᴴ w
        squared = heard.real.square() + heard.imag.square()
        price = torch.ones_like(squared)
        for step in range(STEPS):
            pulled = _towards(channels, heard, price)
            new = times(conjugate, _normalised(pulled))
            tangent = 2.0 * (heard.conj() * new).real - squared
            price = (price + (1.0 - tangent) / (step + 1.0)).clamp(0.0, 1.0)
        pulled = _towards(channels, heard, price)
        moved = torch.linalg.vector_norm(pulled, dim=1) > 0  # else nobody lacks anything
        current = torch.where(moved.unsqueeze(1), _normalised(pulled), current)
        count = reached(current, channels).sum(dim=1)
        best = torch.where((count > most).unsqueeze(1), current, best)
        most = torch.maximum(most, count)
    return best


def dropping(channels: torch.Tensor, combiner: Callable[[torch.Tensor], Design], enough: torch.Tensor) -> torch.Tensor:
    """The first combiner of norm one or less, made as long as it may be, [N, m]; that of the last try where none is.

    Args:
        enough: how many devices are reached otherwise, [N]: far fewer need not be tried.
    """
    number, total = channels.shape[:2]
    found = torch.zeros(number, channels.shape[2], dtype=torch.complex128)
    rows, left = torch.arange(number), torch.arange(total).expand(number, total)
    while left.shape[1] > 0:
        wanted = left.shape[1] > ANYWAY * enough[rows]
        rows, left = rows[wanted], left[wanted]
        if len(rows) == 0:
            break
        some = channels[rows.unsqueeze(1), left]
        design = combiner(some)
        found[rows] = _normalised(design.combiner)
        open_still = ~(design.norm <= 1.0)
        rows, left, some = rows[open_still], left[open_still], some[open_still]
        keep = left.shape[1] - max(1, round(DROPPED * left.shape[1]))
        if len(rows) == 0 or keep == 0:
            break
        left = left.gather(1, prices(some).topk(keep, dim=1, largest=False).indices).sort(dim=1).values
    return found


def _best_matched(channels: torch.Tensor) -> torch.Tensor:
    """h_i/‖h_i‖ of the device with which most are reached; of as many, the one that lacks least, [N, m]."""
    unit: torch.Tensor = channels / torch.linalg.vector_norm(channels, dim=-1, keepdim=True).clamp(min=1e-300)
    heard = modulus(channels.conj() @ unit.mT)  # [N, K, start]
    score = (heard >= 1.0).sum(dim=1).double() - (1.0 - heard.square()).clamp(min=0.0).mean(dim=1)
    which = score.argmax(dim=1)
    return unit[torch.arange(len(unit)), which]


def _towards(channels: torch.Tensor, heard: torch.Tensor, price: torch.Tensor) -> torch.Tensor:
    """Σ_i λ_i h_i h_iᴴ w for channels [N, K, m] and h_iᴴ w [N, K]."""
    pulled: torch.Tensor = times(channels.mT, price * heard)
    return pulled


def _normalised(w: torch.Tensor) -> torch.Tensor:
    unit: torch.Tensor = w / torch.linalg.vector_norm(w, dim=1, keepdim=True).clamp(min=1e-300)
    return unit
