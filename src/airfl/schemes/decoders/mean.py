"""What the server makes of what it received."""

from __future__ import annotations

from typing import ClassVar

import torch

from airfl.schemes.parts import Decoder


class Mean(Decoder):
    """The received sum as it is: divided by K it is the mean update, plus noise."""

    linear: ClassVar[bool] = True

    def decode(self, received: torch.Tensor, clip_norm: float, senders: float) -> torch.Tensor:
        """See ``Decoder.decode``."""
        return received
