"""Credit for random, hidden participation, composed by the dp-accounting library.

Poisson sampling goes through privacy-loss distributions, sampling without replacement through Rényi divergences. Where
neither is sound, because the numbers are too extreme, divergences in closed form take over (``renyi``). Credit
is given only for rounds whose noise would have been the same whoever took part (``hides_participation``), and the
result is never above what ``gaussian`` gives.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

from airfl.privacy import renyi
from airfl.privacy.budget import Budget, check_budget, common_floor
from airfl.privacy.creditless import least_epsilon
from airfl.privacy.dp_event import Group, compose, earns_credit, noise_groups
from airfl.privacy.events import Neighbours, Observer, RoundEvent, check_epsilon, zeroes_out
from airfl.privacy.gaussian import GaussianAccountant
from airfl.privacy.ledger import Ledger
from airfl.privacy.shown import Shown

if TYPE_CHECKING:
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.rdp import RdpAccountant

#: Below this δ the rounding of the Fourier transforms inside the library would be visible.
SMALLEST_PLD_DELTA = 1e-12
#: Steps of the loss grid per ε; the error of ε is a small part of one step.
GRID_PER_EPSILON = 1e4
FINEST_GRID = 2e-5
#: How close to its smallest value a floor is sought: every try is a composition.
TOLERANCE = 1e-7
#: The same where devices may be drawn more than once: there every step of a grid is a search of its own.
STEPS_WHERE_REPLACED, FINEST_WHERE_REPLACED, CLOSE_WHERE_REPLACED = 500.0, 2e-4, 1e-3
#: And the grid that such a search begins with.
FIRST_WHERE_REPLACED = 0.02
#: μ², with credit, beyond which the library's grid would not do.
HOPELESS = 1e5
#: μ² below which the library's grid has no two points for it, and credit is of no use to anyone.
NARROWEST = 1e-16
#: Points of a grid where devices hardly ever take part: with zero-out the library looks at one after the other.
MOST_POINTS = 1e5
#: Orders for sampling without replacement; large ones cost time and help only for tiny ε.
ORDERS = (1.1, 1.25, 1.5, 1.75, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 64, 96, 128, 512)


@dataclass(frozen=True)
class SampledAccountant:
    """Poisson participation, or K of n without replacement, hidden from the observer."""

    name: ClassVar[str] = "sampled"
    label: ClassVar[str] = "with sampling credit"
    assumptions: ClassVar[str] = (
        "Credits participation at random, for rounds whose noise does not tell who took part; the observer must not "
        "learn that in any other way. Elsewhere it equals `gaussian`."
    )
    observers: ClassVar[tuple[Observer, ...]] = ("model", "models")
    valid: ClassVar[bool] = True
    shown: ClassVar[Shown] = Shown(
        "accounting with credit for hidden participation",
        "#56B4E9",
        (0, (5, 2)),
        work="airfl: credit for hidden participation",
        rests_on="hidden participation",
    )

    ledger: Ledger
    neighbours: Neighbours
    observer: Observer = "model"

    def epsilon(self, delta: float) -> float:
        """ε at this δ."""
        plain, groups = self._plain.epsilon(delta), self._credited
        if not groups or plain == 0.0:
            return plain
        if _chance(groups) <= delta:
            return 0.0
        if _has_pld(groups) and delta >= SMALLEST_PLD_DELTA:
            return min(plain, float(_pld(groups, self.neighbours).get_epsilon(delta)))
        if _replaces(groups):
            return plain
        if _has_rdp(groups, self.neighbours):
            if least_epsilon(_replacing(groups, self.neighbours), delta, ORDERS) >= plain:
                return plain
            return min(plain, float(_rdp(groups, self.neighbours).get_epsilon(delta)))
        return min(plain, renyi.epsilon_of(groups, self.neighbours, delta))

    def delta(self, epsilon: float) -> float:
        """δ at this ε."""
        check_epsilon(epsilon)
        plain, groups = self._plain.delta(epsilon), self._credited
        if not groups or plain == 0.0:
            return plain
        if _has_pld(groups):
            return min(plain, max(float(_pld(groups, self.neighbours).get_delta(epsilon)), SMALLEST_PLD_DELTA))
        if _replaces(groups):
            return plain
        if _has_rdp(groups, self.neighbours):
            return min(plain, float(_rdp(groups, self.neighbours).get_delta(epsilon)))
        return min(plain, _chance(groups), renyi.delta_of(groups, self.neighbours, epsilon))

    def note(self, delta: float) -> str | None:
        """A word where ε comes from a bound that is looser than usual; None elsewhere."""
        groups = self._credited
        usual = not groups or _has_rdp(groups, self.neighbours) or _chance(groups) <= delta
        if usual or _replaces(groups) or (_has_pld(groups) and delta >= SMALLEST_PLD_DELTA):
            return None
        return "too far out for privacy-loss distributions, so a looser bound by Rényi divergences in closed form"

    def rdp(self, alpha: float) -> float:
        """Rényi divergence of order α > 1; without credit where the library has no bound."""
        plain, groups = self._plain.rdp(alpha), self._credited
        if not groups or not _has_rdp(groups, self.neighbours):
            return plain
        divergence = _fresh_rdp(groups, self.neighbours, [alpha])._rdp[0]
        return min(plain, float(divergence))

    @classmethod
    def budget(
        cls, epsilon: float, delta: float, template: RoundEvent, neighbours: Neighbours, rounds: int = 1
    ) -> Budget:
        """The smallest common floor of q_t: ε depends on the noise of single rounds, so there is no A."""
        check_budget(epsilon, delta, template)
        if not (template.hides_participation and earns_credit(template.sampling, neighbours)):
            return GaussianAccountant.budget(epsilon, delta, template, neighbours, rounds)
        template = replace(template, gain_bound=template.gain_bound * template.sampling.most)
        close = CLOSE_WHERE_REPLACED if template.sampling.replaces else TOLERANCE
        floor = common_floor(lambda book: cls(book, neighbours).epsilon(delta), epsilon, template, rounds, close)
        return Budget(rounds, floor)

    @property
    def _plain(self) -> GaussianAccountant:
        return GaussianAccountant(self.ledger, self.neighbours, self.observer)

    @property
    def _credited(self) -> tuple[Group, ...]:
        """The rounds by noise level; empty where no round earns credit."""
        groups = noise_groups(self.ledger, self.neighbours)
        if any(group.multiplier == 0.0 for group in groups) or all(group.law == "all" for group in groups):
            return ()
        return groups


def _squared(groups: tuple[Group, ...]) -> float:
    """μ² without credit."""
    if any(group.multiplier < 1e-100 for group in groups):
        return math.inf
    return math.fsum(group.count * (max(1, len(group.chances) - 1) / group.multiplier) ** 2 for group in groups)


def _effective(groups: tuple[Group, ...]) -> float:
    """μ² with credit, about: Σ min{μ_t², r²(e^{μ_t²} − 1)} (Bu et al. 2020)."""
    squared = [(group, (max(1, len(group.chances) - 1) / group.multiplier) ** 2) for group in groups]
    return math.fsum(group.count * min(mu2, _rate(group) ** 2 * math.expm1(min(mu2, 700.0))) for group, mu2 in squared)


def _replaces(groups: tuple[Group, ...]) -> bool:
    """Whether devices may be drawn more than once: only privacy-loss distributions know that."""
    return any(group.law == "binomial" for group in groups)


def _rate(group: Group) -> float:
    if group.chances:
        return 1.0 - group.chances[0]
    return 1.0 if group.law == "all" else group.num_active / group.num_devices


def _chance(groups: tuple[Group, ...]) -> float:
    """δ at ε = 0, at most: 1 − Π_t (1 − r_t·(2Φ(μ_t/2) − 1)), by the chance to take part and how far that can be seen.

    1 where there is next to no noise: a promise shall not rest on rare participation alone.
    """
    if _squared(groups) >= HOPELESS:
        return 1.0
    seen = [(group.count, _distance(group)) for group in groups]
    if any(distance >= 1.0 for _, distance in seen):
        return 1.0
    return -math.expm1(math.fsum(count * math.log1p(-distance) for count, distance in seen)) * (1.0 + 1e-12)


def _distance(group: Group) -> float:
    """How far, in total variation, one round is from the same without the device, at most."""
    if group.chances:
        times = enumerate(group.chances)
        return math.fsum(chance * math.erf(k / group.multiplier / math.sqrt(8.0)) for k, chance in times)
    return _rate(group) * math.erf(1.0 / group.multiplier / math.sqrt(8.0))


def _has_pld(groups: tuple[Group, ...]) -> bool:
    """Not without replacement, and not where the distribution would be too wide or too narrow for a grid."""
    if any(group.law == "without-replacement" for group in groups) or not _squared(groups) > NARROWEST:
        return False
    return _squared(groups) < HOPELESS or (_squared(groups) < math.inf and _effective(groups) < HOPELESS)


def _has_rdp(groups: tuple[Group, ...], neighbours: Neighbours) -> bool:
    """The library knows Poisson with zero-out; and without replacement with replace, which covers zeroing out too.

    Where its sums would cancel it is not asked.
    """
    laws = {group.law for group in groups} - {"all"}
    known = laws == {"without-replacement"} or (laws == {"poisson"} and zeroes_out(neighbours))
    return known and _squared(groups) < HOPELESS and not any(_cancels(group) for group in groups)


def _cancels(group: Group) -> bool:
    """Whether the library's divergence of such a round has lost its digits; then it may be too small, or negative."""
    if group.law == "poisson":
        return _rate(group) / group.multiplier < 1e-3
    return group.multiplier > 1e4


