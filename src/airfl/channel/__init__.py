"""From positions to channel vectors: path loss, fading, receiver noise, measured traces."""

from airfl.channel.link import Link, open_link
from airfl.channel.noise import noise_power_w

__all__ = ["Link", "noise_power_w", "open_link"]
