"""Work on many replicas in chunks that fit the memory."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from airfl.errors import InputError

Part = TypeVar("Part")
log = logging.getLogger("airfl")


def in_chunks(total: int, size: int, work: Callable[[int, int], Part]) -> Iterator[Part]:
    """Yield work(start, stop) over all of ``total``, ``size`` at a time; where memory runs out, half as many."""
    start = 0
    while start < total:
        stop = min(start + size, total)
        try:
            part = work(start, stop)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_memory(error):
                raise
            if stop - start == 1:
                raise InputError(
                    "not even one replica fits the memory; use a smaller model or `learning.batch_size`, or another "
                    "`engine.device`"
                ) from error
            size = (stop - start) // 2
            if torch.cuda.is_available():
                gc.collect()  # what was half made may hold itself
                torch.cuda.empty_cache()
            log.warning("out of memory with %d replicas at a time; going on with %d", stop - start, size)
            continue
        yield part
        start = stop


def is_memory(error: BaseException) -> bool:
    """Whether memory has run out, on a GPU or here."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def available_bytes(device: torch.device) -> int:
    """Memory that is free on the device now, as it reports itself."""
    if device.type == "cuda":
        # What PyTorch has reserved and does not use is free as well.
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + unused
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            words = dict(line.split(":", 1) for line in file)
        return int(words["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 4 * 2**30
