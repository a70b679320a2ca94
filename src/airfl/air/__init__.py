"""The uplink: from what devices send to the base station's estimate of the sum.

In: the ``Setting`` of a round, blocks of updates. Out: the sum plus noise. May import ``schemes`` and all before it.
"""

from airfl.air.equivalent import EquivalentUplink
from airfl.air.setting import Setting
from airfl.air.signal import SignalUplink
from airfl.air.uplink import Receiver, Summing, Uplink

__all__ = ["EquivalentUplink", "Receiver", "Setting", "SignalUplink", "Summing", "Uplink"]
