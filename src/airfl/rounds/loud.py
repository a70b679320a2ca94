"""How loud devices are where energy is measured: what counts is the length of all that antennas hear of them."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from airfl.air import Setting
from airfl.schemes import Detection


def measuring(setting: Setting, detects: Detection, credited_power: float) -> Setting:
    """The setting of a round, or of a block, whose energy is measured: gains ‖h_i s_i‖ ‖w‖, and who sees what.

    Whoever sees energies sees no more than who sees the antennas: what is booked for models is what the base station
    sees. Where fading is fresh for every symbol that is the bound which all symbols keep.

    Args:
        credited_power: σ² as it counts against the base station.
    """
    if detects == "sum":
        return setting
    norm = torch.linalg.vector_norm(setting.combiner, dim=-1, keepdim=True)
    paths = torch.linalg.vector_norm(setting.channels, dim=-1) * setting.tx_scaling.abs()
    gains = torch.where(setting.heard, paths * norm, 0.0)
    seen = dict(setting.seen)
    if detects == "fresh energy":
        gains = torch.where(setting.heard, 1.0, 0.0).double()
        most = setting.gain_bound.unsqueeze(1) / norm * math.sqrt(2.0 / credited_power)
        seen["base-station"] = torch.where(seen["base-station"] > 0, most, 0.0)
    return replace(setting, gains=gains.to(torch.complex128), seen=seen, detects=detects)
