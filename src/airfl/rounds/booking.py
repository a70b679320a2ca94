"""From the setting of a round to the event that the ledger keeps: what was added is what is booked."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from airfl.air import Setting
from airfl.config import Config
from airfl.privacy import BudgetError, Ledger, NoiseSource, RoundEvent
from airfl.rounds.promise import MAX_DEVICE_NORMS
from airfl.rounds.records import Watch
from airfl.rounds.schedule import Schedule

#: Rounding of w, s and their product; the clip leaves a thousand times more room (``devices.clipping``).
GAIN_ROUNDING = 1e-9


def book(
    schedule: Schedule,
    setting: Setting,
    max_local_steps: Callable[[int], int | None],
    gradient_var: torch.Tensor | None = None,
) -> list[RoundEvent]:
    """The events of a round, one per trial.

    Args:
        max_local_steps: Q of a trial, given its row; None: no bound that uses it is booked.
        gradient_var: an estimate per trial, where one was asked for.
    """
    template, config = schedule.promise.template, schedule.link.config
    events: list[RoundEvent] = []
    copies = schedule.copies if gradient_var is None else 1
    for row in range(0, len(setting.gains), copies):
        gains, domain, steps = setting.gains[row].abs(), None, max_local_steps(row)
        if template.domain is not None and steps is not None:
            mean_gain = float(gains.sum()) / schedule.normaliser
            domain = replace(template.domain, local_steps=steps, mean_gain=mean_gain)
        largest, bound = float(gains.max()), float(setting.gain_bound[row])
        # Nobody sends, so nothing is told. Not where credit goes by the law: it covers such rounds too.
        if schedule.scheme.encoder.own_noise and not bool(setting.heard[row].any()):
            bound = largest = 0.0
        event = RoundEvent(
            round=setting.round_index,
            clip_norm=setting.clip_norm,
            gain_bound=bound if largest <= bound * (1.0 + GAIN_ROUNDING) else largest,
            noise_var=float(setting.unknown_var[row]),
            noise_source=_source(setting, row),
            noise_power=setting.noise_power if setting.over_air else None,
            received_norm=None,
            sampling=template.sampling,
            update_factor=update_factor(config, schedule, setting.round_index),
            domain=domain,
            hides_participation=setting.hides_participation[row],
            gradient_var=None if gradient_var is None else float(gradient_var[row]),
        )
        if setting.over_air:
            event = heard_event(event, setting.round_index, setting.received_norms[row], setting.active[row])
        events.extend([event] * copies)
    return events


def check_views(schedule: Schedule, row: int, ledger: Ledger) -> None:
    """Refuse with ``BudgetError`` a ledger by which a model tells more than the antennas that it is computed from.

    In every round c²/v ≤ 2c²·max_i p_i²/σ², with v the noise of all devices (Cauchy-Schwarz: wᴴp_i = 1). What is booked
    leaves out the noise of the one device that looks, and nothing else may.
    """
    for event in ledger.events:
        everyone = max(float(schedule.noise_var[row, event.round]), sys.float_info.min)
        told = event.sensitivity("add-remove") / math.sqrt(everyone)
        heard = math.sqrt(2.0 / (event.noise_power or 1.0)) * event.clip_norm * (event.received_norm or 0.0)
        if told > heard * (1.0 + 1e-6):
            raise BudgetError(
                f"the ledger contradicts itself: in round {event.round} the model would tell more than the antennas "
                "that it is computed from; the model is not released"
            )


def _source(setting: Setting, row: int) -> NoiseSource:
    if not setting.over_air:
        return "none"
    return "channel+artificial" if float(setting.artificial[row]) > 0 else "channel"


def heard_event(event: RoundEvent, t: int, norms: torch.Tensor, active: np.ndarray) -> RoundEvent:
    """The event with what the antennas hear of each device, norms [K] of the devices numbered in active [K]."""
    heard = active >= 0
    values = norms.numpy()[heard]
    total = event.sampling.num_devices
    by_device = None
    if total <= MAX_DEVICE_NORMS:
        by_device = np.zeros(total)
        by_device[active[heard]] = values
    largest = float(values.max(initial=0.0))
    return replace(
        event,
        round=t,
        # A round in which nobody transmits tells nothing; the smallest positive number stands for it.
        received_norm=largest or sys.float_info.min,
        device_norms=None if by_device is None else tuple(by_device.tolist()),
    )


def gradient_variance(schedule: Schedule, setting: Setting, watch: Watch, received: torch.Tensor) -> torch.Tensor:
    """How far the devices' updates spread around their mean, as a variance per coordinate of their sum, [trials].

    Σ_i ‖Δ̄_i − mean‖²·K/((K − 1) d), with ‖ΣΔ̄‖² taken from what was received less its noise. Devices stand in for
    mini-batches here: an estimate, and no bound.
    """
    count = setting.heard.sum(dim=1).double()
    sent = watch.norms.clamp(max=schedule.clip_norm).square().sum(dim=1)
    heard = received.double().square().sum(dim=1).cpu() - schedule.dim * setting.noise_var
    spread = (sent - heard.clamp(min=0.0) / count.clamp(min=1.0)).clamp(min=0.0)
    return spread * count / ((count - 1.0).clamp(min=1.0) * schedule.dim)


def update_factor(config: Config, schedule: Schedule, t: int) -> float:
    """η_g η/K, from received sum to model, in round t."""
    learning = config.learning
    left = 1.0 if learning.server_schedule == "constant" else 1.0 - t / config.system.rounds
    return learning.server_step * learning.learning_rate * left / schedule.normaliser
