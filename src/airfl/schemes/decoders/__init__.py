"""What the server makes of what it received, a file per way."""

from airfl.schemes.decoders.dither import Undithered
from airfl.schemes.decoders.mean import Mean
from airfl.schemes.decoders.senders import PerScheduled, PerSender
from airfl.schemes.decoders.vote import Vote

__all__ = ["Mean", "PerScheduled", "PerSender", "Undithered", "Vote"]
