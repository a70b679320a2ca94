"""Directions of combiners, of norm 1, for policies that find their own norms; and how devices are heard along them."""

from __future__ import annotations

import math

import numpy as np
import torch

from airfl.channel.blocks import place_of
from airfl.schemes.transceivers import Scene
from airfl.transceiver.design import received_gains
from airfl.transceiver.radio import asked_of, designed, designed_by_count, filled
from airfl.transceiver.wideband import CHUNK


def one_direction(scene: Scene, active: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """u = (1, …, 1)/√m everywhere, [trials, T, B, m], and uᴴh_i, [trials, T, K, B].

    Of independent antennas uᴴh̃ has the law of a single one's h̃.
    """
    antennas, count = scene.config.system.num_antennas, scene.grid.count
    unit = torch.full((antennas,), 1.0 / math.sqrt(antennas), dtype=torch.complex128)
    heard = torch.empty(*active.shape, count, dtype=torch.complex128)
    for t in scene.rounds:
        for number in range(count):
            heard[:, t, :, number] = received_gains(unit, scene.channels(t, number, active[:, t]))
    return unit.expand(*active.shape[:2], count, antennas), heard


def own_directions(
    scene: Scene, active: np.ndarray, everyone: np.ndarray, amplitude: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """The run's combiner for the fading h_i/√Λ_i of each block, and uᴴh_i.

    Args:
        active: who takes part, [trials, T, K]; −1 fills up rows.
        everyone: who might, for combiners that serve all.
        amplitude: √Λ_i, [trials, n].
    """
    config, radio, grid = scene.config, scene.radio, scene.grid
    served = active if config.scheme.combiner_columns == "active" else everyone
    unit = torch.empty(*active.shape[:2], grid.count, config.system.num_antennas, dtype=torch.complex128)
    heard = torch.empty(*active.shape, grid.count, dtype=torch.complex128)
    counts = (served >= 0).sum(axis=2)
    places = [(t, number) for t in scene.rounds for number in range(grid.count)]
    size = max(1, CHUNK // (len(active) * served.shape[2] * unit.shape[-1]))
    for first in range(0, len(places), size):
        some = places[first : first + size]
        fading = torch.stack(
            [
                scene.channels(t, number, served[:, t])
                / torch.from_numpy(np.take_along_axis(amplitude, filled(served[:, t]), axis=1)).unsqueeze(-1)
                for t, number in some
            ],
            dim=1,
        )
        at = np.array([t for t, _ in some])
        keys = [(t, *place_of(number, grid, config.channel).key) for t, number in some]
        ragged = bool((counts[:, at] != served.shape[2]).any())
        made = (
            designed_by_count(config, radio, fading, counts[:, at], keys)
            if ragged
            else designed(config, radio, fading, keys).require_ok()
        )
        for place, (t, number) in enumerate(some):
            unit[:, t, number] = made.combiner[:, place] / made.norm[:, place].unsqueeze(-1)
            heard[:, t, :, number] = received_gains(unit[:, t, number], scene.channels(t, number, active[:, t]))
        if radio.hears is not None and grid.count > 1:
            radio.hears(first + len(some), len(places))
    return unit, heard


def key_of(scene: Scene) -> tuple[object, ...]:
    """What such directions depend on beside channels, for policies that share them."""
    return ("fading", scene.rounds, scene.grid, *asked_of(scene.config), scene.config.scheme.interior_radius_m)
