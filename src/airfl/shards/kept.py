"""What devices remember after a round, as whoever asked for the round holds it: by name, until somebody has to see it.

Memories stay at desks. Here are those that were fetched last, and the shares of all rounds since: what a desk needs
that begins anew. A round that was fetched lets go of all before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
import torch

from airfl.shards.desk import Order
from airfl.shards.workers import Memories, Site, Workers

#: Rounds after which memories are fetched at the latest, lest a desk that begins anew has too much to do again.
ROUNDS = 32


class Left:
    """A round that desks have worked off, and what it left with them.

    Attributes:
        name: of the round.
        workers, site: who has it.
    """

    def __init__(self, orders: Sequence[Order], before: Left | None, workers: Workers, site: Site) -> None:
        self.name, self.workers, self.site = orders[0].leaves, workers, site
        self._orders, self._before = tuple(orders), before
        self._memories: list[torch.Tensor | None] | None = None
        self._bytes: int | None = None

    def then(self, number: int, order: Order) -> list[Order]:
        """An order of the round after this one, behind all that a desk that remembers nothing carries out before it."""
        return [*self.history(number), order] if self._memories is None else [order.given(self._memories)]

    def history(self, number: int) -> list[Order]:
        """What a desk that remembers nothing carries out to stand here, the oldest order first."""
        order = self._orders[number]
        return [order] if self._before is None else self._before.then(number, order)

    def fetch(self) -> list[torch.Tensor | None]:
        """What all devices remember, scheme by scheme; from now on a desk that begins anew begins with it."""
        if self._memories is None:
            parts = self.workers.recall(self.site, self.name, self.history)
            self._memories = [_joined(own, self.site.parts) for own in zip(*parts, strict=True)]
            self._orders, self._before = (), None
        return self._memories

    def is_long(self) -> bool:
        """Whether what is held for desks that begin anew is larger than memories are, or takes too long to do again."""
        held = self.held
        if not held:
            return False
        share, remembering = self._orders[0].share, sum(place is not None for place in self._orders[0].places)
        memories = 4 * remembering * len(share.active) * self.site.parts[-1].stop * share.members[0].dim
        return len(held) >= ROUNDS or sum(held) > memories

    @property
    def held(self) -> list[int]:
        """Bytes that are held of every round since memories were fetched, the last one first."""
        if self._memories is not None:
            return []
        if self._bytes is None:
            shares = [order.share for order in self._orders]
            in_common = bytes_of(shares[0].models)
            self._bytes = bytes_of(shares) - (len(shares) - 1) * in_common
        return [self._bytes, *(() if self._before is None else self._before.held)]


@dataclass(frozen=True)
class Kept:
    """One scheme's memories after a round; see ``rounds.remembered.Elsewhere``."""

    left: Left
    place: int

    def fetch(self) -> torch.Tensor:
        """All of them, [trials, n, d]."""
        found = self.left.fetch()[self.place]
        assert found is not None
        return found


def _joined(parts: Memories, where: Sequence[slice]) -> torch.Tensor | None:
    """Memories of all devices of those of every desk."""
    first = parts[0]
    if first is None:
        return None
    whole = torch.empty(first.shape[0], where[-1].stop, first.shape[2])
    for part, devices in zip(parts, where, strict=True):
        whole.numpy()[:, devices] = part
    return whole


def bytes_of(thing: Any) -> int:
    """Bytes of all arrays in something that travels."""
    if isinstance(thing, torch.Tensor):
        return int(thing.untyped_storage().nbytes())
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, dict):
        thing = list(thing.values())
    elif is_dataclass(thing):
        thing = [getattr(thing, item.name) for item in fields(thing)]
    return sum(bytes_of(item) for item in thing) if isinstance(thing, (list, tuple)) else 0
