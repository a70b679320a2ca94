"""What asks a run to stop: Ctrl-C, SIGTERM (a scheduler) and SIGHUP (a terminal that is gone)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


class Interrupts:
    """Inside a ``with`` statement each of them raises KeyboardInterrupt, until ``settle``; then they are only noted.

    A signal that was ignored before (`nohup`, a shell's background job) stays ignored.
    """

    def __init__(self) -> None:
        self.asked = False
        self._settled = False
        self._before: dict[int, Any] = {}
        self._terminals = [number for number in (1, 2) if os.isatty(number)]

    def __enter__(self) -> Self:
        self._before = _install(self._hear)
        return self

    def __exit__(self, *problem: object) -> None:
        _restore(self._before)

    def settle(self) -> None:
        """From here on nothing is interrupted: what there is will be written."""
        self._settled = True

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        if number == getattr(signal, "SIGHUP", None):
            for terminal in self._terminals:  # writing to one that is gone would fail, and the run is to be saved
                os.dup2(os.open(os.devnull, os.O_WRONLY), terminal)
        if not self._settled:
            raise KeyboardInterrupt


@contextmanager
def deferred() -> Iterator[None]:
    """Signals that come inside count afterwards."""
    came: list[int] = []
    before = _install(lambda number, frame: came.append(number))
    try:
        yield
    finally:
        _restore(before)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


def _install(hear: Callable[[int, FrameType | None], object]) -> dict[int, Any]:
    """Returns the handlers that were there; only the main thread may have any."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    wanted = [number for number in STOPPING if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    return {number: signal.signal(number, hear) for number in wanted}


def _restore(before: dict[int, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)
