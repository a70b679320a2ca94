"""Accuracy against ε and the number of devices, tuned fairly: where DP is a perk.

    python -m experiments.perk --out perk --device cuda            # tune, run, collect; resumable
    python -m experiments.perk --out perk --models linear --scale smoke

Every cell (model, devices, ε) gets the same tuning budget: each candidate below once, on the validation split (a sixth
of the training part; the test part is not touched). The best candidate of a cell is then run on the standard split.
Tuning is not private: it looks at the data without paying for it, here and in all work that we compare with.

Writes perk.csv, perk.json (candidates, their validation accuracies, choices, provenance), perk.png, .pdf and .svg.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from airfl import sweeps
from airfl.paper.studies import good_cells, notes_of, read_rows
from airfl.report.perk_figure import draw_perk
from airfl.report.progress import SweepProgress
from airfl.runs.store import write_csv
from airfl.study import make_study, threads_for

EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, math.inf)
DEVICES = (50, 200, 1000, 6000, 60_000)
#: Images of a device: all 60,000 training images, or the 50,000 that are left beside the validation split.
IMAGES = {50: (1200, 1000), 200: (300, 250), 1000: (60, 50), 6000: (10, 8), 60_000: (1, 1)}
#: What is tuned: the server's step (η_g·η, the length of a step when all devices agree, as c = 1), and the diameter of
#: the domain that θ stays in, if any.
CANDIDATES: tuple[dict[str, Any], ...] = tuple(
    {"step": step, "diameter": diameter}
    for step, diameter in (
        (0.008, None),
        (0.02, None),
        (0.05, None),
        (0.15, None),
        (0.5, 36.0),
        (1.0, 36.0),
        (2.0, 48.0),
        (4.0, 48.0),
        (8.0, 64.0),
    )
)
LOCAL_RATE = 0.05


@dataclass(frozen=True)
class Part:
    """The cells of one model."""

    preset: str
    epsilons: tuple[float, ...]
    devices: tuple[int, ...]
    trials: int
    rounds: int


PARTS = {
    "linear": Part("massive-linear", EPSILONS, DEVICES, 5, 60),
    "small-cnn": Part("massive", EPSILONS, DEVICES, 5, 100),
    "paper-cnn": Part("massive-cnn", (0.5, 2.0, 8.0, math.inf), (50, 1000, 6000), 3, 60),
}
#: What the smoke scale changes in every part.
SMOKE: dict[str, Any] = {"epsilons": (0.5, 8.0, math.inf), "devices": (50, 1000), "trials": 1, "rounds": 5}
Cell = tuple[int, float]
#: The budget sets the noise: with power to spare, receiver and combiner make no difference.
POWER_TO_SPARE = {"channel.power_w": 1e9, "system.num_antennas": 4, "scheme.combiner": "mrc"}


def scheme_at(epsilon: float) -> dict[str, Any]:
    """The private scheme at its budget, or its twin without noise."""
    if math.isinf(epsilon):
        return {"scheme.names": ["fedavg-clip"]}
    return {"scheme.names": ["airfl-dp"], "privacy.epsilon": epsilon}


def point(devices: int, epsilon: float, candidate: dict[str, Any], tuning: bool) -> dict[str, Any]:
    """A configuration of the study."""
    images = IMAGES[devices][tuning]
    return {
        "system.num_devices": 50_000 if tuning and devices == 60_000 else devices,
        "learning.samples_per_device": images,
        "learning.batch_size": min(10, images),
        "learning.local_steps": 5 if images > 10 else 2,  # a device of ten images has seen them all after one
        "learning.server_step": candidate["step"] / LOCAL_RATE,
        "learning.domain_diameter": candidate["diameter"],
        **scheme_at(epsilon),
    }


def study(name: str, part: Part, points: list[dict[str, Any]], trials: int, tuning: bool) -> dict[str, Any]:
    """A study file's content."""
    return {
        "name": name,
        "base": part.preset,
        "trials": trials,
        "rows_per_batch": 42,
        "set": {
            "system.rounds": part.rounds,
            "learning.split": "validation" if tuning else "standard",
            "learning.learning_rate": LOCAL_RATE,
            "learning.server_schedule": "linear",
            "learning.server_momentum": 0.8,
            **POWER_TO_SPARE,
            "engine.eval_every": 1000,  # after the last round
        },
        "list": points,
    }


def run(content: dict[str, Any], out: Path, device: str) -> tuple[Any, Any]:
    """Run a study, or what is left of it."""
    executor = sweeps.make_executor("local", 1, None, device, 10**6, 120.0)
    with SweepProgress(content["name"]) as progress:
        plan, folder, standing, interrupted = sweeps.start_or_resume(
            make_study(content), json.dumps(content), out, executor, progress.hear, threads=threads_for(1)
        )
    if interrupted:
        raise SystemExit("interrupted; the same command goes on")
    if any(folder.finished(batch) is None for batch in plan.batches):
        raise SystemExit(f"some batches failed; the same command tries them again: {'; '.join(standing.messages)}")
    return plan, folder


