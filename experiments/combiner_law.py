"""How small can the combiner be on average? The table that `airfl plan` looks up, measured on the default combiner.

    python -m experiments.combiner_law --out src/airfl/linkplan [--device cuda] [--workers 8] [--seconds 6]

Channels are drawn with the path gain at the cell edge as unit, h_i = √(Λ_i/Λ_edge)·CN(0, I_m), and the default combiner
solves: minimise ρ = ‖w‖² subject to |wᴴ h_i| ≥ 1 for K devices. Everything physical follows by scaling
(docs/plan.md), so two numbers, K and m, and the layout are all there is to tabulate:

    disk    distances r = R·√U(0, 1), as the simulator drops devices
    ring    all devices at the edge, as seen from a satellite (the simulator's min_distance_m = cell_radius_m)

A cell is measured until the standard error of the mean of 1/ρ is below ``--error`` or its seconds are up, but for four
drops at least. Positions are drawn anew for every drop; every drop sees several independent fadings. Channels are drawn
where they are used: results on a CPU and on a GPU agree within their standard errors, not in bits.

The shipped tables have, for every m, the cells up to the first one with fewer than eight channels or, from 128 devices
on, an error above 2 %; the rest of what was measured is in experiments/results/combiner_law_check.csv.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import integrate

from airfl.transceiver.combiners.annealed import annealed

LAYOUTS = ("disk", "ring")
DEVICES = tuple(2**k for k in range(21))
ANTENNAS = (1, 2, 3, *(2**k for k in range(2, 9)))
#: Closest device over cell radius, as the simulator's defaults: 1 m of 1 km.
CLOSEST = 1e-3
#: Channel coefficients held at a time where that is possible, by device, and drops at most.
BATCH, MOST_DROPS = {"cpu": 2**19, "cuda": 2**23}, {"cpu": 256, "cuda": 512}
#: Devices up to which one of them is followed through eight fadings; beyond, two.
FOLLOWED = 4096
FIELDS = (
    "layout", "devices", "antennas", "drops", "fadings", "inverse_norm2", "standard_error", "drop_spread",
    "mean_power", "loudest_round", "loudest_run",
)  # fmt: skip

Cell = tuple[str, int, int]


@dataclass(frozen=True)
class How:
    """Where to measure, and for how long: until the relative error is reached or the seconds are up."""

    device: str = "cpu"
    error: float = 0.005
    seconds: float = 6.0


@dataclass
class Sample:
    """What was seen so far, an entry for each drop: 1/ρ of its fadings, mean power, logarithms of the loudest."""

    inverse: list[list[float]]
    power: list[float]
    loud_round: list[float]
    loud_run: list[float]

    @property
    def error(self) -> float:
        """Relative standard error of the mean of 1/ρ; drops are independent, fadings of one drop are not."""
        per_drop = np.array(self.inverse).mean(axis=1)
        return float(per_drop.std(ddof=1) / per_drop.mean() / math.sqrt(len(per_drop)))

    @property
    def drop_spread(self) -> float:
        """Two fadings of one drop have in common what the positions do: their covariance is the drops' variance."""
        logs = np.log(np.array(self.inverse))
        between = np.cov(logs[:, ::2].mean(axis=1), logs[:, 1::2].mean(axis=1))[0, 1]
        return math.sqrt(max(0.0, between))


def cells(layout: str) -> list[Cell]:
    """Layout, K and m of every cell, the cheap ones first."""
    # The mean strength of one device dropped on a disk is that of a device at the mast: no use.
    found = [(layout, k, m) for k in DEVICES for m in ANTENNAS if k > 1 or layout == "ring"]
    return sorted(found, key=lambda cell: cell[1] * cell[2])


def draw(
    generator: torch.Generator, layout: str, drops: int, fadings: int, devices: int, antennas: int
) -> Iterator[torch.Tensor]:
    """Channels [drops, some fadings, K, m] in units of the path gain at the edge, as many as fit at a time."""
    where: dict[str, Any] = {"generator": generator, "device": generator.device, "dtype": torch.float64}
    distance = torch.rand((drops, 1, devices, 1), **where).sqrt().clamp(min=CLOSEST)
    fits = drops * fadings * devices * antennas <= BATCH[generator.device.type]
    for count in [fadings] if fits else [1] * fadings:
        shape = (drops, count, devices, antennas)
        fading = torch.complex(torch.randn(shape, **where), torch.randn(shape, **where)) * math.sqrt(0.5)
        yield fading if layout == "ring" else fading / distance


def single_antenna(layout: str, devices: int) -> float:
    """E[1/ρ] for one antenna, where ρ is set by the weakest device: E[min_i |h_i|²] = ∫ P(|h|² > t)^K dt, exactly.

    P(|h|² > t) is e^{−t} on the ring and (1 − e^{−t})/t for distances √U, but for the few that are very close.
    """
    if layout == "ring":
        return 1.0 / devices

    def survives(t: float) -> float:
        return math.exp(devices * math.log(-math.expm1(-t) / t)) if t > 0.0 else 1.0

    edges = [0.0, 0.1 / devices, 1.0 / devices, 10.0 / devices, 100.0 / devices]
    pieces = [integrate.quad(survives, a, b)[0] for a, b in itertools.pairwise(edges)]
    return math.fsum(pieces) + integrate.quad(survives, edges[-1], math.inf)[0]


