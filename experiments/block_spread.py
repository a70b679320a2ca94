"""How much the least noise differs between the blocks of a round, and what it is worth to share power over them.

    python -m experiments.block_spread --out experiments/results

200 independent blocks of uncorrelated Rayleigh fading a round: the paper's 45 devices and 100 antennas, and 2,000
devices with 16, on a disk around the base station or all equally far away. ρ_b = ‖w_b‖² of the combiners with
|w_bᴴ h_ib| ≥ 1 is what π² of a block is proportional to; x = max_i mean_b 1/|w_bᴴ h_ib|² is what all of them may be
lowered by where power is shared over the round.

Writes block_spread.csv: a row per setting, decibels, means over rounds and the extremes.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

import airfl
from airfl.channel.blocks import grid_of
from airfl.runs.store import write_csv
from airfl.transceiver import open_radio
from airfl.transceiver.wideband import design_blocks

BLOCKS, DIM = 200, 7_850
#: Devices that take part, antennas, rounds, and where they are.
SETTINGS = ((45, 100, 10, "disk"), (45, 100, 10, "ring"), (2_000, 16, 2, "disk"), (2_000, 16, 2, "ring"))


def row_of(devices: int, antennas: int, rounds: int, layout: str) -> dict[str, Any]:
    begin = time.time()
    keys = {
        "system.num_devices": devices, "system.participation": 1.0, "system.num_antennas": antennas,
        "system.rounds": rounds, "system.trials": 1, "scheme.combiner": "auto",
        "channel.coherence_hz": 20e6 / BLOCKS, "channel.distance": "per-device",
    }  # fmt: skip
    if layout == "ring":
        keys["channel.distance"] = "common"
    config = airfl.preset("paper").replace(keys)
    grid = grid_of(config, DIM)
    assert grid.count == BLOCKS
    found = design_blocks(config, open_radio(config, [0]), range(rounds), grid)
    decibels = 20.0 * found.norm[0].log10()
    middle = decibels.median(dim=-1).values
    over, under = decibels.amax(dim=-1) - middle, middle - decibels.amin(dim=-1)
    mean = 10.0 * (found.norm[0].square().mean(dim=-1)).log10() - decibels.amin(dim=-1)

    def shown(values: torch.Tensor) -> dict[str, float]:
        return {"": float(values.mean()), "_least": float(values.min()), "_most": float(values.max())}

    row: dict[str, Any] = {"devices": devices, "antennas": antennas, "layout": layout, "blocks": BLOCKS}
    row["rounds"] = rounds
    for name, values in (("loudest_over_median_db", over), ("median_over_quietest_db", under)):
        row |= {name + end: round(value, 2) for end, value in shown(values).items()}
    row["mean_over_quietest_db"] = round(float(mean.mean()), 2)
    row["shared_power_db"] = round(float(10.0 * found.load.log10().mean()), 2)
    return row | {"seconds": round(time.time() - begin, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    rows = []
    for setting in SETTINGS:
        rows.append(row_of(*setting))
        print(*rows[-1].values(), flush=True)
        write_csv(arguments.out / "block_spread.csv", rows)


if __name__ == "__main__":
    main()
