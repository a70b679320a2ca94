"""The hidden-state bound for the final model (Feldman et al. 2018; Altschuler & Talwar 2022; Bok et al. 2024).

In parameter units round t adds noise of std τ_t, one device moves it by at most s_t, and two models at distance z are
at most ℓ_t z + s_t apart after it. Choose a start round τ and shifts b_t ≥ 0 that the noise absorbs:

    z_τ = D (0 if τ = 0),   z_{t+1} = ℓ_t z_t + s_t − b_t ≥ 0,   z_T = 0.

Then the final model is μ-Gaussian-DP with μ² = Σ_{t≥τ} b_t²/τ_t². Plain composition is τ = 0, b_t = s_t.

The best b for a given τ: with Λ_t = Π_{k<t} ℓ_k draw each round as an edge of width (τ_t/Λ_{t+1})² and rise
s_t/Λ_{t+1}, the first one with D/Λ_τ on top. A choice of b is a path that stays below this one and ends where it ends,
and μ² is Σ rise²/width along it. The cheapest is the greatest convex minorant. Widths and rises are kept as logarithms,
so that no growth overflows, and are only ever added, so that no digits cancel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from airfl.privacy.budget import Budget, check_budget, common_floor
from airfl.privacy.events import Domain, Neighbours, Observer, RoundEvent, require
from airfl.privacy.exact import TINY
from airfl.privacy.gaussian import GaussianAccountant, GaussianCurve
from airfl.privacy.ledger import Ledger
from airfl.privacy.shown import Shown

# Shifts are enlarged by this much, so that rounding never leaves a rest for the last round to absorb.
MARGIN = 1e-12


@dataclass(frozen=True)
class Shifts:
    """The cheapest way to bring two runs together.

    Attributes:
        start: τ, the first round whose noise is used.
        absorbed: b_t, [T]; zero before the start.
        mu: √(Σ b_t²/τ_t²).
    """

    start: int
    absorbed: np.ndarray
    mu: float


def best_shifts(sensitivity: np.ndarray, noise_std: np.ndarray, log_growth: np.ndarray, diameter: float) -> Shifts:
    """Minimise μ over the start and the shifts; never above plain composition.

    Args:
        sensitivity: s_t, [T]; if any is infinite, so is μ.
        noise_std: τ_t, [T]; a round without noise passes its shift on to later ones.
        log_growth: log ℓ_t, [T].
        diameter: D; with an infinite one only τ = 0 is possible.
    """
    shift, noise, growth = (np.asarray(values, dtype=np.float64) for values in (sensitivity, noise_std, log_growth))
    require(shift.ndim == 1 and shift.shape == noise.shape == growth.shape, "the arrays must have one entry per round")
    require(bool(np.all(shift >= 0)) and diameter >= 0, "`sensitivity` and `diameter` must not be negative")
    require(bool(np.all(noise >= 0) and np.all(noise < np.inf)), "`noise_std` must be finite and not negative")
    require(bool(np.all(np.isfinite(growth))), "`log_growth` must be finite")
    plain = Shifts(0, shift.copy(), _mu(shift, noise))
    if len(shift) == 0 or np.any(np.isinf(shift)):
        return plain

    grown = np.concatenate(([0.0], np.cumsum(growth)))  # log Λ_t, t = 0..T
    with np.errstate(divide="ignore"):
        widths = (2.0 * (np.log(noise) - grown[1:])).tolist()
        rises = (np.log(shift) - grown[1:]).tolist()
        carried = (np.log(diameter) - grown[:-1]).tolist()
    carried[0] = -math.inf
    start = 0 if math.isinf(diameter) else _cheapest_start(widths, rises, carried)

    absorbed = np.zeros_like(shift)
    rises[start] = _log_add(rises[start], carried[start])
    for block in _minorant(widths, rises, start):
        distance = diameter if block.start == start > 0 else 0.0
        absorbed[block] = _spread(shift[block], noise[block], growth[block], distance)
    best = Shifts(start, absorbed, _mu(absorbed, noise))
    return best if best.mu < plain.mu else plain


def _mu(shift: np.ndarray, noise: np.ndarray) -> float:
    """√(Σ shift²/noise²); a shift of zero costs nothing, whatever the noise."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        mu = math.hypot(*np.where(shift > 0, shift / noise, 0.0))
    return max(mu, TINY) if np.any(shift > 0) else 0.0


