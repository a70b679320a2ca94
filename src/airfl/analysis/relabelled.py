"""A few drawn rounds that stand for many: taken again and again, each time with other devices in them.

Who is seen best in a round was unlucky, and is another device in the next. If few rounds came again as they were, the
same device would be unlucky in each of them. So devices that are about equally far away take each other's places: the
channels of a round, its combiner and who takes part stay what they are, and only the names change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airfl.channel import open_link
from airfl.config import Config
from airfl.randomness import stream
from airfl.transceiver import FewRounds
from airfl.transceiver.few import FewLink
from airfl.transceiver.radio import Rounds


def names_of(amplitude: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Whose channel each device gets when devices that are heard about equally well take each other's places, [n].

    Places are given away among the nearest device, the second, the two after them, the four after those, and so on:
    on a disk distances of a group differ by √2. Where all are equally far away, everyone may take any place.
    """
    names, order, start = np.arange(len(amplitude)), np.argsort(-amplitude), 0
    while start < len(order):
        end = max(1, 2 * start) if np.ptp(amplitude) > 0.0 else len(order)
        group = order[start:end]
        names[group], start = generator.permutation(group), end
    return names


@dataclass(frozen=True)
class RelabelledLink(FewLink):
    """The link of one trial; its first ``period`` rounds are as a run would draw them."""

    def names(self, t: int) -> np.ndarray:
        """Whose channel each device has in round t, [n]; the first rounds are as they were drawn."""
        if t < self.period:
            return np.arange(self.config.system.num_devices)
        return names_of(self.law.amplitude[0], stream(self.config.system.seed, "foresight", t))

    def drawn(self, index: int, round_index: int) -> np.ndarray:
        """See ``Link.drawn``."""
        renamed: np.ndarray = super().drawn(index, round_index)[self.names(round_index)]
        return renamed

    def channels(self, rounds: Sequence[int]) -> np.ndarray:
        """See ``Link.channels``."""
        drawn = super().channels(rounds)
        return np.stack([drawn[:, k, self.names(t)] for k, t in enumerate(rounds)], axis=1)

    def active(self, rounds: Sequence[int]) -> np.ndarray:
        """See ``Link.active``."""
        drawn = super().active(rounds)
        return np.stack([np.sort(np.argsort(self.names(t))[drawn[:, k]]) for k, t in enumerate(rounds)], axis=1)


@dataclass(frozen=True)
class RelabelledRounds(FewRounds):
    """The radio of such a link, for configurations in which all who are active transmit."""

    def rounds(self, config: Config, rounds: range) -> Rounds:
        """See ``Radio.rounds``."""
        design, _, bound = super().rounds(config, rounds)
        return design, self.link.active(rounds), bound


def relabelled_rounds(config: Config, drawn: int) -> RelabelledRounds:
    """All rounds of a configuration's first trial, made of so many that are drawn."""
    whole = open_link(config, [0])
    period = min(drawn, config.system.rounds)
    return RelabelledRounds(RelabelledLink(config, whole.trials, whole.noise_power, whole.law, first=0, period=period))
