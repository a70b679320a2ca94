"""The mean over those who send, whoever that is."""

from __future__ import annotations

import torch

from airfl.schemes.parts import Decoder
from airfl.schemes.public import Public


class MeanOfSenders(Decoder):
    """Entry j of the received sum over the number of its senders N_j, times K: divided by K it is their mean.

    N_j follows from channels, so it is public. Where nobody sends, the model stays as it is.
    """

    def decode(self, received: torch.Tensor, clip_norm: float, senders: float) -> torch.Tensor:
        """The same where all of them send."""
        return received

    def decode_in(self, received: torch.Tensor, clip_norm: float, senders: float, public: Public) -> torch.Tensor:
        """See ``Decoder.decode_in``."""
        count = public.senders(received.shape[1])
        factor = torch.where(count > 0, senders / count.clamp(min=1.0), 0.0)
        return received * factor.to(received)
