"""The phase diagram of a plan as numbers: devices against SNR, with lines of equal free ε.

At an SNR of 0 dB n devices give μ²(n), and μ² is proportional to the SNR: free ε equals a target of μ* where the SNR is
μ*²/μ²(n). So lines of different ε are one line, moved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airfl.errors import InputError
from airfl.linkplan.answer import Answer, squared_mu
from airfl.linkplan.link import uncovered
from airfl.linkplan.quantities import Quantities
from airfl.linkplan.solving import device_range
from airfl.privacy import gaussian_mu

#: Lines that are drawn; the target gets one of its own.
LEVELS = (0.1, 1.0, 10.0, 100.0, 1000.0, 1e5)


@dataclass(frozen=True)
class Phases:
    """Lines of equal free ε.

    Attributes:
        devices: n, at which lines are known.
        most: the largest n that a plan knows.
        target: the SNR at which free ε is the target, dB, for every n.
        curves: ε and the same for it.
    """

    devices: np.ndarray
    most: int
    target: np.ndarray
    curves: tuple[tuple[float, np.ndarray], ...]


def squared_at_0_db(q: Quantities, devices: Sequence[int] | np.ndarray) -> np.ndarray:
    """μ²(n) at an SNR of 0 dB."""
    q = q.with_values({"snr_db": 0.0, "neighbours": q.relation})
    return np.array([squared_mu(q.with_values({"devices": int(n)})) for n in devices])


def thresholds_db(q: Quantities, epsilon: float, at_0_db: np.ndarray) -> np.ndarray:
    """The SNR at which free ε equals ``epsilon``, dB."""
    found: np.ndarray = 10.0 * np.log10(gaussian_mu(epsilon, q.delta) ** 2 / at_0_db)
    return found


def places(q: Quantities, points: int) -> np.ndarray:
    """Numbers of devices over the whole range that the tables know, some ``points`` of them."""
    fewest, most = device_range(q)
    return np.unique(np.geomspace(max(2, fewest), most, points).round().astype(int))


def no_diagram(answer: Answer) -> str | None:
    """Why there is none of a plan; None: there is one."""
    q = answer.quantities
    if answer.snr_db is None or q.devices is None or q.epsilon is None:
        return "the phase diagram needs a link; leave out --noise-var"
    why = uncovered(q) or ("--drops" if answer.drops is not None else None)
    return None if why is None else f"the phase diagram is drawn from tables, which do not go with {why}"


def phases_of(answer: Answer, points: int = 160, at_0_db: np.ndarray | None = None) -> Phases:
    """The lines of a plan's diagram.

    Args:
        at_0_db: ``squared_at_0_db`` at ``places``, where somebody has it already.
    """
    if (why := no_diagram(answer)) is not None:
        raise InputError(why)
    q = answer.quantities
    assert q.epsilon is not None
    devices = places(q, points)
    base = squared_at_0_db(q, devices) if at_0_db is None else at_0_db
    others = [e for e in LEVELS if abs(math.log10(e / q.epsilon)) > 0.25]
    curves = tuple((e, thresholds_db(q, e, base)) for e in others)
    return Phases(devices, device_range(q)[1], thresholds_db(q, q.epsilon, base), curves)
