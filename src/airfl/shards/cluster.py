"""Shards on a Ray cluster: an actor for each, which keeps the task and is given models and gains."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import logging
import math
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from airfl.devices import Task
from airfl.engines import choose_engine
from airfl.errors import InputError, LostError, in_words
from airfl.imports import beside, code_identity, look_beside
from airfl.shards.desk import Desk, Order
from airfl.shards.parcel import light, owned_by, packed_task, unpacked_task
from airfl.shards.share import Done
from airfl.shards.workers import Heard, Histories, Memories, Site

#: Ray's sockets lie below its folder, and their paths may not be longer than about 100 letters.
LONGEST_FOLDER = 20
#: How often an actor may be lost over one share before the run gives up.
TRIES = 4
#: How often, second by second, one is called that does not answer: until Ray takes it for lost, and has begun it anew.
PAUSES = 120
#: Seconds in which actors must have found room on the cluster; seconds of silence after which that is said.
ROOM, SILENCE = 300.0, 600.0
#: What a witness does: it hears a word from a process that ends by itself, and nothing from one that is ended.
WITNESS = """
import shutil, sys
if not sys.stdin.buffer.read():
    print(sys.argv[1], file=sys.stderr)
    for folder in sys.argv[2:]:
        shutil.rmtree(folder, ignore_errors=True)
"""
LAST_WORDS = (
    "airfl: ended from outside: by Ray, whose raylet on this machine or whose head node is gone, or by a kill; what "
    "was saved is kept: go on with --resume, or with the same command"
)
log = logging.getLogger("airfl")


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
    # Ray's advice about its own settings, and a warning about samples in its store, are for whoever develops it.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    _call_witness(stack, own.values())
    try:
        with _silence():
            ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level="error", **own)
    except Exception as error:  # Ray raises its own kinds, and plain ones
        reason = (str(error) or type(error).__name__).splitlines()[0]
        where = "starts on this machine" if address is None else f"answers at `{address}`"
        raise InputError(f"no Ray cluster {where}: {reason}") from None
    stack.callback(ray.shutdown)
    return ray


def _call_witness(stack: contextlib.ExitStack, folders: Iterable[str]) -> None:
    """A process beside this one which says why it ended, and removes Ray's folders, where this one cannot.

    Where the raylet or the head node is gone, Ray ends a process from below Python: exit code 1, without a word.
    """
    command = [sys.executable, "-I", "-S", "-c", WITNESS, LAST_WORDS, *folders]
    witness = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)

    def dismiss() -> None:
        atexit.unregister(dismiss)
        witness.communicate(b"by itself")

    atexit.register(dismiss)
    stack.callback(dismiss)


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Nothing on standard error from below Python, where Ray says how loud it was told to be."""
    try:
        kept = os.dup(2)
    except OSError:  # it is closed already
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


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
    _actors: list[tuple[Task, Actors]] = field(default_factory=list, repr=False, compare=False)

    def check(self) -> None:
        """See ``check_ray``."""
        check_ray(self.address)

    def close(self) -> None:
        """Stop the actors, and a cluster that was started here."""
        self._actors.clear()
        self._stack.close()

    def work(self, site: Site, orders: Sequence[Order], histories: Histories, heard: Heard) -> list[list[Done]]:
        """See ``Workers.work``."""
        with in_a_sentence():
            ray, actors = self._begun(site)
            models = ray.put(orders[0].share.models.cpu().numpy())

            def ask(number: int, anew: bool) -> Any:
                if not anew:
                    return actors.each[number].work.remote([light(orders[number])], models)
                history = histories(number)
                return actors.each[number].work.remote([light(order) for order in history], *_broadcasts(ray, history))

            return _answers(ray, actors, ask, heard)

    def recall(self, site: Site, name: str, histories: Histories) -> list[Memories]:
        """See ``Workers.recall``."""
        with in_a_sentence():
            ray, actors = self._begun(site)

            def ask(number: int, anew: bool) -> Any:
                history = histories(number) if anew else []
                broadcasts = _broadcasts(ray, history)
                return actors.each[number].recall.remote(name, [light(order) for order in history], *broadcasts)

            return _answers(ray, actors, ask, lambda done, total: None)

    def _begun(self, site: Site) -> tuple[Any, Actors]:
        """Ray, and the actors for a task."""
        ray = connect(self._stack, self.address)
        if not self._actors or self._actors[0][0] is not site.task:
            self._actors.clear()  # Ray stops actors that nobody holds, and their cores are free
            self._actors.append((site.task, _begin(ray, site)))
        return ray, self._actors[0][1]


@dataclass
class Actors:
    """One for each share.

    Attributes:
        each: their handles.
        born: what each said when it was last begun.
        packed: their tasks in Ray's store, which have to be held as long as one may begin anew.
    """

    each: list[Any]
    born: list[str]
    packed: list[Any]

    def is_back(self, ray: Any, number: int) -> bool:
        """Wait for one that could not be reached; whether it answers, perhaps after it has begun anew."""
        for _ in range(PAUSES):
            time.sleep(1.0)
            with contextlib.suppress(*_unreachable()):
                self.born[number] = ray.get(self.each[number].hello.remote(), timeout=SILENCE)[0]
                return True
        return False


