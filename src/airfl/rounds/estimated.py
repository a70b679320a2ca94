"""Noise that devices add by an estimate from the round before: the plain form of Park & Choi 2023. Not a proof.

The promise asks for v_needed in every round. The channel leaves v_ch = q²σ²/2, and if the updates of the round before
spread by a variance u of their sum, that is counted as noise too; devices add the rest,

    a = max(0, v_needed − v_ch − u) / U    each,    U the number of those whose noise the observer does not know.

How much noise there is depends on data, so what any accountant says of it is no proof: every round is marked, and no
proven accountant releases the model. Norms leave room for the power of the most that may have to be added,
q² = π²(1 + d a₀/c²) with a₀ = (v_needed − q²σ²/2)/U: the estimate tells nothing through them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from airfl.air import Setting
from airfl.air.setting import NO_EDGES
from airfl.channel import Link
from airfl.config import Config
from airfl.errors import InputError
from airfl.rounds.booking import gradient_variance
from airfl.rounds.observed import seen_by_all
from airfl.rounds.promise import Promise
from airfl.rounds.records import Watch
from airfl.rounds.schedule import Schedule
from airfl.rounds.state import State
from airfl.transceiver import Transmission, unknown_to_all

#: Rounding between the noise that is needed and what is booked.
ROUNDING = 1e-9


def with_room(
    config: Config, link: Link, promise: Promise, norm: torch.Tensor, active: np.ndarray, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Norms that leave power for all the noise that may have to be added, and the noise that is needed, [trials, T]."""
    if promise.budget is None:
        raise InputError("this scheme keeps a privacy budget; give `privacy.epsilon` or `privacy.epsilon_tilde`")
    unit = 0.5 * link.noise_power
    needed = torch.full_like(norm, promise.budget.floor**2 * unit * (1.0 + ROUNDING))
    adding = counted(link, active)
    slope = dim / (adding.clamp(min=1.0) * promise.template.clip_norm**2)
    least = norm.square()
    wide = least * (1.0 + slope * needed) / (1.0 + slope * least * unit)
    # With nobody whose noise counts the channel's has to do.
    wide = torch.where(adding > 0, wide, needed / unit)
    return torch.where(least * unit < needed, wide, least).sqrt(), needed


def counted(link: Link, active: np.ndarray) -> torch.Tensor:
    """U_t, how many add noise that neither another device nor those that collude know, [trials, T] or [trials]."""
    honest = torch.from_numpy(link.honest(active))
    return unknown_to_all(torch.ones(honest.shape, dtype=torch.float64), honest)


def settled(schedule: Schedule, state: State) -> Setting:
    """The setting of the round that comes next; with the noise that the estimate of the last one leaves to be added."""
    setting = schedule.setting(state.round)
    if schedule.needed is None:
        return setting
    estimate = torch.zeros_like(setting.noise_var) if state.spread is None else state.spread
    heard = setting.heard.sum(dim=1).double()
    adding = counted(schedule.link, setting.active)
    missing = (schedule.needed[:, state.round] - setting.unknown_var - estimate).clamp(min=0.0)
    own = torch.where(adding > 0, missing / adding.clamp(min=1.0), 0.0)
    cover, copies = replace(setting.cover, own=own), schedule.copies
    assert copies == 1  # there is nothing to audit, and so nothing to repeat
    norms = torch.linalg.vector_norm(setting.channels, dim=-1)
    sent = Transmission(setting.tx_scaling, setting.gains, setting.tx_scaling.abs() * norms, setting.power_w)
    edges, norm = (NO_EDGES,) * len(own), schedule.norm[:, state.round]
    where = schedule.link, state.round, setting.active, setting.channels, setting.channels
    return replace(
        setting,
        noise_var=setting.noise_var + own * heard,
        unknown_var=setting.unknown_var + own * adding,
        cover=cover,
        seen=seen_by_all(*where, sent, edges, cover, setting.combiner, norm),
        power_w=setting.power_w + setting.tx_scaling.abs().square() * own.unsqueeze(1),
        estimate=estimate,
    )


def spread_of(schedule: Schedule, setting: Setting, watch: Watch, received: torch.Tensor) -> torch.Tensor | None:
    """How far updates of this round spread, where someone asks; see ``booking.gradient_variance``."""
    asked = schedule.link.config.privacy.estimate_gradient_noise or schedule.needed is not None
    return gradient_variance(schedule, setting, watch, received) if asked else None
