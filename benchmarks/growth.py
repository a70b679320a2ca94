"""How time and memory grow: with devices, rounds, parameters, antennas and shards.

python -m benchmarks.growth                                     # all five, five minutes
python -m benchmarks.growth --axis rounds --out experiments/results
python -m benchmarks.growth --axis devices --values 1000 2000   # other sizes, printed only

Every size runs in a process of its own, so that its peak of memory is its own. A round is the median of those after the
first; a run of many rounds is timed as a whole, with what it writes, and once more as a study with its checkpoints.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments.growth_figure import draw

import airfl
import airfl.rounds
import airfl.runs.together
import airfl.transceiver.radio
from airfl import runs, sweeps
from airfl.report.progress import LateSteps
from airfl.shards import make_shards
from airfl.simulate import Simulation
from airfl.study import make_plan, make_study
from airfl.sweeps.executors import InProcess, Settings
from benchmarks.clouds import Stamps, actor_peaks, clouds, peak_mb, samples, timed
from benchmarks.machine import provenance
from benchmarks.sweeps import TINY

SIZES: dict[str, tuple[int, ...]] = {
    "devices": (1_000, 10_000, 100_000, 1_000_000),
    "rounds": (500, 1_000, 2_000, 4_000, 8_000),
    "parameters": (10_000, 100_000, 1_000_000, 10_000_000),
    "antennas": (1, 4, 16, 64, 256, 1_024),
    "shards": (0, 1, 2, 4, 8),  # 0: one process without
}
#: Of runs whose rounds are timed one by one: fewer where they are long; nothing but the first and the last differ.
ROUNDS = {"devices": 4, "parameters": 12, "antennas": 40, "shards": 4}
HIDDEN = 64
#: What is timed inside a run: a name, and where the function lies.
PARTS: dict[str, tuple[Any, str]] = {
    "combiners": (airfl.transceiver.radio, "_join_chunks"),
    "setting": (airfl.rounds, "settled"),
    "advance": (airfl.runs.together, "advance_together"),
    "conclude": (Simulation, "conclude"),
    "record": (Simulation, "record"),
}


def config_of(axis: str, size: int) -> airfl.Config:
    """The run of one size: everything is small but what the axis is about."""
    devices, antennas, each, model = 200, 4, 2, "softmax"
    shape: tuple[int, ...] = (20,)
    if axis == "devices":
        devices = size
    elif axis == "parameters":
        devices, model, shape = 10, "mlp", (round((size - 4 * HIDDEN - HIDDEN - 4) / HIDDEN),)
    elif axis == "antennas":
        antennas = size
    elif axis == "shards":
        devices, each, model, shape = 2_000, 10, "small-cnn", (1, 28, 28)
    dataset = samples(devices, each, shape, 4, 100 if axis == "parameters" else 2_000)
    more = {"system.num_antennas": antennas, "learning.model": model}
    return clouds(f"growth-{axis}-{size}", dataset, devices, each, ROUNDS[axis], more)


def measure(axis: str, size: int) -> dict[str, Any]:
    """One size in this process, which should have done nothing before."""
    if axis == "rounds":
        return measure_rounds(size)
    before, actors = peak_mb(), list[int]()
    config = config_of(axis, size)
    crew = make_shards("ray", size) if axis == "shards" and size else None
    stamps = Stamps()
    try:
        with timed(PARTS) as seconds:
            result = airfl.run(config, progress=stamps, shards=crew)
        actors = [] if crew is None else actor_peaks(crew.workers)
    finally:
        if crew is not None:
            crew.close()
    steps = np.diff(stamps.times)
    middle = {name: float(np.median(took[1:] or took or [0.0])) for name, took in seconds.items()}
    return {
        "axis": axis,
        "size": size,
        "parameters": result.dim,
        "rounds": config.system.rounds,
        "seconds_to_open": round(float(steps[0]), 3),
        "seconds_combiners": round(sum(seconds["combiners"]), 3),
        "seconds_first_round": round(float(steps[1]), 4),
        "seconds_per_round": round(float(np.median(steps[2:])), 5),
        "seconds_draw": round(middle["setting"], 5),
        "seconds_train": round(middle["advance"] - middle["setting"] - middle["conclude"], 5),
        "seconds_receive": round(middle["conclude"], 5),
        "seconds_record": round(middle["record"], 5),
        "seconds_test": round(seconds["record"][-1] - middle["record"], 5),
        "seconds_total": round(float(stamps.times[-1] - stamps.times[0]), 3),
        "peak_mb": peak_mb(),
        "added_mb": max(1, peak_mb() - before),
        "actors_mb": sum(actors),
    }


def measure_rounds(rounds: int) -> dict[str, Any]:
    """A run as ``airfl run`` makes it, without its report, and the same as a study of one cell."""
    values = {**TINY["set"], "system.rounds": rounds, "engine.eval_every": rounds}
    study = make_study(
        {**TINY, "trials": 1, "schemes": ["airfl-dp"], "grid": {"privacy.epsilon": [5.0]}, "set": values}
    )
    before = peak_mb()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = make_plan(study, 1).config(0).replace({"engine.device": "cpu"})
        begin, stamps = time.perf_counter(), Stamps()
        (folder / "run").mkdir()
        keeper = runs.Keeper(folder / "run")
        result = runs.run(config, progress=stamps, keeper=keeper)
        trained = time.perf_counter()
        runs.write_run(result, folder / "run")
        written, peak = time.perf_counter(), peak_mb()
        with runs.locked(folder / "study"):
            plan, where = sweeps.open_folder(study, "", folder / "study", resume=False, threads=torch.get_num_threads())
            standing, _ = sweeps.run_sweep(plan, where, InProcess(Settings("cpu")))
        assert standing.done == 1
        studied = time.perf_counter()
        disk = sum(path.stat().st_size for path in (folder / "run").rglob("*") if path.is_file())
    return {
        "axis": "rounds",
        "size": rounds,
        "parameters": result.dim,
        "seconds_to_open": round(stamps.times[1] - begin, 3),
        "seconds_per_round": round(float(np.median(np.diff(stamps.times)[2:])), 5),
        "seconds_run": round(trained - begin, 3),
        "seconds_write": round(written - trained, 3),
        "seconds_total": round(written - begin, 3),
        "seconds_study": round(studied - written, 3),
        "disk_mb": round(disk / 1e6, 3),
        "peak_mb": peak,
        "added_mb": max(1, peak - before),
    }


def measure_all(axis: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Every size of an axis, each in a process of its own."""
    rows = []
    with LateSteps(axis) as steps:
        for number, size in enumerate(sizes):
            steps.stand(number, len(sizes))
            rows.append(apart(axis, size))
            print(json.dumps(rows[-1]), flush=True)
    return rows


