"""Works off the batches of a study on a Ray cluster."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airfl.errors import InputError, failure
from airfl.imports import beside, look_beside
from airfl.runs.execute import pick_device
from airfl.runs.store import write_bytes
from airfl.shards.cluster import check_ray, connect, in_a_sentence
from airfl.study import Batch, Plan
from airfl.sweeps.batch import Folder, read_samples
from airfl.sweeps.executors import TRIES, Event, Job, Settings, work


@dataclass(frozen=True)
class RayCluster:
    """Tasks on a Ray cluster; their parts come back as bytes, so no common disk is needed.

    A batch whose node is lost begins anew on another one, to the same bits: all its randomness is keyed.

    Attributes:
        address: of a cluster that runs already; None: start one here.
        workers: batches at a time; None: as many as the cluster has room for.
    """

    settings: Settings
    address: str | None = None
    workers: int | None = None

    def run(self, job: Job) -> None:
        """See ``Executor.run``."""
        with contextlib.ExitStack() as stack:
            ray = connect(stack, self.address)
            with in_a_sentence():
                self._run(ray, job)

    def check(self) -> None:
        """See ``check_ray``."""
        check_ray(self.address)

    def _run(self, ray: Any, job: Job) -> None:
        from ray.util.queue import Queue
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        events = Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})
        gpus = 1 if self.settings.device == "cuda" else 0
        remote = ray.remote(num_cpus=job.plan.threads, num_gpus=gpus, max_retries=TRIES - 1)(_remote_batch)
        shared = ray.put(job.plan)
        waiting = list(job.batches)
        at_work: dict[Any, Batch] = {}
        while waiting or at_work:
            if job.stop():  # finished parts are here; what is under way goes on from its node's checkpoint, or anew
                for task in at_work:
                    ray.cancel(task, force=True)
                return
            while waiting and len(at_work) < self._room(ray, job.plan):
                batch = waiting.pop(0)
                at_work[remote.remote(shared, batch, self.settings, events, beside())] = batch
            ready, _ = ray.wait(list(at_work), num_returns=1, timeout=0.3)
            for event in events.get_nowait_batch(events.size()):
                job.say(event)
            for task in ready:
                batch = at_work.pop(task)
                job.say(self._collect(ray, task, batch, job.folder))

    def _room(self, ray: Any, plan: Plan) -> int:
        """Batches at a time: nodes come and go, so it is asked again and again."""
        return self.workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // plan.threads)

    def _collect(self, ray: Any, task: Any, batch: Batch, folder: Folder) -> Event:
        try:
            files, message = ray.get(task)
            if files is None:
                return Event(batch.name, "failed", message=message)
            folder.part(batch).parent.mkdir(parents=True, exist_ok=True)
            for path, data in zip(_files(folder, batch), files, strict=True):
                write_bytes(path, data)
        except Exception as error:  # one batch must not take the others along
            if isinstance(cause := getattr(error, "cause", None), InputError):  # but that node would take them all
                raise InputError(str(cause)) from None
            return Event(batch.name, "failed", message=failure(error))
        return Event(batch.name, "done")


def _files(folder: Folder, batch: Batch) -> tuple[Path, ...]:
    """Of a finished batch; the receipt, which makes the others count, comes last."""
    return folder.part(batch), folder.ledgers(batch), folder.receipt(batch)


def _remote_batch(
    plan: Plan, batch: Batch, settings: Settings, events: Any, places: Sequence[str]
) -> tuple[tuple[bytes, ...] | None, str]:
    """Run on a node: checkpoints stay in its own temporary folder, where a retry on the same node finds them.

    The folder goes when the batch is over, done or failed; what a kill leaves is for the retry.

    Args:
        places: where whoever asks looks for code; on this node, those of them that it has.
    """
    import ray
    import torch

    for place in reversed(places):
        look_beside(Path(place) / "_")
    torch.set_num_threads(plan.threads)
    where = pick_device(settings.device)
    try:
        read_samples(plan.config(batch.points[0]), where)
    except InputError as error:
        raise InputError(
            f"the Ray node `{platform.node()}` cannot read the study's data: {error}; every node needs them at the "
            "same path: put them there, then go on"
        ) from None
    mark = hashlib.sha256(json.dumps(plan.fingerprint(), sort_keys=True).encode()).hexdigest()[:16]
    node = ray.get_runtime_context().get_node_id()[:12]
    folder = Folder(Path(tempfile.gettempdir()) / f"airfl-{mark}-{node}" / batch.name)
    last = Event(batch.name, "begin")

    def say(event: Event) -> None:
        nonlocal last
        last = event
        if event.kind in ("begin", "round"):  # the outcome comes with the result
            events.put(event)

    work(plan, batch, folder, settings, say, lambda: False)
    try:
        if last.kind != "done":
            return None, last.message
        return tuple(path.read_bytes() for path in _files(folder, batch)), ""
    finally:
        shutil.rmtree(folder.path, ignore_errors=True)
        with contextlib.suppress(OSError):  # others are at work beside it
            folder.path.parent.rmdir()
