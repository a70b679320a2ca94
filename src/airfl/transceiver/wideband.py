"""Combiners for every block of every round, and the power that devices need over a round.

A device spends |s_ib|² E_ib in block b, with E_ib the energy of its update there, and P per symbol on average over the
round. Designed for energy that is spread evenly, mean_b |s_ib|² c²/symbols ≤ P, so weak blocks may take power from
strong ones: with unit designs w_b (|w_bᴴ h_ib| ≥ 1 for all) and loads x_i = mean_b 1/|w_bᴴ h_ib|² all norms may be
smaller by √max_i x_i than if every block had to do with P. For one block that factor is one.

All of this is made of channels as they are known. Who sends is the same in every block of a round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from airfl.channel.blocks import Grid, place_of
from airfl.config import Config
from airfl.transceiver.design import received_gains
from airfl.transceiver.radio import (
    Radio,
    asked_of,
    designed,
    designed_by_count,
    filled,
    gain_bound,
    served_by,
    served_channels,
)
from airfl.transceiver.selection import SELECTIONS

#: Channel coefficients held at a time while blocks are designed.
CHUNK = 1_000_000


@dataclass(frozen=True)
class BlockDesign:
    """Unit designs of all blocks of some rounds.

    Attributes:
        combiner: w_tb with |wᴴ ĥ_i| ≥ 1 for everybody, [trials, T, B, m].
        norm: ‖w_tb‖, [trials, T, B].
        load: max_i mean_b 1/|w_tbᴴ ĥ_itb|² over all that are served, [trials, T]; at most one. Blocks count by their
            symbols.
        gain_bound: G_tb, [trials, T, B].
        active: who transmits, [trials, T, K].
    """

    combiner: torch.Tensor
    norm: torch.Tensor
    load: torch.Tensor
    gain_bound: torch.Tensor
    active: np.ndarray

    def repeated(self, copies: int) -> BlockDesign:
        """Every trial ``copies`` times."""
        held = (self.combiner, self.norm, self.load, self.gain_bound)
        combiner, norm, load, bound = (part.repeat_interleave(copies, dim=0) for part in held)
        return BlockDesign(combiner, norm, load, bound, np.repeat(self.active, copies, axis=0))


def design_blocks(config: Config, radio: Radio, rounds: range, grid: Grid) -> BlockDesign:
    """Design all blocks, a few at a time, so that memory does not grow with their number; once for all who ask."""
    key = ("blocks", rounds, grid, *asked_of(config))
    if key not in radio.blocks:
        radio.blocks[key] = _designed(config, radio, rounds, grid)
    found: BlockDesign = radio.blocks[key]
    return found


def _designed(config: Config, radio: Radio, rounds: range, grid: Grid) -> BlockDesign:
    link = radio.link
    active = _senders(config, radio, rounds, grid)
    served = served_by(config, active)
    ragged = bool((served < 0).any())
    trials, count, antennas = len(link.trials), served.shape[2], config.system.num_antennas
    combiner = torch.zeros(trials, len(rounds), grid.count, antennas, dtype=torch.complex128)
    norm, bound = (torch.zeros(trials, len(rounds), grid.count, dtype=torch.float64) for _ in range(2))
    loads = torch.zeros(trials, len(rounds), count, dtype=torch.float64)
    shares = torch.tensor(grid.shares, dtype=torch.float64)
    places = [(at, number) for at in range(len(rounds)) for number in range(grid.count)]
    size = max(1, CHUNK // (trials * count * antennas))
    for first in range(0, len(places), size):
        some = places[first : first + size]
        known = [block_channels(radio, rounds[at], number, grid, served[:, at])[0] for at, number in some]
        channels = torch.stack(known, dim=1)
        at, number = (torch.tensor(column) for column in zip(*some, strict=True))
        sending = active[:, at.numpy()]
        keys = [(rounds[at], *place_of(number, grid, config.channel).key) for at, number in some]
        if ragged:
            counts = (served[:, at.numpy()] >= 0).sum(axis=2)
            part = designed_by_count(config, radio, channels, counts, keys)
        else:
            part = designed(config, radio, channels, keys).require_ok()
        combiner[:, at, number], norm[:, at, number] = part.combiner, part.norm
        heard = channels if served is active else served_channels(channels.numpy(), sending)
        bound[:, at, number] = gain_bound(config, link, part, heard, filled(sending), grid.count)
        spent = received_gains(part.combiner, channels).abs().square().reciprocal()
        loads.index_add_(1, at, shares[number].unsqueeze(-1) * spent)
        if radio.hears is not None:
            radio.hears(first + len(some), len(places))
    return BlockDesign(combiner, norm, loads.amax(dim=-1).clamp(max=1.0), bound, active)


def _senders(config: Config, radio: Radio, rounds: range, grid: Grid) -> np.ndarray:
    """Who transmits, [trials, T, K], chosen on what is known of all blocks of a round."""
    active = radio.link.active(rounds)
    if config.scheme.selection == "all":
        return active

    def chosen(at: int) -> np.ndarray:
        candidates = active[:, at]
        found = SELECTIONS[config.scheme.selection](
            lambda: (block_channels(radio, rounds[at], number, grid, candidates)[0] for number in range(grid.count)),
            config.num_transmitting,
        )
        picked: np.ndarray = np.take_along_axis(candidates, found.numpy(), axis=1)
        return picked

    return np.stack([chosen(at) for at in range(len(rounds))], axis=1)


def block_channels(
    radio: Radio, t: int, number: int, grid: Grid, active: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """ĥ_i and h_i of the devices numbered in active [trials, K] in one block, [trials, K, m] each."""
    link, place = radio.link, place_of(number, grid, radio.link.config.channel)
    true = link.drawn_in(t, place)
    known = link.estimated_in(true, t, place)
    channels = served_channels(true[:, None], active[:, None])[:, 0]
    return channels if known is true else served_channels(known[:, None], active[:, None])[:, 0], channels
