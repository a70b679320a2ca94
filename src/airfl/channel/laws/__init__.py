"""Fading laws, a file each: what comes in is a configuration and trial numbers, what goes out are channels.

Imports geometry, configuration and randomness only. A law from outside is named by its import path.
"""

from airfl.channel.laws.law import Law, Placed
from airfl.channel.laws.outside import outside_law
from airfl.channel.laws.rayleigh import Rayleigh
from airfl.channel.laws.rician import Rician
from airfl.channel.laws.trace import Trace

LAWS: dict[str, type[Law]] = {"rayleigh": Rayleigh, "rician": Rician, "trace": Trace}

__all__ = ["LAWS", "Law", "Placed", "outside_law"]
