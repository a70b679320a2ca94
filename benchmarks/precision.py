"""Whole trainings in bf16 against float32 on a CPU, same seeds: what rounding factors of products does to accuracy.

    python -m benchmarks.precision --out precision.json [--model paper-cnn] [--trials 6] [--most 1]

The paper's setting with local rounds that a CPU can do: 50 devices of which 45 take part, 5 steps of 10 samples, 50
rounds; schemes `fedavg` and `airfl-dp`. Trials are paired: data, channels, noise and first models are the same in both
precisions. With `--out` every run is written down at once, and one that is there already is not done again.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import airfl
from benchmarks.machine import provenance

PRECISIONS = ("float32", "bf16")
SCHEMES = ("fedavg", "airfl-dp")
MODELS = ("paper-cnn", "small-cnn")

Row = dict[str, Any]


def config_of(model: str, precision: str, trial: int, rounds: int) -> airfl.Config:
    """One trial; its seed is its own, so that trials can be run one by one."""
    return airfl.preset("authors").replace(
        {
            "system.seed": 1 + trial,
            "system.trials": 1,
            "system.rounds": rounds,
            "learning.model": model,
            "learning.local_epochs": None,
            "learning.local_steps": 5,
            "learning.drop_last": False,
            "learning.learning_rate": 0.05,
            "learning.clip_factor": None,
            "learning.clip_norm": 5.0,
            "scheme.names": list(SCHEMES),
            "engine.device": "cpu",
            "engine.precision": precision,
            "engine.eval_every": rounds,
        }
    )


def trained(model: str, precision: str, trial: int, rounds: int) -> Row:
    """Final accuracies of one run, by scheme, and how long its rounds took."""
    begin = time.perf_counter()
    result = airfl.run(config_of(model, precision, trial, rounds))
    accuracy = {name: float(scheme.column("accuracy")[0, -1]) for name, scheme in result.schemes.items()}
    row = {"model": model, "precision": precision, "trial": trial, "rounds": rounds, "accuracy": accuracy}
    assert result.provenance["precision"] == precision
    return {**row, "engine": result.provenance["engine"], "seconds": round(time.perf_counter() - begin, 1)}


def compared(rows: list[Row]) -> list[Row]:
    """Means in both precisions, the mean paired difference with its standard error, and the spread of trials."""
    found = {(row["model"], row["precision"], row["trial"]): row["accuracy"] for row in rows}
    summary = []
    for model in sorted({row["model"] for row in rows}):
        trials = sorted(
            {trial for m, _, trial in found if m == model and all((m, p, trial) in found for p in PRECISIONS)}
        )
        for scheme in SCHEMES if trials else ():
            exact, rough = ([found[model, p, trial][scheme] for trial in trials] for p in PRECISIONS)
            apart = [b - a for a, b in zip(exact, rough, strict=True)]
            several = len(trials) > 1
            summary.append(
                {
                    "model": model,
                    "scheme": scheme,
                    "trials": len(trials),
                    "float32": statistics.mean(exact),
                    "bf16": statistics.mean(rough),
                    "difference": statistics.mean(apart),
                    "standard_error": statistics.stdev(apart) / math.sqrt(len(apart)) if several else None,
                    "spread_of_trials": statistics.stdev(exact) if several else None,
                }
            )
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--trials", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--most", type=int, help="stop after so many runs; the next call goes on")
    parser.add_argument("--out", type=Path, help="JSON file to write, and to go on from")
    asked = parser.parse_args()
    kept = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out and asked.out.exists() else {}
    rows: list[Row] = kept.get("runs", [])
    done = {(row["model"], row["precision"], row["trial"], row["rounds"]) for row in rows}
    wanted = [
        (model, precision, trial, asked.rounds)
        for model in asked.model or MODELS
        for trial in range(asked.trials)
        for precision in PRECISIONS
    ]
    missing = [key for key in wanted if key not in done][: asked.most]
    for number, key in enumerate(missing):
        print(f"{number + 1}/{len(missing)}: {key[0]}, trial {key[2]}, {key[1]} …", file=sys.stderr, flush=True)
        rows.append(trained(*key))
        if asked.out is not None:
            found = {"provenance": provenance(), "summary": compared(rows), "runs": rows}
            asked.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for row in compared(rows):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
