"""What several blocks of time and frequency do to a round's least noise and to power, measured on the default combiner.

    python -m experiments.block_law --out src/airfl/linkplan [--seconds 10]

As `experiments.combiner_law`, with the path gain at the cell edge as unit: minimise ρ_b = ‖w_b‖² subject to
|w_bᴴ h_ib| ≥ 1, for B = 64 independent Rayleigh blocks of devices that stay where they are. Power is shared over a
round, so all norms may be smaller by √x, x = max_i mean_b 1/|w_bᴴ h_ib|², and a round tells what its quietest block
tells. A plan needs E[1/(x min_b ρ_b)] (`linkplan.blocks`); every row has it over E[1/ρ], in decibels, for some B.

Writes law_blocks.csv (one row per layout, K and m) to the output folder, and goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from airfl.runs.store import write_csv
from airfl.transceiver.combiners.annealed import annealed
from experiments.combiner_law import LAYOUTS, Cell, draw

#: Blocks that are drawn of every drop; they make 32 rounds of two blocks, 16 of four, …
BLOCKS = 64
CUTS = (2, 4, 8, 16, 32, 64)
DEVICES, ANTENNAS = tuple(2**k for k in (1, 3, 5, 7, 9, 11)), (1, 2, 4, 16, 64, 256)
#: Channel coefficients of a round, K·m, at most; and held at a time.
MOST, BATCH = 2**15, 2**20
#: Drops of a cell.
LEAST_DROPS, MOST_DROPS = 4, 64
FIELDS = (
    "layout", "devices", "antennas", "drops", "fading_spread_db",
    *(f"{kind}_{cut}_db" for kind in ("gain", "load", "quietest", "mean") for cut in CUTS), "error_db",
)  # fmt: skip


def cells() -> list[Cell]:
    """Layout, K and m, the cheap ones first."""
    found = [(layout, k, m) for layout in LAYOUTS for k in DEVICES for m in ANTENNAS if k * m <= MOST]
    return sorted(found, key=lambda cell: cell[1] * cell[2])


def observe(generator: torch.Generator, cell: Cell) -> tuple[np.ndarray, np.ndarray]:
    """One drop: 1/ρ of all its blocks, [B], and what power devices need in each, [B, K]."""
    layout, devices, antennas = cell
    inverse, power = [], []
    for channels in next_blocks(generator, layout, devices, antennas):
        found = annealed(channels).require_ok()
        heard = (channels.conj() @ found.combiner.unsqueeze(-1)).squeeze(-1).abs().square()
        inverse.append(1.0 / found.norm.square())
        power.append(1.0 / heard)
    return torch.cat(inverse).numpy(), torch.cat(power).numpy()


def next_blocks(generator: torch.Generator, layout: str, devices: int, antennas: int) -> list[torch.Tensor]:
    """Channels of all blocks of one drop, [some blocks, K, m], as many as fit at a time."""
    whole = torch.cat([part[0] for part in draw(generator, layout, 1, BLOCKS, devices, antennas)])
    return list(whole.split(max(1, BATCH // (devices * antennas))))


def measure(cell: Cell, seconds: float) -> dict[str, Any]:
    """One row."""
    generator = torch.Generator().manual_seed(7_000_000 + 1000 * cell[1] + 2 * cell[2] + LAYOUTS.index(cell[0]))
    begin, seen, variances = time.monotonic(), [], []
    while len(seen) < LEAST_DROPS or (len(seen) < MOST_DROPS and time.monotonic() - begin < seconds):
        inverse, power = observe(generator, cell)
        variances.append(np.log(inverse).var(ddof=1))
        seen.append([means_of(inverse.reshape(-1, cut), power.reshape(-1, cut, cell[1])) for cut in CUTS])
    drops = np.array(seen)  # [drops, cuts, means]
    # Errors of ratios by leaving out one drop at a time.
    total, count = drops.sum(axis=0), len(drops)
    left = decibels(total - drops)["gain"]
    error = np.sqrt((count - 1) / count * ((left - left.mean(axis=0)) ** 2).sum(axis=0)).max()
    found: dict[str, Any] = {"layout": cell[0], "devices": cell[1], "antennas": cell[2], "drops": count}
    found["fading_spread_db"] = f"{10 / math.log(10) * math.sqrt(np.mean(variances)):.3f}"
    for kind, values in decibels(total / count).items():
        found |= {f"{kind}_{cut}_db": f"{value:.2f}" for cut, value in zip(CUTS, values, strict=True)}
    return found | {"error_db": f"{error:.2f}"}


def means_of(inverse: np.ndarray, power: np.ndarray) -> list[float]:
    """Over rounds of 1/ρ_b [rounds, B] and power [rounds, B, K]: 1/(x min ρ), x, 1/min ρ, mean ρ/min ρ and 1/ρ."""
    load, least = power.mean(axis=1).max(axis=1).clip(max=1.0), inverse.max(axis=1)
    return [float(value.mean()) for value in (least / load, load, least, least * (1.0 / inverse).mean(axis=1), inverse)]


def decibels(means: np.ndarray) -> dict[str, np.ndarray]:
    """What the columns say, from such means [..., cuts, means]."""
    joint, load, least, mean, usual = np.moveaxis(means, -1, 0)
    found = {"gain": joint / usual, "load": load, "quietest": least / usual, "mean": mean}
    return {kind: 10.0 * np.log10(ratio) for kind, ratio in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=10.0, help="per cell, but for four drops at least")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    table, rows = arguments.out / "law_blocks.csv", dict[tuple[str, ...], dict[str, Any]]()
    if table.is_file():
        with table.open(newline="", encoding="utf-8") as file:
            rows = {(row["layout"], row["devices"], row["antennas"]): dict(row) for row in csv.DictReader(file)}
    for cell in cells():
        key = tuple(str(part) for part in cell)
        if key not in rows:
            rows[key] = measure(cell, arguments.seconds)
            write_csv(table, list(rows.values()))
            print(*rows[key].values(), flush=True)


if __name__ == "__main__":
    main()
