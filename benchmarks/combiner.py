"""The default combiner for 45 to 60,000 devices, against its aims, the other methods and the machine, in one run.

    python -m benchmarks.combiner [--instances 20] [--quick] [--device cuda] [--json]

Unit Rayleigh channels, and Rayleigh channels with the paper's path loss and new positions for every instance. Every
design is checked first: all constraints to 1e-9, norm² above its certificate, and never longer than what any other
method finds on any instance. Then medians are printed: norm², over the certificate, time per instance, and the share
of the machine's own matrix product rate that the search runs at. The semidefinite relaxation through cvxpy takes
seconds to a minute each: it runs on a few instances, not at all with --quick.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import dataclass
from typing import Any

import torch

from airfl.analysis.combiners import seeded_channels
from airfl.catalogue import NEEDS_ANTENNAS
from airfl.transceiver import COMBINERS, allocate, certificate, combiner_named, counting_figure
from airfl.transceiver.combiners.annealed import Effort
from airfl.transceiver.combiners.sdr import relaxation_value
from airfl.transceiver.design import Design, received_gains
from benchmarks.machine import matmul_flops, provenance

LAWS = ("unit", "path loss")


@dataclass(frozen=True)
class Size:
    """One row: how many devices and antennas, and what was aimed at.

    Attributes:
        aim: norm² on unit channels, with the usual effort.
        seconds: time per instance.
        effort: a larger effort that is tried too, with its aims.
        before: median norm² of the default combiner of commit 0f21d4e on these instances, by law.
        cvxpy: instances for the semidefinite relaxation.
    """

    devices: int
    antennas: int
    aim: float
    seconds: float
    effort: float | None = None
    effort_aim: float | None = None
    effort_seconds: float | None = None
    before: tuple[float, float] = (math.nan, math.nan)
    cvxpy: int = 0


SIZES = (
    Size(45, 100, math.nan, 0.005, cvxpy=3, before=(0.2111, 1.141e09)),
    Size(90, 100, math.nan, math.nan, cvxpy=1, before=(0.3447, 1.869e09)),
    Size(200, 100, 0.63, 0.05, before=(0.6275, 3.403e09)),
    Size(1000, 100, 2.2, 0.3, before=(2.342, 1.223e10)),
    Size(3000, 64, 7.8, 0.3, before=(16.06, 8.242e10)),
    Size(6000, 16, 55.0, 0.3, 10.0, 52.0, 3.0, before=(241.5, 1.28e12)),
    Size(6000, 4, 260.0, 0.3, 6.0, 240.0, 2.0, before=(921.1, 4.507e12)),
    Size(60_000, 16, 600.0, 2.0, 2.0, 515.0, math.nan, before=(6193, 3.141e13)),
)


def unit_channels(antennas: int, devices: int, instances: int, seed: int) -> torch.Tensor:
    """h_i ~ CN(0, I), [instances, K, m]."""
    generator = torch.Generator().manual_seed(seed)
    parts = torch.randn(instances, devices, antennas, 2, generator=generator, dtype=torch.float64)
    return torch.view_as_complex(parts / math.sqrt(2.0))


def timed(name: str, channels: torch.Tensor, effort: float = 1.0) -> tuple[torch.Tensor, float]:
    """Norms² of one method and seconds per instance; every constraint is checked first."""
    solve = combiner_named(name, effort)

    def once(part: torch.Tensor) -> Design:
        design = solve(part)
        if part.device.type == "cuda":
            torch.cuda.synchronize()
        return design

    once(channels[:1])
    begin = time.perf_counter()
    design = once(channels)
    seconds = (time.perf_counter() - begin) / len(channels)
    heard = received_gains(design.combiner, channels).abs().amin(dim=-1)
    good = torch.tensor([word == "ok" for word in design.status], device=heard.device)
    assert bool((heard[good] >= 1 - 1e-9).all()), f"{name} misses a constraint"
    return design.norm.square(), seconds


def measure(size: Size, law: str, instances: int, device: str, with_cvxpy: bool) -> dict[str, Any]:
    draw = unit_channels if law == "unit" else seeded_channels
    channels = draw(size.antennas, size.devices, instances, 1).to(device)
    begin = time.perf_counter()
    bound = certificate(channels)
    report: dict[str, Any] = {
        "devices": size.devices,
        "antennas": size.antennas,
        "law": law,
        "instances": instances,
        "norm2_before_median": size.before[LAWS.index(law)],
        "bound_median": float(bound.median()),
        "counting_figure_median": float(counting_figure(channels).median()),
        "certificate_seconds": (time.perf_counter() - begin) / instances,
        "methods": {},
    }

    def book(name: str, norms: torch.Tensor, seconds: float) -> None:
        ratio = norms / bound[: len(norms)]
        assert bool((ratio >= 1 - 1e-9).all()), f"{name} beats its bound: one of them is wrong"
        report["methods"][name] = {
            "norm2_median": float(norms.median()),
            "norm2_over_bound_median": float(ratio.median()),
            "norm2_over_bound_max": float(ratio.max()),
            "seconds_per_instance": seconds,
            "instances": len(norms),
        }

    ours, seconds = timed("auto", channels)
    book("auto", ours, seconds)
    how = Effort.of(1.0, size.devices, size.antennas)
    dimensions = min(size.devices, size.antennas)
    # Two products of a step, each 8 real operations for every device, dimension and start.
    flops = 16.0 * size.devices * dimensions * (how.starts + how.later) * how.steps
    report["flops_per_second"] = flops / seconds
    if size.effort is not None:
        book(f"auto, effort {size.effort:g}", *timed("auto", channels, size.effort))
    for name in COMBINERS:
        if name in ("auto", "sdr") or (name in NEEDS_ANTENNAS and size.devices > size.antennas):
            continue
        norms, seconds = timed(name, channels)
        assert bool((ours <= norms * (1 + 1e-12)).all()), f"{name} is better somewhere"
        book(name, norms, seconds)
    if with_cvxpy and size.cvxpy:
        few = channels[: size.cvxpy].cpu()
        begin = time.perf_counter()
        relaxed = COMBINERS["sdr"](few).norm.square().to(device)
        seconds = (time.perf_counter() - begin) / size.cvxpy
        assert bool((ours[: size.cvxpy] <= relaxed * (1 + 1e-6)).all()), "sdr is better somewhere"
        book("sdr", relaxed, seconds)
        values = torch.tensor([relaxation_value(h.numpy(), 1e-5) for h in few], dtype=torch.float64)
        report["bound_over_cvxpy_value"] = [round(float(x), 5) for x in bound[: size.cvxpy].cpu() / values]
    return report


def aims(size: Size, row: dict[str, Any]) -> list[str]:
    """One sentence per aim of a row: what was asked, what came out."""
    found = []

    def check(what: str, value: float, aim: float | None, unit: str = "") -> None:
        if aim is not None and not math.isnan(aim):
            found.append(f"{'reached' if value <= aim else 'MISSED'}: {what} {value:.4g}{unit}, aim {aim:g}{unit}")

    own = row["methods"]["auto"]
    check("ms", 1e3 * own["seconds_per_instance"], 1e3 * size.seconds)
    if size.devices == 45:
        check("norm²/bound", own["norm2_over_bound_median"], 1.06)
    if row["law"] == "unit":
        check("norm²", own["norm2_median"], size.aim)
        if size.effort is not None:
            more = row["methods"][f"auto, effort {size.effort:g}"]
            check("norm² with effort", more["norm2_median"], size.effort_aim)
            check("s with effort", more["seconds_per_instance"], size.effort_seconds)
    elif (size.devices, size.antennas) == (6000, 16):
        check("dB against before", 10 * math.log10(own["norm2_median"] / row["norm2_before_median"]), -6.0)
    return found


def allocation_seconds(rounds: int = 100_000) -> float:
    """Time of the exact budget split over many rounds, best of five."""
    minimum = torch.rand(rounds, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) + 0.5
    budget = 0.7 * float((1 / minimum.square()).sum())
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        allocate(minimum, budget)
        times.append(time.perf_counter() - begin)
    return min(times)


def show(size: Size, row: dict[str, Any], rate: float) -> None:
    before = row["norm2_before_median"]
    print(
        f"{size.devices:,} devices, {size.antennas} antennas, {row['law']}: bound {row['bound_median']:.4g}, count "
        f"{row['counting_figure_median']:.4g}, before {before:.4g}; certificate {1e3 * row['certificate_seconds']:.0f} "
        f"ms; the search runs at {row['flops_per_second'] / rate:.2f} of the matrix product rate"
    )
    for name, result in row["methods"].items():
        print(
            f"  {name:<16} norm² {result['norm2_median']:11.4g}  /bound {result['norm2_over_bound_median']:9.4f}  "
            f"worst {result['norm2_over_bound_max']:10.4f}  {1e3 * result['seconds_per_instance']:9.1f} ms"
        )
    for line in aims(size, row):
        print(f"  {line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="without cvxpy")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rate = matmul_flops()
    rows = []
    for size in SIZES:
        for law in LAWS:
            row = measure(size, law, arguments.instances, arguments.device, not arguments.quick)
            rows.append({**row, "aims": aims(size, row)})
            if not arguments.json:
                show(size, row, rate)
    seconds = allocation_seconds()
    if arguments.json:
        own = {**provenance(), "device": arguments.device, "matmul_flops_per_second": rate}
        print(json.dumps({"provenance": own, "sizes": rows, "allocation_100k_rounds_seconds": seconds}, indent=1))
    else:
        print(f"P0″ for 100,000 rounds: {1e3 * seconds:.1f} ms")


if __name__ == "__main__":
    main()
