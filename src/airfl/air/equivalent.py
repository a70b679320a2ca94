"""The uplink in its scalar form; no array of antennas × symbols is ever made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from airfl.air.uplink import Reception
from airfl.devices.engine import UpdateBlock
from airfl.randomness import normal_like, stream


@dataclass(frozen=True)
class EquivalentUplink:
    """Δ̂ = Σ_i Re(g_i) Δ̄_i + N(0, v I_d), with gains g_i = wᴴ h_i s_i and v the variance of the whole noise.

    The same law as the signal-level uplink: Re(wᴴ n_j) is N(0, ‖w‖² σ²/2), independent over symbols, and so
    is what devices add themselves.
    """

    seed: int
    trials: tuple[int, ...]

    def receive(self, blocks: Iterable[UpdateBlock], dim: int, reception: Reception) -> torch.Tensor:
        """See ``Uplink.receive``."""
        gains = reception.gains.real.to(torch.float32)
        total: torch.Tensor | None = None
        for block in blocks:
            part = _sums(block, gains.to(block.updates.device))
            total = part if total is None else total + part
        assert total is not None
        for row, trial in enumerate(self.trials):
            variance = float(reception.noise_var[row])
            if variance > 0:
                generator = stream(self.seed, "receiver-noise", trial, reception.round_index)
                total[row] += normal_like(generator, dim, total.device) * variance**0.5
        return total


def _sums(block: UpdateBlock, gains: torch.Tensor) -> torch.Tensor:
    """Σ g_i Δ̄_i over the block's replicas of each trial, [trials, d]; added up in the same order every time."""
    weights = gains[block.trial, block.slot]
    if block.updates.is_cuda:  # scattered additions there come in any order; a small matrix product does not
        mix = torch.zeros(len(gains), len(weights), device=weights.device)
        mix[block.trial, torch.arange(len(weights), device=mix.device)] = weights
        return mix @ block.updates
    sums = torch.zeros(len(gains), block.updates.shape[1])
    return sums.index_add_(0, block.trial, weights.unsqueeze(1) * block.updates)
