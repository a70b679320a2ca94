"""Several draws at once: NumPy lets go of the interpreter while it draws and sorts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TypeVar

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
