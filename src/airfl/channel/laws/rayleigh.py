"""Rayleigh fading, with Kronecker correlation between antennas and between devices."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from airfl.channel.blocks import Place
from airfl.channel.laws.law import Placed
from airfl.randomness import Purpose, complex_normal, stream

#: Taps of a line with exponential power, and how far apart they are, in units of its decay.
TAPS, TAP_STEP = 16, 0.25
#: Of lines of other trials that are kept beside one: about that much.
KEPT_BYTES = 2**28


class Rayleigh(Placed):
    """H = L_d G L_aᵀ with G i.i.d. CN(0, 1); R_ij = ρ^|i−j| between antennas (``antenna_correlation``) and devices."""

    @cached_property
    def _roots(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        system, channel = self.config.system, self.config.channel
        pairs = (
            (system.num_antennas, channel.antenna_correlation),
            (system.num_devices, channel.device_correlation),
        )
        antennas, devices = (correlation_root(size, rho) if rho else None for size, rho in pairs)
        return antennas, devices

    def coefficients(self, index: int, round_index: int) -> np.ndarray:
        """See ``Placed.coefficients``."""
        return self._scattered("fading", index, round_index)

    def _scattered(self, purpose: Purpose, index: int, *key: int) -> np.ndarray:
        """A draw by its key."""
        system = self.config.system
        generator = stream(system.seed, purpose, self.trials[index], *key)
        return scattered(generator, system.num_devices, system.num_antennas, *self._roots)

    def draw_in(self, index: int, round_index: int, place: Place) -> np.ndarray:
        """See ``Law.draw_in``."""
        drawn: np.ndarray = self.amplitude[index][:, None] * self.coefficients_in(index, round_index, place)
        return drawn

    def coefficients_in(self, index: int, round_index: int, place: Place) -> np.ndarray:
        """Unit-power fading of a block: independent ones, or where a delay spread is known a tapped delay line."""
        return self._scattered_in("fading", index, round_index, place)

    def error_in(self, index: int, round_index: int, place: Place) -> np.ndarray:
        """See ``Law.error_in``: a line is estimated, or gets old, tap by tap."""
        return self._scattered_in("estimation", index, round_index, place)

    def _scattered_in(self, purpose: Purpose, index: int, round_index: int, place: Place) -> np.ndarray:
        if self.taps is None:
            return self._scattered(purpose, index, round_index, *place.key)
        powers, delays_s = self.taps
        turned = np.sqrt(powers) * np.exp(-2j * np.pi * place.offset_hz * delays_s)
        return self._along(self._line(purpose, index, round_index, place.span), turned)

    def _line(self, purpose: Purpose, index: int, round_index: int, span: int) -> np.ndarray:
        """All taps of a span of time, [taps, devices · antennas]; kept, since all its bands hear them."""
        key, kept = (index, round_index, span), self._kept.setdefault(purpose, {})
        if key not in kept:
            others = {one: line for one, line in kept.items() if one[1:] == key[1:]}
            kept.clear()
            kept.update(others if sum(line.nbytes for line in others.values()) < KEPT_BYTES else {})
            taps = range(len(self.taps[0]) if self.taps is not None else 1)
            drawn = [self._scattered(purpose, index, round_index, span, tap, len(taps)).ravel() for tap in taps]
            kept[key] = np.stack(drawn)
        return kept[key]

    def _along(self, line: np.ndarray, turned: np.ndarray) -> np.ndarray:
        """What one band hears of a line."""
        drawn: np.ndarray = turned @ line
        return drawn.reshape(self.config.system.num_devices, self.config.system.num_antennas)

    @cached_property
    def _kept(self) -> dict[Purpose, dict[tuple[int, int, int], np.ndarray]]:
        return {}

    @cached_property
    def taps(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Powers that add up to one and delays of a line with exponential power; None where blocks are independent."""
        spread = self.config.channel.delay_spread_s
        if spread is None:
            return None
        delays = TAP_STEP * np.arange(TAPS)
        powers = np.exp(-delays)
        powers /= powers.sum()
        mean = (powers * delays).sum()
        return powers, delays * spread / np.sqrt((powers * delays**2).sum() - mean**2)


def correlation_root(size: int, rho: float) -> np.ndarray:
    """Cholesky factor L of the exponential correlation R_ij = ρ^|i−j|, so that L g has covariance R."""
    index = np.arange(size)
    return np.linalg.cholesky(rho ** np.abs(index[:, None] - index[None, :]))


def scattered(
    generator: np.random.Generator,
    num_devices: int,
    num_antennas: int,
    antenna_root: np.ndarray | None = None,
    device_root: np.ndarray | None = None,
) -> np.ndarray:
    """H = L_d G L_aᵀ, shape [num_devices, num_antennas], E|h_ij|² = 1.

    G has i.i.d. CN(0, 1) entries; L_a and L_d are roots of the correlation between antennas and between devices.
    """
    fading = complex_normal(generator, (num_devices, num_antennas))
    if device_root is not None:
        fading = device_root @ fading
    if antenna_root is not None:
        fading = fading @ antenna_root.T
    return fading
