"""What devices send, a file per way."""

from airfl.schemes.encoders.clip import Clip, ClipWithCover, ClipWithNoise, ClipWithOwnNoise, ClipWithZeroSum, Plain
from airfl.schemes.encoders.dither import Dithered
from airfl.schemes.encoders.memory import ClipWithMemory
from airfl.schemes.encoders.sign import Sign, SignWithMemory

__all__ = [
    "Clip",
    "ClipWithCover",
    "ClipWithMemory",
    "ClipWithNoise",
    "ClipWithOwnNoise",
    "ClipWithZeroSum",
    "Dithered",
    "Plain",
    "Sign",
    "SignWithMemory",
]
