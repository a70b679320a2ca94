"""Power control that trades noise against devices that are heard too faintly, round by round and over a budget.

With a unit direction w̄ and k_i = |w̄ᴴ h_i|/g, g the reach, a combiner of norm q hears device i with gain min(1, q k_i):
who can invert the channel does, the others send at full power. For uncorrelated updates of length c the sum errs by

    J(q) = (c²/d) (Σ_i (1 − min(1, q k_i))² + β q²),    β = d σ²/(2 c²),

per entry, which is convex in q. With k sorted upwards the least is at

    q* = max_j Σ_{i≤j} k_i / (β + Σ_{i≤j} k_i²).

(Cao, Zhu, Xu, Huang: Optimized power control for over-the-air computation in fading channels, 2020; their denoising
factor is 1/q².) Where a promise is kept, Σ_t 1/q_t² ≤ A, the conditions are J_t'(q_t) = 2μ/q_t³ with one μ for all
rounds. Of a round that is several blocks all are raised to a level ℓ_t, as in ``levels``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

#: How far below its largest value log μ is looked for; halvings before false positions, and steps at most.
FAR, HALVINGS, MOST = 400.0, 9, 100
#: Steps of one inner search at most; safeguarded, so that it needs few.
STEPS = 80
#: What is kept of a budget in hand: gains are made once more from what is found, and rounding differs.
HAIR = 1e-12

#: ℓ [..., T] -> half of what the error grows by with ℓ there, and the slope of that, in units of c²/d.
Growth = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def least_error_norm(strength: torch.Tensor, beta: float) -> torch.Tensor:
    """q* for strengths k [..., K]; those of 0 count for nothing, and where all are, so is the norm."""
    ordered = strength.sort(dim=-1).values
    best: torch.Tensor = (ordered.cumsum(dim=-1) / (beta + ordered.square().cumsum(dim=-1))).amax(dim=-1)
    return best


def error_of_norm(norm: torch.Tensor, strength: torch.Tensor, beta: float) -> torch.Tensor:
    """J(q) in units of c²/d, for norms [...] and strengths [..., K]; places of strength 0 are nobody."""
    gains = (norm.unsqueeze(-1) * strength).clamp(max=1.0)
    missing = (1.0 - gains).square() * (strength > 0)
    return missing.sum(dim=-1) + beta * norm.square()


def norms_within(
    strength: torch.Tensor,
    beta: float,
    total: float | None,
    shares: torch.Tensor,
    omega: torch.Tensor,
    louder: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Norms of all blocks, and what they were without a promise, [..., T, B] each.

    Args:
        strength: k, [..., T, K, B].
        total: A of Σ_t max_b min(1/q_tb, k_max)² ≤ A; None: nothing is promised.
        shares: of a round's symbols, [B].
        omega: ω_t, what the error of a round counts, [T].
        louder: times k_max is the most that any device may be heard with.
    """
    best = least_error_norm(strength.mT, beta)
    nobody = (strength <= 0).all(dim=-2)
    best = torch.where(nobody, 1.0, best)  # any norm will do
    if total is None:
        return best, best
    loudest = louder * strength.amax(dim=-2)

    def told(level: torch.Tensor) -> torch.Tensor:
        heard = torch.minimum(torch.maximum(best, level.unsqueeze(-1)).reciprocal(), loudest)
        return heard.square().amax(dim=-1).sum(dim=-1)

    def growth(level: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        faint = (1.0 - level[..., None, None] * strength).clamp(min=0.0)
        rise = beta * level.unsqueeze(-1) - (strength * faint).sum(dim=-2)
        slope = beta + (strength.square() * (faint > 0)).sum(dim=-2)
        weight = omega.unsqueeze(-1) * shares * ((rise > 0) & ~nobody)
        return (weight * rise).sum(dim=-1), (weight * slope).sum(dim=-1)

    silent = nobody.all(dim=-1)
    level = spend(growth, torch.where(nobody, torch.inf, best).amin(dim=-1), total, told, silent)
    return torch.maximum(best, level.unsqueeze(-1)), best


def spend(
    growth: Growth,
    least: torch.Tensor,
    total: float,
    told: Callable[[torch.Tensor], torch.Tensor],
    silent: torch.Tensor,
) -> torch.Tensor:
    """Levels ℓ_t ≥ least with growth(ℓ_t) = μ/ℓ_t³ for the smallest μ that keeps told(ℓ) ≤ A, [..., T].

    Args:
        growth: at ``least`` zero, and growing from there.
        least: [..., T]; of any value where nobody sends.
        told: levels -> what they spend, [...]; at most Σ 1/ℓ_t².
        silent: rounds in which nobody sends, [..., T]: their level is 0.
    """
    rounds = least.shape[-1]
    usable = total * (1.0 - HAIR - 4 * (rounds + 4) * torch.finfo(torch.float64).eps)
    least = torch.where(silent, 1.0, least)

    def masked(level: torch.Tensor) -> torch.Tensor:
        return torch.where(silent, 0.0, level)

    free = told(masked(least)) <= usable
    if bool(free.all()):
        return masked(least)
    most = torch.clamp(least, min=(rounds / usable) ** 0.5) * (1.0 + 1e-9)
    low, high = least.log(), most.log()
    heights = torch.where(silent, -torch.inf, _height(growth, high)[0])
    above = heights.amax(dim=-1)
    # Heights grow at least three times as fast as log ℓ.
    far = torch.where(silent, low, high + (above.unsqueeze(-1) - heights) / 3.0 + 1e-9)
    high = _solved(growth, above, low, far)
    below = above - FAR
    excess_low, excess_high = ((told(masked(ends.exp())) / usable).log() for ends in (low, high))
    going, last = ~free, torch.zeros_like(above)
    for step in range(MOST):
        halfway, crossing = 0.5 * (below + above), excess_low / (excess_low - excess_high)
        middle = halfway if step < HALVINGS else below + (above - below) * crossing
        level = _solved(growth, middle, low, high)
        excess = (told(masked(level.exp())) / usable).log()
        kept, over = going & (excess <= 0), going & ~(excess <= 0)
        # A side that stays twice is taken for half as far away: a false position that always moves both.
        excess_high = torch.where(kept, excess, torch.where(over & (last < 0), 0.5 * excess_high, excess_high))
        excess_low = torch.where(over, excess, torch.where(kept & (last > 0), 0.5 * excess_low, excess_low))
        last = torch.where(kept, 1.0, -1.0)
        above, below = torch.where(kept, middle, above), torch.where(over, middle, below)
        high = torch.where(kept.unsqueeze(-1), level, high)
        low = torch.where(over.unsqueeze(-1), level, low)
        going = going & ~((excess <= 0) & (excess > -HAIR)) & (above - below > 1e-15 * above.abs())
        if not bool(going.any()):
            break
    return masked(torch.where(free.unsqueeze(-1), least, high.exp()))


def _height(growth: Growth, log_level: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """log ℓ³ growth(ℓ), and its slope in log ℓ."""
    level = log_level.exp()
    rise, slope = growth(level)
    return 3.0 * log_level + rise.log(), 3.0 + level * slope / rise


def _solved(growth: Growth, height: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """log ℓ_t in [low, high] with log ℓ³ growth(ℓ) = height: Newton's steps, and halvings where they leave it."""
    at = 0.5 * (low + high)
    going = torch.ones_like(at, dtype=torch.bool)  # rounds do not wait for each other
    for _ in range(STEPS):
        value, slope = _height(growth, at)
        excess = value - height.unsqueeze(-1)
        low, high = torch.where(excess <= 0, at, low), torch.where(excess > 0, at, high)
        newton = at - excess / slope
        inside = (newton >= low) & (newton <= high)
        following = torch.where(inside, newton, 0.5 * (low + high))
        moved = (following - at).abs()
        at = torch.where(going, following, at)
        going = going & (moved >= 1e-13)
        if not bool(going.any()):
            break
    return at
