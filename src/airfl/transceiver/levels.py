"""Spending the privacy budget over rounds that consist of blocks of time and frequency.

A round's channels stand still only within a block, so each block b has a smallest norm π_tb of its own. A neighbour may
put all its energy into one block, so a round tells what its least noisy block tells: noise above that is wasted on
privacy, and blocks below a level ℓ_t are raised to it, q_tb = max(π_tb, ℓ_t).

    minimise Σ_t mean_b q_tb²   subject to   Σ_t a_t/ℓ_t² ≤ A,    ℓ_t ≥ min_b π_tb.

In x = 1/ℓ² this is convex. With F_t(ℓ) the share of blocks with π_tb ≤ ℓ its conditions are ℓ_t⁴ F_t(ℓ_t) = μ a_t;
where F jumps, ℓ_t = π_tb for all μ a_t between the two values there. One multiplier μ serves all rounds. One block is
problem P0″ of ``allocation``, which solves it in closed form.

Where devices may be heard up to G_tb times too loud in block b, a neighbour with all its energy there tells
(G_tb/q_tb)². With G_t = max_b G_tb and r_tb = G_tb/G_t a round tells G_t²/ℓ_t², ℓ_t = min_b q_tb/r_tb: exactly what is
booked with G_t beside a norm ℓ_t. So p_tb = π_tb/r_tb takes the place of π_tb, q_tb = max(π_tb, ℓ_t r_tb), and noise
r_tb² max(p_tb, ℓ_t)² makes F_t(ℓ) = mean_b r_tb² [p_tb ≤ ℓ]: nothing is raised on behalf of a louder block.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from airfl.errors import InputError
from airfl.transceiver.allocation import allocate

#: Halvings of log μ: from any float64 down to neighbouring ones.
HALVINGS = 80


def allocate_levels(
    blocks: torch.Tensor, budget: float, weights: torch.Tensor | None = None, ratios: torch.Tensor | None = None
) -> torch.Tensor:
    """Optimal levels ℓ_t, [..., T].

    Args:
        blocks: p_tb > 0, [..., T, B], float64; blocks of a round are equally large.
        budget: A > 0.
        weights: a_t > 0, broadcastable to [..., T]; default ones.
        ratios: r_tb in (0, 1], [..., T, B]; default ones.

    Returns:
        ℓ_t ≥ min_b p_tb. The sum Σ a_t/ℓ_t² never exceeds A, whatever the order in which it is added up.
    """
    pi = blocks.to(torch.float64)
    least = pi.amin(dim=-1)
    if pi.shape[-1] == 1:
        return allocate(least, budget, weights)
    if not (budget > 0 and math.isfinite(budget)):
        raise InputError(f"the budget A must be positive and finite; got {budget}")
    a = (torch.ones_like(least) if weights is None else weights.to(least)).expand_as(least)
    if not (bool((pi > 0).all()) and bool((a > 0).all()) and bool(torch.isfinite(pi).all())):
        raise InputError("every minimum norm and every weight must be positive and finite")
    usable = budget * (1.0 - 4 * (least.shape[-1] + 4) * torch.finfo(torch.float64).eps)
    level = levels_by_multiplier(pi, a, ratios)
    lightest = 1.0 if ratios is None else float(ratios.min()) ** 2

    def is_kept(levels: torch.Tensor) -> torch.Tensor:
        return (a / levels.square()).sum(dim=-1) <= usable

    # Where all levels are at least √(Σa/A) the budget is kept.
    most = torch.maximum((a.sum(dim=-1) / usable).sqrt() * (1.0 + 1e-12), least.amax(dim=-1))
    high = (most**4 / a.amin(dim=-1)).log()
    low = (least.amin(dim=-1) ** 4 * (lightest / pi.shape[-1]) / a.amax(dim=-1)).log() - 1.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        kept = is_kept(level(middle.exp()))
        low, high = torch.where(kept, low, middle), torch.where(kept, middle, high)
    return torch.where(is_kept(least).unsqueeze(-1), least, level(high.exp()))


def levels_by_multiplier(
    pi: torch.Tensor, a: torch.Tensor, ratios: torch.Tensor | None = None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """μ [...] -> the levels ℓ_t [..., T] that it stands for, for blocks π_tb [..., T, B] and weights a_t [..., T]."""
    ascending, order = pi.sort(dim=-1)
    sizes = torch.ones_like(pi) if ratios is None else ratios.to(pi).square().expand_as(pi).gather(-1, order)
    shares = sizes.cumsum(dim=-1) / pi.shape[-1]
    # μ from which on a level lies at the k-th block or above it; nothing holds it below the first.
    thresholds = ascending**4 * (shares - sizes / pi.shape[-1]) / a.unsqueeze(-1)

    def level(mu: torch.Tensor) -> torch.Tensor:
        count = (thresholds <= mu[..., None, None]).sum(dim=-1)
        block, share = (values.gather(-1, (count - 1).unsqueeze(-1)).squeeze(-1) for values in (ascending, shares))
        return torch.maximum(block, (mu.unsqueeze(-1) * a / share).pow(0.25))

    return level


def raised(blocks: torch.Tensor, level: torch.Tensor, ratios: torch.Tensor | float = 1.0) -> torch.Tensor:
    """q_tb = max(π_tb, ℓ_t r_tb) for blocks π [..., T, B], levels [..., T] and ratios [..., T, B]."""
    return torch.maximum(blocks, level.unsqueeze(-1) * ratios)
