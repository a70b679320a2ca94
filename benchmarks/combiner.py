"""All combiner methods side by side, and against cvxpy + SCS, in one run.

    python -m benchmarks.combiner [--instances 50] [--quick] [--json]

Rayleigh channels with the paper's path loss, new positions for every instance, m = 100. First every design is checked
(all constraints to 1e-9, norm² above its certificate), then norm² over the certificate and time per instance are
printed. The relaxation through cvxpy runs on a few instances: it takes seconds to a minute each.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

from airfl.analysis.combiners import seeded_channels
from airfl.catalogue import NEEDS_ANTENNAS
from airfl.transceiver import COMBINERS, allocate, certificate
from airfl.transceiver.combiners.sdr import relaxation_value
from airfl.transceiver.design import received_gains
from benchmarks.machine import provenance

ANTENNAS = 100
#: devices -> (instances at most, instances for the relaxation through cvxpy)
SIZES = {45: (50, 3), 90: (50, 1), 100: (50, 1), 200: (50, 0), 1000: (50, 0), 6000: (10, 0)}
METHODS = ("multicast", "coordinate", "zero-forcing", "ascent", "mrc", "dominant")


def timed(name: str, channels: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Norms² of one method and seconds per instance; every constraint is checked first."""
    COMBINERS[name](channels[:1])
    begin = time.perf_counter()
    design = COMBINERS[name](channels)
    seconds = (time.perf_counter() - begin) / len(channels)
    heard = received_gains(design.combiner, channels).abs().amin(dim=-1)
    good = torch.tensor([word == "ok" for word in design.status])
    assert bool((heard[good] >= 1 - 1e-9).all()), f"{name} misses a constraint"
    return design.norm.square(), seconds


def measure(active: int, instances: int, with_cvxpy: int) -> dict[str, Any]:
    channels = seeded_channels(ANTENNAS, active, instances, seed=1)
    begin = time.perf_counter()
    bound = certificate(channels)
    report: dict[str, Any] = {
        "active": active,
        "instances": instances,
        "certificate_seconds": (time.perf_counter() - begin) / instances,
        "methods": {},
    }
    norms = {}
    for name in METHODS:
        if name in NEEDS_ANTENNAS and active > ANTENNAS:
            continue
        norms[name], seconds = timed(name, channels)
        ratio = norms[name] / bound
        assert bool((ratio >= 1 - 1e-9).all()), f"{name} beats its bound: one of them is wrong"
        report["methods"][name] = {
            "norm2_over_bound_median": float(ratio.median()),
            "norm2_over_bound_max": float(ratio.max()),
            "seconds_per_instance": seconds,
        }
    if "zero-forcing" in norms:
        assert bool((norms["multicast"] <= norms["zero-forcing"] * (1 + 1e-12)).all())
    if with_cvxpy:
        few = channels[:with_cvxpy]
        begin = time.perf_counter()
        relaxed = COMBINERS["sdr"](few).norm.square()
        seconds = (time.perf_counter() - begin) / with_cvxpy
        assert bool((norms["multicast"][:with_cvxpy] <= relaxed * (1 + 1e-6)).all()), "sdr is better somewhere"
        values = torch.tensor([relaxation_value(h.numpy(), 1e-5) for h in few], dtype=torch.float64)
        report["methods"]["sdr"] = {
            "norm2_over_bound_median": float((relaxed / bound[:with_cvxpy]).median()),
            "norm2_over_bound_max": float((relaxed / bound[:with_cvxpy]).max()),
            "seconds_per_instance": seconds,
            "instances": with_cvxpy,
        }
        report["sdr_over_multicast_seconds"] = seconds / report["methods"]["multicast"]["seconds_per_instance"]
        report["bound_over_cvxpy_value"] = [round(float(x), 5) for x in bound[:with_cvxpy] / values]
    return report


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="without cvxpy")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    sizes = []
    for active, (most, with_cvxpy) in SIZES.items():
        row = measure(active, min(arguments.instances, most), 0 if arguments.quick else with_cvxpy)
        sizes.append(row)
        if not arguments.json:
            print(f"K = {active}, {row['instances']} instances; certificate {1e3 * row['certificate_seconds']:.0f} ms")
            for name, result in row["methods"].items():
                print(
                    f"  {name:<13} norm²/bound median {result['norm2_over_bound_median']:9.4f}  worst "
                    f"{result['norm2_over_bound_max']:10.4f}  {1e3 * result['seconds_per_instance']:10.2f} ms"
                )
            if "bound_over_cvxpy_value" in row:
                ratio = row["sdr_over_multicast_seconds"]
                print(
                    f"  cvxpy + SCS takes {ratio:,.0f} times as long; bound/its value: {row['bound_over_cvxpy_value']}"
                )
    seconds = allocation_seconds()
    if arguments.json:
        print(json.dumps({"provenance": provenance(), "sizes": sizes, "allocation_100k_rounds_seconds": seconds}))
    else:
        print(f"P0″ for 100,000 rounds: {1e3 * seconds:.1f} ms")


if __name__ == "__main__":
    main()
