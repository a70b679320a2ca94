"""Devices in shards: time and memory over the number of devices and of shards, up to a million devices.

python -m benchmarks.shards --out FILE              # all cases below, each in a process of its own
python -m benchmarks.shards --only kill             # those whose name begins so

`open` is until the first round may begin: data, channels and combiners of all rounds; `combiners` is the part of it
that designs rounds. `round` is the median of the rounds after the first.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import airfl
from airfl import rounds as stages
from airfl.shards import Shards, make_shards
from airfl.shards.desk import Order
from airfl.shards.kept import bytes_of
from airfl.shards.parcel import light
from airfl.shards.share import Done
from airfl.shards.workers import Heard, Histories, Memories, Site, Workers
from benchmarks.clouds import Stamps, actor_peaks, clouds, peak_mb, samples, timed
from benchmarks.machine import provenance

#: Of a million devices fewer: rounds are designed before the first of them.
ROUNDS, FEW = 10, 4
SIZES = (1_000, 10_000, 100_000, 1_000_000)
CASES: dict[str, dict[str, Any]] = {
    **{f"none-{size}": {"devices": size, "executor": "none", "shards": 0} for size in SIZES},
    **{f"ray-2-{size}": {"devices": size, "executor": "ray", "shards": 2} for size in SIZES},
    **{f"ray-{count}-100000": {"devices": 100_000, "executor": "ray", "shards": count} for count in (1, 4)},
    **{f"local-2-{size}": {"devices": size, "executor": "local", "shards": 2} for size in (20_000, 100_000)},
    "memory-none": {"devices": 100_000, "executor": "none", "shards": 0, "memory": True},
    "memory-ray": {"devices": 100_000, "executor": "ray", "shards": 2, "memory": True},
    "kill-20000": {"devices": 20_000, "kill": True},
    "kill-1000000": {"devices": 1_000_000, "kill": True},
    "kill-memory": {"devices": 100_000, "kill": True, "memory": True, "at": 5},
}


def config_of(devices: int, rounds: int, memory: bool = False) -> airfl.Config:
    """Two samples a device in 20 dimensions; with memory, signs that remember what they lost."""
    more = {"scheme.names": ["one-bit-memory"]} if memory else {}
    return clouds(f"shards-{devices}", samples(devices, 2, (20,), 4, 2_000), devices, 2, rounds, more)


@dataclass
class Counting:
    """Workers whose orders and answers are counted, in bytes of arrays."""

    workers: Workers
    sent: list[int] = field(default_factory=list)
    answered: list[int] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)

    def work(self, site: Site, orders: Sequence[Order], histories: Histories, heard: Heard) -> list[list[Done]]:
        """See ``Workers.work``."""
        answers = self.workers.work(site, orders, histories, heard)
        self.sent.append(sum(bytes_of(light(order)) + bytes_of(order.share.models) for order in orders))
        self.answered.append(bytes_of(answers))
        return answers

    def recall(self, site: Site, name: str, histories: Histories) -> list[Memories]:
        """See ``Workers.recall``."""
        found = self.workers.recall(site, name, histories)
        self.fetched.append(bytes_of(found))
        return found

    def close(self) -> None:
        """See ``Workers.close``."""
        self.workers.close()


def measured(devices: int, executor: str, shards: int, rounds: int, memory: bool = False) -> dict[str, Any]:
    """One run: seconds to open it, of its rounds, and how large all processes were."""
    config, stamps = config_of(devices, rounds, memory), Stamps()
    crew = None if executor == "none" else make_shards(executor, shards)
    counting = None if crew is None else Counting(crew.workers)
    try:
        with timed({"combiners": (stages, "arrange")}) as seconds:
            result = airfl.run(config, progress=stamps, shards=counting and Shards(shards, counting))
        peaks = [] if crew is None else actor_peaks(crew.workers)
    finally:
        if crew is not None:
            crew.close()
    steps = np.diff(stamps.times)
    each = float(np.median(steps[2:]))
    row = {
        "seconds_to_open": round(float(steps[0]), 2),
        "seconds_combiners": round(sum(seconds["combiners"]), 2),
        "seconds_first_round": round(float(steps[1]), 2),
        "seconds_of_rounds": [round(float(one), 3) for one in steps[2:]],
        "seconds_per_round": round(each, 3),
        "microseconds_per_device": round(1e6 * each / devices, 2),
        "microseconds_per_device_to_open": round(1e6 * float(steps[0]) / devices / rounds, 2),
        "caller_peak_mb": peak_mb(),
        "actors_peak_mb": peaks,
    }
    if counting is not None:
        row["bytes_sent_per_device"] = round(float(np.median(counting.sent)) / devices, 1)
        row["bytes_answered_per_device"] = round(float(np.median(counting.answered)) / devices, 1)
        row["bytes_of_memories_fetched"] = counting.fetched
        row["bytes_of_memories_each_way_before"] = 4 * devices * result.dim if memory else 0
    return {**row, **outcome(result)}


def outcome(result: airfl.Result) -> dict[str, Any]:
    """How well it learnt, and a mark of its bits."""
    (scheme,) = result.schemes.values()
    models = scheme.models.numpy().tobytes()
    return {
        "accuracy": round(float(scheme.records[-1].accuracy), 4),
        "models": hashlib.sha256(models).hexdigest()[:16],
    }


def killed(devices: int, rounds: int, memory: bool = False, at: int = 0) -> dict[str, Any]:
    """Two nodes of one core on this machine; the second is killed while a round is under way, by default the first."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    config, stamps = config_of(devices, rounds, memory), Stamps()
    node = {"num_cpus": 1, "object_store_memory": 2 * 2**30}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    more = cluster.add_node(**node)
    crew, lost = make_shards("ray", 2, cluster.address), []

    def heard(done: int, total: int) -> None:
        if done and len(stamps.times) - 2 == at and not lost:
            lost.append(at)
            cluster.remove_node(more, allow_graceful=False)

    try:
        result = airfl.run(config, progress=stamps, shards=replace(crew, heard=heard))
        peaks = actor_peaks(crew.workers)
    finally:
        crew.close()
        cluster.shutdown()
    return {
        "nodes_lost_in_rounds": lost,
        "seconds_to_open": round(stamps.times[1] - stamps.times[0], 2),
        "seconds_of_rounds": [round(float(one), 2) for one in np.diff(stamps.times[1:])],
        "seconds": round(stamps.times[-1] - stamps.times[0], 1),
        "caller_peak_mb": peak_mb(),
        "actors_peak_mb": peaks,
        **outcome(result),
    }


