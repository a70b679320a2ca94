"""The settings of the demo: each number of devices and each ε tuned for itself, on held-out images.

    python -m experiments.demo_tuning --out experiments/results                 # goes on where it was stopped
    python -m experiments.demo_tuning --out experiments/results --seconds 150   # begins no run after so many seconds

Every cell (devices, ε) has the demo's own link and begins with the settings of the preset `massive-linear`, with those
found for the ε before it, or with the best that was tried for it in an earlier call. Of one setting after the other the
next smaller and larger value is tried, as long as that brings a tenth of a point on the validation split (a sixth of
the training part; the test part is not touched), until no single change does. Nobody has more than the preset's 40
rounds, nor more images in a round than its 6,000 devices work through together. The seed is not that of the demo.
Tuning is not private.

Writes demo_tuning.csv (a row per setting that was tried), demo_tuning.json (choices, provenance) and, once all cells
are done, the settings that `airfl demo` reads.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import airfl
from airfl.paper.studies import read_rows
from airfl.report.demo import DEVICES, EPSILONS, SETTINGS
from airfl.runs.store import write_csv

#: Images of a device that the validation split leaves, and trials: the fewer devices, the more noise.
VALIDATION = {50: (1000, 3), 500: (100, 1), 6000: (8, 1)}
SEED = 101
#: Accuracy that a change has to bring.
WORTH = 0.001
#: What is tried, in this order. The reach is how far a model moves if all devices agree: η_g·η·c/(1 − β). The clip norm
#: stays at 1: 0.3 and 3, tried in the first cells and kept in the table, brought nothing with the same reach.
LATTICE: dict[str, tuple[Any, ...]] = {
    "reach": (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0),
    "rounds": (5, 10, 20, 40),
    "work": ((1, 10), (2, 10), (5, 20), (5, 40), (5, 100)),
    "momentum": (0.0, 0.5, 0.8),
    "rate": (0.03, 0.1, 0.3),
}
#: Images in a round, over all devices.
MOST_WORK = 120_000
COLUMNS = (
    "devices", "epsilon", "rounds", "local_steps", "batch_size", "learning_rate", "clip_norm", "server_step",
    "server_momentum", "seed", "trials", "accuracy_mean", "accuracy_std", "epsilon_spent", "seconds",
)  # fmt: skip
KEYS = COLUMNS[:11]


@dataclass(frozen=True)
class Setting:
    """One point of the lattice; the preset's by default. Work is local steps and images of each."""

    reach: float = 5.0
    rounds: int = 40
    work: tuple[int, int] = (2, 10)
    momentum: float = 0.8
    rate: float = 0.1
    clip: float = 1.0

    @property
    def changes(self) -> dict[str, Any]:
        """What it is to a configuration."""
        return {
            "system.rounds": self.rounds,
            "learning.local_steps": self.work[0],
            "learning.batch_size": self.work[1],
            "learning.learning_rate": self.rate,
            "learning.clip_norm": self.clip,
            "learning.server_step": float(f"{self.reach * (1 - self.momentum) / (self.rate * self.clip):.6g}"),
            "learning.server_momentum": self.momentum,
        }

    def along(self, name: str, devices: int, way: int) -> Setting | None:
        """The next setting up or down; None where there is none, or where it is too much work."""
        values = LATTICE[name]
        place = values.index(getattr(self, name)) + way
        if not 0 <= place < len(values):
            return None
        found = replace(self, **{name: values[place]})
        heavy = devices * found.work[0] * found.work[1] > MOST_WORK or found.work[1] > DEVICES[devices]
        return None if heavy else found


class OutOfTime(Exception):
    """No run may begin any more."""


