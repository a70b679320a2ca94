"""A radio that knows few rounds of the first trials and takes them again and again: to choose with, before all rounds
are designed."""

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
    """A link whose round t is round t mod R of a longer one."""

    period: int = 1

    def channels(self, rounds: Sequence[int]) -> np.ndarray:
        """See ``Link.channels``."""
        return super().channels([t % self.period for t in rounds])


@dataclass(frozen=True)
class FewRounds(Radio):
    """A radio whose round t is round t mod R of a longer one."""

    period: int = 1

    def rounds(self, config: Config, rounds: range) -> Rounds:
        """See ``Radio.rounds``."""
        design, active, bound = super().rounds(config, range(self.period))
        places = torch.tensor([t % self.period for t in rounds])
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
    """The first rounds of the first trials of a configuration, whichever trials the radio itself is for.

    So the choice is the same however trials are batched, and for powers that share a radio rounds are designed once.
    Of measured channels only the first trial is sure to be there.
    """
    channels = config.system.num_active * config.system.num_antennas
    trials = 1 if channels > MANY_CHANNELS or config.channel.fading == "trace" else TRIALS
    whole, period = open_link(config, range(trials)), min(ROUNDS, config.system.rounds)
    link = FewLink(whole.config, whole.trials, whole.noise_power, whole.law, period=period)
    return FewRounds(link, radio.samples, radio.device, period=period)