def case(name: str) -> dict[str, Any]:
    """One of the cases, here."""
    asked = dict(CASES[name])
    rounds = FEW if asked["devices"] > 500_000 else ROUNDS
    found = killed(rounds=rounds, **asked) if asked.pop("kill", False) else measured(rounds=rounds, **asked)
    return {"case": name, **CASES[name], "rounds": rounds, **found}


def main() -> None:
    """Measure, and print or write a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[""], help="names of cases, or how they begin")
    parser.add_argument("--here", choices=CASES, help="one case, in this process")
    parser.add_argument("--out", type=Path, help="what it has of other cases stays")
    asked = parser.parse_args()
    if asked.here:
        print(json.dumps(case(asked.here)), flush=True)
        return
    rows: dict[str, dict[str, Any]] = {}
    if asked.out and asked.out.exists():
        rows = {row["case"]: row for row in json.loads(asked.out.read_text(encoding="utf-8"))["rows"]}
    for name in CASES:
        if name.startswith(tuple(asked.only)):
            command = [sys.executable, "-m", "benchmarks.shards", "--here", name]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            rows[name] = next(json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"'))
            print(json.dumps(rows[name]), flush=True)
    if asked.out:
        command = "python -m benchmarks.shards"
        ordered = [rows[name] for name in CASES if name in rows]
        written = {"machine": provenance(), "rows": ordered, "command": command}
        asked.out.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
