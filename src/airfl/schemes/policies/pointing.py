"""Where combiners point, before anyone has asked how long they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from airfl.schemes.transceivers import Scene
from airfl.transceiver.design import received_gains
from airfl.transceiver.wideband import design_blocks


@dataclass(frozen=True)
class Pointing:
    """Unit directions of all rounds and blocks.

    Attributes:
        active: who transmits, [trials, T, K]; −1 where fewer do.
        unit: w̄, [trials, T, B, m].
        heard: w̄ᴴ h_i, [trials, T, K, B]; 0 where nobody transmits.
    """

    active: np.ndarray
    unit: torch.Tensor
    heard: torch.Tensor


def pointing(scene: Scene) -> Pointing:
    """The directions of the configured combiner."""
    if scene.grid.count == 1:
        design, active, _ = scene.radio.rounds(scene.config, scene.rounds)
        unit = (design.combiner / design.norm.unsqueeze(-1)).unsqueeze(2)
    else:
        blocks = design_blocks(scene.config, scene.radio, scene.rounds, scene.grid)
        active, unit = blocks.active, blocks.combiner / blocks.norm.unsqueeze(-1)
    return Pointing(active, unit, heard_by(scene, active, unit))


def heard_by(scene: Scene, active: np.ndarray, combiner: torch.Tensor) -> torch.Tensor:
    """wᴴ h_i for combiners [trials, T, B, m], [trials, T, K, B]; 0 where nobody transmits."""
    heard = torch.zeros(*active.shape, scene.grid.count, dtype=torch.complex128)
    for t in scene.rounds:
        for number in range(scene.grid.count):
            channels = scene.channels(t, number, active[:, t])
            heard[:, t, :, number] = received_gains(combiner[:, t, number], channels)
    return heard.masked_fill(torch.from_numpy(active < 0).unsqueeze(-1), 0.0)


def mean_gain(gains: torch.Tensor, over: tuple[int, ...]) -> torch.Tensor:
    """The mean over those who send of gains [trials, T, K, B], which are at most one; one where nobody sends.

    Args:
        over: dimensions that are taken together, which are left with one place.
    """
    count = (gains > 0).double().sum(dim=over, keepdim=True)
    total = gains.sum(dim=over, keepdim=True)
    return torch.where(total > 0, total / count.clamp(min=1.0), 1.0).clamp(max=1.0)


def inverted(gains: torch.Tensor, heard: torch.Tensor) -> torch.Tensor:
    """s_i with which wᴴ h_i s_i is a wanted gain; 0 where that is, whatever is heard."""
    sends = gains > 0
    return torch.where(sends, gains / torch.where(sends, heard, 1.0), 0.0)
