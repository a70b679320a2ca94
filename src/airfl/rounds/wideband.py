"""Rounds of several blocks: norms of all blocks, and the setting of one such round.

A neighbour may put all its energy into one block. So what is booked of a round is its least noisy block; blocks below
the round's level are raised to it (``transceiver.levels``), and a device counts as seen as in the block that shows it
best.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from airfl.air import Setting
from airfl.air.rotation import Rotation
from airfl.air.setting import NO_EDGES, Blocks
from airfl.channel.blocks import Grid, place_of
from airfl.config import Config
from airfl.errors import InputError
from airfl.privacy import Observer
from airfl.rounds.hardware import equipped, turned
from airfl.rounds.promise import longest
from airfl.schemes import Scheme
from airfl.transceiver import Radio, transmit
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
        "hides devices in noise or masks of their own": scheme.encoder.cover != "nothing",
        "is run with `channel.csi_error`": config.channel.csi_error > 0.0,
        "is run with `channel.csi_age_s`": config.channel.csi_age_s > 0.0,
        "is run with `scheme.selection`": config.scheme.selection != "all",
        'is run with system.sampling = "poisson"': config.system.varies,
        'is run with scheme.combiner_columns = "all"': config.scheme.combiner_columns == "all",
        "is run with an [eavesdropper]": config.eavesdropper is not None,
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
    active = schedule.active_in(t)[::copies]
    length = longest(schedule.scheme, schedule.clip_norm)
    heard = torch.from_numpy(active >= 0)
    spent = torch.zeros(*active.shape, plan.grid.count, dtype=torch.float64)
    worst = torch.zeros(active.shape, dtype=torch.float64)
    planned = plan.noise_var()[::copies, t]

    def scene(number: int) -> Setting:
        channels = block_channels(plan.radio, t, number, plan.grid, active)
        true = turned(link, t, active, channels, place_of(number, plan.grid, link.config.channel))
        unit = plan.design.combiner[:, t, number]
        combiner = unit * (plan.norm[::copies, t, number] / plan.design.norm[:, t, number]).unsqueeze(-1)
        # Power is a matter of the whole round, and looked at below.
        sent = transmit(combiner, channels, length, plan.grid.symbols, math.inf, true, silent=~heard)
        noise = planned[:, number]
        return equipped(link, Setting(
            t, active, schedule.scheme.encoder.length(schedule.clip_norm), sent.gains,
            schedule.gain_bound[::copies, t], noise, noise * link.noise_power
            / (link.noise_power + link.interference_power), link.noise_power, link.interference_power,
            schedule.cover[::copies], (NO_EDGES,) * len(active), true, sent.tx_scaling, combiner,
            {"base-station": sent.received_norms}, sent.power_w, schedule.hides_participation[::copies],
            plan.grid.per_symbol, None, number,
        ))  # fmt: skip

    noise, first = planned.clone(), scene(0)
    gains = torch.zeros(spent.shape, dtype=torch.complex128)
    for number in range(plan.grid.count):
        one = first if number == 0 else scene(number)
        noise[:, number], gains[..., number] = one.noise_var, one.gains
        spent[..., number] = one.tx_scaling.abs().square()
        worst = torch.maximum(worst, one.seen["base-station"])
    power = spent.mean(dim=-1) * (length**2 / plan.grid.symbols)
    if not float(power.max()) <= link.power_limit * (1.0 + 1e-9):
        raise InputError(
            f"a device would need {float(power.max()):.3g} W on average over a round, but the limit is "
            f"{link.power_limit:.3g} W"
        )
    honest = torch.from_numpy(link.honest(active))
    seen: dict[Observer, torch.Tensor] = {
        "base-station": worst * honest * math.sqrt(2.0 / link.credited_power),
        "everything": torch.where(honest, torch.inf, 0.0).double(),
    }
    rounded = link.config.channel.adc_bits is not None
    whole = Setting(
        t, active, first.clip_norm, heard.to(torch.complex128), first.gain_bound,
        noise.mean(dim=-1) if rounded else schedule.noise_var[::copies, t],
        schedule.unknown_var[::copies, t], link.noise_power, link.interference_power, first.cover, first.edges,
        first.channels, first.tx_scaling, first.combiner, seen, power, first.hides_participation, plan.grid.per_symbol,
        Blocks(plan.grid, noise, spent, link.power_limit, scene, gains if link.config.channel.impairments else None,
               Rotation(link.config.system.seed, link.trials, t) if link.config.channel.rotation else None),
    )  # fmt: skip
    assert len(whole.active) * copies == trials
    return whole if copies == 1 else whole.repeated(copies)


def with_levels(plan: BlockPlan, level: torch.Tensor) -> BlockPlan:
    """The plan with every block at its round's level or above."""
    return BlockPlan(plan.grid, plan.design, plan.minimum, raised(plan.minimum, level), plan.radio)


def repeated_plan(plan: BlockPlan, copies: int) -> BlockPlan:
    """Norms for every copy of a trial; designs are shared."""
    minimum, norm = (values.repeat_interleave(copies, dim=0) for values in (plan.minimum, plan.norm))
    return BlockPlan(plan.grid, plan.design, minimum, norm, plan.radio)


def least_of(plan: BlockPlan) -> torch.Tensor:
    """min_b π_tb, [trials, T]: what the perk test looks at, since noise that had to be raised is not free."""
    least: torch.Tensor = plan.minimum.amin(dim=-1)
    return least