def _width(group: Group) -> float:
    """How far the privacy loss of a rare round spreads, about; 0 for others, whose grids are small."""
    mu = 1.0 / group.multiplier
    return max(0.0, 0.5 * mu * mu + 8.3 * mu + math.log(_rate(group))) if _rate(group) < 1e-3 else 0.0


@lru_cache(maxsize=256)
def _pld(groups: tuple[Group, ...], neighbours: Neighbours) -> PLDAccountant:
    """Compose on a grid that is refined until it is fine for the ε it finds."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import PLDAccountant

    relation = NeighboringRelation.ADD_OR_REMOVE_ONE if zeroes_out(neighbours) else NeighboringRelation.REPLACE_ONE
    event = compose(groups, neighbours, "contribution")
    squared = _squared(groups)
    step = min(max(1e-3, 1e-4 * (squared if squared < HOPELESS else _effective(groups))), 5.0)
    finest, per_epsilon = FINEST_GRID, GRID_PER_EPSILON
    if _replaces(groups):
        finest, per_epsilon = FINEST_WHERE_REPLACED, STEPS_WHERE_REPLACED
        step = max(step, FIRST_WHERE_REPLACED)
    if zeroes_out(neighbours):
        finest = max(finest, *(_width(group) / MOST_POINTS for group in groups))
    while True:
        accountant = PLDAccountant(relation, step)
        accountant.compose(event)
        wanted = max(float(accountant.get_epsilon(1e-6)) / per_epsilon, finest)
        if step <= 2.0 * wanted:
            return accountant
        step = max(wanted, step / 30.0)


@lru_cache(maxsize=256)
def _rdp(groups: tuple[Group, ...], neighbours: Neighbours) -> RdpAccountant:
    return _fresh_rdp(groups, neighbours, ORDERS)


def _fresh_rdp(groups: tuple[Group, ...], neighbours: Neighbours, orders: Sequence[float]) -> RdpAccountant:
    from dp_accounting import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    poisson = any(group.law == "poisson" for group in groups)
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE if poisson else NeighboringRelation.REPLACE_ONE
    accountant = RdpAccountant(orders, relation)
    with _quiet():
        accountant.compose(compose(_replacing(groups, neighbours), neighbours))
    return accountant


def _replacing(groups: tuple[Group, ...], neighbours: Neighbours) -> tuple[Group, ...]:
    """Noise in the units of the library's bounds.

    Without replacement they are for replacing a device; with zero-out the multiplier is of c, and so twice too large
    for it: zeroing out is one way of replacing.
    """
    if any(group.law == "poisson" for group in groups) or not zeroes_out(neighbours):
        return groups
    return tuple(group if group.law == "all" else replace(group, multiplier=group.multiplier / 2.0) for group in groups)


@contextmanager
def _quiet() -> Iterator[None]:
    """Orders for which the library's series does not converge are left out by it; no need to say so each time."""
    logger = logging.getLogger("absl")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
