"""How much louder than the sum the best heard device of a run is, to a base station that looks at every antenna.

A combiner is as good as random to most devices: of a device's channel |wᴴh|² is one exponential x of m, but for x ≥ a,
since everybody has to be heard. All antennas together hear 1 + Γ/x times what the sum does, with Γ ~ Gamma(m − 1). In
these units a is E[1/ρ] at the edge of the cell and less, like r², for who is closer.

The ledger follows every device over its own rounds, T tosses of a coin. What that adds up to has a heavy tail, and the
loudest of n devices counts. Its law is worked out with Fourier transforms, for devices at some distances. How loud it
is in a single round comes from the table (``loudest_round``), which also knows combiners that fit all devices.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import fft, special

from airfl.linkplan.law import Combining, Layout

#: e^−γ: so many devices are expected above the mean logarithm of the loudest.
MEAN_LOG = math.exp(-np.euler_gamma)
#: The same for the table's mean over eight fadings: halfway to a plain mean, which is 1/π for Fréchet tails of index 2.
OF_TABLE = math.sqrt(MEAN_LOG / math.pi)
#: Points of a run's distribution and of one round's; how far the former go beyond the usual, and beyond luck.
POINTS, FINE, USUAL, LUCK = 8192, 400, 2.0, 16.0
#: (r/R)² of who is closest on a disk: 1 m of 1 km, as in the table.
CLOSEST = 1e-6


def loudness(
    law: Combining, layout: Layout, devices: int, active: int, antennas: int, rounds: int, blocks: int = 1
) -> float:
    """μ² of a base station that looks at every antenna over μ² of anyone who sees the models, for equal noise.

    Of several blocks it looks at the one that shows a device best.

    It may be below one: anyone who sees models is told of every round, and a device takes part in its own only.
    """
    level, share = law.inverse_norm2, active / devices
    over = loudest(layout, devices, share, antennas, level, rounds, blocks=blocks)
    if antennas == 1:  # there is one direction, and nobody can be out of it
        return over
    return over * law.loudest_round / level / loudest(layout, active, 1.0, antennas, level, 1, OF_TABLE)


@lru_cache(maxsize=256)
def loudest(
    layout: Layout,
    devices: int,
    participation: float,
    antennas: int,
    level: float,
    rounds: int,
    expected: float = MEAN_LOG,
    blocks: int = 1,
) -> float:
    """What the loudest device is heard with, over what the sum is, on average over rounds; combiners are random.

    Args:
        level: E[1/ρ].
        expected: how many devices are to be expected above the answer.
        blocks: of a round; a device counts as heard in its best.
    """
    if antennas == 1 and participation == 1.0:
        return 1.0
    places, weights = _places(layout, devices)
    shape, nearest = antennas - 1, level * float(places[0])
    usual = participation * rounds * _usual(nearest, shape, blocks)
    draws = participation * devices * rounds * blocks
    luck = min(1.0 / nearest, math.sqrt(draws / level) if layout == "disk" else draws)
    step = (USUAL * usual + LUCK * (1.0 + (shape + 3.0 * math.sqrt(shape)) * luck)) / POINTS
    above = sum(
        weight * _tail(level * place, shape, participation, rounds, step, blocks)
        for place, weight in zip(places.tolist(), weights.tolist(), strict=True)
    )
    first = int(np.argmax(above < expected))
    part = 0.0 if first == 0 else (above[first - 1] - expected) / (above[first - 1] - above[first])
    return float(first - 0.5 + part) * step / rounds


def _usual(near: float, shape: int, blocks: int) -> float:
    """E[1 + Γ/x], of the largest of some blocks; tails are no heavier than 1/x ≤ 1/near."""
    mean = 1.0 + shape * math.exp(near) * float(special.exp1(near)) if near < 500.0 else 1.0 + shape / near
    if blocks == 1 or shape == 0:
        return mean
    fine = 1.0 + np.append(0.0, np.geomspace(1e-3 * (mean - 1.0), (shape + 10.0 * math.sqrt(shape)) / near, 20 * FINE))
    beyond = -np.expm1(blocks * np.log1p(-np.minimum(heard_beyond(fine, near, shape), 1.0 - 1e-15)))
    return 1.0 + float(np.trapezoid(beyond, fine))


def _places(layout: Layout, devices: int) -> tuple[np.ndarray, np.ndarray]:
    """Some (r/R)², the nearest first, and how many devices there are about so far away."""
    if layout == "ring":
        return np.ones(1), np.full(1, float(devices))
    least = max(CLOSEST, 0.03 / devices)
    edges = np.geomspace(least, 1.0, 2 + math.ceil(2.0 * math.log2(1.0 / least)))
    middle = np.sqrt(edges[1:] * edges[:-1])
    return np.append(least, middle), devices * np.append(least, np.diff(edges))


def _tail(near: float, shape: int, participation: float, rounds: int, step: float, blocks: int = 1) -> np.ndarray:
    """P(a device is heard with more than 0, 1, 2, … steps over the whole run), [POINTS]."""
    grid = step * np.arange(POINTS + 1)
    fine = np.append(0.0, np.geomspace(min(1e-3, 1e-2 * step), grid[-1], FINE))
    survives = heard_beyond(fine, near, shape)
    if blocks > 1:
        survives = -np.expm1(blocks * np.log1p(-np.minimum(survives, 1.0 - 1e-15)))
    area = np.append(0.0, np.cumsum(0.5 * (survives[1:] + survives[:-1]) * np.diff(fine)))
    # Whole steps with these probabilities have the mean of what they stand for.
    mean = np.diff(np.interp(grid, fine, area)) / step
    once = participation * np.append(1.0 - mean[0], mean[:-1] - mean[1:])
    once[0] += 1.0 - participation
    # What leaves the grid in one round is missing from the sum, and so counts as beyond.
    summed = fft.irfft(fft.rfft(once, 2 * POINTS) ** rounds, 2 * POINTS)
    beyond: np.ndarray = 1.0 - np.cumsum(summed[:POINTS])
    return beyond


def heard_beyond(heard: np.ndarray, near: float, shape: int) -> np.ndarray:
    """P(1 + Γ/x > e) with Γ ~ Gamma(shape) and x = a + Exp(1): Q(k, za) − e^a (z/(1+z))^k Q(k, a(1+z)) at z = e − 1."""
    if shape == 0:
        return (heard < 1.0).astype(float)
    z = np.maximum(heard - 1.0, 1e-300)
    survives: np.ndarray = special.gammaincc(shape, near * z)
    with np.errstate(divide="ignore"):
        other = near + shape * (np.log(z) - np.log1p(z)) + np.log(special.gammaincc(shape, near * (1.0 + z)))
    survives = np.maximum(survives - np.exp(other), 0.0)
    return survives
