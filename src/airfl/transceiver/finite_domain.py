"""Spending the privacy budget when the model is kept in a ball of diameter D: problem P3.

minimise Σ q_t² subject to q_t ≥ π_t and min{Σ 1/q_t², B/q_{T−1}²} ≤ A.

A minimum below A is a union: one of the two terms has to be. So the optimum is the better of two: the water-filling of
P0″, or every round at π_t except q_{T−1} = max(π_{T−1}, √(B/A)).
"""

from __future__ import annotations

import math

import torch

from airfl.errors import InputError
from airfl.transceiver.allocation import allocate


def allocate_finite_domain(minimum: torch.Tensor, budget: float, last_factor: float) -> torch.Tensor:
    """Optimal combiner norms q_t for P3.

    Args:
        minimum: π_t > 0, [..., T], float64, T ≥ 1.
        budget: A > 0.
        last_factor: B ≥ 1, see :func:`last_round_factor`; infinity stands for no bound on the domain.

    Returns:
        q_t, [..., T]. One of Σ 1/q_t² (added up in any order) and B/q_{T−1}² never exceeds A.
    """
    if not last_factor >= 1.0:
        raise InputError(f"the last round's factor B must be at least 1; got {last_factor}")
    if minimum.dim() == 0 or minimum.shape[-1] < 1:
        raise InputError("there must be at least one round")
    spread = allocate(minimum, budget)
    pi = minimum.to(torch.float64)
    # Both roots, the division and whoever checks B/q² round by an ulp each: keep a few in hand.
    needed = math.sqrt(last_factor) / math.sqrt(budget) * (1.0 + 8 * torch.finfo(torch.float64).eps)
    concentrated = torch.cat([pi[..., :-1], pi[..., -1:].clamp(min=needed)], dim=-1)
    is_better = concentrated.square().sum(-1, keepdim=True) < spread.square().sum(-1, keepdim=True)
    return torch.where(is_better, concentrated, spread)


def last_round_factor(
    *,
    learning_rate: float,
    smoothness: float,
    local_steps: int,
    participation: float,
    diameter: float,
    num_devices: int,
    clip_norm: float,
) -> float:
    """B = (1 + (1 + ηL)^Q √r D n/(2ηc))², infinity where that exceeds the largest float (paper, appendix).

    Args:
        learning_rate: η > 0.
        smoothness: L ≥ 0.
        local_steps: Q ≥ 0.
        participation: r in (0, 1].
        diameter: D > 0.
        num_devices: n ≥ 1.
        clip_norm: c > 0.
    """
    positive = {"learning_rate": learning_rate, "diameter": diameter, "clip_norm": clip_norm}
    for name, value in positive.items():
        if not (value > 0.0 and math.isfinite(value)):
            raise InputError(f"`{name}` must be positive and finite; got {value}")
    if not (smoothness >= 0.0 and math.isfinite(smoothness)):
        raise InputError(f"`smoothness` must be finite and not negative; got {smoothness}")
    if not 0.0 < participation <= 1.0:
        raise InputError(f"`participation` must lie in (0, 1]; got {participation}")
    if local_steps < 0 or num_devices < 1:
        raise InputError(
            f"`local_steps` must not be negative and `num_devices` at least 1; got {local_steps} and {num_devices}"
        )
    # In logarithms: (1 + ηL)^Q alone leaves the floats after a few hundred local steps.
    growth = local_steps * math.log1p(learning_rate * smoothness)
    ratio = 0.5 * math.log(participation) + math.log(diameter) + math.log(num_devices)
    log_term = growth + ratio - math.log(2.0) - math.log(learning_rate) - math.log(clip_norm)
    if log_term > 0.5 * math.log(torch.finfo(torch.float64).max) - 1e-9:
        return math.inf
    return (1.0 + math.exp(log_term)) ** 2
