"""What cover leaves of a device at the antennas: μ of the base station over μ of who sees the models.

python -m experiments.shield_cover      # a minute on two cores

Runs of 6 and of 12 rounds, Rayleigh fading, equal distances, all noise the receiver's (a = 0) and so much of it that
the run gives who sees the models ε = 1. The cover is noise in quadrature, or masks of degree 6, of a variance per
coordinate in units of c². The device that is seen best over the run counts. Ten runs each, with their spread.

A longer run takes more noise in every round, v = T/μ², and the cover grows with it: what a level leaves depends on
the level over v. So a level in a run of 40 rounds does what 6/40 of it does in a run of 6.
"""

from __future__ import annotations

import csv
import itertools
import math
from pathlib import Path

import numpy as np
import torch

from airfl.privacy import gaussian_mu
from airfl.randomness import complex_normal, stream
from airfl.transceiver import COMBINERS, Cover, Sight, base_station_sight, degrees_of, mask_edges
from airfl.transceiver.design import received_gains

RESULTS = Path(__file__).parent / "results"
CASES = ((6000, 16), (6000, 4), (500, 16), (60, 16), (45, 100))
LEVELS = (0.0, 0.1, 1.0, 10.0, 100.0, 1000.0)
RUNS, ROUNDS, DEGREE = 10, (6, 12), 6


def one_round(devices: int, antennas: int, *key: int) -> tuple[Sight, float]:
    """What antennas see of a round with a combiner of norm 1 and σ² = 2, and with how many a device shares masks."""
    channels = torch.from_numpy(complex_normal(stream(21, "fading", *key), (devices, antennas)))
    design = COMBINERS["auto"](channels.unsqueeze(0))
    combiner = (design.combiner / design.norm.unsqueeze(-1))[0]
    paths = channels / received_gains(combiner, channels).unsqueeze(-1)
    edges = mask_edges(stream(21, "mask-graph", *key), devices, DEGREE)
    sight = base_station_sight(paths, 2.0, edges, np.ones(devices, dtype=bool))
    return sight, float(degrees_of(edges, devices).max())


def ratios(devices: int, antennas: int, run: int) -> dict[tuple[int, str, float], float]:
    """μ of the base station over μ of who sees the models, by rounds, cover and level."""
    seen = [one_round(devices, antennas, devices, antennas, run, t) for t in range(max(ROUNDS))]
    found = {}
    for rounds, cover, level in itertools.product(ROUNDS, ("quadrature", "masks"), LEVELS):
        noise = torch.tensor(rounds / gaussian_mu(1.0, 1e-5) ** 2, dtype=torch.float64)  # v, with c = 1
        total = torch.zeros(devices, dtype=torch.float64)
        for sight, degree in seen[:rounds]:
            made = Cover.of(0.0, level) if cover == "quadrature" else Cover.of(0.0, 0.0, level / degree)
            total += sight.seen(noise, made).square()
        found[rounds, cover, level] = math.sqrt(float(total.max() * noise) / rounds)
    return found


def main() -> None:
    """Draw, and write a table with the spread over runs."""
    rows = []
    for devices, antennas in CASES:
        drawn = [ratios(devices, antennas, run) for run in range(RUNS)]
        for rounds, cover, level in drawn[0]:
            values = np.array([one[rounds, cover, level] for one in drawn])
            rows.append(
                {
                    "devices": devices,
                    "antennas": antennas,
                    "rounds": rounds,
                    "cover": cover,
                    "level": level,
                    "ratio_mean": round(float(values.mean()), 3),
                    "ratio_std": round(float(values.std(ddof=1)), 3),
                    "ratio_least": round(float(values.min()), 3),
                    "ratio_most": round(float(values.max()), 3),
                }
            )
            print(*rows[-1].values())
    with (RESULTS / "shield_cover.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