def observe(sample: Sample, parts: Iterator[torch.Tensor]) -> None:
    """Add drops to a sample."""
    inverse, energy, power = [], [], []
    for channels in parts:
        found = annealed(channels).require_ok()
        heard = (channels.conj() @ found.combiner.unsqueeze(-1)).squeeze(-1).abs().square()
        inverse.append(1.0 / found.norm.square())
        power.append((1.0 / heard).mean(dim=2))
        energy.append(torch.linalg.vector_norm(channels, dim=-1).square() / heard)  # ‖h_i s_i‖², over all antennas
    joined = torch.cat(energy, dim=1)
    sample.inverse += torch.cat(inverse, dim=1).tolist()
    sample.power += torch.cat(power, dim=1).mean(dim=1).tolist()
    sample.loud_round += joined.amax(dim=2).mean(dim=1).log().tolist()
    sample.loud_run += joined.mean(dim=1).amax(dim=1).log().tolist()


def measure(cell: Cell, how: How) -> dict[str, Any]:
    """One row of the table."""
    layout, devices, antennas = cell
    torch.set_num_threads(1)
    generator = torch.Generator(how.device).manual_seed(1000 * devices + 2 * antennas + LAYOUTS.index(layout))
    fadings = 8 if devices <= FOLLOWED else 2
    kind = generator.device.type
    size = max(1, min(MOST_DROPS[kind], BATCH[kind] // (devices * antennas * fadings)))
    started = time.monotonic()
    sample = Sample([], [], [], [])
    while True:
        observe(sample, draw(generator, layout, size, fadings, devices, antennas))
        drops, late = len(sample.inverse), time.monotonic() - started > how.seconds
        if (late and drops >= 4) or (drops >= 8 and sample.error < how.error):
            break
    if kind == "cuda":
        torch.cuda.empty_cache()
    mean, error = float(np.mean(sample.inverse)), sample.error
    if antennas == 1:
        mean, error = single_antenna(layout, devices), 0.0
    return {
        "layout": layout,
        "devices": devices,
        "antennas": antennas,
        "drops": drops,
        "fadings": fadings,
        "inverse_norm2": f"{mean:.5g}",
        "standard_error": f"{error:.2g}",
        "drop_spread": f"{sample.drop_spread:.3g}",
        "mean_power": f"{np.mean(sample.power):.4g}",
        "loudest_round": f"{math.exp(np.mean(sample.loud_round)):.4g}",
        "loudest_run": f"{math.exp(np.mean(sample.loud_run)):.4g}",
    }


def read(path: Path) -> dict[Cell, dict[str, Any]]:
    """The rows that are there already."""
    if not path.is_file():
        return {}
    with open(path, newline="") as file:
        return {(r["layout"], int(r["devices"]), int(r["antennas"])): r for r in csv.DictReader(file)}


def write(path: Path, rows: dict[Cell, dict[str, Any]]) -> None:
    """The table, by K and m."""
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[cell] for cell in sorted(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layout", choices=LAYOUTS, action="append")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="cells at a time")
    parser.add_argument("--resume", action="store_true", help="keep the cells that are there")
    parser.add_argument("--refine", type=float, default=1.0, help="with --resume: measure again above this error")
    parser.add_argument("--coefficients", type=int, nargs=2, default=(1, 2**28), help="only cells with K·m within")
    parser.add_argument("--error", type=float, default=How.error, help="relative standard error to reach")
    parser.add_argument("--seconds", type=float, default=How.seconds, help="per cell, at most")
    arguments = parser.parse_args()
    how = How(arguments.device, arguments.error, arguments.seconds)
    least, most = arguments.coefficients
    layouts = arguments.layout or LAYOUTS
    paths = {layout: arguments.out / f"law_{layout}.csv" for layout in layouts}
    rows = {layout: read(path) if arguments.resume else {} for layout, path in paths.items()}
    wanted = [
        cell
        for cell in sorted(itertools.chain(*map(cells, layouts)), key=lambda cell: cell[1] * cell[2])
        if least <= cell[1] * cell[2] <= most
        and (cell not in rows[cell[0]] or float(rows[cell[0]][cell]["standard_error"]) > arguments.refine)
    ]
    with ProcessPoolExecutor(arguments.workers, multiprocessing.get_context("spawn")) as pool:
        jobs = {pool.submit(measure, cell, how): cell for cell in wanted}
        for job in as_completed(jobs):
            cell = jobs[job]
            try:
                rows[cell[0]][cell] = job.result()
            except torch.OutOfMemoryError:
                print(f"{cell} does not fit beside the others; --resume with fewer workers", flush=True)
                continue
            write(paths[cell[0]], rows[cell[0]])


if __name__ == "__main__":
    main()
