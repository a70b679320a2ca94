"""What the devices of one round send, block by block as they are trained, and what they remember of it."""

from __future__ import annotations

from dataclasses import replace

import torch

from airfl.air import Setting
from airfl.air.setting import Blocks
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.imports import calling, is_outside
from airfl.rounds.records import Watch
from airfl.schemes import Encoded, Encoder, Public

#: Updates whose energies are looked at together.
PORTION = 256


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
        self._active, self._blocks = torch.from_numpy(setting.active), setting.blocks
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
        return encoded.block if self._blocks is None else self._within_power(encoded.block, self._blocks)

    def _within_power(self, block: UpdateBlock, blocks: Blocks) -> UpdateBlock:
        """Updates whose energy lies in blocks that cost them much are scaled down, so that they keep to their power.

        The noise stays what it is, and nobody's contribution gets longer.
        """
        where = block.trial.cpu(), block.slot.cpu()
        parts = zip(block.updates.split(PORTION), where[0].split(PORTION), strict=True)
        energy = torch.cat([blocks.energies(some, rows) for some, rows in parts]).cpu()
        power = (energy * blocks.spent[where]).sum(dim=1) / blocks.grid.symbols
        # A little less, lest float32 rounds the other way.
        room = (blocks.power_limit[where] * (1.0 - 1e-6) / power.clamp(min=1e-300)).sqrt().clamp(max=1.0)
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
        if len(norms) != len(block.trial) or not bool((norms <= self._length * (1.0 - 1e-9)).all()):  # NaN is not
            raise InputError(
                f"encoder `{name}` sends an update of length {float(norms.max()):.9g} where its `length` says "
                f"{self._length:.9g}: what is booked would be too small; bound it, and leave room for rounding"
            )
