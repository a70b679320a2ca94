"""Does `airfl plan` agree with the simulator's ledger? Random scenarios, planned and simulated side by side.

    python -m experiments.plan_agreement --out experiments/results [--count 50] [--seed 1] [--rounds 2 5]

Every scenario is drawn at random: devices, participation, antennas, layout, radius, power, carrier, bandwidth,
parameters, rounds, clip norm, δ. The simulator designs all rounds of several trials (scheme `airfl-mimo`: full power,
no budget; nobody is trained, since ε does not depend on it) and books them. Its ε is that of the mean μ² over trials;
positions differ from trial to trial, so there are as many trials as it takes to know that mean to about 1.5 %. The base
station's is the geometric mean over trials: it hangs on the loudest device, whose energy has a heavy tail.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import airfl
from airfl import linkplan
from airfl.privacy import GaussianAccountant, Ledger, gaussian_epsilon, gaussian_mu
from airfl.rounds import arrange, book
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio

FIELDS = (
    "devices", "active", "antennas", "layout", "neighbours", "snr_db", "parameters", "rounds", "trials", "epsilon_plan",
    "epsilon_simulated", "epsilon_trial_mean", "error", "sampling_error", "base_plan", "base_simulated",
)  # fmt: skip


def draw(
    rng: np.random.Generator, most_coefficients: int = 400_000, rounds: tuple[int, int] = (2, 5)
) -> linkplan.Quantities:
    """A random scenario whose ε lies between about 0.1 and 100."""
    while True:
        antennas = round(2 ** rng.uniform(0, 8))
        participation = float(rng.choice([1.0, rng.uniform(0.3, 1.0)]))
        active = round(8 * 2 ** rng.uniform(0, 10))
        if active * antennas <= most_coefficients:
            break
    devices = max(active, round(active / participation))
    base = linkplan.Quantities(
        devices=devices,
        participation=active / devices,
        antennas=antennas,
        layout="disk" if rng.random() < 0.7 else "ring",
        power_w=1.0,
        distance_m=float(10 ** rng.uniform(1.5, 4.5)),
        carrier_hz=float(10 ** rng.uniform(8.5, 10)),
        noise_density_dbm_hz=float(rng.uniform(-174, -165)),
        bandwidth_hz=float(10 ** rng.uniform(4, 8)),
        parameters=round(10 ** rng.uniform(3, 7)),
        rounds=int(rng.integers(rounds[0], rounds[1] + 1)),
        clip_norm=float(10 ** rng.uniform(-1, 2)),
        delta=float(10 ** rng.uniform(-8, -4)),
        epsilon=float(10 ** rng.uniform(-1, 2)),
    )
    # A power somewhere around the one that would meet that ε; not from the table, which is under test.
    assert base.epsilon is not None
    goal = gaussian_mu(base.epsilon, base.delta) ** 2
    per_watt = base.snr * (base.parameters or 1) * (base.rounds or 1) * min(antennas, 4.0 * antennas / active)
    return base.with_values({"power_w": goal / per_watt * 10 ** rng.uniform(-0.5, 0.5)})


def config_of(q: linkplan.Quantities, seed: int, trials: int) -> airfl.Config:
    """The simulator's description of the same cell."""
    assert q.distance_m is not None
    return airfl.preset("paper").replace(
        {
            "system.seed": seed,
            "system.trials": trials,
            "system.num_devices": q.devices,
            "system.num_antennas": q.antennas,
            "system.participation": q.participation,
            "system.rounds": q.rounds,
            "learning.clip_norm": q.clip_norm,
            "channel.cell_radius_m": q.distance_m,
            "channel.min_distance_m": q.distance_m * (1.0 if q.layout == "ring" else 1e-3),
            "channel.carrier_hz": q.carrier_hz,
            "channel.power_w": q.power_w,
            "channel.noise_density_dbm_hz": q.noise_density_dbm_hz,
            "channel.bandwidth_hz": q.bandwidth_hz,
            "privacy.delta": q.delta,
            "scheme.names": ["airfl-mimo"],
            "scheme.combiner": "auto",
        }
    )


