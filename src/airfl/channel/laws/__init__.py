"""Fading laws, a file each: what comes in is a configuration and trial numbers, what goes out are channels.

Imports geometry, path loss, the link budget, configuration and randomness only. A law from outside is named by its
import path.
"""

from airfl.catalogue import SITES
from airfl.channel.laws.cdl import Cdl
from airfl.channel.laws.law import Law, Placed
from airfl.channel.laws.outside import outside_law
from airfl.channel.laws.rayleigh import Rayleigh
from airfl.channel.laws.rician import Rician
from airfl.channel.laws.site import Site
from airfl.channel.laws.tdl import Tdl
from airfl.channel.laws.trace import Trace

LAWS: dict[str, type[Law]] = {"rayleigh": Rayleigh, "rician": Rician, "trace": Trace, "tdl": Tdl, "cdl": Cdl}
LAWS |= dict.fromkeys(SITES, Site)

__all__ = ["LAWS", "Law", "Placed", "outside_law"]