def _log_add(a: float, b: float) -> float:
    """log(e^a + e^b)."""
    if a < b:
        a, b = b, a
    return a if b == -math.inf or a == math.inf else a + math.log1p(math.exp(b - a))


def _log_slope(width: float, rise: float) -> float:
    """log(rise/width); an edge that does not rise is flat even if it has no width."""
    return rise - width if rise > -math.inf else -math.inf


def _log_cost(width: float, rise: float) -> float:
    """log(rise²/width)."""
    return 2.0 * rise - width if rise > -math.inf else -math.inf


class _Edge(NamedTuple):
    """An edge of a convex path that is built from right to left; its right neighbour lies below it on the stack.

    Attributes:
        width, rise, slope: of the edge, as logarithms.
        cost: log Σ rise²/width of this edge and all right of it.
        jump: where on the stack the next edge after a jump lies.
        jump_width, jump_rise: from the left end of this edge to there.
        jump_slope: the slope of the last edge that the jump crosses.
    """

    width: float
    rise: float
    slope: float
    cost: float
    jump: int
    jump_width: float
    jump_rise: float
    jump_slope: float


def _cheapest_start(widths: list[float], rises: list[float], carried: list[float]) -> int:
    """The τ of the smallest μ: its edge, with D on top, joins the minorant of the rounds after it."""
    # The minorant of the rounds after t: position 0 is the end of the path.
    stack = [_Edge(-math.inf, -math.inf, math.inf, -math.inf, 0, -math.inf, -math.inf, math.inf)]
    start, cheapest = 0, math.inf
    for t in reversed(range(len(widths))):
        width, rise, at = _swallow(stack, widths[t], _log_add(rises[t], carried[t]))
        cost = _log_add(_log_cost(width, rise), stack[at].cost)
        if cost < cheapest:
            start, cheapest = t, cost
        _push(stack, widths[t], rises[t])
    return start


def _swallow(stack: list[_Edge], width: float, rise: float) -> tuple[float, float, int]:
    """Join an edge with those right of it that are not steeper; returns the joint edge and who remains on top.

    A joint edge is at least as steep as its last part exactly if the rest of it is. So whether everything up to the end
    of a jump joins is seen from the joint edge and the last slope alone, and O(log T) steps do where one edge at a time
    would need thousands in every round.
    """
    at = len(stack) - 1
    while at > 0 and _log_slope(width, rise) >= stack[at].slope:
        edge = stack[at]
        far_width, far_rise = _log_add(width, edge.jump_width), _log_add(rise, edge.jump_rise)
        if _log_slope(far_width, far_rise) >= edge.jump_slope:
            width, rise, at = far_width, far_rise, edge.jump
        else:
            width, rise, at = _log_add(width, edge.width), _log_add(rise, edge.rise), at - 1
    return width, rise, at


def _push(stack: list[_Edge], width: float, rise: float) -> None:
    """Extend the minorant by one edge to the left."""
    width, rise, at = _swallow(stack, width, rise)
    del stack[at + 1 :]
    slope, cost = _log_slope(width, rise), _log_add(_log_cost(width, rise), stack[at].cost)
    jump, jump_width, jump_rise, jump_slope = at, width, rise, slope
    # Skew-binary jumps (Myers 1983): two jumps of equal length in a row become one.
    below = stack[at]
    middle = stack[below.jump]
    if at > 0 and at - below.jump == below.jump - middle.jump:
        jump, jump_slope = middle.jump, middle.jump_slope
        jump_width = _log_add(width, _log_add(below.jump_width, middle.jump_width))
        jump_rise = _log_add(rise, _log_add(below.jump_rise, middle.jump_rise))
    stack.append(_Edge(width, rise, slope, cost, jump, jump_width, jump_rise, jump_slope))


