"""The combiner methods by name. A method maps channels [..., K, m] to a ``Design``."""

from __future__ import annotations

from collections.abc import Callable

import torch

from airfl.transceiver.ascent import ascent
from airfl.transceiver.coordinate import coordinate
from airfl.transceiver.design import Design
from airfl.transceiver.mrc import dominant, mrc
from airfl.transceiver.multicast import multicast
from airfl.transceiver.sdr import sdr
from airfl.transceiver.zero_forcing import zero_forcing

#: minimise ‖w‖² subject to |wᴴ h_i| ≥ 1 for all served devices, exactly or approximately
Combiner = Callable[[torch.Tensor], Design]

COMBINERS: dict[str, Combiner] = {
    "auto": multicast,  # the best of ours everywhere that was measured (docs/transceiver.md)
    "multicast": multicast,
    "coordinate": coordinate,
    "zero-forcing": zero_forcing,
    "sdr": sdr,
    "ascent": ascent,
    "mrc": mrc,
    "dominant": dominant,
}

#: Methods that need at least as many antennas as served devices.
NEEDS_ANTENNAS = ("zero-forcing", "coordinate")
