"""Training on CPU threads, a few replicas at a time on each.

Splitting the products of one small step over threads costs more than it gives. So every thread works by itself, with
products that are not split, and results do not depend on the number of threads.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch

from airfl.devices.updates import UpdateBlock
from airfl.parallel import torch_threads

#: Bytes of updates in a block. Memory of this size is used again by the allocator; larger pieces are mapped afresh.
BLOCK_BYTES = 16 * 2**20

#: Seconds after which a thread asks for Python's lock. Steps are many short calls: with the default of 5 ms a thread
#: that met the lock taken would sleep through several of them.
SWITCH_SECONDS = 1e-5

#: Train the replicas from one number up to another, write their updates to [B, d] and return their losses, [B]. The
#: event is set when nobody waits any more.
Work = Callable[[int, int, torch.Tensor, threading.Event], torch.Tensor]


def train_on_threads(
    work: Work, trials: int, active: int, dim: int, group: int = 1, workers: int | None = None
) -> Iterator[UpdateBlock]:
    """Yield the updates of all replicas, in order; each call of ``work`` gets up to ``group`` of them.

    A failure on a thread is raised here. While this runs, products are not split over threads anywhere.
    """
    with _switching(SWITCH_SECONDS), device_threads(workers) as (pool, threads, stop):
        total = trials * active
        rows = group * max(2 * threads, BLOCK_BYTES // (4 * dim * group))
        waiting: deque[tuple[int, torch.Tensor, list[Future[torch.Tensor]]]] = deque()
        for begin in range(0, total, rows):
            updates = torch.empty(min(rows, total - begin), dim)
            parts = zip(range(begin, total, group), updates.split(group), strict=False)
            waiting.append((begin, updates, [pool.submit(work, i, i + len(part), part, stop) for i, part in parts]))
            if len(waiting) == 2:  # one block is trained while the one before is used
                yield _block(active, *waiting.popleft())
        while waiting:
            yield _block(active, *waiting.popleft())


@contextmanager
def device_threads(workers: int | None = None) -> Iterator[tuple[ThreadPoolExecutor, int, threading.Event]]:
    """Threads that train devices, how many there are, and an event that is set when nobody waits for them any more.

    Inside, products are not split over threads anywhere. What has not begun when this is left is not begun.
    """
    with torch_threads(1) as threads:
        count, stop = workers or threads, threading.Event()
        pool = ThreadPoolExecutor(count, "device", initializer=torch.set_num_threads, initargs=(1,))
        try:
            yield pool, count, stop
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)


@contextmanager
def _switching(seconds: float) -> Iterator[None]:
    """Let threads hand Python's lock over after this time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _block(active: int, begin: int, updates: torch.Tensor, losses: list[Future[torch.Tensor]]) -> UpdateBlock:
    found = torch.cat([loss.result() for loss in losses])
    replicas = torch.arange(begin, begin + len(updates))
    return UpdateBlock(replicas // active, replicas % active, updates, found)
