"""What truncation leaves: a mean over who was heard."""

from __future__ import annotations

import torch

from airfl.config import Config
from airfl.schemes.decoders.mean import Mean
from airfl.schemes.parts import Decoder
from airfl.schemes.public import Public


class PerSender(Decoder):
    """Every coordinate divided by the number N_j of devices that send it, in place of K; 0 where nobody does.

    Masks follow from channels, so this costs no privacy, but it tells who takes part: sampling earns no credit.
    """

    def decode(self, received: torch.Tensor, clip_norm: float, senders: float) -> torch.Tensor:
        """See ``Decoder.decode``: without masks everybody sends everything."""
        return received

    def decode_in(self, received: torch.Tensor, clip_norm: float, senders: float, public: Public) -> torch.Tensor:
        """See ``Decoder.decode_in``."""
        return _over(public.senders(received.shape[1]), received, senders)


class PerScheduled(PerSender):
    """All coordinates divided by the number of devices that take part and may send at all: memories deliver the rest.

    Where all devices may that is K, and so the plain mean.
    """

    def configured(self, config: Config) -> Decoder:
        """See ``Decoder.configured``."""
        return Mean() if config.scheme.interior_radius_m is None else self

    def decode_in(self, received: torch.Tensor, clip_norm: float, senders: float, public: Public) -> torch.Tensor:
        """See ``Decoder.decode_in``."""
        count = torch.from_numpy((public.active >= 0).sum(axis=1)).double().unsqueeze(1)
        return _over(count, received, senders)


def _over(count: torch.Tensor, received: torch.Tensor, senders: float) -> torch.Tensor:
    """What was received, [trials, d], over a count, [trials, d or 1], in place of K; 0 where that is none."""
    factor = torch.where(count > 0, senders / count.clamp(min=1.0), 0.0)
    return (received.double() * factor.to(received.device)).to(received.dtype)
