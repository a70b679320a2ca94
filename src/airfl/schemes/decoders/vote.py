"""The server goes by the majority."""

from __future__ import annotations

import torch

from airfl.schemes.parts import Decoder


class Vote(Decoder):
    """K sign(z): the model moves by η_g η in every coordinate, however many agreed. sign(0) = 0."""

    def decode(self, received: torch.Tensor, clip_norm: float, senders: float) -> torch.Tensor:
        """See ``Decoder.decode``."""
        return senders * torch.sign(received)
