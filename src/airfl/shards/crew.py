"""A crew that cuts a round into shares, has them worked off, and puts together what comes back."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from airfl.air import Summing
from airfl.catalogue import no_such
from airfl.errors import InputError
from airfl.rounds import Gathered, Member, Training, Watch, fetched
from airfl.shards.cluster import Cluster
from airfl.shards.desk import Order
from airfl.shards.kept import Kept, Left
from airfl.shards.share import GROUPS, Done, Share, cut, slots_of
from airfl.shards.workers import Heard, Here, Site, Workers


@runtime_checkable
class HearsShards(Protocol):
    """A progress that hears how far the shards of a round are."""

    def shards(self, done: int, total: int) -> None:
        """So many shares of this round are done."""
        ...


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
        shares, heard = cut(training, self.count), self.heard or _nobody
        parts = tuple(slice(share.bounds[0], share.bounds[-1]) for share in shares)
        site, before = Site(training.task, training.engine, parts), self._before(training)
        orders = _orders(training, shares, before)

        def history(number: int) -> list[Order]:
            order = orders[number]
            return [order] if before is None else before.then(number, order)

        heard(0, len(shares))
        answers = self.workers.work(site, orders, history, heard)
        left = Left(orders, before, self.workers, site)
        return [
            _together(member, [answer[number] for answer in answers], shares, training, Kept(left, number))
            for number, member in enumerate(training.members)
        ]

    def _before(self, training: Training) -> Left | None:
        """The round that left what all devices remember, if there is one, and its workers are these."""
        kept = [member.memory for member in training.members if member.memory is not None]
        lefts = {id(one.left): one.left for one in kept if isinstance(one, Kept)}
        if len(lefts) != 1 or not all(isinstance(one, Kept) for one in kept):
            return None
        (before,) = lefts.values()
        if before.workers is not self.workers or before.site.task is not training.task:
            return None
        if before.is_long():
            before.fetch()
        return before


def _nobody(done: int, total: int) -> None:
    """Nobody listens."""


def _orders(training: Training, shares: Sequence[Share], before: Left | None) -> list[Order]:
    """What each desk is to do: after the round before, or with memories that are given."""
    name, members = secrets.token_hex(8), training.members
    if before is None:
        memories = [fetched(member.memory) for member in members]
        places = tuple(None if memory is None else number for number, memory in enumerate(memories))
        return [Order(share, name, None, places).given(memories) for share in shares]
    places = tuple(member.memory.place if isinstance(member.memory, Kept) else None for member in members)
    return [Order(share, name, before.name, places) for share in shares]


def _together(
    member: Member, answers: Sequence[Done], shares: Sequence[Share], training: Training, kept: Kept
) -> Gathered:
    """One scheme's sum with its noise, and its devices as they sent."""
    receiver, watch = member.uplink.open(member.dim, member.setting), Watch(*member.setting.active.shape)
    assert isinstance(receiver, Summing)
    if not any(answer.sums for answer in answers):  # nobody was drawn
        nothing = torch.zeros(len(training.active), member.dim, dtype=torch.float64, device=training.models.device)
        receiver.take([nothing] * member.setting.per_symbol)
    for share, answer in zip(shares, answers, strict=True):
        for sums in answer.sums:
            receiver.take([one.to(training.models.device) for one in sums])
        places = torch.from_numpy(slots_of(training.active, share.bounds[0], share.bounds[-1]))
        where = torch.nonzero(places >= 0, as_tuple=True)
        target = where[0], places[where]
        for name in ("norms", "losses", "kept"):
            getattr(watch, name)[target] = getattr(answer, name)[where]
    return Gathered(receiver.finish(), watch, None if member.memory is None else kept)


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
