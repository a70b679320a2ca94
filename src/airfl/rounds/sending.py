"""What the devices of one round send, block by block as they are trained, and what they remember of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from airfl.air import Setting
from airfl.devices import UpdateBlock, row_norms
from airfl.errors import InputError
from airfl.imports import calling, is_outside
from airfl.rounds.records import Watch
from airfl.schemes import Encoded, Encoder, Public

#: Updates whose energies are looked at together.
PORTION = 256


@dataclass(frozen=True)
class Means:
    """What devices may spend on a round.

    Attributes:
        energies: of updates [n, d] of these rows [n] in each block, [n, B].
        spent: |s_ib|², [trials, K, B].
        limit: of a symbol on average over the round, [trials, K].
        symbols: of a round.
    """

    energies: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    spent: torch.Tensor
    limit: torch.Tensor
    symbols: int


class Sending:
    """One scheme's devices in one round; each sends once.

    Attributes:
        watch: norms and losses of what passed by.
        memory: what devices from number ``offset`` on remember, [trials, n, d]; None for an encoder without memory.
    """

    def __init__(
        self,
        encoder: Encoder,
        setting: Setting,
        clip_norm: float,
        memory: torch.Tensor | None,
        public: Public,
        offset: int = 0,
    ) -> None:
        self._offset = offset
        self._encoder, self._clip_norm, self._length = encoder, clip_norm, setting.clip_norm
        self._public = public
        self._active, self._means = torch.from_numpy(setting.active), _means(setting)
        self._sent = torch.zeros(setting.active.shape, dtype=torch.bool)
        self.watch = Watch(*setting.active.shape)
        self.memory = None if memory is None else memory.clone()

    def encode(self, block: UpdateBlock) -> UpdateBlock:
        """What the devices of a block send."""
        where = block.trial.cpu(), block.slot.cpu()
        places = where[0] * self._sent.shape[1] + where[1]
        if len(places.unique()) < len(places) or bool(self._sent[where].any()):
            raise InputError("the engine handed on a device's update twice in one round: booked is once")
        self._sent[where] = True
        device = self._active[where]
        own = None
        if self.memory is not None:  # places where nobody sends remember nothing
            own = self.memory[where[0], (device - self._offset).clamp(min=0)]
            own = own.masked_fill((device < 0).unsqueeze(1), 0.0).to(block.trained.device)
        with calling(self._encoder, "encoder"):
            encoded = self._encoder.encode_in(block, self._clip_norm, own, self._public)
            if is_outside(self._encoder):
                self._check(block, encoded)
        if self.memory is not None and encoded.memory is not None:
            there = device >= 0
            self.memory[where[0][there], device[there] - self._offset] = encoded.memory.to(self.memory.device)[there]
        self.watch.see(encoded.block, encoded.norms)
        return encoded.block if self._means is None else self._within_power(encoded.block, self._means)

    def _within_power(self, block: UpdateBlock, means: Means) -> UpdateBlock:
        """Updates whose energy lies where it costs them much are scaled down, so that they keep to their power.

        The noise stays what it is, and nobody's contribution gets longer.
        """
        where = block.trial.cpu(), block.slot.cpu()
        parts = zip(block.updates.split(PORTION), where[0].split(PORTION), strict=True)
        energy = torch.cat([means.energies(some, rows) for some, rows in parts]).cpu()
        power = (energy * means.spent[where]).sum(dim=1) / means.symbols
        # A little less, lest float32 rounds the other way.
        room = (means.limit[where] * (1.0 - 1e-6) / power.clamp(min=1e-300)).sqrt().clamp(max=1.0)
        self.watch.kept[where] = room
        factors = room.to(block.trained.device, torch.float32)
        return replace(block, factors=factors if block.factors is None else block.factors * factors)

    def _check(self, block: UpdateBlock, encoded: Encoded) -> None:
        """Refuse what is longer than it is booked for, or comes twice: what others wrote is taken at nobody's word."""
        name, made = type(self._encoder).__name__, encoded.block
        if not (torch.equal(made.trial, block.trial) and torch.equal(made.slot, block.slot)):
            raise InputError(f"encoder `{name}` must return the same devices as it was given, each once")
        memory = encoded.memory
        if self.memory is not None and memory is not None:
            shape = len(block.trial), self.memory.shape[2]
            if not isinstance(memory, torch.Tensor) or memory.shape != shape:
                raise InputError(f"encoder `{name}` must return memories of shape {shape}")
        norms = torch.linalg.vector_norm(made.updates.double(), dim=1)
        room = self._encoder.room
        if len(norms) != len(block.trial) or not bool((norms * (1.0 + room) <= self._length).all()):  # NaN is not
            raise InputError(
                f"encoder `{name}` sends an update of length {float(norms.max()):.9g} where its `length` says "
                f"{self._length:.9g}: what is booked would be too small; bound it, and leave {room:g} of it for "
                "rounding"
            )


def _means(setting: Setting) -> Means | None:
    """What devices may spend, where an update of full length could cost more than there is."""
    blocks = setting.blocks
    if blocks is not None:
        return Means(blocks.energies, blocks.spent, blocks.power_limit, blocks.grid.symbols)
    if math.isinf(setting.power_limit):
        return None
    spent = setting.tx_scaling.abs().square().unsqueeze(-1)
    return Means(_per_symbol, spent, torch.full(spent.shape[:2], setting.power_limit, dtype=torch.float64), 1)


def _per_symbol(updates: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """‖x‖²/d in the one block that there is, [n, 1]; a symbol carries a coordinate."""
    return (row_norms(updates).square() / updates.shape[1]).unsqueeze(1)
