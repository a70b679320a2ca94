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
    """Δ̂ = Σ_i Re(g_i) Δ̄_i + N(0, v I_d), with gains g_i = wᴴ h_i s_i and v = ‖w‖² σ²/2.

    The same law as the signal-level uplink: Re(wᴴ n_j) is N(0, ‖w‖² σ²/2), independent over symbols.
    """

    seed: int
    trials: tuple[int, ...]

    def receive(self, blocks: Iterable[UpdateBlock], dim: int, reception: Reception) -> torch.Tensor:
        """See ``Uplink.receive``."""
        gains = reception.gains.real.to(torch.float32)
        total: torch.Tensor | None = None
        for block in blocks:
            # A small matrix product rather than scattered additions: the same order of summation every time.
            mix = torch.zeros(len(self.trials), len(block.trial), device=block.updates.device)
            mix[block.trial, torch.arange(len(block.trial), device=mix.device)] = gains.to(mix.device)[
                block.trial, block.slot
            ]
            part = mix @ block.updates
            total = part if total is None else total + part
        assert total is not None
        for row, trial in enumerate(self.trials):
            variance = float(reception.noise_var[row])
            if variance > 0:
                generator = stream(self.seed, "receiver-noise", trial, reception.round_index)
                total[row] += normal_like(generator, dim, total.device) * variance**0.5
        return total