def ledgers_of(q: linkplan.Quantities, seed: int, trials: range) -> tuple[airfl.Config, list[Ledger]]:
    """The ledgers that a run at full power would leave behind, one per trial."""
    config = config_of(q, seed, trials.stop)
    plan = arrange(config, SCHEMES["airfl-mimo"], open_radio(config, trials), q.parameters or 1)
    ledgers = [Ledger() for _ in trials]
    for t in range(config.system.rounds):
        booked = book(plan, plan.setting(t), lambda row: 1)
        ledgers = [entry.on(ledger) for entry, ledger in zip(booked, ledgers, strict=True)]
    return config, ledgers


def compare(q: linkplan.Quantities, seed: int, seconds: float = 20.0, precision: float = 0.015) -> dict[str, Any]:
    """Plan and simulate: trials are added until the mean μ² is known to ``precision``, or the seconds are up."""
    answer = linkplan.answer(q.with_values({"epsilon": 1.0}))
    planned = answer.epsilon["models"]
    assert planned is not None
    batch = int(np.clip(300_000 // (q.active * (q.antennas or 1) * (q.rounds or 1)), 1, 40))
    ledgers: list[Ledger] = []
    squared: list[float] = []
    started = time.monotonic()
    while True:
        config, more = ledgers_of(q, seed, range(len(ledgers), len(ledgers) + batch))
        ledgers += more
        accountants = [GaussianAccountant(ledger, config.neighbours, "models") for ledger in ledgers]
        squared += [accountant.mu**2 for accountant in accountants[len(squared) :]]
        mu2 = np.array(squared)
        error = mu2.std() / mu2.mean() / math.sqrt(len(mu2))
        if len(mu2) >= 3 and (time.monotonic() - started > seconds or (len(mu2) >= 8 and error < precision)):
            break
    simulated = gaussian_epsilon(q.delta, math.sqrt(mu2.mean()))
    base = [GaussianAccountant(one, config.neighbours, "base-station").epsilon(q.delta) for one in ledgers]
    return {
        "devices": q.devices,
        "active": q.active,
        "antennas": q.antennas,
        "layout": q.layout,
        "neighbours": config.neighbours,
        "snr_db": f"{answer.snr_db:.2f}",
        "parameters": q.parameters,
        "rounds": q.rounds,
        "trials": len(ledgers),
        "epsilon_plan": f"{planned:.5g}",
        "epsilon_simulated": f"{simulated:.5g}",
        "epsilon_trial_mean": f"{np.mean([a.epsilon(q.delta) for a in accountants]):.5g}",
        "error": f"{planned / simulated - 1.0:.4f}",
        "sampling_error": f"{error:.4f}",
        "base_plan": f"{answer.epsilon['base-station']:.4g}",
        "base_simulated": f"{math.exp(np.mean(np.log(base))):.4g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, nargs=2, default=(2, 5), help="fewest and most")
    parser.add_argument("--coefficients", type=int, default=400_000, help="K·m at most")
    parser.add_argument("--name", default="plan_agreement", help="of the file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(arguments.seed)
    rows = []
    for index in range(arguments.count):
        started = time.monotonic()
        rows.append(compare(draw(rng, arguments.coefficients, tuple(arguments.rounds)), 1000 + index))
        print(index, rows[-1], f"{time.monotonic() - started:.1f} s", flush=True)
    errors = np.abs([float(row["error"]) for row in rows])
    base = np.abs([float(row["base_plan"]) / float(row["base_simulated"]) - 1.0 for row in rows])
    with open(Path(arguments.out) / f"{arguments.name}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    summary = {
        "scenarios": len(rows),
        "median_error": round(float(np.median(errors)), 4),
        "largest_error": round(float(errors.max()), 4),
        "within_5_percent": int((errors <= 0.05).sum()),
        "base_station_median_error": round(float(np.median(base)), 3),
        "base_station_largest_error": round(float(base.max()), 3),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
