"""Which of Flower's nodes are the devices of a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from logging import INFO

from flwr.common import log
from flwr.serverapp import Grid

from airfl.errors import InputError

#: For how long no node comes or goes until all are taken to be there.
SETTLED_S = 1.0
#: Between two looks at who is there.
LOOK_S = 0.1


def meet(grid: Grid, count: int, wanted: Sequence[int] | None, wait_s: float) -> dict[int, int]:
    """Node IDs by device number, for good: a node that comes later takes nobody's place.

    Args:
        count: n.
        wanted: node IDs of devices 0, 1, …; None: the first n that are there, in the order of their IDs.
        wait_s: how long to wait for them.
    """
    end, told = time.monotonic() + wait_s, False
    while True:
        here = sorted(grid.get_node_ids())
        named = here[:count] if wanted is None else [node for node in wanted if node in here]
        if len(named) == count:
            return dict(enumerate(named))
        if time.monotonic() > end:
            raise InputError(
                f"{count} nodes are needed (`system.num_devices`), and {len(named)} of them are there after "
                f"{wait_s:g} s; start more nodes or lower `system.num_devices`"
            )
        if not told:
            log(INFO, "waiting for %s nodes; %s are there", count, len(named))
            told = True
        time.sleep(LOOK_S)


def settled(grid: Grid, wait_s: float) -> list[int]:
    """All nodes, once there are some and none comes or goes for a second."""
    end, since = time.monotonic() + wait_s, time.monotonic()
    before: list[int] = []
    while True:
        here, now = sorted(grid.get_node_ids()), time.monotonic()
        if here != before:
            before, since = here, now
        elif here and now - since >= SETTLED_S:
            return here
        if now > end:
            raise InputError(f"no nodes, or ever more of them, in {wait_s:g} s; start nodes, or name them by `nodes`")
        time.sleep(LOOK_S)