def _minorant(widths: list[float], rises: list[float], start: int) -> list[slice]:
    """The rounds of each edge of the greatest convex minorant, by pooling adjacent violators."""
    pools: list[tuple[int, float, float]] = []
    for t in range(start, len(widths)):
        first, width, rise = t, widths[t], rises[t]
        while pools and _log_slope(pools[-1][1], pools[-1][2]) >= _log_slope(width, rise):
            first, left_width, left_rise = pools.pop()
            width, rise = _log_add(left_width, width), _log_add(left_rise, rise)
        pools.append((first, width, rise))
    firsts = [first for first, _, _ in pools]
    return [slice(first, after) for first, after in zip(firsts, [*firsts[1:], len(widths)], strict=True)]


def _spread(shift: np.ndarray, noise: np.ndarray, growth: np.ndarray, distance: float) -> np.ndarray:
    """Absorb ``distance`` and the shifts of some rounds within them, b_t = slope · τ_t²/Λ_{t+1}.

    The widths are computed anew with Λ = 1 at the first of these rounds: over a whole run log Λ may be large enough to
    cost digits.
    """
    if len(shift) == 1 and distance == 0.0:
        return shift
    grown = np.cumsum(growth)
    with np.errstate(divide="ignore", over="ignore"):
        rise = np.logaddexp.reduce(np.append(np.log(shift) - grown, np.log(distance)))
        widths = 2.0 * (np.log(noise) - grown)
        width = np.logaddexp.reduce(widths)
        if rise == -np.inf or width == -np.inf:  # nothing to absorb, or nothing that absorbs it
            return np.full_like(shift, 0.0 if rise == -np.inf else np.inf)
        ideal = np.exp(rise - width + widths + grown) * (1.0 + MARGIN)
        factors = np.exp(growth)

    # The same by the recursion itself, which is feasible to the last digit.
    absorbed = np.zeros_like(shift)
    closing = int(np.flatnonzero(noise)[-1])
    z = distance
    for t, (own, factor, most) in enumerate(zip(shift.tolist(), factors.tolist(), ideal.tolist(), strict=True)):
        apart = own + (factor * z if z > 0.0 else 0.0)
        absorbed[t] = taken = apart if t >= closing else min(most, apart)
        z = apart - taken
    # Only where huge growth has cost the recursion its digits is the enlarged minorant the cheaper one.
    return absorbed if _mu(absorbed, noise) <= _mu(ideal, noise) else ideal


def equal_rounds(shift: float, noise: float, growth: float, diameter: float, rounds: int) -> float:
    """μ of T equal rounds that do not contract: as ``best_shifts``, at next to no cost however large T is.

    The noise of the last m rounds absorbs D for (D + s·Σℓ^−j)²/(τ²·Σℓ^−2j), sums over j = 1..m, up to the best m, and
    never for less than plain composition of m rounds. So μ is that of plain composition until D is cheaper, and
    from then on the same for ever.
    """
    plain = math.sqrt(rounds) * shift / noise
    if rounds < 2 or math.isinf(diameter):
        return plain
    last = np.arange(1, rounds, dtype=np.float64)
    with np.errstate(divide="ignore"):
        rise = np.logaddexp(np.log(diameter), math.log(shift) + _log_powers(growth, last))
        cost = 2.0 * (rise - math.log(noise)) - _log_powers(2.0 * growth, last)
    best = int(np.argmin(cost))
    if cost[best] >= 2.0 * math.log(plain):
        return plain
    return min(plain, _absorbed(shift, noise, growth, diameter, best + 1))


def _log_powers(growth: float, counts: np.ndarray) -> np.ndarray:
    """log Σ ℓ^−j over j = 1..m, for every m."""
    if growth == 0.0:
        return np.asarray(np.log(counts))
    return np.asarray(np.log(-np.expm1(-growth * counts)) - growth - math.log(-math.expm1(-growth)))


