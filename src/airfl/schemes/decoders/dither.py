"""What energies stand for, once the dither is undone."""

from __future__ import annotations

import torch

from airfl.schemes.encoders.dither import dither
from airfl.schemes.parts import Decoder
from airfl.schemes.public import Public


class Undithered(Decoder):
    """φ ⊙ r, with r the energies that were received above those of the noise: on average Σ_i φ ⊙ g_i."""

    def decode(self, received: torch.Tensor, clip_norm: float, senders: float) -> torch.Tensor:
        """Nobody asks: without the public dither energies have no sign."""
        raise NotImplementedError

    def decode_in(self, received: torch.Tensor, clip_norm: float, senders: float, public: Public) -> torch.Tensor:
        """See ``Decoder.decode_in``."""
        return dither(public, received.shape[1]).to(received.device) * received
