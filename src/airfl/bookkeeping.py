"""What a round leaves behind: ledger events for the accountants, records for people."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from airfl.config import Config
from airfl.devices import UpdateBlock
from airfl.planning import RadioPlan, heard_event
from airfl.privacy import BudgetError, Domain, Ledger, NoiseSource, RoundEvent
from airfl.promise import sampling_of
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
    max_local_steps: Callable[[int], int | None],
    gradient_var: torch.Tensor | None = None,
) -> list[RoundEvent]:
    """The events of round t, one per trial, from realised gains [trials, K] and the noise that is added.

    Args:
        max_local_steps: Q of a trial, given its row; None: no bound that uses it is booked.
        gradient_var: an estimate per trial, where one was asked for.
    """
    learning, noise_var, active = config.learning, plan.unknown_var, plan.active_in(t)
    sources: dict[tuple[bool, bool], NoiseSource] = {
        (False, False): "none",
        (True, False): "channel",
        (True, True): "channel+artificial",
    }
    events = []
    for row in range(len(gains)):
        domain, steps = None, max_local_steps(row)
        if learning.domain_diameter is not None and learning.plain_server and steps is not None:
            mean_gain = float(gains[row].abs().sum()) / plan.normaliser
            smoothness = config.privacy.smoothness
            domain = Domain(learning.domain_diameter, smoothness, learning.learning_rate, steps, mean_gain)
        largest = float(gains[row].abs().max())
        bound = 1.0 if plan.gain_bound is None else float(plan.gain_bound[row, t])
        own = plan.artificial is not None and float(plan.artificial[row]) > 0
        # Nobody sends, so nothing is told. Not where credit goes by the law: it covers such rounds too.
        if plan.artificial is not None and not bool(plan.sending[row, t]):
            bound = largest = 0.0
        event = RoundEvent(
            round=t,
            clip_norm=plan.clip_norm if plan.scheme.clips else math.inf,
            gain_bound=bound if largest <= bound * (1.0 + GAIN_ROUNDING) else largest,
            noise_var=float(noise_var[row, t]),
            noise_source=sources[sent is not None, own],
            noise_power=None if sent is None else plan.link.noise_power,
            received_norm=None,
            sampling=sampling_of(config),
            update_factor=update_factor(config, plan, t),
            domain=domain,
            hides_participation=bool(plan.hides_participation) and plan.hides_participation[row],
            gradient_var=None if gradient_var is None else float(gradient_var[row]),
        )
        events.append(event if sent is None else heard_event(event, t, sent.received_norms[row], active[row]))
    return events


def check_views(plan: RadioPlan, row: int, ledger: Ledger) -> None:
    """Refuse with ``BudgetError`` a ledger by which a model tells more than the antennas that it is computed from.

    In every round c²/v ≤ 2c²·max_i p_i²/σ², with v the noise of all devices (Cauchy-Schwarz: wᴴp_i = 1). What is booked
    leaves out the noise of the one device that looks, and nothing else may.
    """
    for event in ledger.events:
        everyone = max(float(plan.noise_var[row, event.round]), sys.float_info.min)
        told = event.sensitivity("add-remove") / math.sqrt(everyone)
        heard = math.sqrt(2.0 / (event.noise_power or 1.0)) * event.clip_norm * (event.received_norm or 0.0)
        if told > heard * (1.0 + 1e-6):
            raise BudgetError(
                f"the ledger contradicts itself: in round {event.round} the model would tell more than the antennas "
                "that it is computed from; the model is not released"
            )


def gradient_variance(plan: RadioPlan, t: int, watch: Watch, received: torch.Tensor) -> torch.Tensor:
    """How far the devices' updates spread around their mean, as a variance per coordinate of their sum, [trials].

    Σ_i ‖Δ̄_i − mean‖²·K/((K − 1) d), with ‖ΣΔ̄‖² taken from what was received less its noise. Devices stand in for
    mini-batches here: an estimate, and no bound.
    """
    count = torch.from_numpy((plan.active_in(t) >= 0).sum(axis=1)).double()
    sent = watch.norms.clamp(max=plan.clip_norm).square().sum(dim=1)
    heard = received.double().square().sum(dim=1).cpu() - plan.dim * plan.noise_var[:, t]
    spread = (sent - heard.clamp(min=0.0) / count.clamp(min=1.0)).clamp(min=0.0)
    return spread * count / ((count - 1.0).clamp(min=1.0) * plan.dim)


def update_factor(config: Config, plan: RadioPlan, t: int) -> float:
    """η_g η/K, from received sum to model, in round t."""
    learning = config.learning
    left = 1.0 if learning.server_schedule == "constant" else 1.0 - t / config.system.rounds
    return learning.server_step * learning.learning_rate * left / plan.normaliser


def _accounted_every(config: Config, plan: RadioPlan) -> int:
    """How many rounds go by until ε is looked at again, where that takes as long as all rounds so far together.

    Composing with sampling credit takes seconds: ten times in a run. The bound for a hidden state looks at all rounds
    anew: a hundred times in a long run. The others add one round to what they have.
    """
    rounds = config.system.rounds
    if plan.promise.accountant == "sampled":
        return max(1, rounds // 10)
    return rounds // 100 if plan.promise.accountant == "convergent" and rounds > 1000 else 1


def record_round(
    config: Config,
    plan: RadioPlan,
    t: int,
    ledgers: Sequence[Ledger],
    watch: Watch,
    sent: Transmission | None,
    tested: tuple[np.ndarray, np.ndarray] | None,
    trained: np.ndarray | None = None,
) -> list[RoundRecord]:
    """The rows of round t, one per trial.

    Args:
        tested: accuracy and loss where the round was evaluated.
        trained: the new models' loss on all training samples; None: the mean over the local steps stands for it.
    """
    noise_var, heard = plan.noise_var, torch.from_numpy(plan.active_in(t) >= 0)
    skipped = t + 1 < config.system.rounds and (t + 1) % _accounted_every(config, plan) != 0
    records = []
    for row, trial in enumerate(plan.link.trials):
        over = (watch.norms[row][heard[row]] > plan.clip_norm).double().mean().nan_to_num()
        records.append(
            RoundRecord(
                scheme=plan.scheme.name,
                trial=trial,
                round=t + 1,
                accuracy=math.nan if tested is None else float(tested[0][row]),
                loss=math.nan if tested is None else float(tested[1][row]),
                train_loss=float(watch.losses[row][heard[row]].mean() if trained is None else trained[row]),
                epsilon=math.nan if skipped else plan.promise.spent(ledgers[row]),
                noise_var=float(noise_var[row, t]),
                combiner_norm=math.nan if plan.norm is None else float(plan.norm[row, t]),
                minimum_norm=math.nan if plan.minimum is None else float(plan.minimum[row, t]),
                update_norm=float(watch.norms[row][heard[row]].mean()),
                clipped_fraction=float(over) if plan.scheme.clips else 0.0,
                max_power_w=math.nan if sent is None else float(sent.power_w[row].max()),
                misalignment=0.0 if sent is None else float((1.0 - sent.gains[row][heard[row]]).abs().square().sum()),
            )
        )
    return records
