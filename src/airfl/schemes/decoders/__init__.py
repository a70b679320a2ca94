"""What the server makes of what it received, a file per way."""

from airfl.schemes.decoders.mean import Mean
from airfl.schemes.decoders.senders import PerScheduled, PerSender

__all__ = ["Mean", "PerScheduled", "PerSender"]