def finals(plan: Any, folder: Any) -> dict[int, list[float]]:
    """Final accuracies of every point, over trials; none for one that diverged or was refused."""
    found: dict[int, list[float]] = {number: [] for number in range(len(plan.points))}
    columns, good = ["point", "scheme", "trial", "round", "accuracy"], good_cells(plan, folder)
    for row in pq.read_table(folder.path / "results.parquet", columns=columns).to_pylist():
        over = row["round"] == plan.config(row["point"]).system.rounds
        if over and (row["point"], row["scheme"], row["trial"]) in good:
            found[row["point"]].append(row["accuracy"])
    return found


def over_trials(values: list[float]) -> dict[str, Any]:
    """Mean and spread of accuracies, and how many there are."""
    return {
        "accuracy_mean": float(np.mean(values)) if values else math.nan,
        "accuracy_std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0,
        "trials": len(values),
    }


def merge_csv(path: Path, rows: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Write rows beside those that lie there already under other keys; returns all."""
    fresh = {tuple(row[key] for key in keys) for row in rows}
    kept = [row for row in read_rows(path) if tuple(row[key] for key in keys) not in fresh]
    write_csv(path, [*kept, *rows], tuple(rows[0]), digits=6)
    return [*kept, *rows]


def merge_json(path: Path, notes: dict[str, Any]) -> None:
    """Write notes beside those that lie there already under other names."""
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    path.write_text(json.dumps({**kept, **notes}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def tune(
    name: str, part: Part, out: Path, device: str, candidates: tuple[dict[str, Any], ...]
) -> dict[Cell, list[float]]:
    """Validation accuracy of every cell with each candidate, one trial each; 0 where it diverged."""
    cells = list(product(part.devices, part.epsilons))
    points = [point(n, e, candidate, tuning=True) for n, e in cells for candidate in candidates]
    plan, folder = run(study(f"perk-tune-{name}", part, points, 1, True), out / f"tune-{name}", device)
    accuracy = [max(values, default=0.0) for values in finals(plan, folder).values()]
    table = np.array(accuracy).reshape(len(cells), len(candidates))
    return dict(zip(cells, table.tolist(), strict=True))


def measure(name: str, part: Part, out: Path, device: str, chosen: dict[Cell, Any]) -> tuple[list[dict[str, Any]], Any]:
    """Test accuracy of every cell with its candidate."""
    points = [point(n, e, candidate, tuning=False) for (n, e), candidate in chosen.items()]
    plan, folder = run(study(f"perk-{name}", part, points, part.trials, False), out / f"test-{name}", device)
    found = dict(zip(chosen, finals(plan, folder).values(), strict=True))
    rows = []
    for (devices, epsilon), values in found.items():
        noiseless = found[devices, math.inf]
        rows.append(
            {
                "devices": devices,
                "model": name,
                "epsilon": epsilon,
                "delta": plan.base.privacy.delta,
                "neighbours": plan.base.neighbours,
                **over_trials(values),
                "noiseless_accuracy": float(np.mean(noiseless)) if noiseless else math.nan,
            }
        )
    return rows, notes_of(plan, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="perk")
    parser.add_argument("--models", default="linear,small-cnn,paper-cnn")
    parser.add_argument("--devices", default="", help="only these numbers of devices, such as 50,1000")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--scale", choices=("full", "smoke"), default="full")
    arguments = parser.parse_args()
    names = arguments.models.split(",")
    numbers = tuple(int(text) if text.isdigit() else 0 for text in arguments.devices.split(",") if text)
    if not set(names) <= set(PARTS):
        parser.error(f"unknown model in `{arguments.models}`; known: {', '.join(PARTS)}")
    if not set(numbers) <= set(IMAGES):
        parser.error(f"no such number of devices in `{arguments.devices}`; known: {', '.join(map(str, IMAGES))}")
    out = Path(arguments.out)
    candidates = CANDIDATES if arguments.scale == "full" else CANDIDATES[3:5]
    rows: list[dict[str, Any]] = []
    notes: dict[str, Any] = {}
    for name in names:
        part = PARTS[name] if arguments.scale == "full" else replace(PARTS[name], **SMOKE)
        if numbers:
            part = replace(part, devices=numbers)
        studies = out / arguments.devices
        tuned = tune(name, part, studies, arguments.device, candidates)
        chosen = {cell: candidates[int(np.argmax(accuracies))] for cell, accuracies in tuned.items()}
        found, provenance = measure(name, part, studies, arguments.device, chosen)
        rows += found
        part_of = f"{name}, {arguments.devices} devices" if arguments.devices else name
        notes[part_of] = {
            "provenance": provenance,
            "tuning_budget": f"{len(candidates)} runs a cell",
            "candidates": list(candidates),
            "chosen": [[n, str(e), c] for (n, e), c in chosen.items()],
            "validation": [[n, str(e), [round(a, 4) for a in tuned[n, e]]] for n, e in chosen],
        }
    merge_json(out / "perk.json", notes)
    draw_perk(merge_csv(out / "perk.csv", rows, ("model", "devices")), out)


if __name__ == "__main__":
    main()
