"""Rounds of several blocks: norms of all blocks, and the setting of one such round.

A neighbour may put all its energy into one block. So what is booked of a round is its least noisy block; blocks below
the round's level are raised to it (``transceiver.levels``), and a device counts as seen as in the block that shows it
best.

With estimated channels blocks have gain bounds G_tb of their own, and gains g_itb that are complex and differ. Two
updates that are S apart, S_b of it in block b, give sums that are

    Σ_b |g_itb|² S_b²/v_tb ≤ S² max_b G_tb²/v_tb

apart in units of the noise, and all of it in the worst block meets this. So what is booked are G_t = max_b G_tb and
v_t = min_b v_tb (G_t/G_tb)²: a level ℓ_t stands for norms of at least ℓ_t G_tb/G_t. G_t beside the noise of the
quietest block would be valid too, and up to (G_t/G_tb)² too much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from airfl.air import Setting
from airfl.air.rotation import Rotation
from airfl.air.setting import Blocks
from airfl.channel import Link
from airfl.channel.blocks import Grid, place_of
from airfl.config import Config
from airfl.errors import InputError
from airfl.privacy import Observer
from airfl.rounds.hardware import equipped, turned
from airfl.rounds.loud import measuring
from airfl.rounds.observed import seen_by_all
from airfl.rounds.promise import longest
from airfl.schemes import PowerRule, Scheme
from airfl.transceiver import Radio, Transmission, degrees_of, transmit, transmitted
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
        scaling: s_tb, [trials, T, K, B], where the policy found them itself; else 1/(wᴴ ĥ_i).
        rule: how devices keep to their power.
    """

    grid: Grid
    design: BlockDesign
    minimum: torch.Tensor
    norm: torch.Tensor
    radio: Radio
    scaling: torch.Tensor | None = None
    rule: PowerRule = "spread"

    @cached_property
    def gain_bound(self) -> torch.Tensor:
        """G_t, [trials, T]; copies share it, as they do designs."""
        bound: torch.Tensor = self.design.gain_bound.amax(dim=-1)
        return bound

    @cached_property
    def ratios(self) -> torch.Tensor:
        """G_tb/G_t, [trials, T, B]."""
        return self.design.gain_bound / self.gain_bound.unsqueeze(-1)

    @property
    def least(self) -> torch.Tensor:
        """π_tb G_t/G_tb, what the power allows in the units of the round's level, [trials, T, B]."""
        return self.minimum / self.ratios

    def sent(
        self, t: int, number: int, combiner: torch.Tensor, known: torch.Tensor, true: torch.Tensor,
        length: float, heard: torch.Tensor,
    ) -> Transmission:  # fmt: skip
        """How devices send in one block. Power is a matter of the whole round, and looked at elsewhere."""
        if self.scaling is None:
            return transmit(combiner, known, length, self.grid.symbols, math.inf, true, silent=~heard)
        scaling = self.scaling[:, t, : heard.shape[1], number]
        return transmitted(combiner, true, scaling, length, self.grid.symbols, math.inf)

    def noise_var(self) -> torch.Tensor:
        """(σ² + I)/2 q_tb², [trials, T, B]."""
        link = self.radio.link
        return self.norm.square() * ((link.noise_power + link.interference_power) / 2.0)


