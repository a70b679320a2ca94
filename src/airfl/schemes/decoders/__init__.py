"""What the server makes of what it received, a file per way."""

from airfl.schemes.decoders.mean import Mean

__all__ = ["Mean"]
