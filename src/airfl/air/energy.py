"""The uplink where the base station measures energy: r_j = (‖y_j‖²/m − σ²)/ρ, one number for every symbol.

y_j = √ρ Σ_i h̃_ij x_ij + n_j with unknown fading h̃_ij ∈ C^m of unit power. On average r_j = Σ_i x_ij², what devices send
is not negative, and nobody needs to know a phase. The norm q of a round stands for ρ = 1/q².

Where fading is fresh for every symbol y_j is CN(0, (ρ Σ_i x_ij² + σ²) I_m) given what is sent, so ‖y_j‖² is that times
the sum of m standard exponentials: the scalar form. Where it stands still, over a block, no such form exists: symbols
share their fading.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from scipy.special import gammainc, ndtri

from airfl.air.setting import Setting
from airfl.devices.updates import UpdateBlock
from airfl.privacy import BudgetError
from airfl.randomness import complex_normal, stream

#: Updates that are squared at a time.
PORTION = 2**24
#: Symbols whose fading is drawn from one keyed stream.
CHUNK = 2048


class EnergyReceiver:
    """The scalar form: energies of what was sent so far, in float64, and then a draw for every symbol."""

    def __init__(self, seed: int, trials: tuple[int, ...], dim: int, setting: Setting) -> None:
        self._seed, self._trials, self._dim, self._setting = seed, trials, dim, setting
        self._total: torch.Tensor | None = None

    def add(self, block: UpdateBlock) -> None:
        """See ``Receiver.add``."""
        if self._total is None:
            rows = len(self._setting.active)
            self._total = torch.zeros(rows, self._dim, dtype=torch.float64, device=block.trained.device)
        updates, size, heard = block.updates, max(1, PORTION // self._dim), self._setting.heard.to(block.trained.device)
        for first in range(0, len(updates), size):
            part = slice(first, first + size)
            there = heard[block.trial[part], block.slot[part]].unsqueeze(1)
            self._total.index_add_(0, block.trial[part], updates[part].double().square() * there)

    def sums(self) -> list[torch.Tensor]:
        """See ``Summing.sums``."""
        assert self._total is not None
        return [self._total]

    def take(self, sums: list[torch.Tensor]) -> None:
        """See ``Summing.take``."""
        self._total = sums[0].clone() if self._total is None else self._total + sums[0]

    def finish(self) -> torch.Tensor:
        """See ``Receiver.finish``."""
        total, setting = self._total, self._setting
        assert total is not None
        if not setting.over_air:  # as if all met the loudest fading that is booked
            return (total * setting.gain_bound.square().unsqueeze(1).to(total.device)).float()
        antennas = setting.channels.shape[-1]
        floor = setting.floor.unsqueeze(1).to(total.device)
        drawn = torch.stack([self._exponentials(row, antennas) for row in range(len(total))]).to(total.device)
        return (drawn * (total + floor) - floor).float()

    def _exponentials(self, row: int, antennas: int) -> torch.Tensor:
        """‖CN(0, I_m)‖²/m for every symbol, [d]."""
        generator = stream(self._seed, "receiver-noise", self._trials[row], self._setting.round_index)
        return torch.from_numpy(generator.standard_gamma(antennas, self._dim) / antennas)


def measured(heard: Iterable[torch.Tensor], row: int, setting: Setting) -> torch.Tensor:
    """r of one trial, given what its antennas hear chunk by chunk, [m, symbols]."""
    energy = torch.cat([chunk.abs().square().mean(dim=0) for chunk in heard])
    return (energy * setting.combiner[row].abs().square().sum() - setting.floor[row]).float()


def heard_afresh(seed: int, trial: int, row: int, sent: torch.Tensor, setting: Setting) -> Iterator[torch.Tensor]:
    """What antennas hear of updates [K, d] with fading of its own for every symbol, chunk by chunk, [m, symbols]."""
    antennas = setting.channels.shape[-1]
    scale = 1.0 / torch.linalg.vector_norm(setting.combiner[row])
    symbols = torch.where(setting.heard[row].unsqueeze(1), sent, 0.0).to(torch.complex128)
    for number, part in enumerate(symbols.split(CHUNK, dim=1)):
        if not setting.over_air:  # as if all met the loudest fading that is booked
            loudest = setting.gain_bound[row] * part.real.square().sum(dim=0).sqrt()
            yield (scale * loudest).to(torch.complex128).expand(antennas, -1)
            continue
        where, size = (trial, setting.round_index, number), part.shape[1]
        drawn = complex_normal(stream(seed, "fresh-fading", *where), (antennas, len(symbols), CHUNK))
        _require_within(drawn[..., :size], row, setting)
        noise = complex_normal(stream(seed, "antenna-noise", *where), (antennas, CHUNK))
        heard = scale * torch.einsum("akn,kn->an", torch.from_numpy(drawn)[..., :size], part)
        yield heard + setting.noise_power**0.5 * torch.from_numpy(noise)[:, :size]


def _require_within(fading: np.ndarray, row: int, setting: Setting) -> None:
    """Refuse with ``BudgetError`` fading [m, K, symbols] that is stronger than what was booked for every symbol."""
    loudest = (
        np.square(np.abs(fading)).sum(axis=0).max(axis=1, initial=0.0)[setting.heard[row].numpy()].max(initial=0.0)
    )
    bound = float(setting.gain_bound[row])
    if math.sqrt(float(loudest)) > bound:
        raise BudgetError(
            f"fading of length {math.sqrt(float(loudest)):.4g} in round {setting.round_index} exceeds the "
            f"{bound:.4g} that is booked for all symbols of a run, which happens with a chance of `channel.csi_outage` "
            "at most; the model is not released"
        )


def normal_scores(received: torch.Tensor, setting: Setting) -> torch.Tensor:
    """What is received while nobody sends, [trials, d], as standard normal numbers: by its law, quantile for quantile.

    r/floor + 1 is a mean of m exponentials.
    """
    antennas = setting.channels.shape[-1]
    unit = (received.double() / setting.floor.unsqueeze(1) + 1.0) * antennas
    share = torch.from_numpy(gammainc(antennas, unit.clamp(min=0.0).numpy()))
    return torch.from_numpy(ndtri(share.clamp(1e-16, 1.0 - 1e-16).numpy()))
