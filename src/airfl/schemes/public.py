"""What everybody knows of a round, beside models and what was received."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from airfl.channel.blocks import Grid


@dataclass(frozen=True)
class Public:
    """One round, as far as it follows from channels, keys and rules: no update has a part in it.

    Attributes:
        seed, trials, round_index: what draws are keyed with.
        active: who sends, [trials, K]; −1 where fewer do.
        gains: wᴴ h_i s_i, [trials, K, B], complex128; 0 where a device sends nothing.
        grid: which coordinate is sent in which block; None: there is one block.
        noise_var: v, the variance of all noise in the sum per real coordinate, [trials].
        counts: how many devices send in each block, [trials, B]; None: all of them are among ``gains``. Where devices
            are trained in shards ``active`` and ``gains`` are those of a group.
    """

    seed: int
    trials: tuple[int, ...]
    round_index: int
    active: np.ndarray
    gains: torch.Tensor
    grid: Grid | None
    noise_var: torch.Tensor
    counts: torch.Tensor | None = None

    @property
    def sending(self) -> torch.Tensor:
        """How many devices send in each block, [trials, B]."""
        return (self.gains != 0).sum(dim=1) if self.counts is None else self.counts

    def block_of(self, dim: int) -> torch.Tensor:
        """The block of every coordinate, [d]."""
        return torch.zeros(dim, dtype=torch.int64) if self.grid is None else self.grid.block_of(dim)

    def sends(self, trial: torch.Tensor, slot: torch.Tensor, dim: int) -> torch.Tensor | None:
        """Which coordinates the devices at these places [n] send, [n, d], bool; None: all of them send all."""
        open_in = self.gains[trial, slot] != 0
        return None if bool(open_in.all()) else open_in[:, self.block_of(dim)]

    def senders(self, dim: int) -> torch.Tensor:
        """N_j, how many devices send each coordinate, [trials, d], float64."""
        return self.sending.double()[:, self.block_of(dim)]