def _answers(ray: Any, actors: Actors, ask: Callable[[int, bool], Any], heard: Heard) -> list[Any]:
    """What every actor answers; one that stands elsewhere, or began anew, is asked again, with all that it needs.

    Whether one that cannot be reached has done its share nobody knows; it will say so when it is asked again.
    """
    from ray.exceptions import RayError

    count = len(actors.each)
    asked = {ask(number, False): number for number in range(count)}
    found, lost = dict[int, Any](), [0] * count
    while asked:
        ready, _ = ray.wait(list(asked), num_returns=1, timeout=SILENCE)
        if not ready:
            waiting = ", ".join(str(number + 1) for number in sorted(asked.values()))
            log.warning("no word from shard %s of %d for %d minutes; waiting on", waiting, count, SILENCE // 60)
            continue
        number = asked.pop(ready[0])
        try:
            answer = ray.get(ready[0])
        except RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, InputError):  # what a part from outside did wrong, once and in its own words
                raise InputError(str(cause)) from None
            before = actors.born[number]
            if isinstance(error, _unreachable()) and actors.is_back(ray, number):
                lost[number] += actors.born[number] != before
                if lost[number] < TRIES:
                    asked[ask(number, False)] = number
                    continue
            often = "" if cause is not None else f" {lost[number]} times" if lost[number] else " and is gone"
            raise LostError(f"shard {number + 1} of {count} failed{often}: {_reason(error)}") from None
        if answer is None:
            asked[ask(number, True)] = number
        else:
            found[number] = answer
            heard(len(found), count)
    return [found[number] for number in range(count)]


def _unreachable() -> tuple[type[Exception], ...]:
    """What Ray says of an actor that may come back."""
    from ray.exceptions import ActorUnavailableError, GetTimeoutError

    return ActorUnavailableError, GetTimeoutError


def _reason(error: BaseException) -> str:
    if "Owner's node has crashed" in str(error):  # the owner of all actors is this process
        return "its raylet on this machine is gone"
    return (str(error) or type(error).__name__).strip().splitlines()[-1]


@contextlib.contextmanager
def in_a_sentence() -> Iterator[None]:
    """Ray's own troubles, as a full store or a raylet that is gone, in one sentence."""
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        raise LostError(f"the Ray cluster cannot go on: {_reason(error)}") from None


def _begin(ray: Any, site: Site) -> Actors:
    """One actor for each share, once all have found room and run the same code."""
    count = len(site.parts)
    # Ray begins one anew as often as it is lost; how often over one share is counted where answers are awaited.
    options = {"max_restarts": -1, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
    # All of them fit on one core, so that those of a node that is lost find room on the last one.
    remote = ray.remote(num_cpus=1.0 / count, num_gpus=_gpu_each(ray, site), **options)(Worker)
    packed = [ray.put(packed_task(owned_by(site.task, part))) for part in site.parts]
    # Each in a list, so that an actor that begins anew fetches it anew.
    each = [remote.remote([one], beside()) for one in packed]
    greetings = [actor.hello.remote() for actor in each]
    _, late = ray.wait(greetings, num_returns=count, timeout=ROOM)
    if late:
        has = {name: ray.cluster_resources().get(name, 0.0) for name in ("CPU", "GPU")}
        raise InputError(
            f"{len(late)} of {count} shards found no room within {ROOM / 60:.0f} minutes on a cluster of "
            f"{has['CPU']:g} CPUs and {has['GPU']:g} GPUs; use fewer --shards, or wait until it is free"
        )
    born, codes = zip(*ray.get(greetings), strict=True)
    own = code_identity()
    for other in codes:
        if other != own:
            raise InputError(
                f"a node of the Ray cluster has other code ({_listed(other)}) than this one ({_listed(own)}); "
                "install the same on all of them"
            )
    return Actors(each, list(born), packed)


def _gpu_each(ray: Any, site: Site) -> float:
    """The part of a GPU that an actor asks for: a whole one, or as many share one as must."""
    if site.task.inputs.device.type != "cuda":
        return 0.0
    there = int(ray.cluster_resources().get("GPU", 0.0))
    if not there:
        raise InputError("the Ray cluster has no GPU; set engine.device = cpu, or give the --address of one that has")
    return 1.0 / math.ceil(len(site.parts) / there)


def _listed(code: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in code.items())


def _broadcasts(ray: Any, orders: Sequence[Order]) -> list[Any]:
    return [ray.put(order.share.models.cpu().numpy()) for order in orders]


class Worker:
    """A desk of its own, and the samples of its devices."""

    def __init__(self, packed: list[Any], places: Sequence[str]) -> None:
        import ray

        for place in reversed(places):  # where whoever asks looks for code, as far as this node has it
            look_beside(Path(place) / "_")
        task = unpacked_task(ray.get(packed[0]))
        self._device = task.inputs.device
        self._desk = Desk(choose_engine(task.config, task.spec, self._device, task.inputs), task)

        self._born = secrets.token_hex(8)

    def hello(self) -> tuple[str, dict[str, str]]:
        """A name of this beginning, and the code that it runs."""
        return self._born, code_identity()

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
