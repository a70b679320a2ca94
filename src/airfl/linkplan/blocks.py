"""What several blocks of time and frequency make of a round: how many, the quietest, and power over the round.

With unit designs w_b (|w_bᴴ h_ib| ≥ 1 for everybody), ρ_b = ‖w_b‖² and x = max_i mean_b 1/|w_bᴴ h_ib|², the quietest
of B blocks has π² = x·min_b ρ_b·c²/(symbols·P·Λ) (``transceiver.wideband``), and that one is booked. So μ² grows by

    E[1/(x min_b ρ_b)] / E[1/ρ]  ≈  E[1/x] · E[max_b 1/ρ_b]/E[1/ρ].

Devices stay where they are, so 1/ρ_b differ by fading alone: Gamma distributed, with a shape that follows from the
spread of log 1/ρ that ``experiments/block_law.py`` measured (exact for one antenna, where it is an exponential of
shape 1, and for one device, of shape m). To a device at u = (r/R)² the combiner is as good as random, as long as it
is heard: |wᴴh|² = 1 + Exp(1)/(ℓu) with ℓ = E[1/ρ], but with probability 1 − e^(−au) it is the one that is just heard;
a follows from the mean power of the tables of combiners. What power it needs, the mean of B such 1/|wᴴh|², is
convolved from that, and the largest of K counts. docs/plan.md has the check against measured combiners and runs.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

import numpy as np
from scipy import fft, optimize, special

from airfl.channel.blocks import Grid, coherence_bandwidth_hz, coherence_time_s, symbols_of
from airfl.errors import InputError
from airfl.linkplan.law import Layout, combining
from airfl.linkplan.link import uncovered, wide_channel_of
from airfl.linkplan.quantities import Quantities

#: Points of a device's power between 0 and the limit, places on a disk, and points of the quietest block.
POINTS, PLACES, QUANTILES = 512, 24, 2000
#: Beyond so many blocks nothing is asked any more.
MOST_BLOCKS = 2**40
#: ln 10/10: decibels in a logarithm.
DECIBEL = math.log(10.0) / 10.0


@dataclass(frozen=True)
class Several:
    """What B blocks do, over what one block does.

    Attributes:
        quietest: E[max_b 1/ρ_b]/E[1/ρ], at least one: how much quieter the quietest block is than usual.
        load: 1/E[1/x], at most one: what power over the round needs of power in every block.
        shape: of the Gamma law of 1/ρ_b.
    """

    quietest: float
    load: float
    shape: float

    @property
    def gain(self) -> float:
        """By how much μ² grows, so by how much the threshold falls."""
        return self.quietest / self.load

    def heard(self, backoff: float) -> float:
        """The sum's noise over the noise that is booked: its harmonic mean over blocks, as plans take it over rounds.

        Where power is held back by the factor β, blocks below the level of the quietest over β are raised to it.
        """
        if self.quietest == 1.0:
            return 1.0
        level = self.shape * self.quietest * backoff
        if backoff >= 1.0:
            return self.quietest
        # E[min(1, X/level)] with X ~ Gamma(shape)
        below = self.shape / level * special.gammainc(self.shape + 1.0, level)
        return float(1.0 / (below + special.gammaincc(self.shape, level)))


ONE = Several(1.0, 1.0, math.inf)


def grid_of(q: Quantities) -> Grid | None:
    """The blocks of a round, as a run cuts it; None where nobody said how many symbols there are."""
    if q.parameters is None:
        return None
    channel, rate = wide_channel_of(q), q.symbols_per_second
    symbols = symbols_of(channel, q.parameters)
    width, time = coherence_bandwidth_hz(channel), coherence_time_s(channel)
    bands = _parts(q.bandwidth_hz, width)
    spans = _parts(None if rate is None else symbols / rate, time)
    return Grid(bands, spans, symbols, 1 if q.symbols == "real" else 2)


def _parts(whole: float | None, part: float | None) -> int:
    """How many parts make a whole; one where either is unknown."""
    if part is None or whole is None:
        return 1
    return max(1, math.ceil(min(whole / part * (1.0 - 1e-12), MOST_BLOCKS)))


def check_grid(q: Quantities) -> None:
    """Refuse more blocks than symbols, as a run does."""
    grid = grid_of(q)
    if grid is not None and grid.count > max(1, grid.symbols):
        raise InputError(
            f"a round of {grid.symbols:,} symbols cannot have {grid.count:,} blocks ({grid.bands:,} of frequency, "
            f"{grid.spans:,} of time): each needs a symbol; lower the bandwidth or the speed, or state a longer "
            "coherence"
        )


def is_counted(q: Quantities) -> bool:
    """Whether the law of blocks is known: uncorrelated Rayleigh fading that the tables of combiners cover."""
    return q.noise_var is None and uncovered(q) is None


def several(q: Quantities) -> Several:
    """What the blocks of a link do; as one block where their law is not known."""
    grid = grid_of(q)
    if grid is None or grid.count == 1 or not is_counted(q) or q.antennas is None:
        return ONE
    return of_blocks(q.layout, q.active, q.antennas, grid.count)


@lru_cache(maxsize=4096)
def of_blocks(layout: Layout, active: int, antennas: int, count: int) -> Several:
    """The same for K devices, m antennas and B blocks; between powers of two straight in log B."""
    shape, exponent = shape_of(layout, active, antennas), math.log2(count)
    low = int(exponent)
    if exponent == low:
        load = loads(layout, active, antennas, low)[low]
    else:
        found = loads(layout, active, antennas, low + 1)
        load = found[low] * (found[low + 1] / found[low]) ** (exponent - low)
    return Several(quietest(shape, count), load, shape)


def quietest(shape: float, count: int) -> float:
    """E[max of B]/E of Gamma variables, over its quantiles."""
    if count == 1:
        return 1.0
    middle = (np.arange(QUANTILES) + 0.5) / QUANTILES
    # P(max > t) = 1 − F^B; the upper tail keeps its digits.
    upper = -np.expm1(np.log(middle) / count)
    return max(1.0, float(special.gammainccinv(shape, upper).mean()) / shape)


# --- how much 1/ρ differs from block to block


@cache
def spreads() -> Mapping[tuple[str, int, int], float]:
    """The measured standard deviation of log 1/ρ over fadings, by layout, K and m, in decibels."""
    text = (resources.files("airfl") / "linkplan" / "law_blocks.csv").read_text(encoding="utf-8")
    return {
        (row["layout"], int(row["devices"]), int(row["antennas"])): float(row["fading_spread_db"])
        for row in csv.DictReader(text.splitlines())
    }


def shape_of(layout: Layout, active: int, antennas: int) -> float:
    """The shape of the Gamma law: straight between logarithms of K and m, the nearest beyond what was measured."""
    if antennas == 1:
        return 1.0
    own = [(k, m) for name, k, m in spreads() if name == layout]
    counts = sorted({m for _, m in own})

    def at(m: int) -> float:
        known = sorted(k for k, other in own if other == m)
        return float(np.interp(math.log(active), np.log(known), [math.log(spreads()[layout, k, m]) for k in known]))

    log_spread = np.interp(math.log(antennas), np.log(counts), [at(m) for m in counts])
    return _shape(DECIBEL * math.exp(float(log_spread)))


def _shape(spread: float) -> float:
    """The shape k with ψ′(k) = spread², the variance of the logarithm of a Gamma variable."""

    def miss(log_shape: float) -> float:
        return float(np.log(special.polygamma(1, math.exp(log_shape)))) - 2.0 * math.log(spread)

    return math.exp(optimize.brentq(miss, math.log(1e-2), math.log(1e8)))


# --- power over the round


@lru_cache(maxsize=4096)
def loads(layout: Layout, active: int, antennas: int, doublings: int) -> tuple[float, ...]:
    """1/E[1/x] for 1, 2, 4, … blocks."""
    law = combining(layout, active, antennas)
    places, weights = _places(layout, active)
    near = law.inverse_norm2 * places
    rate = max(tightness(law.inverse_norm2, law.mean_power, layout), least_tight(active, antennas))
    tight = -np.expm1(-rate * places)
    loose = _loose(near, tight)
    whole = loose.copy()
    whole[:, -1] += tight
    found = [1.0]
    for _ in range(doublings):
        whole, loose = _doubled(whole), _doubled(loose)
        found.append(min(found[-1], _largest(whole, loose, weights)))
    return tuple(found)


def tightness(level: float, mean_power: float, layout: Layout) -> float:
    """The a for which devices need the measured power on average."""
    places = (np.arange(64) + 0.5) / 64 if layout == "disk" else np.ones(1)
    usual = np.array([_mean_of_one(level * place) for place in places])

    def miss(a: float) -> float:
        tight = -np.expm1(-a * places)
        return float((tight + (1.0 - tight) * usual).mean()) - mean_power

    most = 1e6
    if miss(0.0) >= 0.0:
        return 0.0
    return most if miss(most) <= 0.0 else float(optimize.brentq(miss, 0.0, most))


def least_tight(active: int, antennas: int) -> float:
    """The least a: where K is large the mean power hardly tells it, and about m are just heard (one of one antenna)."""
    return min(antennas, max(1.0, active / 8.0)) / active


def _mean_of_one(near: float) -> float:
    """E[1/(1 + E/near)] for an exponential E."""
    return float(near * special.exp1(near) * math.exp(near)) if near < 500.0 else 1.0


def _places(layout: Layout, active: int) -> tuple[np.ndarray, np.ndarray]:
    """Some u = (r/R)², the farthest in small steps, and how many devices there are about there."""
    if layout == "ring":
        return np.ones(1), np.full(1, float(active))
    edges = np.append(1.0 - np.geomspace(1.0, 1e-3, PLACES), 1.0)
    return 0.5 * (edges[1:] + edges[:-1]), active * np.diff(edges)


def _loose(near: np.ndarray, tight: np.ndarray) -> np.ndarray:
    """Power of devices that are not just heard, on a grid from 0 to 1 with the right mean, [places, POINTS + 1].

    P(1/(1 + E/near) ≤ t) = exp(−near·(1/t − 1)).
    """
    t = np.linspace(0.0, 1.0, POINTS + 1)
    with np.errstate(divide="ignore"):
        below = np.exp(-near[:, None] * (1.0 / t - 1.0))
    area = np.zeros_like(below)
    area[:, 1:] = np.cumsum(0.5 * (below[:, 1:] + below[:, :-1]), axis=1)
    mass = np.empty_like(below)
    mass[:, 1:-1] = area[:, 2:] - 2.0 * area[:, 1:-1] + area[:, :-2]
    mass[:, 0] = area[:, 1]
    mass[:, -1] = 1.0 - (area[:, -1] - area[:, -2])
    return mass * (1.0 - tight)[:, None]


def _doubled(mass: np.ndarray) -> np.ndarray:
    """The mean of two such powers on the same grid: what falls between two points is split."""
    size = 2 * POINTS + 1
    padded = fft.next_fast_len(size, real=True)
    both = np.clip(fft.irfft(fft.rfft(mass, padded) ** 2, padded)[:, :size], 0.0, None)
    merged: np.ndarray = both[:, ::2].copy()
    merged[:, :-1] += 0.5 * both[:, 1::2]
    merged[:, 1:] += 0.5 * both[:, 1::2]
    return merged


def _largest(whole: np.ndarray, loose: np.ndarray, weights: np.ndarray) -> float:
    """1/E[1/x] of the largest of all devices, given that somebody was just heard: in every design somebody is."""
    below, nobody = (_all_below(mass, weights) for mass in (whole, loose))
    given = np.maximum.accumulate(np.clip((below - nobody) / max(1e-300, 1.0 - nobody[-1]), 0.0, 1.0))
    given[-1] = 1.0
    mass = np.diff(given, prepend=0.0)
    x = np.linspace(0.0, 1.0, POINTS + 1)
    x[0] = 0.5 / POINTS
    return float(1.0 / (mass / x).sum())


def _all_below(mass: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """P(every device needs at most t), on the grid."""
    sums = np.clip(np.cumsum(mass, axis=1), 1e-300, 1.0)
    found: np.ndarray = np.exp((weights[:, None] * np.log(sums)).sum(axis=0))
    return found
