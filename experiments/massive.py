"""The presets `massive` and `massive-cnn` at ε = 0.5, 1 and 2: tuned on the validation split, shown on the test part.

    python -m experiments.massive --out massive --device cuda      # tune, run, collect; resumable

Tuning: every budget gets each candidate below once, one trial, on the validation split (a sixth of the training part;
the test part is not touched). The best one of a budget is then run with the preset's whole radio link on the standard
split. `massive-cnn` is run as it is, at its ε and without noise. Tuning is not private.

Writes massive.csv and massive.json (candidates, choices, provenance) to the output folder.
"""

from __future__ import annotations

import argparse
import math
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from airfl.runs.reproduce import notes_of
from experiments.perk import LOCAL_RATE, POWER_TO_SPARE, finals, merge_csv, merge_json, over_trials, run

EPSILONS = (0.5, 1.0, 2.0)
#: Rounds, the server's step (η_g·η) and the diameter of the domain around θ⁰.
CANDIDATES = tuple(
    {"rounds": t, "step": step, "diameter": diameter}
    for t, step, diameter in (
        *((100, 0.5, 36.0), (100, 1.0, 36.0), (100, 2.0, 36.0), (100, 2.0, 48.0)),
        *((200, 0.5, 36.0), (200, 1.0, 48.0)),
    )
)


def training(candidate: dict[str, Any]) -> dict[str, Any]:
    """A candidate as changes of the preset."""
    return {
        "system.rounds": candidate["rounds"],
        "learning.server_step": candidate["step"] / LOCAL_RATE,
        "learning.domain_diameter": candidate["diameter"],
    }


def tune(out: Path, device: str) -> tuple[dict[float, dict[str, Any]], list[dict[str, Any]]]:
    """The best candidate of every budget, and all validation accuracies."""
    cells = list(product(EPSILONS, CANDIDATES))
    content = {
        "name": "massive-tune",
        "base": "massive",
        "trials": 1,
        "rows_per_batch": 16,
        "set": {
            "learning.split": "validation",
            "learning.samples_per_device": 8,
            **POWER_TO_SPARE,
            "engine.eval_every": 1000,
        },
        "list": [
            {"scheme.names": ["airfl-dp"], "privacy.epsilon": epsilon, **training(candidate)}
            for epsilon, candidate in cells
        ],
    }
    found = list(finals(*run(content, out / "tune", device)).values())
    tried = [
        {"epsilon": e, **candidate, "accuracy": max(values, default=0.0)}
        for (e, candidate), values in zip(cells, found, strict=True)
    ]
    best = {e: max((row for row in tried if row["epsilon"] == e), key=lambda row: row["accuracy"]) for e in EPSILONS}
    return best, tried


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
    parser.add_argument("--presets", default="massive,massive-cnn")
    arguments = parser.parse_args()
    names = arguments.presets.split(",")
    if not set(names) <= {"massive", "massive-cnn"}:
        parser.error(f"unknown preset in `{arguments.presets}`; known: massive, massive-cnn")
    out = Path(arguments.out)
    notes: dict[str, Any] = {}
    twin = {"scheme.names": ["fedavg-clip"]}
    shown = {"massive-cnn": [{"scheme.names": ["airfl-dp"]}, twin]}
    if "massive" in names:
        chosen, tried = tune(out, arguments.device)
        notes |= {"tuning": tried, "tuning_budget": f"{len(CANDIDATES)} runs a budget"}
        private = [{"scheme.names": ["airfl-dp"], "privacy.epsilon": e, **training(chosen[e])} for e in EPSILONS]
        shown["massive"] = [*private, {**twin, **training(chosen[2.0])}]
    rows: list[dict[str, Any]] = []
    for preset in names:
        found, notes[preset] = show(preset, arguments.trials, shown[preset], out, arguments.device)
        rows += found
        merge_csv(out / "massive.csv", rows, ("preset",))
        merge_json(out / "massive.json", notes)


if __name__ == "__main__":
    main()
