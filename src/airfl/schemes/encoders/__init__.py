"""What devices send, a file per way."""

from airfl.schemes.encoders.clip import Clip, ClipWithCover, ClipWithNoise, ClipWithOwnNoise, ClipWithZeroSum, Plain

__all__ = ["Clip", "ClipWithCover", "ClipWithNoise", "ClipWithOwnNoise", "ClipWithZeroSum", "Plain"]
