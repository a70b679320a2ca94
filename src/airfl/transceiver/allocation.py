"""Spending the privacy budget over rounds: problem P0″ and the perk test.

minimise Σ q_t² subject to q_t ≥ π_t and Σ a_t/q_t² ≤ A.

If Σ a_t/π_t² ≤ A the channel alone pays, q_t = π_t: DP is a perk. Otherwise q_t = max(π_t, (μ a_t)^¼) with the
budget spent exactly, and √μ = Σ_lifted √a_t / (A − Σ_others a_t/π_t²) once it is known which rounds are lifted: those
with the smallest π_t⁴/a_t. One sort and two cumulative sums find them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from airfl.errors import InputError


def allocate(minimum: torch.Tensor, budget: float, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Optimal combiner norms q_t for P0″.

    Args:
        minimum: π_t > 0, [..., T], float64.
        budget: A > 0.
        weights: a_t > 0, broadcastable to ``minimum``; default ones.

    Returns:
        q_t, [..., T]. The sum Σ a_t/q_t² never exceeds A, whatever the order in which it is added up.
    """
    if not (budget > 0 and math.isfinite(budget)):
        raise InputError(f"the budget A must be positive and finite; got {budget}")
    pi = minimum.to(torch.float64)
    a = (torch.ones_like(pi) if weights is None else weights.to(pi)).expand_as(pi)
    if not (bool((pi > 0).all()) and bool((a > 0).all()) and bool(torch.isfinite(pi).all())):
        raise InputError("every minimum norm and every weight must be positive and finite")
    rounds = pi.shape[-1]
    # Adding T terms in any order errs by at most T ulp, here and in whoever checks: keep that much in hand.
    usable = budget * (1.0 - 4 * (rounds + 4) * torch.finfo(torch.float64).eps)

    order = (pi**4 / a).argsort(dim=-1)
    pi_sorted, a_sorted = pi.gather(-1, order), a.gather(-1, order)
    at_minimum = a_sorted / pi_sorted.square()
    lifted = a_sorted.sqrt().cumsum(-1)  # Σ √a over the first j+1 rounds
    # Suffix sums, added from the small end: differences of prefix sums would cancel when few rounds are lifted.
    suffix = at_minimum.flip(-1).cumsum(-1).flip(-1)
    rest = torch.cat([suffix[..., 1:], torch.zeros_like(suffix[..., :1])], dim=-1)
    room = usable - rest
    root_mu = torch.where(room > 0, lifted / room, torch.inf)  # √μ if exactly the first j+1 rounds are lifted
    # The right j is the first whose level stays below the next round's own threshold π⁴/a.
    threshold = (pi_sorted.square() / a_sorted.sqrt())[..., 1:]
    fits = torch.cat([root_mu[..., :-1] <= threshold, torch.ones_like(root_mu[..., :1], dtype=torch.bool)], dim=-1)
    first = fits.to(torch.int8).argmax(dim=-1, keepdim=True)
    level = root_mu.gather(-1, first)
    q = torch.maximum(pi, (level * a.sqrt()).sqrt())
    is_perk = (a / pi.square()).sum(-1, keepdim=True) <= usable
    return torch.where(is_perk, pi, q)


@dataclass(frozen=True)
class Perk:
    """Whether the channel's own noise already meets the budget, and by how much.

    Attributes:
        is_perk: whether norms π_t keep the promise: Σ 1/π_t² ≤ A where there is an A.
        power_threshold_w: the largest transmit power at which they do, P* = P·A/Σ(1/π_t²), since π_t² ∝ 1/P.
        margin_db: 10·log10(P*/P); negative when power has to be held back.
        snr_threshold_db: P*·Λ_min/σ², the paper's worst-case SNR at the threshold (device at the cell edge).
    """

    is_perk: bool
    power_threshold_w: float
    margin_db: float
    snr_threshold_db: float


def perk(minimum: torch.Tensor, budget: float, power_w: float, path_gain: float, noise_power: float) -> Perk:
    """Test DP as a perk for one run of T rounds with minimum norms π_t, [T], and a budget A."""
    spent = float((1.0 / minimum.to(torch.float64).square()).sum())
    return perk_at(power_w * budget / spent, power_w, path_gain, noise_power)


def perk_at(threshold: float, power_w: float, path_gain: float, noise_power: float) -> Perk:
    """The test's outcome, given the largest power at which the channel's own noise is enough."""
    return Perk(
        is_perk=threshold >= power_w,
        power_threshold_w=threshold,
        margin_db=10.0 * math.log10(threshold / power_w),
        snr_threshold_db=10.0 * math.log10(threshold * path_gain / noise_power),
    )
