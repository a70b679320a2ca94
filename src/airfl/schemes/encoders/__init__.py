"""What devices send, a file per way."""

from airfl.schemes.encoders.clip import Clip, ClipWithCover, ClipWithNoise, Plain
from airfl.schemes.encoders.memory import ClipWithMemory

__all__ = ["Clip", "ClipWithCover", "ClipWithMemory", "ClipWithNoise", "Plain"]
