"""Combiners for every block of a wide round of the paper's setting: time and memory over those of a flat round.

    python -m benchmarks.wideband [--rounds 50] [--json]

45 devices, 100 antennas, uncorrelated Rayleigh fading, independent blocks: one (as many flat rounds as the smallest cut
has blocks), 10, 100 and 580 a round. Each cut is designed in a process of its own, whose peak memory is its own. The
floor of a block is its search: 16 FLOP for every device, dimension, start and step, at the rate at which this process
multiplies matrices. CPU seconds do not count other people's work, wall seconds do.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from typing import Any

import torch

import airfl
from airfl.channel.blocks import grid_of
from airfl.transceiver import open_radio
from airfl.transceiver.combiners.annealed import Effort
from airfl.transceiver.wideband import design_blocks
from benchmarks.machine import provenance

DIM = 582_026
#: Blocks a round, and what is said of coherence: 20 MHz for 29.1 ms.
CUTS: dict[int, dict[str, float]] = {
    1: {},
    10: {"channel.coherence_hz": 2e6},
    100: {"channel.coherence_hz": 2e5},
    580: {"channel.coherence_hz": 1e6, "channel.coherence_s": 1.004e-3},
}
MIB = 2.0**20


def cpu_flops(size: int = 1024, repeats: int = 16) -> float:
    """Float32 FLOP in matrix products per CPU second of one thread, best of several."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    a, b, best = torch.randn(size, size), torch.randn(size, size), 0.0
    a @ b
    for _ in range(repeats):
        begin = time.process_time()
        a @ b
        best = max(best, 2.0 * size**3 / (time.process_time() - begin))
    torch.set_num_threads(threads)
    return best


def design(blocks: int, rounds: int) -> dict[str, Any]:
    """One cut, in this process."""
    rounds = rounds if blocks > 1 else 10 * rounds
    config = airfl.preset("paper").replace(
        {"scheme.combiner": "auto", "system.rounds": rounds, "system.trials": 1, **CUTS[blocks]}
    )
    grid, radio = grid_of(config, DIM), open_radio(config, [0])
    assert grid.count == blocks
    radio.rounds(config, range(rounds, rounds + 8))  # what only the first design of a process takes
    rate, before = cpu_flops(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
    wall, cpu = time.perf_counter(), time.process_time()
    if blocks == 1:
        found, _, _ = radio.rounds(config, range(rounds))
        kept = found.combiner.nbytes + found.norm.nbytes
    else:
        designs = design_blocks(config, radio, range(rounds), grid)
        assert bool((designs.load <= 1.0).all())
        kept = designs.combiner.nbytes + designs.norm.nbytes + designs.load.nbytes
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    how = Effort.of(1.0, config.system.num_active, config.system.num_antennas)
    dimensions = min(config.system.num_active, config.system.num_antennas)
    flops = 16.0 * config.system.num_active * dimensions * (how.starts + how.later) * how.steps
    designed = rounds * blocks
    return {
        "blocks": blocks,
        "rounds": rounds,
        "wall_seconds": wall,
        "cpu_seconds": cpu,
        "cpu_ms_per_block": 1e3 * cpu / designed,
        "floor_cpu_ms_per_block": 1e3 * flops / rate,
        "over_floor": cpu / designed / (flops / rate),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0 / MIB,
        "peak_over_start_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0 - before) / MIB,
        "results_mib": kept / MIB,
    }


def apart(blocks: int, rounds: int) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.wideband", "--rounds", str(rounds), "--one", str(blocks)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", type=int, choices=CUTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(design(arguments.one, arguments.rounds)))
        return
    rows = []
    for blocks in CUTS:
        row = apart(blocks, arguments.rounds)
        first = rows[0] if rows else row
        row["over_flat_round"] = row["cpu_ms_per_block"] / first["cpu_ms_per_block"]
        rows.append(row)
        if not arguments.json:
            print(
                f"{blocks:4} blocks × {row['rounds']} rounds: {row['wall_seconds']:.1f} s, {row['cpu_seconds']:.1f} s "
                f"of CPU, {row['cpu_ms_per_block']:.2f} ms a block: {row['over_flat_round']:.2f} of a flat round, "
                f"{row['over_floor']:.2f} of its floor; {row['peak_mib']:.0f} MiB, {row['peak_over_start_mib']:.0f} of "
                f"them for it and {row['results_mib']:.0f} of those the results",
                flush=True,
            )
    if arguments.json:
        print(json.dumps({"provenance": provenance(), "cuts": rows}))


if __name__ == "__main__":
    main()
