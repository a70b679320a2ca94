"""The uplink's channel law, drawn for any trial and round on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from airfl.channel import fading, geometry
from airfl.channel.noise import noise_power_w
from airfl.channel.traces import read_trace
from airfl.config import Config
from airfl.randomness import complex_normal, stream


@dataclass(frozen=True)
class Link:
    """y_j = Σ_i h_i x_ij + n_j with n_j ~ CN(0, σ² I_m); h_i = √Λ_i · fading, constant within a round.

    Attributes:
        trials: trial numbers this object answers for, in order.
        distances_m: [trials, devices]; None for measured traces.
        noise_power: σ², the whole complex power per antenna, watts.
        participation_keys: what the draws of active devices are keyed with; default the trials. An audit repeats one
            trial with new draws.
        designs: combiners that were found for this link; the schemes of a run share them, and so do copies of the link
            with another power.
    """

    config: Config
    trials: tuple[int, ...]
    noise_power: float
    distances_m: np.ndarray | None
    _amplitude: np.ndarray | None = field(repr=False)
    _direct: np.ndarray | None = field(repr=False)
    _roots: tuple[np.ndarray | None, np.ndarray | None] = field(repr=False)
    _trace: np.ndarray | None = field(repr=False)
    participation_keys: tuple[int, ...] | None = None
    designs: dict[tuple[object, ...], Any] = field(default_factory=dict, repr=False, compare=False)
    _last: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def weakest_path_gain(self, index: int) -> float:
        """Λ_min, what the paper's worst-case SNR P·Λ_min/σ² refers to: the path gain at the cell edge.

        With measured channels it is the mean power of the trial's weakest device.
        """
        if self._trace is not None:
            measured = self._trace[self.trials[index] if self._trace.shape[0] > 1 else 0]
            return float((np.abs(measured) ** 2).mean(axis=(0, 2)).min())
        return float(geometry.path_gain(self.config.channel.cell_radius_m, self.config.channel.carrier_hz))

    def channels(self, rounds: Sequence[int]) -> np.ndarray:
        """Channels of all devices, shape [trials, rounds, devices, antennas], complex128.

        A single round is kept until another one is asked for: schemes and budgets that go through it in step share it.
        """
        if len(rounds) == 1 and rounds[0] in self._last:
            return self._last[rounds[0]]
        drawn = np.stack([np.stack([self._draw(index, t) for t in rounds]) for index in range(len(self.trials))])
        if len(rounds) == 1:
            self._last.clear()
            self._last[rounds[0]] = drawn
        return drawn

    def estimates(self, rounds: Sequence[int]) -> np.ndarray:
        """Channels as the base station knows them, ĥ with h = ĥ + e, [trials, rounds, devices, antennas].

        e ~ CN(0, τ Λ_i I) is independent of ĥ (minimum mean-square error estimation, τ = ``channel.csi_error``):
        ĥ = (1 − τ) h + √(τ(1 − τ) Λ_i) CN(0, I). Exact for uncorrelated Rayleigh fading.
        """
        true, tau = self.channels(rounds), self.config.channel.csi_error
        if tau == 0.0:
            return true
        seed, shape = self.config.system.seed, true.shape[2:]
        draws = [[complex_normal(stream(seed, "estimation", trial, t), shape) for t in rounds] for trial in self.trials]
        spread = np.sqrt(tau * (1.0 - tau)) * self._mean_amplitude()
        estimated: np.ndarray = (1.0 - tau) * true + spread[:, None, :, None] * np.asarray(draws)
        return estimated

    def error_std(self, devices: np.ndarray) -> np.ndarray:
        """√(τ Λ_i), the standard deviation per antenna of the estimation error, for devices [trials, rounds, K]."""
        amplitude = np.sqrt(self.config.channel.csi_error) * self._mean_amplitude()
        std: np.ndarray = np.take_along_axis(amplitude[:, None, :], devices, axis=2)
        return std

    def _mean_amplitude(self) -> np.ndarray:
        """√Λ_i, [trials, devices]; from the mean power where channels were measured."""
        if self._amplitude is not None:
            return self._amplitude
        assert self._trace is not None
        return np.stack(
            [
                np.sqrt((np.abs(self._trace[trial if self._trace.shape[0] > 1 else 0]) ** 2).mean(axis=(0, 2)))
                for trial in self.trials
            ]
        )

    def active(self, rounds: Sequence[int]) -> np.ndarray:
        """Who transmits: sorted numbers of the active devices, shape [trials, rounds, K].

        Fixed: K of n are drawn uniformly without replacement, afresh in every round. Poisson: every device by its own
        coin; rows are n wide and filled up with −1.
        """
        system = self.config.system
        if system.everyone:
            n = system.num_devices
            return np.broadcast_to(np.arange(n), (len(self.trials), len(rounds), n)).copy()
        keys = self.trials if self.participation_keys is None else self.participation_keys
        return np.stack([np.stack([self._participants(key, t) for t in rounds]) for key in keys])

    def _participants(self, key: int, round_index: int) -> np.ndarray:
        system = self.config.system
        generator = stream(system.seed, "participation", key, round_index)
        if not system.is_poisson:
            return np.sort(generator.choice(system.num_devices, system.num_active, replace=False))
        heads = np.flatnonzero(generator.random(system.num_devices) < system.participation)
        return np.pad(heads, (0, system.num_devices - len(heads)), constant_values=-1)

    def _draw(self, index: int, round_index: int) -> np.ndarray:
        trial = self.trials[index]
        if self._trace is not None:
            measured: np.ndarray = self._trace[trial if self._trace.shape[0] > 1 else 0, round_index]
            return measured
        assert self._amplitude is not None
        system, channel = self.config.system, self.config.channel
        generator = stream(system.seed, "fading", trial, round_index)
        draw = fading.scattered(generator, system.num_devices, system.num_antennas, *self._roots)
        if self._direct is not None:
            draw = fading.rician(self._direct[index], draw, 10.0 ** (channel.rician_k_db / 10.0))
        channels: np.ndarray = self._amplitude[index][:, None] * draw
        return channels


def open_link(config: Config, trials: Sequence[int]) -> Link:
    """Draw what is fixed for a trial (positions, line of sight) and prepare what is drawn per round."""
    system, channel = config.system, config.channel
    noise = noise_power_w(channel.noise_density_dbm_hz, channel.bandwidth_hz)
    if channel.fading == "trace":
        trace = read_trace(
            channel.trace_file or "", max(trials) + 1, system.rounds, system.num_devices, system.num_antennas
        )
        return Link(config, tuple(trials), noise, None, None, None, (None, None), trace)

    distances = np.stack(
        [
            geometry.disk_drop(
                stream(system.seed, "positions", trial),
                system.num_devices,
                channel.cell_radius_m,
                channel.min_distance_m,
                channel.distance == "common",
            )
            for trial in trials
        ]
    )
    direct = None
    if channel.fading == "rician":
        shape = (system.num_devices, system.num_antennas)
        direct = np.stack([fading.line_of_sight(stream(system.seed, "line-of-sight", t), *shape) for t in trials])
    roots = (
        fading.correlation_root(system.num_antennas, channel.antenna_correlation)
        if channel.antenna_correlation
        else None,
        fading.correlation_root(system.num_devices, channel.device_correlation) if channel.device_correlation else None,
    )
    amplitude = np.sqrt(geometry.path_gain(distances, channel.carrier_hz))
    return Link(config, tuple(trials), noise, distances, amplitude, direct, roots, None)
