"""Shards on a Ray cluster: an actor for each, which keeps the task and is given models and gains."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from airfl.devices import Task
from airfl.engines import choose_engine
from airfl.errors import InputError, in_words
from airfl.imports import beside, look_beside
from airfl.rounds import Training
from airfl.shards.share import Done, Share, work

#: Ray's sockets lie below its folder, and their paths may not be longer than about 100 letters.
LONGEST_FOLDER = 20
#: How often a share is worked off before the run gives up.
TRIES = 4


def check_ray(address: str | None) -> None:
    """Refuse what cannot work before anything is written: no Ray, or nobody at the address."""
    if importlib.util.find_spec("ray") is None:
        raise InputError("executor `ray` needs the extra `airfl[ray]`; install it or use --executor local")
    host, _, port = (address or "").rpartition(":")
    if not host or not port.isdigit():  # `auto`, or a name that Ray resolves
        return
    try:
        socket.create_connection((host.rpartition("/")[2], int(port)), timeout=5.0).close()
    except OSError as error:
        raise InputError(f"no Ray cluster answers at `{address}`: {in_words(error)}") from None


def connect(stack: contextlib.ExitStack, address: str | None) -> Any:
    """Ray, connected; a cluster that is started here is stopped with the stack, and its files go with it."""
    import ray

    if ray.is_initialized():
        return ray
    own = {}
    if address is None and len(tempfile.gettempdir()) <= LONGEST_FOLDER:
        own["_temp_dir"] = tempfile.mkdtemp(prefix="airfl-ray-")
        stack.callback(shutil.rmtree, own["_temp_dir"], ignore_errors=True)
    try:
        ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level="error", **own)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"no Ray cluster answers at `{address}`: {reason}") from None
    stack.callback(ray.shutdown)
    return ray


@dataclass(frozen=True)
class Cluster:
    """Actors that are begun with the first round; one whose node is lost begins anew elsewhere, and so does its share.

    Those of one task at a time: when another one comes, as that of the next trials or the next run, theirs go.

    Attributes:
        address: of a cluster that runs already; None: start one here.
    """

    count: int
    address: str | None = None
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, repr=False, compare=False)
    _actors: list[tuple[Task, list[Any], list[Any]]] = field(default_factory=list, repr=False, compare=False)

    def check(self) -> None:
        """See ``check_ray``."""
        check_ray(self.address)

    def close(self) -> None:
        """Stop the actors, and a cluster that was started here."""
        self._actors.clear()
        self._stack.close()

    def work(self, shares: Sequence[Share], training: Training, heard: Callable[[int, int], None]) -> list[list[Done]]:
        """See ``crew.Workers``."""
        ray = connect(self._stack, self.address)
        from ray.exceptions import RayError

        if not self._actors or self._actors[0][0] is not training.task:
            self._actors.clear()  # Ray stops actors that nobody holds, and their cores are free
            self._actors.append((training.task, *_begin(ray, training, len(shares))))
        models = ray.put(training.models.cpu().numpy())
        empty = training.models[:0]
        at_work = {
            actor.work.remote(replace(share, models=empty), models): number
            for number, (actor, share) in enumerate(zip(self._actors[0][2], shares, strict=True))
        }
        found: dict[int, list[Done]] = {}
        waiting = list(at_work)
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1)
            for task in ready:
                try:
                    found[at_work[task]] = ray.get(task)
                except RayError as error:
                    cause = getattr(error, "cause", None)
                    if isinstance(cause, InputError):  # what a part from outside did wrong, once and in its own words
                        raise InputError(str(cause)) from None
                    often = f"{TRIES} times, at last" if cause is None else "once, and would again,"
                    raise InputError(
                        f"shard {at_work[task] + 1} of {len(shares)} failed {often} because: "
                        f"{(str(error) or type(error).__name__).strip().splitlines()[-1]}"
                    ) from None
            heard(len(found), len(shares))
        return [found[number] for number in range(len(shares))]


def _begin(ray: Any, training: Training, count: int) -> tuple[list[Any], list[Any]]:
    """The task in Ray's store, which has to be held as long as an actor may begin anew, and one actor a share."""
    gpus = 1 if training.task.inputs.device.type == "cuda" else 0
    options = {"max_restarts": TRIES - 1, "max_task_retries": TRIES - 1, "scheduling_strategy": "SPREAD"}
    # All of them fit on one core, so that those of a node that is lost find room on the last one.
    remote = ray.remote(num_cpus=1.0 / count, num_gpus=gpus, **options)(Worker)
    packed = [ray.put(packed_task(training.task))]  # in a list, so that an actor that begins anew fetches it anew
    return packed, [remote.remote(packed, beside()) for _ in range(count)]


def packed_task(task: Task) -> dict[str, Any]:
    """A task as it travels: arrays, which actors of one node share, in place of tensors."""
    found: dict[str, Any] = {}
    for item in fields(task):
        value = getattr(task, item.name)
        if isinstance(value, torch.Tensor):
            value = value.cpu().numpy()
        found[item.name] = {} if item.name.startswith("_") else value
    return {**found, "device": task.inputs.device.type}


def unpacked_task(packed: dict[str, Any]) -> Task:
    """The task on this machine's device."""
    device = torch.device(packed["device"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")  # nobody writes into samples
        values: dict[str, Any] = {
            name: torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value
            for name, value in packed.items()
            if name != "device"
        }
    return Task(**values)


class Worker:
    """Trains its share of every round; keeps the task, and nothing else."""

    def __init__(self, packed: list[Any], places: Sequence[str]) -> None:
        import ray

        for place in reversed(places):  # where whoever asks looks for code, as far as this node has it
            look_beside(Path(place) / "_")
        self._task = unpacked_task(ray.get(packed[0]))
        shape = tuple(self._task.inputs.shape[1:])
        self._engine = choose_engine(self._task.config, self._task.spec, self._task.inputs.device, shape)

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def work(self, share: Share, models: np.ndarray) -> list[Done]:
        """See ``share.work``."""
        broadcast = torch.from_numpy(models.copy()).to(self._task.inputs.device)
        return work(replace(share, models=broadcast), self._engine, self._task)
