"""From positions to channel vectors: path loss, fading laws, receiver noise, measured traces.

In: a configuration, trial numbers. Out: channels, who takes part. May import ``participation`` and all before it.
"""

from airfl.channel.link import Link, open_link
from airfl.channel.noise import noise_power_w

__all__ = ["Link", "noise_power_w", "open_link"]
