"""What the devices of one round send, block by block as they are trained, and what they remember of it."""

from __future__ import annotations

import torch

from airfl.air import Setting
from airfl.devices import UpdateBlock
from airfl.rounds.records import Watch
from airfl.schemes import Encoder


class Sending:
    """One scheme's devices in one round.

    Attributes:
        watch: norms and losses of what passed by.
        memory: what all devices remember, [trials, n, d]; None for an encoder without memory.
    """

    def __init__(self, encoder: Encoder, setting: Setting, clip_norm: float, memory: torch.Tensor | None) -> None:
        self._encoder, self._clip_norm = encoder, clip_norm
        self._active = torch.from_numpy(setting.active)
        self.watch = Watch(*setting.active.shape)
        self.memory = None if memory is None else memory.clone()

    def encode(self, block: UpdateBlock) -> UpdateBlock:
        """What the devices of a block send."""
        trial, slot = block.trial.cpu(), block.slot.cpu()
        where = trial, self._active[trial, slot]
        own = None if self.memory is None else self.memory[where].to(block.trained.device)
        encoded = self._encoder.encode(block, self._clip_norm, own)
        if self.memory is not None and encoded.memory is not None:
            self.memory[where] = encoded.memory.to(self.memory.device)
        self.watch.see(encoded.block, encoded.norms)
        return encoded.block
