"""How much did uncorrelated Rayleigh flatter us? Two settings under Rayleigh, Rician and 3GPP channels.

    python -m experiments.channels --out channels                      # both parts; goes on where it was stopped
    python -m experiments.channels --out channels --parts links        # no training; a few minutes on two cores

Settings: `paper` is the paper's (45 of 50 devices, 100 antennas, 582,026 parameters, 50 rounds, ε = 76.3 as the paper
counts), `massive` is the preset `massive-linear` (6,000 devices, 16 antennas, ε = 1). Cells: the setting's own, with
free space; outdoors 200 m and indoors 50 m, each with free space and Rayleigh or Rician fading and with what 3GPP says
of such places. Part `links` draws channels and designs combiners; part `accuracy` trains `massive` at its budget; part
`planned` does so with the power at which Rayleigh fading in the same cell would be just noisy enough.

What a law does is taken apart by two more designs with the same devices in the same rounds: `norm2_rayleigh_db` has the
law's strengths and Rayleigh directions, `norm2_equal_db` the law's directions and equal strengths.

Writes channels.csv (one row per setting, cell, law and combiner) and channels.json (provenance) to the output folder.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

import airfl
from airfl.channel.noise import dbm_of_power
from airfl.config import Config
from airfl.privacy import gaussian_epsilon, reach
from airfl.randomness import complex_normal, stream
from airfl.rounds import arrange
from airfl.runs.store import write_csv
from airfl.schemes import SCHEMES
from airfl.transceiver import combiner_named, open_radio, served_channels

DIMS = {"paper": 582_026, "massive": 7_850}
#: Radius, metres, and what fades there; the setting's own cell has no radius here.
CELLS: dict[str, tuple[float | None, tuple[str, ...]]] = {
    "own": (None, ("rayleigh", "rician")),
    "outdoors": (200.0, ("rayleigh", "rician", "3gpp-umi", "3gpp-uma")),
    "indoors": (50.0, ("rayleigh", "rician", "3gpp-inh", "3gpp-inf")),
}
COMBINERS = {"paper": ("auto", "zero-forcing"), "massive": ("auto",)}
TRIALS = {"paper": 10, "massive": 3}
PARTS = ["links", "accuracy", "planned"]
#: Rounds of each trial that are taken apart.
APART = 4
COLUMNS = (
    "setting", "cell", "fading", "combiner", "radius_m", "power_dbm", "edge_db", "gain_median_db", "gain_spread_db",
    "rank", "norm2_db", "norm2_std_db", "norm2_rayleigh_db", "norm2_equal_db", "equal_rayleigh_db", "free_noise_std",
    "noise_std", "free_epsilon", "margin_db", "threshold_dbm", "perks", "trials", "power_bound", "accuracy_mean",
    "accuracy_std", "accuracy_status", "planned_dbm", "planned_accuracy", "planned_noise_std",
)  # fmt: skip


def configuration(setting: str, cell: str, fading: str, combiner: str) -> Config:
    """One cell of one setting under one law, at 23 dBm unless the setting's own."""
    radius = CELLS[cell][0]
    base = airfl.preset("paper" if setting == "paper" else "massive-linear")
    changes: dict[str, Any] = {"channel.fading": fading, "scheme.combiner": combiner, "scheme.names": ["airfl-dp"]}
    if radius is not None:
        changes |= {"channel.cell_radius_m": radius, "channel.min_distance_m": 10.0, "channel.power_dbm": 23.0}
    return base.replace(changes)


def points() -> Iterator[tuple[str, str, str, str]]:
    """Setting, cell, law, combiner."""
    for setting, combiners in COMBINERS.items():
        for cell, (_, laws) in CELLS.items():
            for fading in laws:
                for combiner in combiners:
                    yield setting, cell, fading, combiner


def effective_rank(channels: np.ndarray) -> float:
    """exp of the entropy of the directions' spectrum, for channels [K, m]; m where they are spread over all of them."""
    rows = channels / np.linalg.norm(channels, axis=1, keepdims=True)
    share = np.linalg.svd(rows, compute_uv=False) ** 2
    share = share / share.sum()
    return float(np.exp(-(share[share > 0] * np.log(share[share > 0])).sum()))