class Table:
    """Validation accuracies that are known, on disk."""

    def __init__(self, path: Path, until: float) -> None:
        self._path, self._until = path, until
        self.rows = read_rows(path) if path.is_file() else []
        self.provenance: dict[str, Any] = {}

    def accuracy(self, devices: int, epsilon: float, setting: Setting) -> float:
        """Of one setting; run if it was not yet."""
        row = self.row(devices, epsilon, setting)
        known = {tuple(one[key] for key in KEYS): float(one["accuracy_mean"]) for one in self.rows}
        if (key := tuple(row[name] for name in KEYS)) in known:
            return known[key]
        if time.monotonic() > self._until:
            raise OutOfTime
        begun = time.monotonic()
        result = airfl.run(self.config(devices, epsilon, setting))
        self.provenance = result.provenance
        (entry,) = result.summary["schemes"].values()
        row |= {
            "accuracy_mean": (entry["status"] == "done" and entry["accuracy_mean"]) or 0.0,
            "accuracy_std": entry["accuracy_std"] or 0.0,
            "epsilon_spent": math.inf if math.isinf(epsilon) else entry["epsilon"]["gaussian"],
            "seconds": round(time.monotonic() - begun, 1),
        }
        self.rows.append(row)
        write_csv(self._path, sorted(self.rows, key=lambda one: (one["devices"], one["epsilon"])), COLUMNS, digits=6)
        print({key: row[key] for key in COLUMNS if key not in ("seed", "trials", "accuracy_std")}, flush=True)
        return float(row["accuracy_mean"])

    def best(self, devices: int, epsilon: float) -> Setting | None:
        """The best setting of a cell that was tried before."""
        known = {tuple(one[key] for key in KEYS): float(one["accuracy_mean"]) for one in self.rows}
        every = [Setting(**dict(zip(LATTICE, values, strict=True))) for values in product(*LATTICE.values())]
        keys = {setting: tuple(self.row(devices, epsilon, setting)[name] for name in KEYS) for setting in every}
        tried = [setting for setting, key in keys.items() if key in known]
        return max(tried, key=lambda setting: known[keys[setting]], default=None)

    @staticmethod
    def row(devices: int, epsilon: float, setting: Setting) -> dict[str, Any]:
        """Its key in the table."""
        named = {key.split(".")[1]: value for key, value in setting.changes.items()}
        return {"devices": devices, "epsilon": epsilon, **named, "seed": SEED, "trials": VALIDATION[devices][1]}

    @staticmethod
    def config(devices: int, epsilon: float, setting: Setting) -> airfl.Config:
        """The run on the validation split."""
        images, trials = VALIDATION[devices]
        private = {"scheme.names": ["airfl-dp"], "privacy.epsilon": epsilon}
        return airfl.preset("massive-linear").replace(
            {
                **({"scheme.names": ["fedavg-clip"]} if math.isinf(epsilon) else private),
                **setting.changes,
                "system.seed": SEED,
                "system.trials": trials,
                "system.num_devices": devices,
                "learning.samples_per_device": images,
                "learning.split": "validation",
                "engine.eval_every": 1000,
            }
        )


def tune(table: Table, devices: int, epsilon: float, start: Setting) -> Setting:
    """The setting of a cell that no single change betters."""
    best, settled = start, False
    while not settled:
        settled = True
        for name, way in product(LATTICE, (-1, 1)):
            while (other := best.along(name, devices, way)) is not None:
                reached = table.accuracy(devices, epsilon, best)
                if table.accuracy(devices, epsilon, other) < reached + WORTH:
                    break
                best, settled = other, False
    return best


def settings_toml(chosen: dict[tuple[int, float], Setting], table: Table) -> Iterator[str]:
    """The file that the demo reads, line by line."""
    yield "# What each line of the demo is trained with: best of experiments/demo_tuning.py on held-out images."
    yield "# All that was tried: experiments/results/demo_tuning.csv. ε = inf is without noise."
    for (devices, epsilon), setting in chosen.items():
        yield "\n[[setting]]"
        yield f"devices = {devices}"
        yield f"epsilon = {epsilon}"
        yield from (f"{key.split('.')[1]} = {value}" for key, value in setting.changes.items())
        yield f"validation_accuracy = {table.accuracy(devices, epsilon, setting):.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("demo-tuning"))
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no run after so many seconds")
    arguments = parser.parse_args()
    table = Table(arguments.out / "demo_tuning.csv", time.monotonic() + arguments.seconds)
    chosen: dict[tuple[int, float], Setting] = {}
    try:
        for devices in DEVICES:
            best = Setting()
            for epsilon in (*EPSILONS, math.inf):
                best = chosen[devices, epsilon] = tune(table, devices, epsilon, table.best(devices, epsilon) or best)
    except OutOfTime:
        raise SystemExit(f"{len(chosen)} of {4 * len(DEVICES)} cells are done; the same command goes on") from None
    SETTINGS.write_text("\n".join(settings_toml(chosen, table)) + "\n", encoding="utf-8")
    notes = {
        "what": "validation accuracy of the demo's settings; the test part was not touched",
        "runs": len(table.rows),
        "seconds": round(sum(row["seconds"] for row in table.rows), 1),
        "seed": SEED,
        "trials": {str(devices): trials for devices, (_, trials) in VALIDATION.items()},
        "lattice": LATTICE,
        "most_images_in_a_round": MOST_WORK,
        "chosen": [[n, str(e), setting.changes] for (n, e), setting in chosen.items()],
    }
    path = arguments.out / "demo_tuning.json"
    earlier = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    notes["provenance"] = table.provenance or earlier.get("provenance", {})
    path.write_text(json.dumps(notes, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
