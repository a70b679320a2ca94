"""Devices in shards: time and memory over the number of devices and of shards, up to a million devices.

python -m benchmarks.shards                         # 10³ to 10⁶ devices of two samples, here and on a local Ray cluster
python -m benchmarks.shards --devices 1000000 --rounds 2 --executor ray --shards 2
python -m benchmarks.shards --kill                  # two nodes on this machine, one of them is killed on the way
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import airfl
from airfl.shards import Shards, make_shards
from benchmarks.machine import provenance

FEATURES, CLASSES = 20, 4
#: Rounds are long with many devices, and everything that grows is in the first.
ROUNDS = 3


def samples(count: int) -> airfl.Dataset:
    """Clouds in 20 dimensions: two samples a device, and 2,000 to test on."""
    generator = np.random.Generator(np.random.Philox(key=29))
    labels = np.arange(2 * count + 2000) % CLASSES
    centres = generator.standard_normal((CLASSES, FEATURES)).astype(np.float32)
    inputs = generator.standard_normal((len(labels), FEATURES), dtype=np.float32) + centres[labels]
    return airfl.Dataset(inputs, labels, 2 * count, num_classes=CLASSES)


def config_of(devices: int, rounds: int) -> airfl.Config:
    """Softmax regression on so many devices, four antennas, ε = 1."""
    return airfl.preset("massive-linear").replace(
        {
            "name": f"shards-{devices}",
            "system.num_devices": devices,
            "system.num_antennas": 4,
            "scheme.names": ["airfl-dp"],
            "system.rounds": rounds,
            "learning.dataset": samples(devices),
            "learning.samples_per_device": 2,
            "learning.local_steps": 1,
            "learning.batch_size": 2,
            "engine.device": "cpu",
            "engine.eval_every": rounds,
        }
    )


def measured(devices: int, rounds: int, executor: str | None, shards: int) -> dict[str, Any]:
    """One run: seconds of a round after the first, of the first, and how large this process was."""
    config = config_of(devices, rounds)
    crew: Shards | None = None if executor is None else make_shards(executor, shards)
    stamps = [time.perf_counter()]

    class Stamps:
        def start(self, scheme: str, rounds: int) -> None:
            stamps.append(time.perf_counter())

        def round(self, scheme: str, records: Any) -> None:
            stamps.append(time.perf_counter())

    try:
        result = airfl.run(config, progress=Stamps(), shards=crew)
    finally:
        if crew is not None:
            crew.close()
    steps = np.diff(stamps)
    scheme = next(iter(result.schemes.values()))
    return {
        "devices": devices,
        "executor": executor or "none",
        "shards": shards,
        "seconds_to_open": round(float(steps[0]), 2),
        "seconds_first_round": round(float(steps[1]), 2),
        "seconds_per_round": round(float(np.median(steps[2:])), 3),
        "microseconds_per_device": round(1e6 * float(np.median(steps[2:])) / devices, 2),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "accuracy": round(float(scheme.records[-1].accuracy), 4),
        "models": hashlib.sha256(scheme.models.numpy().tobytes()).hexdigest()[:16],
    }


def killed(devices: int, rounds: int) -> dict[str, Any]:
    """Two nodes of one core on this machine; the second is killed while the first round is under way."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    more = cluster.add_node(num_cpus=1)
    crew, lost = make_shards("ray", 2, cluster.address), []

    def heard(done: int, total: int) -> None:
        if not lost:
            lost.append(done)
            cluster.remove_node(more, allow_graceful=False)

    begin = time.perf_counter()
    try:
        result = airfl.run(config_of(devices, rounds), progress=False, shards=replace(crew, heard=heard))
    finally:
        crew.close()
        cluster.shutdown()
    models = next(iter(result.schemes.values())).models.numpy().tobytes()
    return {
        "devices": devices,
        "nodes_lost": len(lost),
        "seconds": round(time.perf_counter() - begin, 1),
        "models": hashlib.sha256(models).hexdigest()[:16],
    }


def main() -> None:
    """Measure, and print or write a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, nargs="*", default=[1_000, 10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--executor", choices=["none", "local", "ray"], nargs="*", default=["none", "ray"])
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for devices in asked.devices:
        if asked.kill:
            rows.append(killed(devices, asked.rounds))
            print(json.dumps(rows[-1]), flush=True)
            continue
        for executor in asked.executor:
            rows.append(measured(devices, asked.rounds, None if executor == "none" else executor, asked.shards))
            print(json.dumps(rows[-1]), flush=True)
    if asked.out:
        asked.out.write_text(json.dumps({"machine": provenance(), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
