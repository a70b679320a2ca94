"""Accuracy against ε where the base station need not be trusted, and what spoils it.

    python -m experiments.shield --out shield --device cuda              # all parts; goes on where it was stopped
    python -m experiments.shield --out shield --parts headline           # one of: tune, headline, curves, spoilt, paper

Parts: `tune` chooses the server's step for every model, number of devices and ε, with a trusted base station, one trial
on the validation split; `headline` is the preset `shielded` and the same with wavelets, five trials; `curves` are 50,
500 and 6,000 devices against 1, 4, 16 and 100 antennas; `spoilt` has imperfect channel knowledge, devices that collude
and devices that drop out; `paper` is the paper's own setting. Tuning is not private.

Writes shield.csv (one row per run) and shield.json (what was tuned, provenance) to the output folder.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import airfl
from airfl.errors import InputError
from airfl.runs.store import write_csv
from experiments.perk import merge_json

DEVICES = {50: 1200, 500: 120, 6000: 10}
VALIDATION = {50: 1000, 500: 100, 6000: 8}
ANTENNAS = (1, 4, 16, 100)
EPSILONS = (0.5, 1.0, 2.0, 4.0)
#: Candidates for the server's step times the learning rate.
STEPS = {"softmax": (0.05, 0.15, 0.5, 1.0), "wavelets": (0.02, 0.06, 0.3, 0.6)}
WAVELETS = {
    "learning.features": "scattering",
    "learning.local_steps": 5,
    "learning.learning_rate": 0.005,
    "learning.server_step": 60.0,
    "system.rounds": 80,
}
COLUMNS = (
    "part", "model", "devices", "antennas", "epsilon", "scheme", "csi_error", "colluding", "dropout", "cover",
    "power_w", "status", "accuracy_mean", "accuracy_std", "trials", "epsilon_models", "epsilon_base_station",
    "noise_var", "price_db", "cover_power_db", "most_power_w", "seconds",
)  # fmt: skip
KEYS = COLUMNS[:11]


def changes(model: str, devices: int, validation: bool = False) -> dict[str, Any]:
    """The preset `shielded` for another model and number of devices."""
    images = (VALIDATION if validation else DEVICES)[devices]
    return {
        **({} if model == "softmax" else WAVELETS),
        "system.num_devices": devices,
        "learning.samples_per_device": images,
        "learning.batch_size": min(10, images),
        "engine.eval_every": 1000,
    }


def points(part: str, steps: dict[str, float]) -> Iterator[dict[str, Any]]:
    """The runs of a part: keys of the table, and the changes of the preset."""
    plain = {"csi_error": 0.0, "colluding": 0.0, "dropout": 0.0, "cover": "auto", "trials": 3}
    for model in ("softmax", "wavelets"):
        if part == "headline":
            for scheme in ("airfl-dp", "airfl-shielded"):
                own = changes(model, 6000)
                yield {**plain, "model": model, "devices": 6000, "antennas": 16, "epsilon": 1.0, "scheme": scheme,
                       "trials": 5, "changes": own}  # fmt: skip
        if part == "curves":
            for devices, epsilon in product(DEVICES, EPSILONS):
                own = {**changes(model, devices), "learning.server_step": steps[step_key(model, devices, epsilon)]}
                where = [("airfl-dp", 16), *(("airfl-shielded", antennas) for antennas in ANTENNAS)]
                for scheme, antennas in where:
                    yield {**plain, "model": model, "devices": devices, "antennas": antennas, "epsilon": epsilon,
                           "scheme": scheme, "changes": own}  # fmt: skip
        if part == "spoilt":
            spoils = [{"csi_error": level} for level in (0.0, 0.01, 0.03, 0.1)]
            spoils += [{"colluding": share} for share in (0.1, 0.3)] + [{"dropout": share} for share in (0.01, 0.05)]
            for spoil, cover in [*product(spoils, ("quadrature", "masks")), ({"csi_error": 0.01}, "credited")]:
                yield {**plain, "model": model, "devices": 6000, "antennas": 16, "epsilon": 1.0, "cover": cover,
                       "scheme": "airfl-shielded", "changes": changes(model, 6000), **spoil}  # fmt: skip
            for spoil in spoils:
                yield {**plain, "model": model, "devices": 6000, "antennas": 16, "epsilon": 1.0, "scheme": "airfl-dp",
                       "changes": changes(model, 6000), **spoil}  # fmt: skip


def paper_points() -> Iterator[dict[str, Any]]:
    """The paper's setting: 45 of 50 devices, 100 antennas, 2 mW, ε̃ = 0.1."""
    plain = {"model": "paper-cnn", "devices": 50, "antennas": 100, "csi_error": 0.0, "colluding": 0.0, "dropout": 0.0}
    for preset, scheme in product(("paper", "authors"), ("airfl-dp", "airfl-shielded", "airfl-an")):
        yield {**plain, "scheme": scheme, "cover": preset, "trials": 3, "base": preset}


def step_key(model: str, devices: int, epsilon: float) -> str:
    return f"{model}, {devices} devices, ε = {epsilon:g}"


