"""The uplink's channel law, drawn for any trial and round on demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from airfl.channel.blocks import Place
from airfl.channel.budget import Budget, link_budget, noise_of
from airfl.channel.eavesdropper import Listener, open_listener
from airfl.channel.laws import LAWS, Law, outside_law
from airfl.config import Config
from airfl.imports import import_callable, is_import_path
from airfl.participation import colluders, dropouts, participants
from airfl.randomness import complex_normal, stream


@dataclass(frozen=True)
class Link:
    """y_j = Σ_i h_i x_ij + n_j with n_j ~ CN(0, σ² I_m); h_i = √Λ_i · fading, constant within a round.

    Attributes:
        trials: trial numbers this object answers for, in order.
        noise_power: σ², the whole complex power per antenna, watts.
        law: draws the channels.
        participation_keys: what the draws of active devices are keyed with; default the trials. An audit repeats one
            trial with new draws.
    """

    config: Config
    trials: tuple[int, ...]
    noise_power: float
    law: Law
    participation_keys: tuple[int, ...] | None = None
    _last: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def weakest_path_gain(self, index: int) -> float:
        """Λ_min of a trial, what the paper's worst-case SNR P·Λ_min/σ² refers to."""
        return self.law.weakest_path_gain(index)

    @cached_property
    def budget(self) -> Budget:
        """Powers, gains and noise of the configuration's link."""
        return link_budget(self.config)

    @property
    def power_limit(self) -> float:
        """P, watts."""
        return self.budget.power_w

    @property
    def interference_power(self) -> float:
        """I per antenna, watts: disturbs, and is never counted as privacy."""
        return self.budget.interference_w

    @property
    def credited_power(self) -> float:
        """σ² that counts against the base station itself (``privacy.credited_noise``), watts."""
        return self.budget.credited_w

    @cached_property
    def listener(self) -> Listener | None:
        """The eavesdropper, if there is one."""
        return open_listener(self.config, self.law)

    @cached_property
    def colluding(self) -> np.ndarray:
        """Which devices hand over what they know, [trials, devices]."""
        return np.stack([colluders(self.config, trial) for trial in self.trials])

    def honest(self, active: np.ndarray) -> np.ndarray:
        """Of devices numbered in active [trials, ..., K], who sends and hands over nothing; trials may be repeated."""
        colluding = np.repeat(self.colluding, len(active) // len(self.colluding), axis=0)
        rows = np.arange(len(active)).reshape(-1, *(1,) * (active.ndim - 1))
        found: np.ndarray = (active >= 0) & ~colluding[rows, np.maximum(active, 0)]
        return found

    def sending(self, planned: np.ndarray) -> np.ndarray:
        """Who of those who were to send in rounds 0, 1, … does, [trials, rounds, K]; −1 comes last in each row."""
        places = self.left(planned)
        there: np.ndarray = np.where(places < 0, -1, np.take_along_axis(planned, np.maximum(places, 0), axis=2))
        return there

    def left(self, planned: np.ndarray) -> np.ndarray:
        """The places of those who do among those who were to, [trials, rounds, K]; −1 comes last in each row."""
        gone = planned < 0
        if self.config.system.dropout > 0.0:
            keys = self.trials if self.participation_keys is None else self.participation_keys
            missing = np.stack([[dropouts(self.config, key, t) for t in range(planned.shape[1])] for key in keys])
            gone = gone | np.take_along_axis(missing, np.maximum(planned, 0), axis=2)
        order = np.argsort(gone, axis=2, kind="stable")
        places: np.ndarray = np.where(np.take_along_axis(gone, order, axis=2), -1, order)
        return places

    def drawn(self, index: int, round_index: int) -> np.ndarray:
        """Channels of one trial and round, [devices, antennas]."""
        return self.law.draw(index, round_index)

    def drawn_in(self, round_index: int, place: Place) -> np.ndarray:
        """Channels of all devices in one block of a round, [trials, devices, antennas]."""
        return np.stack([self.law.draw_in(index, round_index, place) for index in range(len(self.trials))])

    def estimated_in(self, true: np.ndarray, round_index: int, place: Place) -> np.ndarray:
        """The same as the base station knows them, as old in every block; see ``estimates`` and ``Law.error_in``."""
        if self.config.channel.estimation_error == 0.0:
            return true
        rows = range(len(self.trials))
        return np.stack([self._blurred(true[i], i, self.law.error_in(i, round_index, place)) for i in rows])

    def known(self, index: int, round_index: int) -> np.ndarray:
        """The same as the base station knows them; see ``estimates``."""
        return self._estimate(self.drawn(index, round_index), index, round_index)

    def channels(self, rounds: Sequence[int]) -> np.ndarray:
        """Channels of all devices, shape [trials, rounds, devices, antennas], complex128.

        A single round is kept until another one is asked for: schemes and budgets that go through it in step share it.
        """
        if len(rounds) == 1 and rounds[0] in self._last:
            return self._last[rounds[0]]
        keys = [(index, t) for index in range(len(self.trials)) for t in rounds]
        first = self.drawn(*keys[0])
        drawn = np.empty((len(keys), *first.shape), first.dtype)
        drawn[0] = first

        def draw(place: int) -> None:
            drawn[place] = self.drawn(*keys[place])

        if is_import_path(self.config.channel.fading):  # of somebody else, who need not expect threads
            for place in range(1, len(keys)):
                draw(place)
        else:
            from airfl.parallel import in_threads  # here, so that what draws nothing need not load torch

            in_threads(draw, range(1, len(keys)))
        drawn = drawn.reshape(len(self.trials), len(rounds), *first.shape)
        if len(rounds) == 1:
            self._last.clear()
            self._last[rounds[0]] = drawn
        return drawn

    def estimates(self, rounds: Sequence[int]) -> np.ndarray:
        """Channels as the base station knows them, ĥ with h = ĥ + e, [trials, rounds, devices, antennas].

        e ~ CN(0, τ Λ_i I) is independent of ĥ (minimum mean-square error estimation, τ = ``channel.csi_error``):
        ĥ = (1 − τ) h + √(τ(1 − τ) Λ_i) CN(0, I). Exact for uncorrelated Rayleigh fading.
        """
        true = self.channels(rounds)
        if self.config.channel.estimation_error == 0.0:
            return true
        return np.stack(
            [[self._estimate(true[i, j], i, t) for j, t in enumerate(rounds)] for i in range(len(self.trials))]
        )

    def _estimate(self, true: np.ndarray, index: int, round_index: int) -> np.ndarray:
        if self.config.channel.estimation_error == 0.0:
            return true
        generator = stream(self.config.system.seed, "estimation", self.trials[index], round_index)
        return self._blurred(true, index, complex_normal(generator, true.shape))

    def _blurred(self, true: np.ndarray, index: int, unit: np.ndarray) -> np.ndarray:
        """(1 − τ) h + √(τ(1 − τ) Λ_i) unit."""
        tau = self.config.channel.estimation_error
        spread = np.sqrt(tau * (1.0 - tau)) * self.law.amplitude[index]
        estimated: np.ndarray = (1.0 - tau) * true + spread[:, None] * unit
        return estimated

    def error_std(self, devices: np.ndarray) -> np.ndarray:
        """√(τ Λ_i), the standard deviation per antenna of the estimation error, for devices [trials, rounds, K]."""
        amplitude = np.sqrt(self.config.channel.estimation_error) * self.law.amplitude
        std: np.ndarray = np.take_along_axis(amplitude[:, None, :], devices, axis=2)
        return std

    def active(self, rounds: Sequence[int]) -> np.ndarray:
        """Who transmits: sorted numbers of the active devices, [trials, rounds, K]; see ``participation``."""
        keys = self.trials if self.participation_keys is None else self.participation_keys
        return np.stack([np.stack([participants(self.config, key, t) for t in rounds]) for key in keys])


def open_link(config: Config, trials: Sequence[int]) -> Link:
    """Open the law of the configured fading for some trials; positions and lines of sight are drawn when needed."""
    channel = config.channel
    noise = noise_of(channel)
    if is_import_path(channel.fading):
        law = outside_law(import_callable(channel.fading, "fading law"), channel.fading, config, trials)
    else:
        law = LAWS[channel.fading](config, tuple(trials))
    return Link(config, tuple(trials), noise, law)