def link_row(setting: str, cell: str, fading: str, combiner: str) -> dict[str, Any]:
    """What a link gives without training: all rounds of some trials, and the first few taken apart."""
    config = configuration(setting, cell, fading, combiner)
    trials, some = range(TRIALS[setting]), range(APART)
    radio, dim = open_radio(config, trials), DIMS[setting]
    schedule, link = arrange(config, SCHEMES["airfl-dp"], radio, dim), radio.link
    _, active, _ = radio.rounds(config, range(config.system.rounds))
    drawn = served_channels(link.channels(some), active[:, : len(some)])
    strengths = np.take_along_axis(link.law.amplitude[:, None], active[:, : len(some)], axis=2)
    there, method = torch.from_numpy(strengths)[..., None], combiner_named(combiner)
    like = torch.from_numpy(
        np.stack([complex_normal(stream(1, "foresight", k), tuple(drawn.shape[1:])) for k in trials])
    )
    # At full power v_t = π_t² σ²/2, and ‖w‖² = π_t² dP/c².
    clip, squares = config.learning.clip_norm_for(dim), schedule.minimum.square()
    norms = squares * (dim * link.power_limit / clip**2)
    mu2 = ((reach(config.neighbours) * clip) ** 2 / (squares * link.noise_power / 2.0)).sum(dim=1)
    perks, gains = schedule.perks(), 10.0 * np.log10(link.law.amplitude**2)
    return {
        "setting": setting, "cell": cell, "fading": fading, "combiner": combiner,
        "radius_m": config.channel.cell_radius_m, "power_dbm": round(dbm_of_power(link.power_limit), 2),
        "edge_db": decibel(link.weakest_path_gain(0)), "gain_median_db": round(float(np.median(gains)), 2),
        "gain_spread_db": round(float(np.ptp(np.percentile(gains, [5, 95]))), 2),
        "rank": round(float(np.mean([effective_rank(h.numpy()) for h in drawn.flatten(0, 1)])), 2),
        "norm2_db": level(norms), "norm2_std_db": round(float((10.0 * norms.log10()).std()), 2),
        "norm2_rayleigh_db": level(method(like * there).norm.square()),
        "norm2_equal_db": level(method(drawn / there).norm.square()),
        "equal_rayleigh_db": level(method(like).norm.square()),
        "free_noise_std": float(f"{float((squares * link.noise_power / 2.0).mean()) ** 0.5:.4g}"),
        "noise_std": float(f"{float(schedule.noise_var.mean()) ** 0.5:.4g}"),
        "free_epsilon": float(f"{np.mean([gaussian_epsilon(config.privacy.delta, math.sqrt(m)) for m in mu2]):.4g}"),
        "margin_db": round(float(np.mean([perk.margin_db for perk in perks])), 2),
        "threshold_dbm": round(float(np.mean([perk.margin_db for perk in perks])) + dbm_of_power(link.power_limit), 2),
        "perks": sum(perk.is_perk for perk in perks), "trials": len(perks),
        "power_bound": round(float((schedule.norm <= schedule.minimum * (1 + 1e-9)).double().mean()), 3),
    }  # fmt: skip


def accuracy_row(setting: str, cell: str, fading: str, combiner: str) -> dict[str, Any]:
    """Test accuracy at the setting's budget."""
    config = configuration(setting, cell, fading, combiner)
    result = airfl.run(config.replace({"system.trials": TRIALS[setting], "engine.eval_every": 1000}))
    entry = result.summary["schemes"]["airfl-dp"]
    return {
        "accuracy_mean": round(entry["accuracy_mean"], 5), "accuracy_std": round(entry["accuracy_std"], 5),
        "accuracy_status": entry["status"],
    }  # fmt: skip


def planned_row(power_dbm: float, setting: str, cell: str, fading: str, combiner: str) -> dict[str, Any]:
    """Test accuracy with a power that was planned for another law."""
    config = configuration(setting, cell, fading, combiner)
    changes = {"system.trials": TRIALS[setting], "engine.eval_every": 1000, "channel.power_dbm": power_dbm}
    result = airfl.run(config.replace(changes))
    noise = [row.noise_var for row in result.schemes["airfl-dp"].records]
    return {
        "planned_dbm": power_dbm, "planned_noise_std": float(f"{float(np.mean(noise)) ** 0.5:.4g}"),
        "planned_accuracy": round(result.summary["schemes"]["airfl-dp"]["accuracy_mean"], 5),
    }  # fmt: skip


def level(squares: torch.Tensor) -> float:
    """1/E[1/‖w‖²] over the rounds of a trial, which is what ε depends on, in dB; the mean over trials."""
    return round(float((-10.0 * (1.0 / squares).mean(dim=1).log10()).mean()), 2)


def decibel(value: float) -> float:
    """Rounded to what is shown."""
    return round(10.0 * math.log10(value), 2)


def read(path: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """Rows by setting, cell, law and combiner."""
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {tuple(row[key] for key in COLUMNS[:4]): dict(row) for row in csv.DictReader(file)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--parts", nargs="+", default=PARTS, choices=PARTS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    table = arguments.out / "channels.csv"
    rows, begin = read(table), time.time()
    for point in points():
        row = rows.setdefault(point, dict(zip(COLUMNS, point, strict=False)))
        if "links" in arguments.parts and not row.get("norm2_db"):
            row |= link_row(*point)
        if "accuracy" in arguments.parts and point[0] == "massive" and not row.get("accuracy_mean"):
            row |= accuracy_row(*point)
        plain = rows.get((point[0], point[1], "rayleigh", point[3]), {})
        if "planned" in arguments.parts and point[0] == "massive" and not row.get("planned_accuracy"):
            row |= planned_row(float(plain["threshold_dbm"]), *point)
        write_csv(table, [{name: one.get(name, "") for name in COLUMNS} for one in rows.values()])
        print(
            *point,
            row.get("norm2_db"),
            row.get("margin_db"),
            row.get("accuracy_mean"),
            row.get("planned_accuracy"),
            flush=True,
        )
    note = {
        "command": "python -m experiments.channels", "airfl": airfl.__version__, "sionna": version("sionna-no-rt"),
        "torch": torch.__version__, "trials": TRIALS, "rounds taken apart": APART,
        "seconds": round(time.time() - begin),
    }  # fmt: skip
    (arguments.out / "channels.json").write_text(json.dumps(note, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