def run_one(point: dict[str, Any], device: str) -> dict[str, Any]:
    """One row of the table."""
    started = time.monotonic()
    scheme = point["scheme"]
    config = airfl.preset(point.get("base", "shielded")).replace(
        {
            **point.get("changes", {}),
            "system.trials": point["trials"],
            "system.dropout": point["dropout"],
            "scheme.names": [scheme],
            "privacy.colluding": point["colluding"],
            "channel.csi_error": point["csi_error"] ** 2,  # the table has amplitudes
            "engine.device": device,
        }
    )
    if "base" in point:
        config = config.replace({"privacy.accountant": "gaussian", "privacy.epsilon_tilde": 0.1})
    else:
        config = config.replace({"privacy.epsilon": point["epsilon"], "system.num_antennas": point["antennas"]})
        if point["cover"] == "credited":
            config = config.replace({"privacy.credit_leak": True, "scheme.cover": "quadrature"})
        elif scheme == "airfl-shielded" and point["cover"] != "auto":
            config = config.replace({"scheme.cover": point["cover"]})
    row: dict[str, Any] = {key: point.get(key) for key in COLUMNS}
    row |= {"power_w": config.channel.power_w, "seconds": 0.0}
    try:
        result = airfl.run(config)
    except InputError as error:
        print(f"refused: {error}")
        return row | {"status": "refused", "trials": 0}
    entry = result.summary["schemes"][scheme]
    found, covers = entry["epsilon_by_observer"], entry["cover"]
    budget = result.summary["budget_epsilon"]
    return row | {
        "status": entry["status"],
        "epsilon": budget if "base" in point else point["epsilon"],
        "accuracy_mean": entry["accuracy_mean"],
        "accuracy_std": entry["accuracy_std"],
        "trials": entry["trials"],
        "epsilon_models": found["models"]["gaussian"],
        "epsilon_base_station": found["base-station"]["gaussian"],
        "noise_var": entry["noise_var_mean"],
        "price_db": sum(used["price_db"] for used in covers) / len(covers) if covers else None,
        "cover_power_db": max((used["power_db"] for used in covers), default=None),
        "most_power_w": max(record.max_power_w for record in result.schemes[scheme].records),
        "seconds": time.monotonic() - started,
    }


def tune(device: str, out: Path) -> dict[str, float]:
    """The best step of every model, number of devices and ε, with a trusted base station, on the validation split."""
    path = out / "shield.json"
    kept = json.loads(path.read_text()) if path.is_file() else {}
    chosen: dict[str, float] = dict(kept.get("steps", {}))
    tried: dict[str, Any] = dict(kept.get("tuning", {}))
    for model, devices, epsilon in product(STEPS, DEVICES, EPSILONS):
        key = step_key(model, devices, epsilon)
        if key in chosen:
            continue
        accuracies = {}
        for step in STEPS[model]:
            own = changes(model, devices, validation=True)
            rate = own.get("learning.learning_rate", 0.1)
            config = airfl.preset("shielded").replace(
                {
                    **own,
                    "learning.split": "validation",
                    "learning.server_step": step / rate,
                    "privacy.epsilon": epsilon,
                    "scheme.names": ["airfl-dp"],
                    "scheme.combiner": "mrc",
                    "system.num_antennas": 4,
                    "engine.device": device,
                }
            )
            entry = airfl.run(config).summary["schemes"]["airfl-dp"]
            accuracies[f"{step:g}"] = entry["accuracy_mean"] or 0.0
        best = max(accuracies, key=lambda step: accuracies[step])
        chosen[key] = float(best) / (0.1 if model == "softmax" else 0.005)
        tried[key] = accuracies
        print(key, accuracies)
        merge_json(path, {"steps": chosen, "tuning": tried})
    return chosen


def _text(value: object) -> str:
    """As it stands in the table."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="shield")
    parser.add_argument("--parts", default="headline,spoilt,tune,curves,paper")
    parser.add_argument("--device", default="auto")
    for name in ("devices", "antennas", "models"):
        parser.add_argument(f"--{name}", default="", help="only runs with these, such as 50,500")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no run after so many seconds")
    arguments = parser.parse_args()
    out, begun = Path(arguments.out), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    path = out / "shield.csv"
    rows = list(csv.DictReader(path.open())) if path.is_file() else []
    done = {tuple(row[key] for key in KEYS[:10]) for row in rows}
    steps: dict[str, float] = {}
    for part in arguments.parts.split(","):
        if part in ("tune", "curves"):
            steps = tune(arguments.device, out)
        for point in [] if part == "tune" else paper_points() if part == "paper" else points(part, steps):
            point["part"] = part
            key = tuple(_text(point.get(name, "")) for name in KEYS[:10])
            wanted = {"devices": arguments.devices, "antennas": arguments.antennas, "model": arguments.models}
            if any(text and str(point[name]) not in text.split(",") for name, text in wanted.items()):
                continue
            if part == "paper":  # its ε follows from ε̃ and the number of parameters
                known = {(one[0], one[5], one[9]) for one in done}
                if ("paper", point["scheme"], point["cover"]) in known:
                    continue
            if key in done or time.monotonic() - begun > arguments.seconds:
                continue
            rows.append(run_one(point, arguments.device))
            print({name: rows[-1][name] for name in (*KEYS[:10], "accuracy_mean", "epsilon_base_station", "seconds")})
            write_csv(path, rows, COLUMNS, digits=6)


if __name__ == "__main__":
    main()
