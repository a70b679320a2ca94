"""An encoder of your own, with a memory: devices send signs, and carry over what the signs left out."""

import torch

from airfl.devices import UpdateBlock, row_norms
from airfl.schemes import Encoded, Encoder


class SignWithMemory(Encoder):
    """c/√d · sign(Δ + e), e what earlier rounds left out (error feedback): always just as long as the clip norm."""

    remembers = True

    def length(self, clip_norm: float) -> float:
        """Signs times c/√d are c long, a hair less in float32."""
        return clip_norm

    def encode(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None) -> Encoded:
        """A device whose update is not finite sends nothing and forgets nothing."""
        updates = block.updates
        whole = torch.isfinite(updates).all(dim=1, keepdim=True)
        wanted = torch.where(whole, updates, 0.0) + memory
        size = clip_norm * (1.0 - 1e-5) / wanted.shape[1] ** 0.5
        sent = torch.where(whole, size * torch.sign(wanted), 0.0)
        left = torch.where(whole, (wanted - sent).clamp(-1e3 * size, 1e3 * size), memory)
        return Encoded(block.with_updates(sent), row_norms(updates).nan_to_num(0.0, 0.0), left)
