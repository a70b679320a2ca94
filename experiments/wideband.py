"""What blocks of time and frequency do to the noise, the perk threshold and accuracy.

    python -m experiments.wideband --out wideband       # goes on where it was stopped

Settings: `paper` is the paper's (45 of 50 devices, 100 antennas, 50 rounds, ε = 76.3 as the paper counts), `massive`
the preset `massive-linear` (6,000 devices, 16 antennas, ε = 1). One block, ten of a tapped delay line (100 ns over 20
MHz), independent ones, and UMi in cells of 200 m with one block and with ten.

Writes wideband.csv (one row per setting and cut) and wideband.json (provenance) to the output folder.
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
from airfl.channel.blocks import grid_of
from airfl.channel.noise import dbm_of_power
from airfl.config import Config
from airfl.privacy import gaussian_epsilon, reach
from airfl.rounds import arrange
from airfl.runs.store import write_csv
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio

DIMS = {"paper": 582_026, "massive": 7_850}
TRIALS = {"paper": 2, "massive": 1}
CITY = {
    "channel.fading": "3gpp-umi", "channel.cell_radius_m": 200.0, "channel.min_distance_m": 10.0,
    "channel.power_dbm": 23.0,
}  # fmt: skip
CUTS: dict[str, dict[str, Any]] = {
    "one block": {},
    "delay line, 10 blocks": {"channel.delay_spread_s": 100e-9},
    "independent, 10 blocks": {"channel.coherence_hz": 2e6},
    "independent, 100 blocks": {"channel.coherence_hz": 200e3},
    "UMi, one block": CITY,
    "UMi, 10 blocks": {**CITY, "channel.coherence_hz": 2e6},
}
#: Not measured: thousands of combiners for 6,000 devices.
SKIPPED = tuple(("massive", cut) for cut in CUTS if cut not in ("one block", "delay line, 10 blocks"))
COLUMNS = (
    "setting", "cut", "blocks", "symbols", "airtime_ms", "least_db", "mean_over_least_db", "max_over_median_db",
    "load_db", "noise_std", "mean_noise_std", "free_epsilon", "threshold_dbm", "margin_db", "accuracy", "seconds",
)  # fmt: skip


def configuration(setting: str, cut: str) -> Config:
    base = airfl.preset("paper" if setting == "paper" else "massive-linear")
    return base.replace({"scheme.names": ["airfl-dp"], "scheme.combiner": "auto", **CUTS[cut]})


def row_of(setting: str, cut: str) -> dict[str, Any]:
    begin, config, dim = time.time(), configuration(setting, cut), DIMS[setting]
    trials = range(TRIALS[setting])
    schedule = arrange(config, SCHEMES["airfl-dp"], open_radio(config, trials), dim)
    grid, link = grid_of(config, dim), schedule.link
    minimum = schedule.minimum.unsqueeze(-1) if schedule.blocks is None else schedule.blocks.minimum
    load = torch.ones(1) if schedule.blocks is None else schedule.blocks.design.load
    squares, least = minimum.square(), schedule.minimum.square()
    clip = config.learning.clip_norm_for(dim)
    mu2 = ((reach(config.neighbours) * clip) ** 2 / (least * link.noise_power / 2.0)).sum(dim=1)
    perks, decibels = schedule.perks(), 10.0 * squares.log10()
    found = {
        "setting": setting, "cut": cut, "blocks": grid.count, "symbols": grid.symbols,
        "airtime_ms": round(1e3 * grid.symbols / config.channel.bandwidth_hz, 3),
        "least_db": round(float(-10.0 * (link.power_limit / least).mean().log10()) , 2),
        "mean_over_least_db": round(float((10.0 * (squares.mean(dim=-1) / least).log10()).mean()), 2),
        "max_over_median_db": round(float((decibels.amax(dim=-1) - decibels.median(dim=-1).values).mean()), 2),
        "load_db": round(float((10.0 * load.log10()).mean()), 2),
        "noise_std": float(f"{float(schedule.unknown_var.mean()) ** 0.5:.4g}"),
        "mean_noise_std": float(f"{float(schedule.noise_var.mean()) ** 0.5:.4g}"),
        "free_epsilon": float(f"{np.mean([gaussian_epsilon(config.privacy.delta, math.sqrt(m)) for m in mu2]):.4g}"),
        "margin_db": round(float(np.mean([perk.margin_db for perk in perks])), 2),
        "threshold_dbm": round(float(np.mean([p.margin_db for p in perks])) + dbm_of_power(link.power_limit), 2),
    }  # fmt: skip
    if setting == "massive":
        result = airfl.run(config.replace({"system.trials": TRIALS[setting], "engine.eval_every": 1000}))
        found["accuracy"] = round(result.summary["schemes"]["airfl-dp"]["accuracy_mean"], 5)
    return {**found, "seconds": round(time.time() - begin, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    table, rows = arguments.out / "wideband.csv", {}
    if table.is_file():
        with table.open(newline="", encoding="utf-8") as file:
            rows = {(row["setting"], row["cut"]): dict(row) for row in csv.DictReader(file)}
    for setting in DIMS:
        for cut in CUTS:
            if (setting, cut) in SKIPPED:
                continue
            if (setting, cut) not in rows:
                rows[setting, cut] = row_of(setting, cut)
                write_csv(table, [{name: one.get(name, "") for name in COLUMNS} for one in rows.values()])
            print(*rows[setting, cut].values(), flush=True)
    note = {"command": "python -m experiments.wideband", "airfl": airfl.__version__, "torch": torch.__version__}
    (arguments.out / "wideband.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
