"""A crew that cuts a round into shares, has them worked off, and puts together what comes back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from airfl.air import Summing
from airfl.catalogue import no_such
from airfl.errors import InputError
from airfl.rounds import Gathered, Member, Training
from airfl.shards.cluster import Cluster
from airfl.shards.share import GROUPS, Done, Share, cut, slots_of, work

#: Hears how many shares of a round are done, of how many.
Heard = Callable[[int, int], None]


@runtime_checkable
class HearsShards(Protocol):
    """A progress that hears how far the shards of a round are."""

    def shards(self, done: int, total: int) -> None:
        """So many shares of this round are done."""
        ...


class Workers(Protocol):
    """Works off shares; the answers come in their order."""

    def work(self, shares: Sequence[Share], training: Training, heard: Heard) -> list[list[Done]]:
        """Each share's answer, one entry a scheme."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


@dataclass(frozen=True)
class Here:
    """One share after the other, in this process."""

    def work(self, shares: Sequence[Share], training: Training, heard: Heard) -> list[list[Done]]:
        """See ``Workers.work``."""
        found = []
        for number, share in enumerate(shares):
            found.append(work(share, training.engine, training.task))
            heard(number + 1, len(shares))
        return found

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class Shards:
    """A crew of so many shards; what it gathers does not depend on how many, to the last bit."""

    count: int
    workers: Workers
    heard: Heard | None = None

    def close(self) -> None:
        """Let the workers go."""
        self.workers.close()

    def __call__(self, training: Training) -> list[Gathered]:
        """See ``rounds.training.Crew``."""
        shares = cut(training, self.count)
        answers = self.workers.work(shares, training, self.heard or _nobody)
        return [
            _together(member, [answer[number] for answer in answers], shares, training)
            for number, member in enumerate(training.members)
        ]


def _nobody(done: int, total: int) -> None:
    """Nobody listens."""


def _together(member: Member, answers: Sequence[Done], shares: Sequence[Share], training: Training) -> Gathered:
    """One scheme's sum with its noise, and its devices as they sent."""
    receiver, sending = member.uplink.open(member.dim, member.setting), member.sending()
    assert isinstance(receiver, Summing)
    if not any(answer.sums for answer in answers):  # nobody was drawn
        nothing = torch.zeros(len(training.active), member.dim, dtype=torch.float64, device=training.models.device)
        receiver.take([nothing] * member.setting.per_symbol)
    for share, answer in zip(shares, answers, strict=True):
        for sums in answer.sums:
            receiver.take([one.to(training.models.device) for one in sums])
        first, beyond = share.bounds[0], share.bounds[-1]
        places = torch.from_numpy(slots_of(training.active, first, beyond))
        where = torch.nonzero(places >= 0, as_tuple=True)
        target = where[0], places[where]
        for name in ("norms", "losses", "kept"):
            getattr(sending.watch, name)[target] = getattr(answer, name)[where]
        if sending.memory is not None and answer.memory is not None:
            sending.memory[:, first:beyond] = answer.memory
    return receiver.finish(), sending


def make_shards(executor: str, count: int, address: str | None = None) -> Shards:
    """A crew by name: `local` works in this process, `ray` on a cluster."""
    if executor not in ("local", "ray"):
        raise InputError(no_such("executor", executor, ("local", "ray")))
    if not 1 <= count <= GROUPS:
        raise InputError(f"--shards must be from 1 to {GROUPS}, the groups that devices are cut into; got {count}")
    if executor == "local":
        if address is not None:
            raise InputError("--address is that of a Ray cluster; give --executor ray, or leave it out")
        return Shards(count, Here())
    cluster = Cluster(count, address)
    cluster.check()
    return Shards(count, cluster)
