"""What a round leaves behind: ledger events for the accountants, records for people."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from airfl.config import Config
from airfl.devices import UpdateBlock
from airfl.planning import RadioPlan, sampling_of
from airfl.privacy import Domain, Ledger, RoundEvent, make_accountant
from airfl.transceiver import Transmission

#: Rounding of w, s and their product; the clip leaves a thousand times more room (``devices.clipping``).
GAIN_ROUNDING = 1e-9


@dataclass(frozen=True)
class RoundRecord:
    """One row of results: one trial, one round. NaN where a quantity was not measured or does not exist."""

    scheme: str
    trial: int
    round: int
    accuracy: float
    loss: float
    train_loss: float
    epsilon: float
    noise_var: float
    combiner_norm: float
    minimum_norm: float
    update_norm: float
    clipped_fraction: float
    max_power_w: float
    misalignment: float


class Watch:
    """Sees the updates pass by and keeps their norms before clipping and their losses, [trials, K]."""

    def __init__(self, trials: int, active: int) -> None:
        self.norms = torch.zeros(trials, active, dtype=torch.float64)
        self.losses = torch.zeros(trials, active, dtype=torch.float64)

    def see(self, block: UpdateBlock, norms: torch.Tensor) -> None:
        """Note one block."""
        where = (block.trial.cpu(), block.slot.cpu())
        self.norms[where] = norms.to("cpu", torch.float64)
        self.losses[where] = block.losses.to("cpu", torch.float64)


def book_round(
    config: Config,
    plan: RadioPlan,
    t: int,
    gains: torch.Tensor,
    sent: Transmission | None,
    max_local_steps: Callable[[int], int],
) -> list[RoundEvent]:
    """The events of round t, one per trial, from realised gains [trials, K] and the noise that is added.

    Args:
        max_local_steps: Q of a trial, given its row.
    """
    learning, noise_var = config.learning, plan.noise_var
    events = []
    for row in range(len(gains)):
        domain = None
        if learning.domain_diameter is not None:
            mean_gain = float(gains[row].abs().mean())
            smoothness = config.privacy.smoothness
            domain = Domain(
                learning.domain_diameter, smoothness, learning.learning_rate, max_local_steps(row), mean_gain
            )
        largest = float(gains[row].abs().max())
        bound = 1.0 if plan.gain_bound is None else float(plan.gain_bound[row, t])
        events.append(
            RoundEvent(
                round=t,
                clip_norm=plan.clip_norm if plan.scheme.clips else math.inf,
                gain_bound=bound if largest <= bound * (1.0 + GAIN_ROUNDING) else largest,
                noise_var=float(noise_var[row, t]),
                noise_source="none" if sent is None else "channel",
                noise_power=None if sent is None else plan.link.noise_power,
                received_norm=None if sent is None else float(sent.received_norm[row]),
                sampling=sampling_of(config),
                update_factor=update_factor(config, plan),
                domain=domain,
            )
        )
    return events


def update_factor(config: Config, plan: RadioPlan) -> float:
    """η_g η/K, from received sum to model; K counts who transmits."""
    return config.learning.server_step * config.learning.learning_rate / int(plan.active.shape[2])


def record_round(
    config: Config,
    plan: RadioPlan,
    t: int,
    ledgers: Sequence[Ledger],
    watch: Watch,
    sent: Transmission | None,
    tested: tuple[np.ndarray, np.ndarray] | None,
) -> list[RoundRecord]:
    """The rows of round t, one per trial; ``tested`` is accuracy and loss where the round was evaluated."""
    privacy, noise_var = config.privacy, plan.noise_var
    records = []
    for row, trial in enumerate(plan.link.trials):
        accountant = make_accountant(privacy.accountant, ledgers[row], config.neighbours)
        over = (watch.norms[row] > plan.clip_norm).double().mean()
        records.append(
            RoundRecord(
                scheme=plan.scheme.name,
                trial=trial,
                round=t + 1,
                accuracy=math.nan if tested is None else float(tested[0][row]),
                loss=math.nan if tested is None else float(tested[1][row]),
                train_loss=float(watch.losses[row].mean()),
                epsilon=accountant.epsilon(privacy.delta),
                noise_var=float(noise_var[row, t]),
                combiner_norm=math.nan if plan.norm is None else float(plan.norm[row, t]),
                minimum_norm=math.nan if plan.minimum is None else float(plan.minimum[row, t]),
                update_norm=float(watch.norms[row].mean()),
                clipped_fraction=float(over) if plan.scheme.clips else 0.0,
                max_power_w=math.nan if sent is None else float(sent.power_w[row].max()),
                misalignment=0.0 if sent is None else float((1.0 - sent.gains[row]).abs().square().sum()),
            )
        )
    return records
