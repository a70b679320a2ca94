"""Combiners for every block of every round, and the power that devices need over a round.

A device spends |s_ib|² E_ib in block b, with E_ib the energy of its update there, and P per symbol on average over the
round. Designed for energy that is spread evenly, mean_b |s_ib|² c²/symbols ≤ P, so weak blocks may take power from
strong ones: with unit designs w_b (|w_bᴴ h_ib| ≥ 1 for all) and loads x_i = mean_b 1/|w_bᴴ h_ib|² all norms may be
smaller by √max_i x_i than if every block had to do with P. For one block that factor is one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from airfl.channel.blocks import Grid, place_of
from airfl.config import Config
from airfl.transceiver.design import received_gains
from airfl.transceiver.radio import Radio, combiner_for, served_channels

#: Channel coefficients held at a time while blocks are designed.
CHUNK = 1_000_000


@dataclass(frozen=True)
class BlockDesign:
    """Unit designs of all blocks of some rounds.

    Attributes:
        combiner: w_tb with |wᴴ h_i| ≥ 1 for everybody, [trials, T, B, m].
        norm: ‖w_tb‖, [trials, T, B].
        load: max_i mean_b 1/|w_tbᴴ h_itb|², [trials, T]; at most one.
        active: who transmits, [trials, T, K].
    """

    combiner: torch.Tensor
    norm: torch.Tensor
    load: torch.Tensor
    active: np.ndarray


def design_blocks(config: Config, radio: Radio, rounds: range, grid: Grid) -> BlockDesign:
    """Design all blocks, a few at a time, so that memory does not grow with their number; once for all who ask."""
    key = ("blocks", rounds, grid, config.scheme.combiner, config.scheme.effort)
    if key not in radio.blocks:
        radio.blocks[key] = _designed(config, radio, rounds, grid)
    found: BlockDesign = radio.blocks[key]
    return found


def _designed(config: Config, radio: Radio, rounds: range, grid: Grid) -> BlockDesign:
    link, method = radio.link, combiner_for(config, radio)
    active = link.active(rounds)
    trials, count, antennas = len(link.trials), active.shape[2], config.system.num_antennas
    combiner = torch.zeros(trials, len(rounds), grid.count, antennas, dtype=torch.complex128)
    norm = torch.zeros(trials, len(rounds), grid.count, dtype=torch.float64)
    loads = torch.zeros(trials, len(rounds), count, dtype=torch.float64)
    places = [(at, number) for at in range(len(rounds)) for number in range(grid.count)]
    size = max(1, CHUNK // (trials * count * antennas))
    for first in range(0, len(places), size):
        some = places[first : first + size]
        drawn = [block_channels(radio, rounds[at], number, grid, active[:, at]) for at, number in some]
        channels = torch.stack(drawn, dim=1)
        part = method(channels)
        part.require_ok()
        at, number = (torch.tensor(column) for column in zip(*some, strict=True))
        combiner[:, at, number], norm[:, at, number] = part.combiner, part.norm
        spent = received_gains(part.combiner, channels).abs().square().reciprocal()
        loads.index_add_(1, at, spent)
        if radio.hears is not None:
            radio.hears(first + len(some), len(places))
    return BlockDesign(combiner, norm, (loads / grid.count).amax(dim=-1).clamp(max=1.0), active)


def block_channels(radio: Radio, t: int, number: int, grid: Grid, active: np.ndarray) -> torch.Tensor:
    """h_i of the devices numbered in active [trials, K] in one block, [trials, K, m]."""
    drawn = radio.link.drawn_in(t, place_of(number, grid, radio.link.config.channel))
    return served_channels(drawn[:, None], active[:, None])[:, 0]
