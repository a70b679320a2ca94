"""Who is left out: accuracy at equal power when the worst aligned devices stay silent.

    python -m experiments.selection --out experiments/results [--device cuda] [--scale smoke]    # resumable

The preset `massive-linear` (6,000 devices, 16 antennas, softmax regression) with 20 rounds of one local step, at its
own power and at less, without a budget (`airfl-mimo`) and with ε = 1 (`airfl-dp`). Parts:

- `sky`: the preset's own geometry, a satellite; distances differ by 4 dB.
- `cell`: the paper's cell of 1 km, where far devices are left out more often, and two classes per device.
- `sorted`: the same cell with one class per device and the classes sorted by distance: nobody near holds the last ones.
  The choice of the share takes data for independent of positions; here it is not.

Power in `cell` and `sorted` is such that, with everyone transmitting, there is as much noise as in `sky`.
Writes selection.csv, selection.json, selection.png, .pdf and .svg.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import airfl
from airfl.devices import Samples, Task, open_task
from airfl.devices.task import load_samples
from airfl.paper.studies import read_rows
from airfl.rounds import Schedule
from airfl.runs.execute import pick_device, provenance_of
from airfl.runs.store import write_csv
from airfl.runs.together import Log, run_together, trained_alike
from airfl.simulate import Simulation, open_simulation
from airfl.transceiver import open_radio
from experiments.selection_figure import draw_selection

SCHEMES = ("airfl-mimo", "airfl-dp")
Policy = tuple[str, float | str]
EVERYONE: Policy = ("all", 1.0)
#: As much noise with everyone as in the sky: P·Λ is what counts, and a few far devices.
CELL = {"channel.min_distance_m": 1.0, "channel.cell_radius_m": 1000.0, "channel.power_w": 3.1e-9}


@dataclass(frozen=True)
class Part:
    """A geometry with its data, and what is measured there."""

    changes: dict[str, Any]
    policies: tuple[Policy, ...]
    powers_db: tuple[int, ...]
    is_sorted: bool = False


FEW: tuple[Policy, ...] = (EVERYONE, ("strongest", 0.8), ("aligned", 0.8), ("aligned", "best"))
PARTS = {
    "sky": Part(
        {},
        (
            EVERYONE,
            *(("aligned", share) for share in ("best", 0.95, 0.8, 0.5)),
            *((name, share) for name in ("strongest", "greedy") for share in (0.8, 0.5)),
        ),
        (0, -5, -10, -15, -20),
    ),
    "cell": Part(
        {
            **CELL,
            "learning.partition": "classes",
            "learning.classes_per_device": 2,
            "learning.samples_per_device": None,
        },
        FEW,
        (-10,),
    ),
    "sorted": Part(CELL, FEW, (-10,), is_sorted=True),
}
#: Half of the preset's rounds and local steps: the study then takes a quarter of an hour on two cores.
SHORTER = {"system.rounds": 20, "learning.local_steps": 1}
#: Powers at which most shares are measured, and those that are measured at every power, to the same end.
FEWER_POWERS, EVERYWHERE = (-10, -20), (EVERYONE, ("aligned", "best"))
SMOKE = {"system.rounds": 2, "system.num_devices": 200}


def by_distance(task: Task, distances: np.ndarray) -> Task:
    """The same images, sorted by label and dealt out from the nearest device of each trial to the farthest."""
    labels, dealt = task.labels.cpu().numpy(), []
    for partition, own in zip(task.partitions, distances, strict=True):
        images = partition.train.reshape(len(own), -1)
        ranked = partition.train[np.argsort(labels[partition.train], kind="stable")].reshape(images.shape)
        given = np.empty_like(ranked)
        given[np.argsort(own)] = ranked
        dealt.append(replace(partition, train=given.reshape(-1)))
    return replace(task, partitions=tuple(dealt))


def heard_by_distance(schedule: Schedule, distances: np.ndarray) -> dict[str, float]:
    """How often the nearest and the farthest tenth of the devices transmit, in the mean over trials."""
    total, rounds = distances.shape[1], schedule.active.shape[1]
    often = np.stack([np.bincount(row.ravel(), minlength=total) / rounds for row in schedule.active])
    ranked = np.take_along_axis(often, np.argsort(distances, axis=1), axis=1)
    tenth = max(1, total // 10)
    return {"nearest_tenth": float(ranked[:, :tenth].mean()), "farthest_tenth": float(ranked[:, -tenth:].mean())}


def measure(
    base: airfl.Config, part: Part, policy: Policy, samples: Samples
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """All powers and schemes with one policy: they share channels and, but for `best`, combiners."""
    begin = time.time()
    selection, keep = policy
    config = base.replace({"scheme.selection": selection, "scheme.selection_keep": keep})
    trials = tuple(range(config.system.trials))
    radio = open_radio(config, trials, samples.inputs.device)
    task, distances = open_task(config, trials, samples), radio.link.law.distances_m  # type: ignore[attr-defined]
    task = by_distance(task, distances) if part.is_sorted else task
    simulations: dict[tuple[int, str], Simulation] = {}
    powers = [db for db in part.powers_db if policy in EVERYWHERE or db in FEWER_POWERS]
    for db in powers:
        there = config.replace({"channel.power_w": config.channel.power_w * 10 ** (db / 10)})
        for name in SCHEMES:
            simulations[db, name] = open_simulation(there, name, task, radio.at(there))
    opened = time.time() - begin
    logs = {key: Log([simulation]) for key, simulation in simulations.items()}
    for group in trained_alike(simulations):
        run_together(group, logs)
    rows = [row_of(policy, key, logs[key], distances) for key in simulations]
    seconds = {"design_seconds": round(opened, 1), "seconds": round(time.time() - begin, 1)}
    return rows, {**provenance_of(samples.inputs.device, next(iter(simulations.values()))), **seconds}


def row_of(policy: Policy, key: tuple[int, str], log: Log, distances: np.ndarray) -> dict[str, Any]:
    """One line of the table."""
    (power_db, name), result, schedule = key, log.result(perks=False), log.simulations[0].schedule
    accuracies = [record.accuracy for record in result.final(tested=True)]
    noise = schedule.dim * float(schedule.noise_var.mean()) / schedule.normaliser**2
    return {
        "policy": policy[0],
        "keep": policy[1],
        "scheme": name,
        "power_db": power_db,
        "transmitting": result.transmitting,
        "accuracy_mean": float(np.mean(accuracies)),
        "accuracy_std": float(np.std(accuracies, ddof=1)) if len(accuracies) > 1 else 0.0,
        "trials": len(accuracies),
        "noise_of_mean": noise,
        "epsilon": max(record.epsilon for record in result.final()),
        "never_heard": float(np.mean(result.never_heard)),
        **heard_by_distance(schedule, distances),
        "status": result.status,
    }


def base_of(part: Part, trials: int, scale: str, changes: Mapping[str, Any]) -> airfl.Config:
    config = airfl.preset("massive-linear").replace(
        {
            "system.trials": trials,
            **SHORTER,
            "scheme.names": list(SCHEMES),
            "engine.eval_every": 1000,
            **part.changes,
        }
    )
    return config.replace({**(SMOKE if scale == "smoke" else {}), **changes})


def write(folder: Path, rows: Sequence[Mapping[str, Any]], notes: Mapping[str, Any]) -> None:
    write_csv(folder / "selection.csv", rows, tuple(rows[0]), digits=6)
    (folder / "selection.json").write_text(json.dumps(notes, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--scale", choices=("full", "smoke"), default="full")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    folder, where = Path(arguments.out), pick_device(arguments.device)
    folder.mkdir(parents=True, exist_ok=True)
    changes = {"engine.device": where.type, **dict(airfl.config.parse_override(text) for text in arguments.set)}
    rows: list[dict[str, Any]] = read_rows(folder / "selection.csv")
    kept = folder / "selection.json"
    notes: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    for name in arguments.parts.split(","):
        base = base_of(PARTS[name], arguments.trials, arguments.scale, changes)
        samples = load_samples(base, where)
        notes.setdefault(name, {"config": base.to_mapping(), "policies": {}})
        done = notes[name]["policies"]
        for policy in PARTS[name].policies:
            if f"{policy[0]} {policy[1]}" in done:
                continue
            found, provenance = measure(base, PARTS[name], policy, samples)
            rows += [{"part": name, **row} for row in found]
            done[f"{policy[0]} {policy[1]}"] = provenance
            write(folder, rows, notes)
            print(name, *policy, f"{provenance['seconds']} s", flush=True)
    draw_selection(rows, folder)


if __name__ == "__main__":
    main()
