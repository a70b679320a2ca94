"""Local training of one round: every update is made, encoded and handed to the receiver of each scheme."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from airfl.air import Receiver, Setting, Uplink
from airfl.devices import Task, UpdateBlock
from airfl.engines import Engine
from airfl.rounds.lanes import Lane, met_by
from airfl.rounds.records import Watch
from airfl.rounds.remembered import Memory, fetched
from airfl.rounds.sending import Sending
from airfl.schemes import Encoder, Public

#: Replaces updates that were trained.
Intervention = Callable[[UpdateBlock], UpdateBlock]


@dataclass(frozen=True)
class Member:
    """One scheme in a round: what its devices are given, and who receives them.

    Attributes:
        memory: what devices remember, [trials, n, d]; None for an encoder without memory.
        offset: the number of the device that memory begins with.
    """

    encoder: Encoder
    setting: Setting
    public: Public
    clip_norm: float
    memory: Memory
    uplink: Uplink
    dim: int
    offset: int = 0

    def sending(self) -> Sending:
        """Its devices, about to send."""
        return Sending(self.encoder, self.setting, self.clip_norm, fetched(self.memory), self.public, self.offset)


@dataclass(frozen=True)
class Training:
    """All schemes of a round that train together.

    Attributes:
        models: what is broadcast, a row for every lane's row, [rows, d].
        active: who takes part, [trials, K].
    """

    engine: Engine
    task: Task
    round_index: int
    active: np.ndarray
    lanes: Sequence[Lane]
    models: torch.Tensor
    members: Sequence[Member]
    intervene: Intervention | None = None

    def batches(self, active: np.ndarray) -> torch.Tensor:
        """Sample numbers of the local steps of some devices, [rows, K, steps, batch]."""
        batches = self.task.batches(self.round_index, active)
        return batches[[row for lane in self.lanes for row in range(lane.first, lane.last)]]


@dataclass(frozen=True)
class Gathered:
    """What came of a round for one scheme.

    Attributes:
        received: the sum, with its noise.
        watch: norms and losses of what devices sent.
        memory: what they remember from now on.
    """

    received: torch.Tensor
    watch: Watch
    memory: Memory


#: Does the work of a round.
Crew = Callable[[Training], list[Gathered]]


def train_here(training: Training) -> list[Gathered]:
    """All of it in this process."""
    sendings = [member.sending() for member in training.members]
    receivers = [member.uplink.open(member.dim, member.setting) for member in training.members]
    pass_on(training, training.batches(training.active), sendings, receivers)
    return [
        Gathered(receiver.finish(), sending.watch, sending.memory)
        for receiver, sending in zip(receivers, sendings, strict=True)
    ]


def pass_on(
    training: Training, batches: torch.Tensor, sendings: Sequence[Sending], receivers: Sequence[Receiver]
) -> None:
    """Train, and hand every update to whoever takes it."""
    task, lanes = training.task, training.lanes
    rate = task.config.learning.learning_rate
    for block in training.engine.train(training.models, batches, task.inputs, task.labels, rate):
        for lane in met_by(lanes, *block.trial[[0, -1]].tolist()):
            part = block.rows(lane.place, lane.end, lane.first - lane.place)
            if part is None:
                continue
            trained = part if training.intervene is None else training.intervene(part)
            for number in lane.owners:
                receivers[number].add(sendings[number].encode(trained))
