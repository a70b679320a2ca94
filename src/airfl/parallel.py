"""Several things at once: NumPy and PyTorch let go of the interpreter while they work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Out = TypeVar("Out")


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max(1, min(16, os.cpu_count() or 1)), thread_name_prefix="airfl")


def in_threads(function: Callable[[Item], Out], items: Iterable[Item]) -> list[Out]:
    """[function(item) for item in items], several at a time; results do not depend on how many."""
    waiting = list(items)
    if len(waiting) < 2:
        return [function(item) for item in waiting]
    return list(_pool().map(function, waiting))


@contextmanager
def torch_threads(count: int) -> Iterator[int]:
    """Let PyTorch split its products over ``count`` threads inside; yields how many there were before."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield before
    finally:
        torch.set_num_threads(before)


def one_per_thread(function: Callable[[Item], Out], items: Iterable[Item]) -> list[Out]:
    """[function(item) for item in items] for tensor work that is not worth splitting: one item on each thread.

    Inside, products are not split, so results do not depend on the number of threads.
    """
    with (
        torch_threads(1) as threads,
        ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool,
    ):
        return list(pool.map(function, items))
