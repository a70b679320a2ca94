"""What devices send, a file per way."""

from airfl.schemes.encoders.clip import Clip, ClipWithCover, ClipWithNoise, Plain
from airfl.schemes.encoders.sign import Sign, SignWithMemory

__all__ = ["Clip", "ClipWithCover", "ClipWithNoise", "Plain", "Sign", "SignWithMemory"]
