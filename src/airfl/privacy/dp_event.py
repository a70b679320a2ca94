"""A ledger in the words of the dp-accounting library."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from airfl.privacy.events import SEEING, Neighbours, Observer, PrivacyError, Sampling, SamplingLaw, require, zeroes_out
from airfl.privacy.exact import Exact
from airfl.privacy.ledger import Ledger
from airfl.privacy.ratios import seen_mu

if TYPE_CHECKING:
    from dp_accounting import DpEvent

#: Noise levels that a composition keeps apart; more are rounded down, so that the answer stays an upper bound.
MAX_LEVELS = 32

#: What a noise multiplier of 1 stands for: noise as large as c (one contribution), or as S (c or 2c, the sensitivity).
Unit = Literal["contribution", "sensitivity"]


@dataclass(frozen=True)
class Group:
    """Rounds of one sampling law and noise level.

    Attributes:
        law: "all" for rounds without sampling credit.
        num_devices: n.
        num_active: K; n·rate for poisson.
        multiplier: √v/S, for the sensitivity of the neighbours that were asked for; 0 without noise.
        count: how many rounds.
        chances: P(N = k), k = 0, 1, …, where a device counts N times; then the multiplier is of one time.
    """

    law: SamplingLaw
    num_devices: int
    num_active: float
    multiplier: float
    count: int
    chances: tuple[float, ...] = ()


def noise_groups(ledger: Ledger, neighbours: Neighbours, *, credit: bool = True) -> tuple[Group, ...]:
    """The rounds of a ledger by sampling law and noise, at most ``MAX_LEVELS`` levels of noise per law.

    Rounds without credit (everyone takes part, or the noise tells who did) are together one Gaussian round.
    """
    squared = Exact()
    laws: dict[tuple[SamplingLaw, int, float, tuple[float, ...]], Counter[float]] = {}
    for event, count in ledger.runs():
        sensitivity, sampling = event.sensitivity(neighbours), event.sampling
        credited = credit and event.hides_participation and earns_credit(sampling, neighbours)
        if credited and sampling.replaces:
            sensitivity = event.contribution(neighbours)  # once; how often is up to the law, and not to the draw
        if sensitivity == 0.0:
            continue  # nothing was heard of anyone
        multiplier = min(math.sqrt(event.noise_var) / sensitivity, 1e150)
        if credited:
            chances = sampling.multiplicities if sampling.replaces else ()
            key = sampling.law, sampling.num_devices, sampling.num_active, chances
            laws.setdefault(key, Counter())[multiplier] += count
        else:
            squared = squared.plus((1.0 / multiplier) ** 2 if multiplier > 1e-150 else math.inf, count)
    groups = []
    total = squared.value
    if total > 0.0:
        groups.append(Group("all", 1, 1.0, 1.0 / math.sqrt(total), 1))  # 0 without noise
    for (law, n, k, chances), multipliers in laws.items():
        groups.extend(Group(law, n, k, level, count, chances) for level, count in _levels(multipliers))
    return tuple(groups)


def earns_credit(sampling: Sampling, neighbours: Neighbours) -> bool:
    """Whether a law of participation hides anything of a device from someone who knows the draws of all others."""
    if sampling.law in ("all", "multinomial"):
        return False
    if sampling.law == "binomial":
        return zeroes_out(neighbours)  # another update in its place, as often as it was drawn, is not worked out
    return sampling.rate < 1.0


def _levels(multipliers: Counter[float]) -> list[tuple[float, int]]:
    """Noise levels with their counts; more than ``MAX_LEVELS`` are binned, and the least of each bin counts."""
    values = np.array(sorted(multipliers), dtype=np.float64)
    counts = np.array([multipliers[value] for value in values.tolist()], dtype=np.int64)
    if len(values) <= MAX_LEVELS:
        return [(float(v), int(c)) for v, c in zip(values, counts, strict=True)]
    positive = values[values > 0]
    edges = np.geomspace(positive[0], positive[-1] * (1 + 1e-12), MAX_LEVELS - (len(positive) < len(values)) + 1)
    bins = np.searchsorted(edges, values, side="right")
    return [
        (float(values[bins == number].min()), int(counts[bins == number].sum())) for number in np.unique(bins).tolist()
    ]


def compose(groups: Sequence[Group], neighbours: Neighbours, unit: Unit = "sensitivity") -> DpEvent:
    """The groups as one composed event."""
    try:
        import dp_accounting as dp
    except ImportError:
        raise PrivacyError(
            "sampling credit is computed by the package dp-accounting, which is not installed; "
            "install it or use the accountant `gaussian`"
        ) from None
    scale = 2.0 if neighbours == "replace" and unit == "contribution" else 1.0
    events: list[DpEvent] = []
    for group in groups:
        event: DpEvent = dp.GaussianDpEvent(group.multiplier * scale)
        if group.multiplier == 0.0:
            event = dp.NonPrivateDpEvent()
        elif group.law == "poisson":
            event = dp.PoissonSampledDpEvent(group.num_active / group.num_devices, event)
        elif group.law == "without-replacement":
            event = dp.SampledWithoutReplacementDpEvent(group.num_devices, group.num_active, event)
        elif group.law == "binomial":
            times = [float(k) for k in range(len(group.chances))]
            event = dp.dp_event.MixtureOfGaussiansDpEvent(group.multiplier, times, list(group.chances))
        events.append(dp.SelfComposedDpEvent(event, group.count) if group.count > 1 else event)
    return dp.ComposedDpEvent(events)


def to_dp_event(
    ledger: Ledger,
    neighbours: Neighbours,
    unit: Unit = "sensitivity",
    *,
    credit: bool = True,
    observer: Observer = "models",
) -> DpEvent:
    """Export a ledger to a dp-accounting ``DpEvent``.

    Args:
        unit: what its noise multipliers are measured in. For ``replace`` the library's RDP accountant expects
            "sensitivity" (√v/2c) and its PLD accountant "contribution" (√v/c).
        credit: whether rounds carry their sampling law where the noise hides who took part; False: plain Gaussian.
        observer: whom the event is about. For anyone who sees signals it is one Gaussian round, of the device
            that is seen best over the whole run: sampling earns no credit there.
    """
    require(not ledger.noise_follows_data, "noise that was chosen by an estimate from updates is no `DpEvent`")
    if observer in SEEING:
        mu = seen_mu(ledger, neighbours, observer)
        groups = () if mu == 0.0 else (Group("all", 1, 1.0, 1.0 / mu, 1),)
        return compose(groups, neighbours, unit)
    return compose(noise_groups(ledger, neighbours, credit=credit), neighbours, unit)
