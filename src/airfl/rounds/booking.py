"""From the setting of a round to the event that the ledger keeps: what was added is what is booked."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from airfl.air import Setting
from airfl.config import Config
from airfl.privacy import BudgetError, Ledger, NoiseSource, Observer, RoundEvent
from airfl.rounds.records import Watch
from airfl.rounds.schedule import Schedule

#: Rounding of w, s and their product; the clip leaves a thousand times more room (``devices.clipping``).
GAIN_ROUNDING = 1e-9


@dataclass(frozen=True)
class Booked:
    """What one trial's ledger is told of a round.

    Attributes:
        seen: how visible every device was to observers of signals, by its number, [n].
    """

    event: RoundEvent
    seen: dict[Observer, np.ndarray]

    def on(self, ledger: Ledger) -> Ledger:
        """The ledger with this round."""
        return ledger.append(self.event, self.seen)


def book(
    schedule: Schedule,
    setting: Setting,
    max_local_steps: Callable[[int], int | None],
    gradient_var: torch.Tensor | None = None,
) -> list[Booked]:
    """What a round books, one entry per trial.

    Args:
        max_local_steps: Q of a trial, given its row; None: no bound that uses it is booked.
        gradient_var: an estimate per trial, where one was asked for; one that the noise was chosen by takes its place.
    """
    template, config = schedule.promise.template, schedule.link.config
    gradient_var = gradient_var if setting.estimate is None else setting.estimate
    booked: list[Booked] = []
    copies, loudest = schedule.copies if gradient_var is None else 1, setting.loudest
    for row in range(0, len(setting.gains), copies):
        domain, steps = None, max_local_steps(row)
        if template.domain is not None and steps is not None and setting.detects == "sum":
            mean_gain = float(_gains(setting, row).sum()) / schedule.normaliser
            domain = replace(template.domain, local_steps=steps, mean_gain=mean_gain)
        largest, bound = float(loudest[row]), float(setting.gain_bound[row])
        # Nobody sends, so nothing is told. Not where credit goes by the law: it covers such rounds too.
        if schedule.scheme.encoder.cover != "nothing" and not bool(setting.heard[row].any()):
            bound = largest = 0.0
        event = RoundEvent(
            round=setting.round_index,
            clip_norm=setting.clip_norm,
            gain_bound=bound if largest <= bound * (1.0 + GAIN_ROUNDING) else largest,
            noise_var=float(setting.unknown_var[row]),
            noise_source=_source(setting, row),
            noise_power=setting.noise_power if setting.over_air else None,
            sampling=template.sampling,
            update_factor=update_factor(config, schedule, setting.round_index),
            domain=domain,
            hides_participation=setting.hides_participation[row],
            gradient_var=None if gradient_var is None else float(gradient_var[row]),
            noise_follows_data=setting.estimate is not None,
            **{name.replace("-", "_"): _largest(values[row]) for name, values in setting.seen.items()},
        )
        total = template.sampling.num_devices
        seen = {name: _by_device(setting, row, values, total) for name, values in setting.seen.items()}
        booked.extend([Booked(event, {name: values for name, values in seen.items() if values is not None})] * copies)
    return booked


def _gains(setting: Setting, row: int) -> torch.Tensor:
    """|g_i| of every device, [K]; where blocks differ, as in the loudest of them."""
    if setting.blocks is None or setting.blocks.gains is None:
        return setting.gains[row].abs()
    return setting.blocks.gains[row].abs().amax(dim=-1)


def _largest(seen: torch.Tensor) -> float | None:
    """How visible the most visible device is; None: there is no bound."""
    value = float(seen.max()) if len(seen) else 0.0
    return value if math.isfinite(value) else None


def _by_device(setting: Setting, row: int, seen: torch.Tensor, num_devices: int) -> np.ndarray | None:
    """The same of every device by its number, [n]; None where there is no bound."""
    if _largest(seen[row]) is None:
        return None
    found = np.zeros(num_devices)
    there = setting.active[row] >= 0
    found[setting.active[row][there]] = seen[row].numpy()[there]
    return found


def check_views(schedule: Schedule, row: int, ledger: Ledger) -> None:
    """Refuse with ``BudgetError`` a ledger by which a model tells more than the antennas that it is computed from.

    In every round c²/v ≤ max_i c²r_i², with v the noise of the receiver and of all devices (Cauchy-Schwarz:
    w̃ᵀp̃_i = 1). Neither side counts interference. What is booked leaves out the noise of the one device that looks, of
    those that collude, and what leaks, and nothing else may.
    """
    if schedule.link.config.privacy.colluding > 0.0 or schedule.link.config.channel.estimation_error > 0.0:
        return
    for event in ledger.events:
        everyone = max(float(schedule.undisturbed_var[row, event.round]), sys.float_info.min)
        told = event.sensitivity("zero-out") / math.sqrt(everyone)
        if told > event.clip_norm * (event.base_station or 0.0) * (1.0 + 1e-6) and event.base_station is not None:
            raise BudgetError(
                f"the ledger contradicts itself: in round {event.round} the model would tell more than the antennas "
                "that it is computed from; the model is not released"
            )


def _source(setting: Setting, row: int) -> NoiseSource:
    if not setting.over_air:
        return "none"
    return "channel+artificial" if float(setting.cover.own[row]) > 0 else "channel"


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
