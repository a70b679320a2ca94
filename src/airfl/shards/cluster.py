"""Shards on a Ray cluster: an actor for each, which keeps the task and is given models and gains."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from airfl.devices import Task
from airfl.engines import choose_engine
from airfl.errors import InputError, in_words
from airfl.imports import beside, look_beside
from airfl.shards.desk import Desk, Order
from airfl.shards.parcel import light, owned_by, packed_task, unpacked_task
from airfl.shards.share import Done
from airfl.shards.workers import Heard, Histories, Memories, Site

#: Ray's sockets lie below its folder, and their paths may not be longer than about 100 letters.
LONGEST_FOLDER = 20
#: How often a share is worked off before the run gives up.
TRIES = 4
#: How often, second by second, an actor is asked again whose node answers nobody: until Ray takes it for lost, or not.
PAUSES = 120


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

    def work(self, site: Site, orders: Sequence[Order], histories: Histories, heard: Heard) -> list[list[Done]]:
        """See ``Workers.work``."""
        ray, actors = self._begun(site)
        models = ray.put(orders[0].share.models.cpu().numpy())

        def ask(number: int, anew: bool) -> Any:
            if not anew:
                return actors[number].work.remote([light(orders[number])], models)
            history = histories(number)
            return actors[number].work.remote([light(order) for order in history], *_broadcasts(ray, history))

        return _answers(ray, ask, len(orders), heard)

    def recall(self, site: Site, name: str, histories: Histories) -> list[Memories]:
        """See ``Workers.recall``."""
        ray, actors = self._begun(site)

        def ask(number: int, anew: bool) -> Any:
            history = histories(number) if anew else []
            broadcasts = _broadcasts(ray, history)
            return actors[number].recall.remote(name, [light(order) for order in history], *broadcasts)

        return _answers(ray, ask, len(site.parts), lambda done, total: None)

    def _begun(self, site: Site) -> tuple[Any, list[Any]]:
        """Ray, and the actors for a task."""
        ray = connect(self._stack, self.address)
        if not self._actors or self._actors[0][0] is not site.task:
            self._actors.clear()  # Ray stops actors that nobody holds, and their cores are free
            self._actors.append((site.task, *_begin(ray, site)))
        return ray, self._actors[0][2]


def _answers(ray: Any, ask: Callable[[int, bool], Any], count: int, heard: Heard) -> list[Any]:
    """What every actor answers; one that stands elsewhere, or began anew, is asked again, with all that it needs.

    Whether one that cannot be reached has done its share nobody knows; it will say so when it is asked again.
    """
    from ray.exceptions import ActorUnavailableError, RayError

    asked = {ask(number, False): number for number in range(count)}
    found, pauses = dict[int, Any](), 0
    while asked:
        (ready,), _ = ray.wait(list(asked), num_returns=1)
        number = asked.pop(ready)
        try:
            answer = ray.get(ready)
        except RayError as error:
            if isinstance(error, ActorUnavailableError) and pauses < PAUSES:
                pauses += 1
                time.sleep(1.0)
                asked[ask(number, False)] = number
                continue
            cause = getattr(error, "cause", None)
            if isinstance(cause, InputError):  # what a part from outside did wrong, once and in its own words
                raise InputError(str(cause)) from None
            often = f"{TRIES} times, at last" if cause is None else "once, and would again,"
            raise InputError(
                f"shard {number + 1} of {count} failed {often} because: "
                f"{(str(error) or type(error).__name__).strip().splitlines()[-1]}"
            ) from None
        if answer is None:
            asked[ask(number, True)] = number
        else:
            found[number] = answer
            heard(len(found), count)
    return [found[number] for number in range(count)]


def _begin(ray: Any, site: Site) -> tuple[list[Any], list[Any]]:
    """Tasks in Ray's store, which have to be held as long as an actor may begin anew, and one actor for each."""
    count, gpus = len(site.parts), 1 if site.task.inputs.device.type == "cuda" else 0
    options = {"max_restarts": TRIES - 1, "max_task_retries": TRIES - 1, "scheduling_strategy": "SPREAD"}
    # All of them fit on one core, so that those of a node that is lost find room on the last one.
    remote = ray.remote(num_cpus=1.0 / count, num_gpus=gpus, **options)(Worker)
    packed = [ray.put(packed_task(owned_by(site.task, part))) for part in site.parts]
    # Each in a list, so that an actor that begins anew fetches it anew.
    return packed, [remote.remote([one], beside()) for one in packed]


def _broadcasts(ray: Any, orders: Sequence[Order]) -> list[Any]:
    return [ray.put(order.share.models.cpu().numpy()) for order in orders]


class Worker:
    """A desk of its own, and the samples of its devices."""

    def __init__(self, packed: list[Any], places: Sequence[str]) -> None:
        import ray

        for place in reversed(places):  # where whoever asks looks for code, as far as this node has it
            look_beside(Path(place) / "_")
        task = unpacked_task(ray.get(packed[0]))
        self._device, shape = task.inputs.device, tuple(task.inputs.shape[1:])
        self._desk = Desk(choose_engine(task.config, task.spec, self._device, shape), task)

    def pid(self) -> int:
        """Its process."""
        return os.getpid()

    def peak_bytes(self) -> int:
        """Of memory that it has had at most; samples that it shares with its node's store are in it."""
        import resource  # not on every system

        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def work(self, orders: Sequence[Order], *models: np.ndarray) -> list[Done] | None:
        """See ``Desk.work``."""
        return self._desk.work(self._heavy(orders, models))

    def recall(self, name: str, orders: Sequence[Order], *models: np.ndarray) -> Memories | None:
        """See ``Desk.recall``."""
        found = self._desk.recall(name, self._heavy(orders, models))
        return None if found is None else [None if memory is None else memory.numpy() for memory in found]

    def _heavy(self, orders: Sequence[Order], models: Sequence[np.ndarray]) -> list[Order]:
        """Orders with the models that were broadcast."""
        pairs = zip(orders, models, strict=True)
        broadcast = [(order, torch.from_numpy(own.copy()).to(self._device)) for order, own in pairs]
        return [replace(order, share=replace(order.share, models=own)) for order, own in broadcast]
