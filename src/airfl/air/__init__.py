"""The uplink: from clipped updates to the base station's estimate of their sum."""

from airfl.air.equivalent import EquivalentUplink
from airfl.air.setting import Setting
from airfl.air.signal import SignalUplink
from airfl.air.uplink import Receiver, Uplink

__all__ = ["EquivalentUplink", "Receiver", "Setting", "SignalUplink", "Uplink"]
