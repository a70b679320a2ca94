"""Where shares are worked off: a desk keeps what its devices remember, and knows which round left it.

Whoever asks says by name which round's memories a share begins with. A desk that stands elsewhere, since it began anew
or has carried out this very share before, does nothing and says so. Then it is given memories and all shares since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from airfl.devices import Task
from airfl.engines import Engine
from airfl.shards.share import Done, Share, work


@dataclass(frozen=True)
class Order:
    """A share to work off, and what its devices must remember before.

    Attributes:
        leaves: the name of the round, and so of what they remember after it.
        follows: the name of the round that left what they remember; None: ``memories`` are given.
        places: of every scheme the number that it had in that round; None for one without memory.
        memories: of every scheme, [trials, n, d]; None for one without memory.
    """

    share: Share
    leaves: str
    follows: str | None
    places: tuple[int | None, ...]
    memories: tuple[torch.Tensor | np.ndarray | None, ...] = ()

    @property
    def devices(self) -> slice:
        """Numbers of its devices."""
        return slice(self.share.bounds[0], self.share.bounds[-1])

    def given(self, memories: Sequence[torch.Tensor | None]) -> Order:
        """The same, with memories of all devices, as the round before numbered the schemes, to begin with."""
        own: list[torch.Tensor | None] = []
        for place in self.places:
            whole = None if place is None else memories[place]
            own.append(None if whole is None else whole[:, self.devices])
        return replace(self, follows=None, memories=tuple(own))


class Desk:
    """Works off shares of the same devices, round after round, each once."""

    def __init__(self, engine: Engine, task: Task) -> None:
        self._engine, self._task = engine, task
        self._stands: str | None = None
        self._memories: list[torch.Tensor | None] = []

    def work(self, orders: Sequence[Order]) -> list[Done] | None:
        """Carry out one order after the other, and answer the last; None, and nothing done, where it stands elsewhere.

        Only the first can be refused: each of the others follows the one before it.
        """
        if orders[0].follows not in (None, self._stands):
            return None
        for order in orders:
            done = self._carried_out(order)
        return done

    def recall(self, name: str, orders: Sequence[Order]) -> list[torch.Tensor | None] | None:
        """What devices remember after the round of this name; None where it stands elsewhere.

        Args:
            orders: carried out first if need be.
        """
        if self._stands != name and orders:
            self.work(orders)
        return self._memories if self._stands == name else None

    def _carried_out(self, order: Order) -> list[Done]:
        if order.follows is None:
            memories = [None if own is None else _own(own) for own in order.memories]
        else:
            assert order.follows == self._stands
            memories = [None if place is None else self._memories[place] for place in order.places]
        self._stands, self._memories = None, []  # a share that fails on the way leaves nothing to go on from
        done = work(order.share, memories, self._engine, self._task)
        self._stands, self._memories = order.leaves, memories
        return done


def _own(memory: torch.Tensor | np.ndarray) -> torch.Tensor:
    """A copy that may be written to."""
    if isinstance(memory, np.ndarray):
        return torch.from_numpy(memory.copy())
    return memory.clone(memory_format=torch.contiguous_format)
