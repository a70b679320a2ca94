"""What the devices of one round send, block by block as they are trained, and what they remember of it."""

from __future__ import annotations

import torch

from airfl.air import Setting
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.rounds.records import Watch
from airfl.schemes import Encoder


class Sending:
    """One scheme's devices in one round.

    Attributes:
        watch: norms and losses of what passed by.
        memory: what all devices remember, [trials, n, d]; None for an encoder without memory.
    """

    def __init__(self, encoder: Encoder, setting: Setting, clip_norm: float, memory: torch.Tensor | None) -> None:
        self._encoder, self._clip_norm, self._length = encoder, clip_norm, setting.clip_norm
        self._outside = type(encoder).__module__.partition(".")[0] != "airfl"
        self._active = torch.from_numpy(setting.active)
        self.watch = Watch(*setting.active.shape)
        self.memory = None if memory is None else memory.clone()

    def encode(self, block: UpdateBlock) -> UpdateBlock:
        """What the devices of a block send."""
        trial, slot = block.trial.cpu(), block.slot.cpu()
        where = trial, self._active[trial, slot]
        own = None if self.memory is None else self.memory[where].to(block.trained.device)
        encoded = self._encoder.encode(block, self._clip_norm, own)
        if self._outside:
            self._check(encoded.block)
        if self.memory is not None and encoded.memory is not None:
            self.memory[where] = encoded.memory.to(self.memory.device)
        self.watch.see(encoded.block, encoded.norms)
        return encoded.block

    def _check(self, block: UpdateBlock) -> None:
        """Refuse what is longer than it is booked for: an encoder from outside is taken at nobody's word."""
        norms = torch.linalg.vector_norm(block.updates.double(), dim=1)
        if not bool((norms <= self._length).all()):  # NaN is not
            raise InputError(
                f"encoder `{type(self._encoder).__name__}` sends an update of length {float(norms.max()):.6g} where "
                f"its `length` says {self._length:.6g}: what is booked would be too small; bound what it sends"
            )