def plan_blocks(config: Config, scheme: Scheme, radio: Radio, clip_norm: float, grid: Grid) -> BlockPlan:
    """All blocks with the least norms that the power allows."""
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
    own = (cover.own * cover.weights(active).sum(dim=1)).unsqueeze(1)
    planned, ratios = plan.noise_var()[::copies, t] + own, plan.ratios[:, t]
    unknown = schedule.unknown_var[::copies, t] - schedule.norm[::copies, t].square() * (link.noise_power / 2.0)
    estimated = link.config.channel.estimation_error > 0.0

    def scene(number: int, *, looked: bool = False) -> Setting:
        place = place_of(number, plan.grid, link.config.channel)
        known, channels = block_channels(plan.radio, t, number, plan.grid, active)
        true = turned(link, t, active, channels, place)
        unit, norm = plan.design.combiner[:, t, number], plan.norm[::copies, t, number]
        combiner = unit * (norm / plan.design.norm[:, t, number]).unsqueeze(-1)
        sent = plan.sent(t, number, combiner, known, true, length, heard)
        seen: dict[Observer, torch.Tensor] = {}
        if looked:
            own = plan.scaling is not None
            seen = seen_by_all(link, t, active, known, true, sent, edges, cover, combiner, norm, place, own=own)
        return equipped(link, measuring(Setting(
            t, active, schedule.scheme.encoder.length(schedule.clip_norm), sent.gains,
            schedule.gain_bound[::copies, t] * ratios[:, number], planned[:, number],
            norm.square() * (link.noise_power / 2.0) + unknown, link.noise_power, link.interference_power,
            cover, edges, true, sent.tx_scaling, combiner,
            seen, sent.power_w, schedule.hides_participation[::copies],
            plan.grid.per_symbol, None, number,
        ), schedule.detects, link.credited_power))  # fmt: skip

    noise, first = planned.clone(), scene(0, looked=True)
    gains = torch.zeros(spent.shape, dtype=torch.complex128)
    seen = dict(first.seen)
    for number in range(plan.grid.count):
        one = first if number == 0 else scene(number, looked=True)
        noise[:, number], gains[..., number] = one.noise_var, one.gains
        spent[..., number] = one.tx_scaling.abs().square()
        seen = {name: torch.maximum(worst, one.seen.get(name, worst)) for name, worst in seen.items()}
    left, power = _power(schedule, plan, t, spent, edges, length)
    rounded = link.config.channel.adc_bits is not None
    whole = Setting(
        t, active, first.clip_norm, heard.to(torch.complex128), schedule.gain_bound[::copies, t],
        noise.mean(dim=-1) if rounded else schedule.noise_var[::copies, t],
        schedule.unknown_var[::copies, t], link.noise_power, link.interference_power, cover, edges,
        first.channels, first.tx_scaling, first.combiner, seen, power, first.hides_participation, plan.grid.per_symbol,
        Blocks(plan.grid, noise, spent, left, scene, ratios,
               gains if estimated or link.config.channel.impairments or plan.scaling is not None else None,
               Rotation(link.config.system.seed, link.trials, t) if link.config.channel.rotation else None),
        detects=schedule.detects,
    )  # fmt: skip
    assert len(whole.active) * copies == trials
    return whole if copies == 1 else whole.repeated(copies)


def _power(
    schedule: Schedule, plan: BlockPlan, t: int, spent: torch.Tensor, edges: tuple[np.ndarray, ...], length: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """What cover leaves of the power limit, and what a round takes with an update that is spread evenly, [trials, K].

    Noise and masks are in every symbol, and never scaled: a device whose update lies where it is dear has to do with
    what they leave.
    """
    limit, grid = math.inf if plan.rule == "average" else schedule.link.power_limit, plan.grid
    degrees = np.stack([degrees_of(one, spent.shape[1]) for one in edges])
    hidden = grid.per_symbol * schedule.cover[:: schedule.copies].power(
        torch.from_numpy(degrees).double(), schedule.active_in(t)[:: schedule.copies]
    )
    average = spent @ torch.tensor(grid.shares, dtype=torch.float64)
    power = average * (length**2 / grid.symbols + hidden)
    if plan.scaling is None and not float(power.max()) <= limit * (1.0 + 1e-9):
        raise InputError(
            f"a device would need {float(power.max()):.3g} W on average over a round, but the limit is {limit:.3g} W"
        )
    if plan.scaling is not None and plan.rule == "spread":
        power = power.clamp(max=limit)
    return (limit - average * hidden).clamp(min=0.0), power


def with_levels(plan: BlockPlan, level: torch.Tensor) -> BlockPlan:
    """The plan with every block at its round's level or above."""
    return replace(plan, norm=raised(plan.minimum, level, plan.ratios))


def with_norms(plan: BlockPlan, norms: torch.Tensor) -> BlockPlan:
    """The plan with every block at its norm or above, [trials, T·B]."""
    norm = torch.maximum(plan.norm, norms.reshape(plan.norm.shape))
    return replace(plan, norm=norm)


def repeated_plan(plan: BlockPlan, copies: int, link: Link | None = None) -> BlockPlan:
    """Norms for every copy of a trial; designs are shared, or repeated where ``link`` has draws for every copy."""
    minimum, norm = (values.repeat_interleave(copies, dim=0) for values in (plan.minimum, plan.norm))
    if link is None:
        return replace(plan, minimum=minimum, norm=norm)
    scaling = None if plan.scaling is None else plan.scaling.repeat_interleave(copies, dim=0)
    radio, design = replace(plan.radio, link=link), plan.design.repeated(copies)
    return replace(plan, design=design, minimum=minimum, norm=norm, radio=radio, scaling=scaling)
