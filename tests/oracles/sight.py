"""How visible devices are, from the physics and in 180 digits: who sends what, who hears it, and what she is told.

Device i sends s_i(x_i + α_i + jζ_i + Σ ±u). Every source of noise is a vector over the real numbers that an observer
has; what she is told of the sum is one more of these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import mpmath as mp
import numpy as np

DIGITS = 180
#: Noise that everyone may be given without hiding anything: what it alone covers is seen more than ``SHOWN``.
NEXT_TO_NOTHING, SHOWN = mp.mpf("1e-80"), mp.mpf("1e60")


@dataclass(frozen=True)
class Heard:
    """One symbol of one round as one observer has it.

    Attributes:
        paths: what device i's signal is multiplied with on its way to the observer's antennas, [K, m].
        gains: on its way to the sum, [K]; more digits than those of floats are kept.
        noise: of her antennas, whole complex power.
        sum_noise: of the sum, per real number; None: she does not have it beside her antennas.
        told: whether she is told what of ζ and u is in the real part of the sum.
        edges: who shares masks.
        honest: who does not hand over what it knows.
        own, quadrature, masks: a², e² and b².
        share: factor of a² and e² for each device.
        both: whether a symbol carries two coordinates.
        circular: whether masks are in both parts of a symbol that carries one.
    """

    paths: np.ndarray
    gains: Sequence[complex | mp.mpc]
    noise: float
    sum_noise: float | None
    told: bool
    edges: Sequence[tuple[int, int]]
    honest: Sequence[bool]
    own: float
    quadrature: float
    masks: float
    share: Sequence[float]
    both: bool = False
    circular: bool = False

    def visibility(self) -> np.ndarray:
        """r_i = √(p̃ᵀ Σ⁻¹ p̃); infinite where nothing covers some part of p̃."""
        with mp.workdps(DIGITS):
            covered = self._covariance()
            return np.array([self._of(i, covered) if kept else 0.0 for i, kept in enumerate(self.honest)])

    def condition(self) -> float:
        """Largest over least eigenvalue of Σ with a diagonal of ones."""
        with mp.workdps(DIGITS):
            covered = self._covariance()
            scale = mp.diag([1 / mp.sqrt(covered[k, k]) for k in range(covered.rows)])
            spectrum = mp.eigsy(scale * covered * scale, eigvals_only=True)
            return float(spectrum[covered.rows - 1] / spectrum[0])

    def _of(self, device: int, covered: mp.matrix) -> float:
        along = self._numbers({device: 1})
        squared = (along.T * mp.lu_solve(covered, along))[0]
        return math.inf if squared > SHOWN else float(mp.sqrt(squared))

    def _covariance(self) -> mp.matrix:
        noise = list(self._receivers())
        covered = mp.diag([mp.mpf(variance) + NEXT_TO_NOTHING for variance in noise])
        for variance, sent, hidden in self._sources():
            if variance:
                heard = self._numbers(sent, hidden=hidden)
                covered += variance * heard * heard.T
        return covered

    def _receivers(self) -> Iterator[float]:
        yield from [self.noise / 2] * (2 * self.paths.shape[1])
        if self.sum_noise is not None:
            yield from [self.sum_noise] * (2 if self.both else 1)
        if self.told:
            yield 0.0

    def _sources(self) -> Iterator[tuple[mp.mpf, dict[int, complex], bool]]:
        """Variance of every source of noise, what one unit of it makes devices send, and whether it ought to cancel."""
        for i in np.flatnonzero(self.honest):
            yield mp.mpf(self.own) * self.share[i], {i: 1}, False
            if self.both:
                yield mp.mpf(self.own) * self.share[i], {i: 1j}, False
            else:
                yield mp.mpf(self.quadrature) * self.share[i], {i: 1j}, True
        for i, k in self.edges:
            if self.honest[i] and self.honest[k]:
                for part in [1, 1j] if self.both or self.circular else [1]:
                    yield mp.mpf(self.masks), {i: part, k: -part}, True

    def _numbers(self, sent: dict[int, complex], *, hidden: bool = False) -> mp.matrix:
        """All that the observer has where devices send this and there is nothing else."""

        def arrives(through: Sequence[complex | mp.mpc]) -> mp.mpc:
            return mp.fsum(mp.mpc(through[i]) * mp.mpc(one) for i, one in sent.items())

        antennas, total = [arrives(column) for column in self.paths.T], arrives(self.gains)
        numbers = [part for heard in antennas for part in (heard.real, heard.imag)]
        if self.sum_noise is not None:
            numbers += [total.real, total.imag] if self.both else [total.real]
        if self.told:
            numbers.append(total.real if hidden else mp.mpf(0))
        return mp.matrix(numbers)
