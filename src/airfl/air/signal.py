"""The uplink with every antenna and symbol simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from airfl.air.energy import heard_afresh, measured
from airfl.air.hardware import converted, limited
from airfl.air.setting import Setting
from airfl.air.uplink import Uplink
from airfl.devices.updates import UpdateBlock
from airfl.randomness import Purpose, complex_normal, stream

#: Symbols whose noise a run draws from one keyed stream; fixed, so that the draw does not depend on the chunk size.
NOISE_BLOCK = 2048
#: Pairs whose masks are drawn from one keyed stream.
EDGES = 4096


@dataclass(frozen=True)
class SignalUplink(Uplink):
    """y_j = Σ_i h_i s_i (Δ̄_ij + cover_ij) + n_j with n_j ~ CN(0, (σ² + I) I_m), and the base station takes Re(wᴴ y_j).

    Amplifiers limit s_i Δ̄_ij, and converters round y_j, where the setting says so (``air.hardware``).

    Symbols are worked off in chunks: beside the updates themselves, memory is m × chunk complex numbers.

    Attributes:
        chunk_symbols: symbols held at a time, rounded up to whole noise blocks.
        noise_block: symbols whose noise is drawn from one keyed stream; another number is another draw of the same law.
    """

    seed: int
    trials: tuple[int, ...]
    chunk_symbols: int = 4 * NOISE_BLOCK
    noise_block: int = NOISE_BLOCK

    def open(self, dim: int, setting: Setting) -> SignalReceiver:
        """See ``Uplink.open``."""
        return SignalReceiver(self, dim, setting)

    def received(self, row: int, sent: torch.Tensor, setting: Setting) -> torch.Tensor:
        """Δ̂ of one trial whose devices send these updates, [K, d], in one block; or r, where energy is measured."""
        if setting.detects == "fresh energy":
            return measured(heard_afresh(self.seed, self.trials[row], row, sent, setting), row, setting)
        if setting.detects == "energy":
            return measured(self.antennas(row, sent, setting), row, setting)
        combiner = setting.combiner[row].conj()
        heard = torch.cat([combiner @ heard for heard in self.antennas(row, _symbols(sent, setting), setting)])
        both = heard.real if setting.per_symbol == 1 else torch.view_as_real(heard).flatten()[: sent.shape[1]]
        return both.to(torch.float32)

    def antennas(self, row: int, sent: torch.Tensor, setting: Setting) -> Iterator[torch.Tensor]:
        """What all antennas hear of one trial that sends these symbols, [K, symbols], chunk by chunk, [m, symbols]."""
        paths = setting.channels[row].mT * setting.tx_scaling[row]  # h_i s_i as columns, [m, K]
        blocks_per_chunk = max(1, -(-self.chunk_symbols // self.noise_block))
        size = blocks_per_chunk * self.noise_block
        for start in range(0, sent.shape[1], size):
            symbols = sent[:, start : start + size].to(torch.complex128, copy=True)
            self._cover(row, start, symbols, setting)
            if setting.hardware.limits:
                symbols = limited(symbols, setting.tx_scaling[row], setting.hardware.amplitude)
            received = paths @ symbols
            unit = self._unit_noise("antenna-noise", row, start, received.shape, setting)
            received += (setting.noise_power + setting.interference_power) ** 0.5 * unit
            yield self._converted(row, start, received, setting)

    def _converted(self, row: int, start: int, received: torch.Tensor, setting: Setting) -> torch.Tensor:
        """What converters make of a chunk, [m, symbols]."""
        bits, step = setting.hardware.bits, setting.hardware.step
        if bits is None or step is None:
            return received
        apart = () if setting.block is None else (setting.block,)
        first, count = start // self.noise_block, -(-received.shape[1] // self.noise_block)
        draws = [
            stream(self.seed, "dither", self.trials[row], setting.round_index, number, *apart).random(
                (len(received), self.noise_block, 2)
            )
            for number in range(first, first + count)
        ]
        dither = torch.from_numpy(np.concatenate(draws, axis=1)[:, : received.shape[1]] - 0.5)
        return converted(received, bits, step[row], dither)

    def _cover(self, row: int, start: int, symbols: torch.Tensor, setting: Setting) -> None:
        """Add what devices hide in to what they send, [K, symbols]; both coordinates of a symbol that carries two."""
        own, quadrature, masks = (
            float(part[row]) ** 0.5 for part in (setting.cover.own, setting.cover.quadrature, setting.cover.masks)
        )
        quadrature = quadrature if setting.per_symbol == 1 else own
        if own > 0 or quadrature > 0:
            unit = 2.0**0.5 * self._unit_noise("device-noise", row, start, symbols.shape, setting)
            if setting.cover.share is not None:
                unit *= setting.cover.weights(setting.active)[row].sqrt().unsqueeze(1)
            symbols += torch.complex(own * unit.real, quadrature * unit.imag)
        edges = torch.from_numpy(setting.edges[row])
        for first in range(0, len(edges) if masks > 0 else 0, EDGES):
            pairs = edges[first : first + EDGES]
            parts = max(setting.per_symbol, setting.cover.mask_parts)
            for coordinate, part in enumerate((symbols.real, symbols.imag)[:parts]):
                shared = masks * self._masks(row, first, start, (len(pairs), symbols.shape[1]), setting, coordinate)
                part.index_add_(0, pairs[:, 0], shared)
                part.index_add_(0, pairs[:, 1], -shared)

    def _masks(
        self, row: int, first: int, start: int, shape: tuple[int, int], setting: Setting, coordinate: int = 0
    ) -> torch.Tensor:
        """N(0, 1) for some edges and every symbol of a chunk: fresh for every round, block, coordinate and edge."""
        number, count = start // self.noise_block, -(-shape[1] // self.noise_block)
        apart = () if setting.block in (None, 0) and coordinate == 0 else (setting.block or 0, coordinate)
        draws = [
            stream(self.seed, "masks", self.trials[row], setting.round_index, block, first, *apart).standard_normal(
                (shape[0], self.noise_block)
            )
            for block in range(number, number + count)
        ]
        return torch.from_numpy(np.concatenate(draws, axis=1)[:, : shape[1]])

    def _unit_noise(self, purpose: Purpose, row: int, start: int, shape: torch.Size, setting: Setting) -> torch.Tensor:
        """CN(0, 1) for every antenna or device and symbol of a chunk."""
        apart = () if setting.block is None else (setting.block,)
        first, count = start // self.noise_block, -(-shape[1] // self.noise_block)
        draws = [
            complex_normal(
                stream(self.seed, purpose, self.trials[row], setting.round_index, number, *apart),
                (shape[0], self.noise_block),
            )
            for number in range(first, first + count)
        ]
        return torch.from_numpy(np.concatenate(draws, axis=1)[:, : shape[1]])


def _symbols(sent: torch.Tensor, setting: Setting) -> torch.Tensor:
    """What is sent in each symbol, [K, symbols]: a coordinate, or two as one complex number."""
    if setting.per_symbol == 1:
        return sent
    even = torch.nn.functional.pad(sent, (0, sent.shape[1] % 2))
    return torch.view_as_complex(even.reshape(len(even), -1, 2).to(torch.float64))


class SignalReceiver:
    """The updates so far; symbols can only be simulated once all devices are there."""

    def __init__(self, uplink: SignalUplink, dim: int, setting: Setting) -> None:
        self._uplink, self._setting = uplink, setting
        self._sent = torch.empty(*setting.gains.shape, dim)
        self._device = torch.device("cpu")

    def add(self, block: UpdateBlock) -> None:
        """See ``Receiver.add``."""
        self._sent[block.trial.cpu(), block.slot.cpu()] = block.updates.to("cpu", torch.float32)
        self._device = block.trained.device

    def finish(self) -> torch.Tensor:
        """See ``Receiver.finish``."""
        blocks, sent = self._setting.blocks, self._sent
        if blocks is None:
            return self._received(sent, self._setting).to(self._device)
        rotation, rows = blocks.rotation, torch.arange(len(sent))
        if rotation is not None:
            owners = rows.repeat_interleave(sent.shape[1])
            sent = rotation.forth(sent.flatten(0, 1), owners).view_as(sent)
        received, where = torch.zeros(len(sent), sent.shape[2]), blocks.grid.block_of(sent.shape[2])
        for number in where.unique().tolist():
            mine = where == number
            received[:, mine] = self._received(sent[..., mine], blocks.scene(number))
        if rotation is not None:
            received = rotation.back(received, rows).float()
        return received.to(self._device)

    def _received(self, sent: torch.Tensor, setting: Setting) -> torch.Tensor:
        return torch.stack([self._uplink.received(row, one, setting) for row, one in enumerate(sent)])
