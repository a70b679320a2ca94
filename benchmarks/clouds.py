"""Runs on synthetic clouds, and what is seen of them from outside: when rounds are over, how large processes are."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

import airfl


def samples(devices: int, each: int, shape: tuple[int, ...], classes: int, tests: int) -> airfl.Dataset:
    """Clouds around one centre for every class."""
    generator = np.random.Generator(np.random.Philox(key=29))
    labels = np.arange(devices * each + tests) % classes
    centres = generator.standard_normal((classes, *shape)).astype(np.float32)
    inputs = generator.standard_normal((len(labels), *shape), dtype=np.float32) + centres[labels]
    return airfl.Dataset(inputs, labels, devices * each, num_classes=classes)


def clouds(
    name: str, dataset: airfl.Dataset, devices: int, each: int, rounds: int, more: Mapping[str, Any]
) -> airfl.Config:
    """Softmax regression on so many samples a device, ε = 1, one step a round, tested in the end; four antennas.

    Args:
        more: what is to be otherwise.
    """
    return airfl.preset("massive-linear").replace(
        {
            "name": name,
            "system.num_devices": devices,
            "system.num_antennas": 4,
            "system.rounds": rounds,
            "scheme.names": ["airfl-dp"],
            "learning.dataset": dataset,
            "learning.samples_per_device": each,
            "learning.local_steps": 1,
            "learning.batch_size": each,
            "engine.device": "cpu",
            "engine.eval_every": rounds,
            **more,
        }
    )


class Stamps:
    """When a run was begun, when its first round may begin, and when each is over."""

    def __init__(self) -> None:
        self.times = [time.perf_counter()]

    def start(self, scheme: str, rounds: int) -> None:
        """See ``runs.Progress``."""
        self.times.append(time.perf_counter())

    def round(self, scheme: str, records: Any) -> None:
        """See ``runs.Progress``."""
        self.times.append(time.perf_counter())


@contextmanager
def timed(parts: Mapping[str, tuple[Any, str]]) -> Iterator[dict[str, list[float]]]:
    """Seconds of every call of some functions inside: by name, where each lies and what it is called there."""
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    honest = {name: getattr(where, function) for name, (where, function) in parts.items()}

    def stamped(name: str) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            begin = time.perf_counter()
            try:
                return honest[name](*given, **named)
            finally:
                seconds[name].append(time.perf_counter() - begin)

        return call

    for name, (where, function) in parts.items():
        setattr(where, function, stamped(name))
    try:
        yield seconds
    finally:
        for name, (where, function) in parts.items():
            setattr(where, function, honest[name])


def peak_mb() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def actor_peaks(workers: Any) -> list[int]:
    """The most memory that each actor of a crew has had, in MB; none where there are no actors."""
    if not getattr(workers, "_actors", None):
        return []
    import ray

    found: list[int] = ray.get([actor.peak_bytes.remote() for actor in workers._actors[0][1].each])
    return [one // 2**20 for one in found]