def apart(axis: str, size: int) -> dict[str, Any]:
    """``measure`` in a new process."""
    command = [sys.executable, "-m", "benchmarks.growth", "--axis", axis, "--alone", str(size)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def keep(found: dict[str, Any], folder: Path) -> None:
    """Write axes into growth.json, beside those that are there, all rows into growth.csv, and the figures."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "growth.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    known = {axis: {**known, **found}[axis] for axis in SIZES if axis in known or axis in found}
    path.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    rows = [row for axis in known.values() for row in axis["rows"]]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with (folder / "growth.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    draw({axis: known[axis]["rows"] for axis in found}, folder)


def main() -> None:
    """Measure, and print or write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--axis", choices=[*SIZES], nargs="*", default=[*SIZES])
    parser.add_argument("--values", type=int, nargs="*", help="other sizes than the usual")
    parser.add_argument("--out", type=Path, help="the folder of growth.json, growth.csv and the figures")
    parser.add_argument("--alone", type=int, help=argparse.SUPPRESS)  # one size, in this process
    asked = parser.parse_args()
    if asked.alone is not None:
        print(json.dumps(measure(asked.axis[0], asked.alone)))
        return
    for axis in asked.axis:
        rows = measure_all(axis, asked.values or SIZES[axis])
        if asked.out:
            keep({axis: {"machine": provenance(), "rows": rows}}, asked.out)


if __name__ == "__main__":
    main()