@lru_cache(maxsize=256)
def _absorbed(shift: float, noise: float, growth: float, diameter: float, rounds: int) -> float:
    """μ of a distance D that is absorbed within some equal rounds."""
    shifts, noises, growths = (np.full(rounds, value) for value in (shift, noise, growth))
    return _mu(_spread(shifts, noises, growths, diameter), noises)


def log_growth_of(event: RoundEvent, domain: Domain, smoothness: float) -> float:
    """log ℓ = log(1 + η_g·ḡ·((1 + ηL)^Q − 1)): how much one round can widen the gap between two models.

    Infinite where its parts leave the range of floating point.
    """
    server_step = event.update_factor * event.sampling.num_active / domain.learning_rate
    weight = server_step * domain.mean_gain
    step = domain.learning_rate * smoothness
    if domain.mean_gain == 0.0:
        return 0.0
    if not (TINY < weight < math.inf and TINY < step < math.inf):
        return math.inf
    local = domain.local_steps * math.log1p(step)
    if local <= 30.0:
        return math.log1p(weight * math.expm1(min(local, 30.0)))
    return _log_add(0.0, math.log(weight) + local)  # −1 is no longer felt


@dataclass(frozen=True)
class ConvergentAccountant(GaussianCurve):
    """An upper bound for the final model that stops growing with T; equals ``gaussian`` without a domain."""

    name: ClassVar[str] = "convergent"
    label: ClassVar[str] = "hidden state"
    assumptions: ClassVar[str] = (
        "An upper bound for an observer of the final model only (hidden state). It needs an enforced domain (D) and "
        "uses the smoothness L that you state, an assumption that nobody checks; without them it equals `gaussian`."
    )
    observers: ClassVar[tuple[Observer, ...]] = ("model",)
    valid: ClassVar[bool] = True
    shown: ClassVar[Shown] = Shown(
        "hidden-state accounting under the stated smoothness",
        "#D55E00",
        "-",
        "o",
        work="airfl: hidden state, exact minimum",
        uses_domain=True,
        needs_domain=True,
        gaussian=True,
        rests_on="smoothness",
    )

    ledger: Ledger
    neighbours: Neighbours
    observer: Observer = "model"

    @property
    def mu(self) -> float:
        """μ of the final model; where rounds differ in D the largest counts."""
        plain = GaussianAccountant(self.ledger, self.neighbours).mu
        rows, counts, diameter = [], [], 0.0
        for event, count in self.ledger.runs():
            domain = event.domain
            if domain is None or domain.smoothness is None:
                return plain
            shift = event.update_factor * event.sensitivity(self.neighbours)
            noise = event.update_factor * math.sqrt(event.noise_var)
            growth = log_growth_of(event, domain, domain.smoothness)
            # In parameter units a number may be too small to have its digits; the bound without a domain has no units.
            lost = (event.gain_bound > 0.0 and shift < TINY) or (event.noise_var > 0.0 and noise < TINY)
            if lost or math.isinf(growth) or noise == math.inf:
                return plain
            rows.append((shift, noise, growth))
            counts.append(count)
            diameter = max(diameter, domain.diameter)
        if not rows:
            return plain
        if len(rows) == 1 and rows[0][0] > 0.0 < rows[0][1]:
            return min(plain, equal_rounds(*rows[0], diameter, counts[0]))
        shifts, noises, growths = np.repeat(np.array(rows), counts, axis=0).T.copy()
        return min(plain, best_shifts(shifts, noises, growths, diameter).mu)

    @classmethod
    def budget(
        cls, epsilon: float, delta: float, template: RoundEvent, neighbours: Neighbours, rounds: int = 1
    ) -> Budget:
        """The smallest common floor of q_t: the order of the rounds counts, so there is no A."""
        if template.domain is None or template.domain.smoothness is None:
            return GaussianAccountant.budget(epsilon, delta, template, neighbours, rounds)
        check_budget(epsilon, delta, template)
        return Budget(
            rounds, common_floor(lambda book: cls(book, neighbours).epsilon(delta), epsilon, template, rounds)
        )
