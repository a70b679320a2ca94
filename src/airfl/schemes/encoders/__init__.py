"""What devices send, a file per way."""

from airfl.schemes.encoders.clip import Clip, ClipWithCover, ClipWithNoise, Plain
from airfl.schemes.encoders.dither import Dithered
from airfl.schemes.encoders.sign import Sign, SignWithMemory

__all__ = ["Clip", "ClipWithCover", "ClipWithNoise", "Dithered", "Plain", "Sign", "SignWithMemory"]
