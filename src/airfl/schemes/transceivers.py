"""Policies that find combiners and transmit scalars themselves: what they are asked, and what they answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from airfl.channel.blocks import Grid
from airfl.config import Config
from airfl.errors import InputError
from airfl.privacy import Budget
from airfl.transceiver import Radio
from airfl.transceiver.design import least_gain, received_gains
from airfl.transceiver.wideband import block_channels

#: When a device keeps to its power: in every symbol that it may fill; in each round, by sending less where its update
#: lies dear; on average over fading, so that single rounds may exceed it.
PowerRule = Literal["peak", "spread", "average"]
#: What the base station makes of its antennas: the sum; energy; energy where fading is fresh for every symbol.
Detection = Literal["sum", "energy", "fresh energy"]


@dataclass(frozen=True)
class Scene:
    """All that such a policy may look at: channels as they are known, and rules. Never an update.

    Attributes:
        radio: draws channels from their keys, and designs what is asked of it once.
        grid: how a round is cut into blocks; one where channels stand still.
        length: C, the longest that what a device sends can be.
        budget: what keeps the promise; None where nothing is promised.
    """

    config: Config
    radio: Radio
    grid: Grid
    length: float
    budget: Budget | None

    @property
    def rounds(self) -> range:
        """0 to T − 1."""
        return range(self.config.system.rounds)

    @property
    def power_w(self) -> float:
        """P."""
        return self.radio.link.power_limit

    @property
    def reach(self) -> float:
        """g = C/√(symbols · P), the least |wᴴh_i| at which device i reaches unit gain."""
        return least_gain(self.length, self.grid.symbols, self.power_w)

    @property
    def noise_share(self) -> float:
        """β = d (σ² + I)/(2 C²), d coordinates that symbols have room for: of norm q noise has energy β q² C²."""
        link = self.radio.link
        return (
            self.grid.symbols
            * self.grid.per_symbol
            * (link.noise_power + link.interference_power)
            / (2.0 * self.length**2)
        )

    @property
    def total(self) -> float | None:
        """A of Σ G_t²/q_t² ≤ A; None where nothing is promised."""
        if self.budget is None:
            return None
        if self.budget.total is None:
            raise InputError('this scheme keeps its budget by exact composition; set privacy.accountant = "gaussian"')
        return self.budget.total

    def norm_at(self, noise_db: float) -> float:
        """q whose noise in the sum has so much more energy than one device's longest update, in dB."""
        return math.sqrt(10.0 ** (noise_db / 10.0) / self.noise_share)

    def active(self) -> np.ndarray:
        """Who takes part, [trials, T, K]; −1 where fewer do."""
        return self.radio.link.active(self.rounds)

    def channels(self, t: int, number: int, active: np.ndarray) -> torch.Tensor:
        """h_i of the devices numbered in active [trials, K] in one block of round t, [trials, K, m]."""
        return block_channels(self.radio, t, number, self.grid, active)[0]


@dataclass(frozen=True)
class Transceiver:
    """Combiners and transmit scalars of all rounds, as a policy found them.

    Attributes:
        active: who transmits, [trials, T, K]; −1 where fewer do.
        combiner: w_tb, [trials, T, B, m], complex128.
        scaling: s_itb, [trials, T, K, B], complex128; 0 where a device sends nothing.
        minimum: the norm that the power alone would have asked for, [trials, T], for the records.
        rule: how devices keep to their power.
        detects: what is made of the antennas.
        bound: ‖h_i s_i‖ ‖w_tb‖ at most, [trials, T, B], where energy is measured.
        ignores_participation: whether combiners would be the same whoever takes part; else sampling earns no credit.
    """

    active: np.ndarray
    combiner: torch.Tensor
    scaling: torch.Tensor
    minimum: torch.Tensor
    rule: PowerRule = "peak"
    detects: Detection = "sum"
    bound: torch.Tensor | None = None
    ignores_participation: bool = False

    @property
    def norm(self) -> torch.Tensor:
        """‖w_tb‖, [trials, T, B]."""
        norm: torch.Tensor = torch.linalg.vector_norm(self.combiner, dim=-1)
        return norm


def gains_in(
    scene: Scene, active: np.ndarray, combiner: torch.Tensor, scaling: torch.Tensor, t: int, number: int
) -> torch.Tensor:
    """wᴴ h_i s_i of one block, [trials, K]."""
    heard = received_gains(combiner[:, t, number], scene.channels(t, number, active[:, t]))
    return heard * scaling[:, t, :, number]
