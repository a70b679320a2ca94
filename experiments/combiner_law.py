"""How small can the combiner be on average? The table that `airfl plan` looks up, measured on the project's combiner.

    python -m experiments.combiner_law --out src/airfl/linkplan [--layout disk] [--seconds 6]

Channels are drawn with the path gain at the cell edge as unit, h_i = √(Λ_i/Λ_edge)·CN(0, I_m), and the default combiner
solves: minimise ρ = ‖w‖² subject to |wᴴ h_i| ≥ 1 for K devices. Everything physical follows by scaling
(docs/plan.md), so two numbers, K and m, and the layout are all there is to tabulate:

    disk    distances r = R·√U(0, 1), as the simulator drops devices
    ring    all devices at the edge, as seen from a satellite (the simulator's min_distance_m = cell_radius_m)

The combiner works in three ways, and its norm jumps between them, so each has a table of its own that reaches one step
of the grid beyond its border; a look-up does not interpolate across one:

    full     K·m up to ``multicast.LARGE``
    light    beyond it, fewer starts and steps
    sets     beyond it and K above ``WORKING_SET``·m: iterates on the devices that are hardest to reach

A cell is measured until the standard error of the mean of 1/ρ is below 1 % or its seconds are up, but for two drops at
least (one of more than 8,192 devices). Positions are drawn
anew for every drop; every drop sees several independent fadings.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import itertools
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import integrate

from airfl.randomness import complex_normal

solver: Any = importlib.import_module("airfl.transceiver.combiners.multicast")
#: Coefficients beyond which the combiner looks less hard, and how hard it looks there.
LARGE: int = solver.LARGE
LIGHT = solver.default_effort(LARGE, 1000)

LAYOUTS = ("disk", "ring")
DEVICES = tuple(2**k for k in range(17))
ANTENNAS = (1, 2, 3, *(2**k for k in range(2, 9)))
#: Closest device over cell radius, as the simulator's defaults: 1 m of 1 km.
CLOSEST = 1e-3
FIELDS = (
    "layout", "effort", "devices", "antennas", "drops", "fadings", "inverse_norm2", "standard_error", "drop_spread",
    "mean_power", "loudest_round", "loudest_run",
)  # fmt: skip


def draw(rng: np.random.Generator, layout: str, drops: int, fadings: int, devices: int, antennas: int) -> np.ndarray:
    """Channels [drops, fadings, K, m] in units of the path gain at the edge."""
    distance = np.maximum(np.sqrt(rng.random((drops, 1, devices, 1))), CLOSEST)
    fading = complex_normal(rng, (drops, fadings, devices, antennas))
    return fading if layout == "ring" else fading / distance


def cells(layout: str) -> list[tuple[str, int, int]]:
    """Effort, K and m of every cell: each effort on its own side of the line and one step of the grid beyond."""
    found = []
    for devices in DEVICES:
        for antennas in ANTENNAS:
            # The mean strength of one device dropped on a disk is that of a device at the mast: no use.
            if devices == 1 and layout == "disk":
                continue
            size, crowd = devices * antennas, devices / antennas
            if size <= 4 * LARGE:
                found.append(("full", devices, antennas))
            if 4 * size > LARGE and 1 < crowd <= 64 and antennas >= 64 and devices <= 8192:
                found.append(("light", devices, antennas))
            if 4 * size > LARGE and crowd >= solver.WORKING_SET / 2 and antennas >= 4:
                found.append(("sets", devices, antennas))
    return found


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


def combine(channels: torch.Tensor, effort: str) -> Any:
    """The default combiner, made to work in one of its ways."""

    def solve(part: torch.Tensor, how: Any) -> torch.Tensor:
        problem = solver._Problem.of(part)
        if effort == "sets":
            w = solver._by_working_sets(problem, how)
        else:
            w = solver._polish(problem, solver._explore(problem, how), how)
        best = problem.value(w).argmin(dim=1)
        return w.gather(2, best[:, None, None].expand(-1, part.shape[2], 1)).squeeze(-1)

    devices, antennas = channels.shape[-2:]
    solver._solve = solve
    solver.LARGE = 10**12  # what the default effort looks at
    return solver.multicast(channels, LIGHT if effort != "full" else solver.default_effort(devices, antennas))


def measure(layout: str, effort: str, devices: int, antennas: int, seconds: float) -> dict[str, Any]:
    rng = np.random.default_rng([LAYOUTS.index(layout), devices, antennas])
    fadings = 8 if devices <= 1024 else 2
    size = max(1, min(256, 400_000 // (devices * antennas * fadings)))
    started = time.monotonic()
    inverse, power, loud_round, loud_run = [], [], [], []
    while True:
        channels = torch.from_numpy(draw(rng, layout, size, fadings, devices, antennas))
        found = combine(channels, effort).require_ok()
        heard = torch.einsum("dfm,dfkm->dfk", found.combiner.conj(), channels).abs().square()
        energy = channels.abs().square().sum(-1) / heard  # ‖h_i s_i‖², what all antennas hear of a device
        inverse += (1.0 / found.norm.square()).tolist()
        power += (1.0 / heard).mean(dim=(1, 2)).tolist()
        loud_round += energy.amax(dim=2).mean(dim=1).log().tolist()
        loud_run += energy.mean(dim=1).amax(dim=1).log().tolist()
        values = np.array(inverse)
        per_drop = values.mean(axis=1)
        samples = per_drop if len(values) > 1 else values[0]
        spread = samples.std() / samples.mean() / math.sqrt(len(samples))
        late = time.monotonic() - started > seconds
        if (late and len(values) >= (2 if devices <= 8192 else 1)) or (len(values) >= 8 and spread < 0.01):
            break
    # Two fadings of one drop have in common what the positions do: their covariance is the variance between drops.
    logs = np.log(values)
    between = np.cov(logs[:, ::2].mean(axis=1), logs[:, 1::2].mean(axis=1))[0, 1] if len(logs) > 1 else 0.0
    mean = values.mean()
    if antennas == 1:
        mean, spread = single_antenna(layout, devices), 0.0
    return {
        "layout": layout,
        "effort": effort,
        "devices": devices,
        "antennas": antennas,
        "drops": len(values),
        "fadings": fadings,
        "inverse_norm2": f"{mean:.5g}",
        "standard_error": f"{spread:.2g}",
        "drop_spread": f"{math.sqrt(max(0.0, between)):.3g}",
        "mean_power": f"{np.mean(power):.4g}",
        "loudest_round": f"{math.exp(np.mean(loud_round)):.4g}",
        "loudest_run": f"{math.exp(np.mean(loud_run)):.4g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True)
    parser.add_argument("--layout", choices=LAYOUTS, action="append")
    parser.add_argument("--resume", action="store_true", help="keep the cells that are there")
    parser.add_argument("--refine", type=float, default=1.0, help="with --resume: measure again above this error")
    parser.add_argument("--antennas", type=int, nargs=2, default=(1, ANTENNAS[-1]), help="only cells within")
    parser.add_argument("--devices", type=int, nargs=2, default=(1, DEVICES[-1]), help="only cells within")
    parser.add_argument("--seconds", type=float, default=6.0, help="per cell")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for layout in arguments.layout or LAYOUTS:
        path = Path(arguments.out) / f"law_{layout}.csv"
        rows: dict[tuple[str, int, int], dict[str, Any]] = {}
        if arguments.resume and path.is_file():
            with open(path, newline="") as file:
                rows = {(r["effort"], int(r["devices"]), int(r["antennas"])): r for r in csv.DictReader(file)}
        for cell in cells(layout):
            done = cell in rows and float(rows[cell]["standard_error"]) <= arguments.refine
            inside = arguments.devices[0] <= cell[1] <= arguments.devices[1]
            if done or not inside or not arguments.antennas[0] <= cell[2] <= arguments.antennas[1]:
                continue
            rows[cell] = measure(layout, *cell, arguments.seconds)
            with open(path, "w", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows[key] for key in cells(layout) if key in rows)


if __name__ == "__main__":
    main()
