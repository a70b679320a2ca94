"""A radio that knows few rounds and takes them again and again: to choose with, before all rounds are designed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from airfl.channel import Link, open_link
from airfl.config import Config
from airfl.transceiver.design import Design, Status
from airfl.transceiver.radio import Radio, Rounds

#: Rounds that are looked at, of the first trial, or of the first four where there are few channels and cells differ.
ROUNDS, TRIALS, MANY_CHANNELS = 4, 4, 20_000


@dataclass(frozen=True)
class FewLink(Link):
    """A link that has the rounds from ``first`` to ``first + period`` and goes round in them."""

    first: int = 0
    period: int = 1

    def place(self, t: int) -> int:
        """Which of the few stands for round t, counted from the first of them."""
        return (t - self.first) % self.period

    def drawn(self, index: int, round_index: int) -> np.ndarray:
        """See ``Link.drawn``."""
        return super().drawn(index, self.first + self.place(round_index))

    def channels(self, rounds: Sequence[int]) -> np.ndarray:
        """See ``Link.channels``."""
        return super().channels([self.first + self.place(t) for t in rounds])

    def active(self, rounds: Sequence[int]) -> np.ndarray:
        """See ``Link.active``."""
        return super().active([self.first + self.place(t) for t in rounds])


@dataclass(frozen=True)
class FewRounds(Radio):
    """The radio of such a link."""

    link: FewLink

    def rounds(self, config: Config, rounds: range) -> Rounds:
        """See ``Radio.rounds``."""
        link = self.link
        design, active, bound = super().rounds(config, range(link.first, link.first + link.period))
        places = torch.tensor([link.place(t) for t in rounds])
        ok: tuple[Status, ...] = tuple("ok" for _ in range(len(active) * len(places)))
        again = Design(
            design.combiner[:, places],
            design.norm[:, places],
            design.lower_bound[:, places],
            design.iterations[:, places],
            ok,
        )
        return again, active[:, places.numpy()], bound[:, places]


def few_rounds(radio: Radio, config: Config) -> FewRounds:
    """A few rounds after the last of the run, in the first trials, whichever trials the radio itself is for.

    The same positions and the same law but never the run's own draws, so that a choice made with them looks neither
    ahead nor at who takes part; and it is the same however trials are batched. Measured channels have no law: their
    first trial's first rounds stand in. Powers that share a radio share these designs too.
    """
    system, measured = config.system, config.channel.fading == "trace"
    trials = 1 if measured or system.num_active * system.num_antennas > MANY_CHANNELS else TRIALS
    first, period = (0, min(ROUNDS, system.rounds)) if measured else (system.rounds, ROUNDS)
    whole = open_link(config, range(trials))
    link = FewLink(whole.config, whole.trials, whole.noise_power, whole.law, first=first, period=period)
    return FewRounds(link, radio.samples, radio.device)
