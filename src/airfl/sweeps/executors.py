"""Who works off the batches of a study: this process or local worker processes; a cluster is in executor_ray."""

from __future__ import annotations

import contextlib
import ctypes
import math
import multiprocessing as mp
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from airfl.catalogue import no_such
from airfl.errors import InputError, failure
from airfl.parallel import torch_threads
from airfl.runs.execute import pick_device
from airfl.study import Batch, Plan
from airfl.sweeps.batch import Folder, Stopped, run_batch

#: How often a batch is given out when its workers die.
TRIES = 3


@dataclass(frozen=True)
class Event:
    """What a batch has to say: it began, a round is over, it is done, or it failed."""

    batch: str
    kind: Literal["begin", "round", "done", "failed", "stopped"]
    rounds: int = 0
    total: int = 0
    message: str = ""


@dataclass(frozen=True)
class Settings:
    """How batches are run; nothing here changes results."""

    device: str = "auto"
    every_rounds: int = 10
    every_seconds: float = 60.0
    tell_seconds: float = 0.25


@dataclass(frozen=True)
class Job:
    """What an executor is given.

    Attributes:
        batches: those of the plan that are left.
        say: hears every event, in the calling thread.
        stop: whether the user wants to stop.
    """

    plan: Plan
    batches: Sequence[Batch]
    folder: Folder
    say: Callable[[Event], None]
    stop: Callable[[], bool]


class Executor(Protocol):
    """Works off batches and tells what happens."""

    def run(self, job: Job) -> None:
        """Return once all batches are done or failed, or once ``job.stop`` says so and all have saved."""
        ...


def work(
    plan: Plan,
    batch: Batch,
    folder: Folder,
    settings: Settings,
    say: Callable[[Event], None],
    stop: Callable[[], bool],
) -> None:
    """One batch, its outcome as events; of its rounds some are told, a few each second."""
    told = -math.inf

    def heard(now: int, total: int) -> None:
        nonlocal told
        if time.monotonic() - told >= settings.tell_seconds:
            told = time.monotonic()
            say(Event(batch.name, "round", now, total))

    say(Event(batch.name, "begin"))
    try:
        run_batch(
            plan,
            batch,
            folder,
            device=settings.device,
            every_rounds=settings.every_rounds,
            every_seconds=settings.every_seconds,
            heard=heard,
            should_stop=stop,
        )
    except Stopped:
        say(Event(batch.name, "stopped"))
    except Exception as error:  # one batch must not take the others along
        say(Event(batch.name, "failed", message=failure(error)))
    else:
        say(Event(batch.name, "done"))


@dataclass(frozen=True)
class InProcess:
    """One batch after another, here."""

    settings: Settings

    def run(self, job: Job) -> None:
        """See ``Executor.run``."""
        with torch_threads(job.plan.threads):
            for batch in job.batches:
                if job.stop():
                    return
                work(job.plan, batch, job.folder, self.settings, job.say, job.stop)


@dataclass(frozen=True)
class Processes:
    """Local worker processes. One that dies is replaced, and its batch goes on from its checkpoint."""

    settings: Settings
    workers: int

    def run(self, job: Job) -> None:
        """See ``Executor.run``."""
        context = mp.get_context("spawn")
        events: Any = context.Queue()
        halt = context.Event()
        waiting, tries = list(job.batches), dict.fromkeys((batch.name for batch in job.batches), 0)
        at_work: dict[str, tuple[Any, Batch]] = {}
        while waiting or at_work:
            if job.stop():
                halt.set()
                waiting = []
            while waiting and len(at_work) < self.workers:
                batch = waiting.pop(0)
                tries[batch.name] += 1
                arguments = (job.plan, batch, job.folder, self.settings, events, halt)
                process = context.Process(target=_worker, args=arguments, daemon=True)
                process.start()
                at_work[batch.name] = (process, batch)
            with contextlib.suppress(queue.Empty):
                event = events.get(timeout=0.2)
                if event.kind in ("done", "failed", "stopped"):
                    process, _ = at_work.pop(event.batch)
                    process.join()
                job.say(event)
                continue
            for name, (process, batch) in list(at_work.items()):
                if process.is_alive() or not events.empty():
                    continue
                del at_work[name]
                if tries[name] < TRIES:
                    waiting.insert(0, batch)
                else:
                    job.say(Event(name, "failed", message=f"its worker died {TRIES} times (exit {process.exitcode})"))


def _worker(plan: Plan, batch: Batch, folder: Folder, settings: Settings, events: Any, halt: Any) -> None:
    """A process of its own: gone when its parent is, deaf to Ctrl-C, which the parent hears."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)
    torch.set_num_threads(plan.threads)
    work(plan, batch, folder, settings, events.put, halt.is_set)


def make_executor(
    kind: str,
    workers: int | None,
    address: str | None = None,
    device: str = "auto",
    every_rounds: int = 10,
    every_seconds: float = 60.0,
) -> Executor:
    """An executor by name."""
    settings = Settings(device, every_rounds, every_seconds)
    if workers is not None and workers < 1:
        raise InputError(f"`workers` must be at least 1; got {workers}")
    if kind == "ray":
        from airfl.sweeps.executor_ray import RayCluster

        cluster = RayCluster(settings, address, workers)
        cluster.check()
        return cluster
    if kind != "local":
        raise InputError(no_such("executor", kind, ("local", "ray")))
    if address is not None:
        raise InputError("--address goes with --executor ray")
    pick_device(device)  # refused before anything is written
    return InProcess(settings) if (workers or 1) == 1 else Processes(settings, workers or 1)
