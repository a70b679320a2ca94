"""Rounds of several blocks: norms of all blocks, and the setting of one such round.

A neighbour may put all its energy into one block. So what is booked of a round is its least noisy block; blocks below
the round's level are raised to it (``transceiver.levels``), and a device counts as seen as in the block that shows it
best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from airfl.air import Setting
from airfl.air.setting import Blocks
from airfl.channel.blocks import Grid, place_of
from airfl.config import Config
from airfl.errors import InputError
from airfl.rounds.hardware import equipped, turned
from airfl.rounds.observed import seen_by_all
from airfl.rounds.promise import longest
from airfl.schemes import Scheme
from airfl.transceiver import Radio, degrees_of, transmit
from airfl.transceiver.design import least_gain
from airfl.transceiver.levels import raised
from airfl.transceiver.wideband import BlockDesign, block_channels, design_blocks

if TYPE_CHECKING:
    from airfl.rounds.schedule import Schedule


@dataclass(frozen=True)
class BlockPlan:
    """Combiners and norms of all blocks.

    Attributes:
        design: unit designs.
        minimum: π_tb, what the power allows, [trials, T, B].
        norm: q_tb, [trials, T, B].
        radio: draws channels again from their keys.
    """

    grid: Grid
    design: BlockDesign
    minimum: torch.Tensor
    norm: torch.Tensor
    radio: Radio

    def noise_var(self) -> torch.Tensor:
        """(σ² + I)/2 q_tb², [trials, T, B]."""
        link = self.radio.link
        return self.norm.square() * ((link.noise_power + link.interference_power) / 2.0)


def require_plain(config: Config, scheme: Scheme, what: str) -> None:
    """Refuse in one sentence what is not simulated together with several blocks or complex symbols."""
    asked = {
        "hides devices in noise or masks of their own, with channels that are not known exactly,": (
            scheme.encoder.cover != "nothing" and config.channel.estimation_error > 0.0
        ),
        "is run with `channel.csi_error`": config.channel.csi_error > 0.0,
        "is run with `channel.csi_age_s`": config.channel.csi_age_s > 0.0,
        "is run with `scheme.selection`": config.scheme.selection != "all",
        'is run with system.sampling = "poisson"': config.system.varies,
        'is run with scheme.combiner_columns = "all"': config.scheme.combiner_columns == "all",
    }
    found = next((words for words, is_so in asked.items() if is_so), None)
    if found is not None:
        raise InputError(
            f"scheme `{scheme.name}` {found}, which is not simulated with {what}; take one block of time and frequency "
            "and real symbols, or leave it out"
        )


def plan_blocks(config: Config, scheme: Scheme, radio: Radio, clip_norm: float, grid: Grid) -> BlockPlan:
    """All blocks with the least norms that the power allows."""
    require_plain(config, scheme, f"{grid.count:,} blocks a round")
    design = design_blocks(config, radio, range(config.system.rounds), grid)
    factor = least_gain(longest(scheme, clip_norm), grid.symbols, radio.link.power_limit)
    minimum = design.norm * (factor * design.load.sqrt()).unsqueeze(-1)
    return BlockPlan(grid, design, minimum, minimum, radio)


def block_setting(schedule: Schedule, plan: BlockPlan, t: int) -> Setting:
    """One round: what uplink and ledger read, all its blocks looked at one after the other."""
    link, trials, copies = schedule.link, schedule.num_trials, schedule.copies
    active, cover = schedule.active_in(t)[::copies], schedule.cover[::copies]
    length = longest(schedule.scheme, schedule.clip_norm)
    heard = torch.from_numpy(active >= 0)
    edges = schedule.edges(t, active, cover)
    spent = torch.zeros(*active.shape, plan.grid.count, dtype=torch.float64)
    own = (cover.own * heard.sum(dim=1)).unsqueeze(1)
    planned = plan.noise_var()[::copies, t] + own
    unknown = schedule.unknown_var[::copies, t] - schedule.norm[::copies, t].square() * (link.noise_power / 2.0)

    def scene(number: int, *, looked: bool = False) -> Setting:
        place = place_of(number, plan.grid, link.config.channel)
        channels = block_channels(plan.radio, t, number, plan.grid, active)
        true = turned(link, t, active, channels, place)
        unit, norm = plan.design.combiner[:, t, number], plan.norm[::copies, t, number]
        combiner = unit * (norm / plan.design.norm[:, t, number]).unsqueeze(-1)
        # Power is a matter of the whole round, and looked at below.
        sent = transmit(combiner, channels, length, plan.grid.symbols, math.inf, true, silent=~heard)
        seen = seen_by_all(link, t, active, channels, true, sent, edges, cover, combiner, norm, place) if looked else {}
        return equipped(link, Setting(
            t, active, schedule.scheme.encoder.length(schedule.clip_norm), sent.gains,
            schedule.gain_bound[::copies, t], planned[:, number],
            norm.square() * (link.noise_power / 2.0) + unknown, link.noise_power, link.interference_power,
            cover, edges, true, sent.tx_scaling, combiner,
            seen, sent.power_w, schedule.hides_participation[::copies],
            plan.grid.per_symbol, None, number,
        ))  # fmt: skip

    noise, first = planned.clone(), scene(0, looked=True)
    gains = torch.zeros(spent.shape, dtype=torch.complex128)
    seen = dict(first.seen)
    for number in range(plan.grid.count):
        one = first if number == 0 else scene(number, looked=True)
        noise[:, number], gains[..., number] = one.noise_var, one.gains
        spent[..., number] = one.tx_scaling.abs().square()
        seen = {name: torch.maximum(worst, one.seen.get(name, worst)) for name, worst in seen.items()}
    left, power = _power(schedule, plan, spent, edges, length)
    rounded = link.config.channel.adc_bits is not None
    whole = Setting(
        t, active, first.clip_norm, heard.to(torch.complex128), first.gain_bound,
        noise.mean(dim=-1) if rounded else schedule.noise_var[::copies, t],
        schedule.unknown_var[::copies, t], link.noise_power, link.interference_power, cover, edges,
        first.channels, first.tx_scaling, first.combiner, seen, power, first.hides_participation, plan.grid.per_symbol,
        Blocks(plan.grid, noise, spent, left, scene, gains if link.config.channel.impairments else None),
    )  # fmt: skip
    assert len(whole.active) * copies == trials
    return whole if copies == 1 else whole.repeated(copies)


def _power(
    schedule: Schedule, plan: BlockPlan, spent: torch.Tensor, edges: tuple[np.ndarray, ...], length: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """What cover leaves of the power limit, and what a round takes with an update that is spread evenly, [trials, K].

    Noise and masks are in every symbol, and never scaled: a device whose update lies where it is dear has to do with
    what they leave.
    """
    limit, grid = schedule.link.power_limit, plan.grid
    degrees = np.stack([degrees_of(one, spent.shape[1]) for one in edges])
    hidden = grid.per_symbol * schedule.cover[:: schedule.copies].power(torch.from_numpy(degrees).double())
    average = spent @ torch.tensor(grid.shares, dtype=torch.float64)
    power = average * (length**2 / grid.symbols + hidden)
    if not float(power.max()) <= limit * (1.0 + 1e-9):
        raise InputError(
            f"a device would need {float(power.max()):.3g} W on average over a round, but the limit is {limit:.3g} W"
        )
    return (limit - average * hidden).clamp(min=0.0), power


def with_levels(plan: BlockPlan, level: torch.Tensor) -> BlockPlan:
    """The plan with every block at its round's level or above."""
    return BlockPlan(plan.grid, plan.design, plan.minimum, raised(plan.minimum, level), plan.radio)


def with_norms(plan: BlockPlan, norms: torch.Tensor) -> BlockPlan:
    """The plan with every block at its norm or above, [trials, T·B]."""
    norm = torch.maximum(plan.norm, norms.reshape(plan.norm.shape))
    return BlockPlan(plan.grid, plan.design, plan.minimum, norm, plan.radio)


def repeated_plan(plan: BlockPlan, copies: int) -> BlockPlan:
    """Norms for every copy of a trial; designs are shared."""
    minimum, norm = (values.repeat_interleave(copies, dim=0) for values in (plan.minimum, plan.norm))
    return BlockPlan(plan.grid, plan.design, minimum, norm, plan.radio)


def least_of(plan: BlockPlan) -> torch.Tensor:
    """min_b π_tb, [trials, T]: what the perk test looks at, since noise that had to be raised is not free."""
    least: torch.Tensor = plan.minimum.amin(dim=-1)
    return least
