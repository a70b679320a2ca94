"""Who works off the batches of a study: this process, local worker processes, or a Ray cluster."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import multiprocessing as mp
import os
import queue
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from airfl.errors import InputError
from airfl.runs.batch import Folder, Stopped, run_batch
from airfl.runs.study import Batch, Plan, make_plan, make_study

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


class Executor(Protocol):
    """Works off batches and tells what happens."""

    def run(self, plan: Plan, batches: Sequence[Batch], folder: Folder, stop: Callable[[], bool]) -> Iterator[Event]:
        """Yield events until all batches are done or failed, or until ``stop`` says so and all have saved."""
        ...


def _work(
    plan: Plan,
    batch: Batch,
    folder: Folder,
    settings: Settings,
    say: Callable[[Event], None],
    stop: Callable[[], bool],
) -> None:
    """One batch, its outcome as events."""
    say(Event(batch.name, "begin"))
    try:
        run_batch(
            plan,
            batch,
            folder,
            device=settings.device,
            every_rounds=settings.every_rounds,
            every_seconds=settings.every_seconds,
            heard=lambda now, total: say(Event(batch.name, "round", now, total)),
            should_stop=stop,
        )
    except Stopped:
        say(Event(batch.name, "stopped"))
    except Exception as error:  # one batch must not take the others along
        say(Event(batch.name, "failed", message=f"{type(error).__name__}: {error}"))
    else:
        say(Event(batch.name, "done"))


@dataclass(frozen=True)
class InProcess:
    """One batch after another, here."""

    settings: Settings

    def run(self, plan: Plan, batches: Sequence[Batch], folder: Folder, stop: Callable[[], bool]) -> Iterator[Event]:
        """See ``Executor.run``."""
        import torch

        before = torch.get_num_threads()
        torch.set_num_threads(plan.threads)
        try:
            for batch in batches:
                if stop():
                    return
                said: list[Event] = []
                yield Event(batch.name, "begin")
                _work(plan, batch, folder, self.settings, said.append, stop)
                yield from said[1:]
        finally:
            torch.set_num_threads(before)


@dataclass(frozen=True)
class Processes:
    """Local worker processes. One that dies is replaced, and its batch goes on from its checkpoint."""

    settings: Settings
    workers: int

    def run(self, plan: Plan, batches: Sequence[Batch], folder: Folder, stop: Callable[[], bool]) -> Iterator[Event]:
        """See ``Executor.run``."""
        context = mp.get_context("spawn")
        events: Any = context.Queue()
        halt = context.Event()
        waiting, tries = list(batches), dict.fromkeys((batch.name for batch in batches), 0)
        at_work: dict[str, tuple[Any, Batch]] = {}
        study = plan.study.model_dump(mode="json", by_alias=True)
        while waiting or at_work:
            if stop():
                halt.set()
                waiting = []
            while waiting and len(at_work) < self.workers:
                batch = waiting.pop(0)
                tries[batch.name] += 1
                arguments = (study, plan.threads, batch, str(folder.path), self.settings, events, halt)
                process = context.Process(target=_worker, args=arguments, daemon=True)
                process.start()
                at_work[batch.name] = (process, batch)
            with contextlib.suppress(queue.Empty):
                event = events.get(timeout=0.2)
                if event.kind in ("done", "failed", "stopped"):
                    process, _ = at_work.pop(event.batch)
                    process.join()
                yield event
                continue
            for name, (process, batch) in list(at_work.items()):
                if process.is_alive() or not events.empty():
                    continue
                del at_work[name]
                if tries[name] < TRIES:
                    waiting.insert(0, batch)
                else:
                    yield Event(name, "failed", message=f"its worker died {TRIES} times (exit {process.exitcode})")


def _worker(
    study: dict[str, Any], threads: int, batch: Batch, out: str, settings: Settings, events: Any, halt: Any
) -> None:
    """A process of its own: gone when its parent is, deaf to Ctrl-C, which the parent hears."""
    import torch

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)
    torch.set_num_threads(threads)
    plan = make_plan(make_study(study), threads)
    _work(plan, batch, Folder(Path(out)), settings, events.put, halt.is_set)


@dataclass(frozen=True)
class RayCluster:
    """Tasks on a Ray cluster; their parts come back as bytes, so no common disk is needed.

    Attributes:
        address: of a cluster that runs already; None: start one here.
        workers: batches at a time; None: as many as the cluster has room for.
    """

    settings: Settings
    address: str | None = None
    workers: int | None = None

    def run(self, plan: Plan, batches: Sequence[Batch], folder: Folder, stop: Callable[[], bool]) -> Iterator[Event]:
        """See ``Executor.run``."""
        try:
            import ray
        except ImportError:
            raise InputError(
                "executor `ray` needs the extra `airfl[ray]`; install it or use --executor local"
            ) from None
        if not ray.is_initialized():
            ray.init(address=self.address, log_to_driver=False, include_dashboard=False)
        gpus = 1 if self.settings.device == "cuda" else 0
        remote = ray.remote(num_cpus=plan.threads, num_gpus=gpus, max_retries=TRIES - 1)(_remote_batch)
        study = plan.study.model_dump(mode="json", by_alias=True)
        room = self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // plan.threads)
        waiting = list(batches)
        at_work: dict[Any, Batch] = {}
        while waiting or at_work:
            if stop():  # finished parts are here; what is under way will be done again
                for task in at_work:
                    ray.cancel(task, force=True)
                return
            while waiting and len(at_work) < room:
                batch = waiting.pop(0)
                at_work[remote.remote(study, plan.threads, batch, self.settings)] = batch
                yield Event(batch.name, "begin")
            ready, _ = ray.wait(list(at_work), num_returns=1, timeout=0.5)
            for task in ready:
                batch = at_work.pop(task)
                yield self._collect(ray, task, batch, folder)

    def _collect(self, ray: Any, task: Any, batch: Batch, folder: Folder) -> Event:
        from airfl.runs.store import write_bytes, write_text

        try:
            part, receipt, message = ray.get(task)
            if part is None:
                return Event(batch.name, "failed", message=message)
            folder.part(batch).parent.mkdir(parents=True, exist_ok=True)
            write_bytes(folder.part(batch), part)
            write_text(folder.receipt(batch), receipt)
        except Exception as error:  # one batch must not take the others along
            return Event(batch.name, "failed", message=f"{type(error).__name__}: {error}")
        return Event(batch.name, "done")


def _remote_batch(
    study: dict[str, Any], threads: int, batch: Batch, settings: Settings
) -> tuple[bytes | None, str | None, str]:
    """Run on a node: checkpoints stay in its own temporary folder, where a retry on the same node finds them."""
    import torch

    torch.set_num_threads(threads)
    plan: Plan = make_plan(make_study(study), threads)
    mark = hashlib.sha256(json.dumps(plan.fingerprint(), sort_keys=True).encode()).hexdigest()[:16]
    folder = Folder(Path(tempfile.gettempdir()) / f"airfl-{mark}")
    said: list[Event] = []
    _work(plan, batch, folder, settings, said.append, lambda: False)
    if said[-1].kind != "done":
        return None, None, said[-1].message
    part, receipt = folder.part(batch).read_bytes(), folder.receipt(batch).read_text(encoding="utf-8")
    folder.receipt(batch).unlink()
    folder.part(batch).unlink()
    return part, receipt, ""


def threads_for(workers: int | None) -> int:
    """Threads of each worker; part of the plan, since they change rounding."""
    return max(1, (os.cpu_count() or 1) // (workers or 1)) if workers else 1


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
        return RayCluster(settings, address, workers)
    if kind != "local":
        raise InputError(f"no executor named `{kind}`; known: local, ray")
    if address is not None:
        raise InputError("--address goes with --executor ray")
    return InProcess(settings) if (workers or 1) == 1 else Processes(settings, workers or 1)
