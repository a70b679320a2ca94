"""Several things at once: NumPy and PyTorch let go of the interpreter while they work."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
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


def one_per_thread(function: Callable[[Item], Out], items: Iterable[Item]) -> list[Out]:
    """[function(item) for item in items] for tensor work that is not worth splitting: one item on each thread.

    Inside, products are not split, so results do not depend on the number of threads.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(function, items))
    finally:
        torch.set_num_threads(threads)
