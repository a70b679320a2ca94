"""The uplink in its scalar form; no array of antennas × symbols is ever made."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from airfl.air.uplink import Reception, Uplink
from airfl.devices.engine import UpdateBlock
from airfl.randomness import normal_like, stream


@dataclass(frozen=True)
class EquivalentUplink(Uplink):
    """Δ̂ = Σ_i Re(g_i) Δ̄_i + N(0, v I_d), with gains g_i = wᴴ h_i s_i and v the variance of the whole noise.

    The same law as the signal-level uplink: Re(wᴴ n_j) is N(0, ‖w‖² σ²/2), independent over symbols, and so
    is what devices add themselves.
    """

    seed: int
    trials: tuple[int, ...]

    def open(self, dim: int, reception: Reception) -> EquivalentReceiver:
        """See ``Uplink.open``."""
        return EquivalentReceiver(self, dim, reception)


class EquivalentReceiver:
    """The sum so far."""

    def __init__(self, uplink: EquivalentUplink, dim: int, reception: Reception) -> None:
        self._uplink, self._dim, self._reception = uplink, dim, reception
        self._gains = reception.gains.real.to(torch.float32)
        self._total: torch.Tensor | None = None

    def add(self, block: UpdateBlock) -> None:
        """See ``Receiver.add``."""
        self._gains = self._gains.to(block.updates.device)
        part = _sums(block, self._gains)
        self._total = part if self._total is None else self._total.add_(part)

    def finish(self) -> torch.Tensor:
        """See ``Receiver.finish``."""
        total = self._total
        assert total is not None
        for row, trial in enumerate(self._uplink.trials):
            variance = float(self._reception.noise_var[row])
            if variance > 0:
                generator = stream(self._uplink.seed, "receiver-noise", trial, self._reception.round_index)
                total[row] += normal_like(generator, self._dim, total.device) * variance**0.5
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
