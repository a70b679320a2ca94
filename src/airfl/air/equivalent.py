"""The uplink in its scalar form; no array of antennas × symbols is ever made."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from airfl.air.energy import EnergyReceiver
from airfl.air.rotation import Rotation
from airfl.air.setting import Setting
from airfl.air.uplink import Receiver, Uplink
from airfl.devices.sums import Sum
from airfl.devices.updates import Spanned, UpdateBlock
from airfl.parallel import in_threads
from airfl.randomness import normal_like, stream

#: Trials whose noise is drawn at a time.
ROWS = 16
#: Numbers of updates that are held in float64 at a time, and those that stay in a CPU's caches.
PORTION, CACHED = 2**25, 2**19
#: Imaginary parts of gains below this are rounding.
NO_TURN = 1e-9


@dataclass(frozen=True)
class EquivalentUplink(Uplink):
    """Δ̂ = Σ_i Re(g_i) Δ̄_i + N(0, v I_d), with gains g_i = wᴴ h_i s_i and v the variance of the whole noise.

    The same law as the signal-level uplink: Re(wᴴ n_j) is N(0, ‖w‖² σ²/2), independent over symbols, and so
    is what devices add themselves; the imaginary part, where it is another coordinate, is as large. In a round of
    several blocks each coordinate has the noise of its block; where updates were rotated the sum has Rᵀ of that noise.
    Where a symbol carries two coordinates as one complex number, Im(g_i) turns them:
    Δ̂ = Σ_i Re(g_i) Δ̄_i + J Σ_i Im(g_i) Δ̄_i with J(a, b) = (−b, a) for each pair.
    """

    seed: int
    trials: tuple[int, ...]

    def open(self, dim: int, setting: Setting) -> Receiver:
        """See ``Uplink.open``."""
        if setting.detects == "fresh energy":
            return EnergyReceiver(self.seed, self.trials, dim, setting)
        return EquivalentReceiver(self, dim, setting)


class EquivalentReceiver:
    """The sum so far, in float64.

    In float32 the rounding of a sum over K devices depends on all of them: with updates chosen for it, one device could
    move the sum by K²·2⁻²⁴ times what it sends. What is rounded to float32 has the noise in it already.
    """

    def __init__(self, uplink: EquivalentUplink, dim: int, setting: Setting) -> None:
        self._uplink, self._dim, self._setting = uplink, dim, setting
        gains = setting.gains if setting.blocks is None or setting.blocks.gains is None else setting.blocks.gains
        self._gains = gains.real.to(torch.float64)
        self._turned: torch.Tensor | None = None
        self._turns: torch.Tensor | None = None
        if setting.per_symbol > 1:
            # What rounding leaves of an imaginary part that is not there is nothing.
            turns = gains.imag.to(torch.float64)
            turns = torch.where(turns.abs() > NO_TURN, turns, 0.0)
            self._turns = turns if bool(turns.any()) else None
        self._where = None if setting.blocks is None else setting.blocks.grid.block_of(dim)
        self._rotation = None if setting.blocks is None else setting.blocks.rotation
        self._total: torch.Tensor | None = None
        # Sums that others may find meanwhile, and the rows they belong to; added in the order of their blocks.
        self._waiting: list[tuple[torch.Tensor, Sum]] = []

    def add(self, block: UpdateBlock) -> None:
        """See ``Receiver.add``."""
        self._gains = self._gains.to(block.trained.device)
        if self._total is None:
            self._total = torch.zeros(len(self._gains), self._dim, device=block.trained.device, dtype=torch.float64)
        self._add(self._total, block, self._gains)
        if self._turns is not None:
            self._turns = self._turns.to(block.trained.device)
            self._turned = torch.zeros_like(self._total) if self._turned is None else self._turned
            self._add(self._turned, block, self._turns)

    def _add(self, total: torch.Tensor, block: UpdateBlock, gains: torch.Tensor) -> None:
        if gains.ndim == 2 and isinstance(block.trained, Spanned):
            self._waiting.append((total[int(block.trial[0])], block.trained.later(_weights(block, gains))))
            return
        self._settle()
        if gains.ndim == 2:
            _add(total, block, gains)
        else:
            assert self._where is not None
            _add_by_blocks(total, block, gains, self._where.to(total.device), self._rotation)

    def _settle(self) -> None:
        """Add what waits."""
        for row, later in self._waiting:
            row += later.found
        self._waiting.clear()

    def sums(self) -> list[torch.Tensor]:
        """See ``Summing.sums``: Σ Re(g_i) Δ̄_i, and Σ Im(g_i) Δ̄_i where symbols carry two coordinates."""
        self._settle()
        assert self._total is not None
        if self._setting.per_symbol == 1:
            return [self._total]
        return [self._total, torch.zeros_like(self._total) if self._turned is None else self._turned]

    def take(self, sums: list[torch.Tensor]) -> None:
        """See ``Summing.take``."""
        self._settle()
        self._total = sums[0].clone() if self._total is None else self._total + sums[0]
        if len(sums) > 1:
            self._turned = sums[1].clone() if self._turned is None else self._turned + sums[1]

    def finish(self) -> torch.Tensor:
        """See ``Receiver.finish``."""
        self._settle()
        total = self._total
        assert total is not None
        if self._turned is not None:
            total += _quarter_turn(self._turned)
        std = self._setting.noise_var.sqrt().tolist()
        noisy = [row for row, value in enumerate(std) if value > 0]
        blocks, where = self._setting.blocks, self._where
        for some in range(0, len(noisy), ROWS):
            rows = noisy[some : some + ROWS]
            for row, noise in zip(rows, in_threads(self._unit_noise, rows), strict=True):
                scale: float | torch.Tensor = std[row]
                if blocks is not None and where is not None:
                    scale = blocks.noise_var[row].sqrt()[where].to(total.device)
                total[row] += self._as_summed(noise.to(total.device, torch.float64) * scale, row)
        if self._rotation is not None and self._is_rotated:
            total = self._rotation.back(total, torch.arange(len(total)))
        return total.float()

    @property
    def _is_rotated(self) -> bool:
        """Whether the sum is of rotated updates: where gains are the same in all blocks it is R of the plain sum."""
        return self._rotation is not None and self._gains.ndim == 3

    def _as_summed(self, noise: torch.Tensor, row: int) -> torch.Tensor:
        """Noise of one row, [d], beside the sum."""
        if self._rotation is None or self._is_rotated:
            return noise
        return self._rotation.back(noise.unsqueeze(0), torch.tensor([row]))[0]

    def _unit_noise(self, row: int) -> torch.Tensor:
        """N(0, I_d), keyed, drawn on the CPU."""
        uplink = self._uplink
        generator = stream(uplink.seed, "receiver-noise", uplink.trials[row], self._setting.round_index)
        return normal_like(generator, self._dim, torch.device("cpu"))


def _add(total: torch.Tensor, block: UpdateBlock, gains: torch.Tensor) -> None:
    """total += Σ g_i Δ̄_i over the block's replicas of each trial, [trials, d]; in the same order every time."""
    trained = block.trained
    assert isinstance(trained, torch.Tensor)
    # Scattered additions on a GPU come in any order; a small matrix product does not.
    add, most = (_by_product, PORTION) if trained.is_cuda else (_by_scattering, CACHED)
    weights, portion = _weights(block, gains), max(1, most // total.shape[1])
    for some in range(0, len(weights), portion):
        part = slice(some, some + portion)
        add(total, block.trial[part], weights[part], trained[part])


def _add_by_blocks(
    total: torch.Tensor, block: UpdateBlock, gains: torch.Tensor, where: torch.Tensor, rotation: Rotation | None
) -> None:
    """The same where gains [trials, K, B] differ between the blocks that coordinates are sent in, [d]."""
    add, portion = _by_product if total.is_cuda else _by_scattering, max(1, PORTION // total.shape[1])
    for some in range(0, len(block.trial), portion):
        part = slice(some, some + portion)
        trained, trial = block.trained[part], block.trial[part]
        trained = trained.dense() if isinstance(trained, Spanned) else trained
        trained = trained if rotation is None else rotation.forth(trained, trial)
        heard = trained.double() * gains[trial, block.slot[part]][:, where]
        left = heard.new_ones(len(trial)) if block.factors is None else block.factors[part].double()
        add(total, trial, left, heard)


def _quarter_turn(total: torch.Tensor) -> torch.Tensor:
    """(−b, a) for every pair (a, b) of coordinates, [trials, d]; of an odd last one the partner is thrown away."""
    even = torch.nn.functional.pad(total, (0, total.shape[1] % 2)).unflatten(-1, (-1, 2))
    return torch.stack([-even[..., 1], even[..., 0]], dim=-1).flatten(1)[:, : total.shape[1]]


def _weights(block: UpdateBlock, gains: torch.Tensor) -> torch.Tensor:
    weights = gains[block.trial, block.slot]
    return weights if block.factors is None else weights * block.factors


def _by_product(total: torch.Tensor, trial: torch.Tensor, weights: torch.Tensor, trained: torch.Tensor) -> None:
    mix = torch.zeros(len(total), len(weights), device=weights.device, dtype=weights.dtype)
    mix[trial, torch.arange(len(weights), device=mix.device)] = weights
    total.addmm_(mix, trained.double())


def _by_scattering(total: torch.Tensor, trial: torch.Tensor, weights: torch.Tensor, trained: torch.Tensor) -> None:
    total.index_add_(0, trial, trained * weights.unsqueeze(1))  # float64, as weights are
