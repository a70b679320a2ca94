"""Who works off shares, one desk each; here one after the other, in ``cluster`` all at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from airfl.devices import Task
from airfl.engines import Engine
from airfl.shards.desk import Desk, Order
from airfl.shards.share import Done

#: Hears how many shares of a round are done, of how many; none at first.
Heard = Callable[[int, int], None]
#: What a desk, by its number, is to carry out where it stands elsewhere than it is asked to.
Histories = Callable[[int], Sequence[Order]]
#: What a desk's devices remember, scheme by scheme, [trials, n, d]; None for one without memory.
Memories = Sequence[torch.Tensor | np.ndarray | None]


@dataclass(frozen=True)
class Site:
    """What desks are set up for: a task, and the devices of each."""

    task: Task
    engine: Engine
    parts: tuple[slice, ...]


class Workers(Protocol):
    """Desks, set up with the first order of a task; those of another task go. Answers come in the order of desks."""

    def work(self, site: Site, orders: Sequence[Order], histories: Histories, heard: Heard) -> list[list[Done]]:
        """Each share's answer, one entry a scheme."""
        ...

    def recall(self, site: Site, name: str, histories: Histories) -> list[Memories]:
        """What devices remember after the round of this name, desk by desk."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


@dataclass(frozen=True)
class Here:
    """One desk after the other, in this process."""

    _desks: list[tuple[Task, list[Desk]]] = field(default_factory=list, repr=False, compare=False)

    def work(self, site: Site, orders: Sequence[Order], histories: Histories, heard: Heard) -> list[list[Done]]:
        """See ``Workers.work``."""
        found = []
        for number, (desk, order) in enumerate(zip(self._set_up(site), orders, strict=True)):
            done = desk.work([order])
            done = desk.work(histories(number)) if done is None else done
            assert done is not None  # whoever is given memories stands where they are
            found.append(done)
            heard(number + 1, len(orders))
        return found

    def recall(self, site: Site, name: str, histories: Histories) -> list[Memories]:
        """See ``Workers.recall``."""
        found: list[Memories] = []
        for number, desk in enumerate(self._set_up(site)):
            own = desk.recall(name, [])
            own = desk.recall(name, histories(number)) if own is None else own
            assert own is not None
            found.append(own)
        return found

    def close(self) -> None:
        """See ``Workers.close``."""
        self._desks.clear()

    def _set_up(self, site: Site) -> list[Desk]:
        if not self._desks or self._desks[0][0] is not site.task:
            self._desks[:] = [(site.task, [Desk(site.engine, site.task) for _ in site.parts])]
        return self._desks[0][1]
