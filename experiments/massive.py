"""The presets `massive`, `massive-scattering` and `massive-cnn`: tuned on validation, shown on the test part.

    python -m experiments.massive --out massive --device cuda                          # tune, run, collect; resumable
    python -m experiments.massive --out massive --presets massive-scattering           # half an hour on two cores
    python -m experiments.massive --out massive --as-shown experiments/results         # the settings found there

The first two have ε = 0.5, 1 and 2. Tuning: every budget gets each candidate below once, one trial, on the validation
split (a sixth of the training part; the test part is not touched). The best one of a budget is then run with the
preset's whole radio link on the standard split. `massive-cnn` is run as it is, at its ε and without noise. Tuning is
not private.

Writes massive.csv and massive.json (candidates, choices, provenance) to the output folder.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from airfl.config import read
from airfl.paper.studies import notes_of, read_rows
from experiments.perk import POWER_TO_SPARE, finals, merge_csv, merge_json, over_trials, run, scheme_at

EPSILONS = (0.5, 1.0, 2.0)


@dataclass(frozen=True)
class Tuning:
    """What is tried for a preset: rounds, the server's step (η_g·η) and the diameter of the domain around θ⁰."""

    candidates: tuple[tuple[int, float, float | None], ...]
    epsilons: tuple[float, ...] = EPSILONS


TUNINGS = {
    # The run without noise has the setting of the largest ε.
    "massive": Tuning(
        ((100, 0.5, 36.0), (100, 1.0, 36.0), (100, 2.0, 36.0), (100, 2.0, 48.0), (200, 0.5, 36.0), (200, 1.0, 48.0))
    ),
    "massive-scattering": Tuning(
        ((40, 0.3, None), (40, 0.6, None), (40, 1.2, None), (80, 0.15, None), (80, 0.3, None), (80, 0.6, None)),
        (*EPSILONS, math.inf),
    ),
}


def point(preset: str, epsilon: float, candidate: tuple[int, float, float | None]) -> dict[str, Any]:
    """A configuration of a study: changes of the preset."""
    rounds, step, diameter = candidate
    return {
        **scheme_at(epsilon),
        "system.rounds": rounds,
        "learning.server_step": step / read(preset).learning.learning_rate,
        "learning.domain_diameter": diameter,
    }


def tune(preset: str, out: Path, device: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The best candidate of every budget and without noise, as configurations, and all validation accuracies."""
    tuning = TUNINGS[preset]
    cells = list(product(tuning.epsilons, tuning.candidates))
    content = {
        "name": f"{preset}-tune",
        "base": preset,
        "trials": 1,
        "rows_per_batch": 16,
        "set": {
            "learning.split": "validation",
            "learning.samples_per_device": 8,
            **POWER_TO_SPARE,
            "engine.eval_every": 1000,
        },
        "list": [point(preset, epsilon, candidate) for epsilon, candidate in cells],
    }
    found = finals(*run(content, out / f"{preset}-tune", device)).values()
    reached = {cell: max(values, default=0.0) for cell, values in zip(cells, found, strict=True)}
    best = {e: max(tuning.candidates, key=lambda one: reached[e, one]) for e in tuning.epsilons}
    shown = [point(preset, e, best.get(e, best[EPSILONS[-1]])) for e in (*EPSILONS, math.inf)]
    tried = [
        {"epsilon": str(e), "rounds": rounds, "step": step, "diameter": diameter, "accuracy": accuracy}
        for (e, (rounds, step, diameter)), accuracy in reached.items()
    ]
    return shown, {"tuning": tried, "tuning_budget": f"{len(tuning.candidates)} runs a budget"}


def as_shown(preset: str, results: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The settings of an earlier tuning, from its massive.csv and massive.json."""
    shown = [
        {
            **scheme_at(row["epsilon"]),
            "system.rounds": int(row["rounds"]),
            "learning.server_step": row["server_step"],
            "learning.domain_diameter": row["domain_diameter"],
        }
        for row in read_rows(results / "massive.csv")
        if row["preset"] == preset
    ]
    earlier = json.loads((results / "massive.json").read_text())[preset]
    return shown, {key: earlier[key] for key in ("tuning", "tuning_budget")}


def show(preset: str, trials: int, points: list[dict[str, Any]], out: Path, device: str) -> tuple[list[Any], Any]:
    """Test accuracies of a preset at some points, with its own radio link."""
    content = {
        "name": preset,
        "base": preset,
        "trials": trials,
        "rows_per_batch": 1 if preset == "massive-cnn" else 20,
        "set": {"engine.eval_every": 50},
        "list": points,
    }
    plan, folder = run(content, out / preset, device)
    spent = epsilons(plan, folder)
    rows = []
    for number, values in finals(plan, folder).items():
        config = plan.config(number)
        private = "airfl-dp" in config.scheme.names
        rows.append(
            {
                "preset": preset,
                "devices": config.system.num_devices,
                "model": config.learning.model,
                "scheme": config.scheme.names[0],
                "epsilon": config.privacy.epsilon if private else math.inf,
                "epsilon_spent": spent[number] if private else math.inf,
                "delta": config.privacy.delta,
                "neighbours": config.neighbours,
                "rounds": config.system.rounds,
                "server_step": config.learning.server_step,
                "domain_diameter": config.learning.domain_diameter,
                **over_trials(values),
            }
        )
    return rows, notes_of(plan, folder)


def epsilons(plan: Any, folder: Any) -> dict[int, float]:
    """ε that the ledgers have at the end, the largest over trials."""
    table = pq.read_table(folder.path / "results.parquet", columns=["point", "epsilon"]).to_pylist()
    return {
        number: max(row["epsilon"] for row in table if row["point"] == number) for number in range(len(plan.points))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="massive")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--presets", default="massive,massive-scattering,massive-cnn")
    parser.add_argument("--as-shown", type=Path, help="folder with an earlier massive.csv: do not tune again")
    arguments = parser.parse_args()
    names = arguments.presets.split(",")
    known = (*TUNINGS, "massive-cnn")
    if not set(names) <= set(known):
        parser.error(f"unknown preset in `{arguments.presets}`; known: {', '.join(known)}")
    out = Path(arguments.out)
    rows: list[dict[str, Any]] = []
    notes: dict[str, Any] = {}
    for preset in names:
        points, tuning = [{"scheme.names": ["airfl-dp"]}, {"scheme.names": ["fedavg-clip"]}], {}
        if preset in TUNINGS:
            tuned = arguments.as_shown
            points, tuning = as_shown(preset, tuned) if tuned else tune(preset, out, arguments.device)
        found, provenance = show(preset, arguments.trials, points, out, arguments.device)
        notes[preset] = {**provenance, **tuning}
        rows += found
        merge_csv(out / "massive.csv", rows, ("preset",))
        merge_json(out / "massive.json", notes)


if __name__ == "__main__":
    main()
