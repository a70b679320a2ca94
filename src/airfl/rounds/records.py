"""What a round leaves behind for people: one row per trial."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from airfl.air import Setting
from airfl.config import Config
from airfl.devices import UpdateBlock
from airfl.privacy import Ledger
from airfl.rounds.schedule import Schedule


@dataclass(frozen=True)
class RoundRecord:
    """One row of results: one trial, one round.

    NaN where a quantity was not measured or does not exist, or would tell who took part where that must stay hidden.
    """

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
    auc: float = math.nan
    calibration_error: float = math.nan
    own_accuracy: float = math.nan
    device_accuracy_mean: float = math.nan
    device_accuracy_p10: float = math.nan
    personal_accuracy: float = math.nan
    personal_accuracy_mean: float = math.nan
    personal_accuracy_p10: float = math.nan


#: Fields of a record that hold what ``learning.metrics`` asks for.
MEASURED = (
    *("auc", "calibration_error", "own_accuracy", "device_accuracy_mean", "device_accuracy_p10"),
    *("personal_accuracy", "personal_accuracy_mean", "personal_accuracy_p10"),
)


class Watch:
    """Sees the updates pass by and keeps their norms before clipping and their losses, [trials, K].

    Attributes:
        kept: what is left of each where its energy would have cost more power than there is.
    """

    def __init__(self, trials: int, active: int) -> None:
        self.norms = torch.zeros(trials, active, dtype=torch.float64)
        self.losses = torch.zeros(trials, active, dtype=torch.float64)
        self.kept = torch.ones(trials, active, dtype=torch.float64)

    def see(self, block: UpdateBlock, norms: torch.Tensor) -> None:
        """Note one block."""
        where = (block.trial.cpu(), block.slot.cpu())
        self.norms[where] = norms.to("cpu", torch.float64)
        self.losses[where] = block.losses.to("cpu", torch.float64)


def _misalignment(setting: Setting, row: int, kept: torch.Tensor) -> float:
    """Σ_i |1 − g_i|², with what is left of each device for power's sake; the mean over blocks where gains differ."""
    heard = setting.heard[row]
    if setting.blocks is None or setting.blocks.gains is None:
        return float((1.0 - setting.gains[row] * kept)[heard].abs().square().sum())
    apart = (1.0 - setting.blocks.gains[row] * kept.unsqueeze(-1))[heard]
    return float(apart.abs().square().mean(dim=-1).sum())


def _accounted_every(config: Config, schedule: Schedule) -> int:
    """How many rounds go by until ε is looked at again, where that takes as long as all rounds so far together.

    Composing with sampling credit takes seconds: ten times in a run. The bound for a hidden state looks at all rounds
    anew: a hundred times in a long run. The others add one round to what they have.
    """
    rounds = config.system.rounds
    if schedule.promise.accountant == "sampled":
        return max(1, rounds // 10)
    return rounds // 100 if schedule.promise.accountant == "convergent" and rounds > 1000 else 1


def record_round(
    config: Config,
    schedule: Schedule,
    setting: Setting,
    ledgers: Sequence[Ledger],
    watch: Watch,
    tested: tuple[np.ndarray, np.ndarray] | None,
    measured: Sequence[Mapping[str, float]] | None = None,
    trained: np.ndarray | None = None,
) -> list[RoundRecord]:
    """The rows of round t, one per trial.

    Args:
        tested: accuracy and loss where the round was evaluated.
        measured: further fields by name, one mapping per trial.
        trained: the new models' loss on all training samples; None: the mean over the local steps stands for it.
    """
    t, heard, over_air = setting.round_index, setting.heard, setting.over_air
    clips = math.isfinite(setting.clip_norm)
    skipped = t + 1 < config.system.rounds and (t + 1) % _accounted_every(config, schedule) != 0
    records = []
    for row, trial in enumerate(schedule.link.trials):
        hidden = schedule.hides and schedule.hides_participation[row]
        served = over_air and not (hidden and config.scheme.combiner_columns != "all")
        over = (watch.norms[row][heard[row]] > schedule.clip_norm).double().mean().nan_to_num()
        records.append(
            RoundRecord(
                scheme=schedule.scheme.name,
                trial=trial,
                round=t + 1,
                accuracy=math.nan if tested is None else float(tested[0][row]),
                loss=math.nan if tested is None else float(tested[1][row]),
                train_loss=float(watch.losses[row][heard[row]].mean() if trained is None else trained[row]),
                epsilon=math.nan if skipped else schedule.promise.spent(ledgers[row]),
                noise_var=float(setting.noise_var[row]),
                combiner_norm=float(schedule.norm[row, t]) if over_air else math.nan,
                minimum_norm=float(schedule.minimum[row, t]) if served else math.nan,
                update_norm=float(watch.norms[row][heard[row]].mean()),
                clipped_fraction=float(over) if clips else 0.0,
                max_power_w=float(setting.power_w[row].max()) if over_air and not hidden else math.nan,
                misalignment=math.nan if hidden else _misalignment(setting, row, watch.kept[row]),
                **({} if measured is None else measured[row]),
            )
        )
    return records
