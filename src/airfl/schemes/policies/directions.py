"""Directions of combiners, of norm 1, for policies that find their own norms; and how devices are heard along them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from airfl.channel.blocks import place_of
from airfl.schemes.transceivers import Scene
from airfl.transceiver.design import in_phase, received_gains
from airfl.transceiver.radio import asked_of, designed, designed_by_count, filled
from airfl.transceiver.wideband import CHUNK


@dataclass(frozen=True)
class Directions:
    """Combiners of norm 1, and what comes of them.

    Attributes:
        unit: u_tb, [trials, T, B, m].
        heard: u_tbᴴh_i, [trials, T, K, B].
        level: what |u_tbᴴh_i|²/Λ_i is taken to be on average, [trials, T, B].
    """

    unit: torch.Tensor
    heard: torch.Tensor
    level: torch.Tensor


def one_direction(scene: Scene, active: np.ndarray) -> Directions:
    """u = (1, …, 1)/√m everywhere: of independent antennas uᴴh̃ has the law of a single one's h̃."""
    antennas, count = scene.config.system.num_antennas, scene.grid.count
    unit = torch.full((antennas,), 1.0 / math.sqrt(antennas), dtype=torch.complex128)
    heard = torch.empty(*active.shape, count, dtype=torch.complex128)
    for t in scene.rounds:
        for number in range(count):
            heard[:, t, :, number] = received_gains(unit, scene.channels(t, number, active[:, t]))
    shape = (*active.shape[:2], count)
    return Directions(unit.expand(*shape, antennas), heard, torch.ones(shape, dtype=torch.float64))


def own_directions(scene: Scene, active: np.ndarray, everyone: np.ndarray, amplitude: np.ndarray) -> Directions:
    """A direction for each block: the one that fading h_i/√Λ_i is strongest in, or the run's combiner for it.

    Args:
        active: who takes part, [trials, T, K]; −1 fills up rows.
        everyone: who might, for combiners that serve all.
        amplitude: √Λ_i, [trials, n].
    """
    config, radio, grid = scene.config, scene.radio, scene.grid
    served = active if config.scheme.combiner_columns == "active" else everyone
    shape = (*active.shape[:2], grid.count)
    unit = torch.empty(*shape, config.system.num_antennas, dtype=torch.complex128)
    heard = torch.empty(*active.shape, grid.count, dtype=torch.complex128)
    level = torch.ones(shape, dtype=torch.float64)
    counts = (served >= 0).sum(axis=2)
    places = [(t, number) for t in scene.rounds for number in range(grid.count)]
    size = max(1, CHUNK // (len(active) * served.shape[2] * unit.shape[-1]))
    for first in range(0, len(places), size):
        some = places[first : first + size]
        at = np.array([t for t, _ in some])
        fading = torch.stack([_fading(scene, t, number, served[:, t], amplitude) for t, number in some], dim=1)
        if config.scheme.truncation_combiner == "strongest":
            made, means = strongest(fading.numpy(), served[:, at] >= 0)
        else:
            keys = [(t, *place_of(number, grid, config.channel).key) for t, number in some]
            ragged = bool((counts[:, at] != served.shape[2]).any())
            design = (
                designed_by_count(config, radio, fading, counts[:, at], keys)
                if ragged
                else designed(config, radio, fading, keys).require_ok()
            )
            made, means = design.combiner / design.norm.unsqueeze(-1), torch.ones(design.norm.shape).double()
        for place, (t, number) in enumerate(some):
            unit[:, t, number], level[:, t, number] = made[:, place], means[:, place]
            heard[:, t, :, number] = received_gains(made[:, place], scene.channels(t, number, active[:, t]))
        if radio.hears is not None and grid.count > 1:
            radio.hears(first + len(some), len(places))
    return Directions(unit, heard, level)


def strongest(fading: np.ndarray, there: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """u of norm 1 that maximises Σ_i |uᴴh̃_i|² for fading [..., K, m], and the mean of |uᴴh̃_i|².

    The main eigenvector of Σ h̃_i h̃_iᴴ, or of the K × K products of devices where these are fewer.

    Args:
        there: places that are taken, [..., K].
    """
    rows = np.where(there[..., None], fading, 0.0)
    rows[..., 0, :] = np.where(there.any(axis=-1, keepdims=True), rows[..., 0, :], 1.0)  # nobody: any direction will do
    turned = np.swapaxes(rows, -1, -2)
    if rows.shape[-2] < rows.shape[-1]:
        _, vectors = np.linalg.eigh(rows.conj() @ turned)
        unit = (turned @ vectors[..., -1:])[..., 0]
    else:
        _, vectors = np.linalg.eigh(turned @ rows.conj())
        unit = vectors[..., -1]
    unit = unit / np.linalg.norm(unit, axis=-1, keepdims=True)
    heard = (rows @ unit.conj()[..., None])[..., 0]
    power = np.abs(heard) ** 2
    # An eigenvector has any phase, and Re(uᴴn) is another draw of the noise with each: rounding must not choose.
    turned_back = in_phase(torch.from_numpy(unit), torch.from_numpy(heard[..., 0].conj()))
    return turned_back, torch.from_numpy(power.sum(axis=-1) / np.maximum(there.sum(axis=-1), 1))


def _fading(scene: Scene, t: int, number: int, served: np.ndarray, amplitude: np.ndarray) -> torch.Tensor:
    """h_i/√Λ_i of the devices numbered in served [trials, K] in one block, [trials, K, m]."""
    scale = np.take_along_axis(amplitude, filled(served), axis=1)
    return scene.channels(t, number, served) / torch.from_numpy(scale).unsqueeze(-1)


def key_of(scene: Scene) -> tuple[object, ...]:
    """What such directions depend on beside channels, for policies that share them."""
    scheme = scene.config.scheme
    kind = scheme.truncation_combiner, scheme.interior_radius_m
    return ("fading", scene.rounds, scene.grid, *asked_of(scene.config), *kind)
