"""What the server makes of what it received, a file per way."""

from airfl.schemes.decoders.mean import Mean
from airfl.schemes.decoders.of_senders import MeanOfSenders

__all__ = ["Mean", "MeanOfSenders"]
