"""A few rounds of the paper's experiment, both readings of its "Q = 5", and the time of the whole run extrapolated.

    python -m benchmarks.paper_rounds [--rounds 3] [--json]

Per sample the paper's CNN costs 3·2·(576·32·25 + 64·64·800 + 1024·512 + 5120) ≈ 25.6 MFLOP (forward and backward), so
a round of 45 devices × 5 epochs × 1,050 samples is 6.0 TFLOP; the share of the machine's own matrix product rate says
how far the loop is from that floor.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

import airfl
from airfl.devices import load_samples, open_task
from airfl.engines.batched import BatchedEngine
from airfl.engines.loop import LoopEngine
from airfl.simulate import open_simulation
from benchmarks.machine import matmul_flops, provenance

FLOP_PER_SAMPLE = 3 * 2 * (576 * 32 * 25 + 64 * 64 * 800 + 1024 * 512 + 5120)
READINGS = {"local_steps = 5": {"learning.local_steps": 5}, "local_epochs = 5": {"learning.local_epochs": 5}}


def check_equality() -> float:
    """The largest relative difference between the two engines on one round of the literal reading."""
    config = airfl.preset("paper").replace({"system.trials": 1, "learning.local_steps": 2})
    simulation = open_simulation(config, "fedavg", open_task(config, [0], load_samples(config, torch.device("cpu"))))
    task, models = simulation.task, simulation.init().models
    batches = task.batches(0, simulation.schedule.active[:, 0])[:, :4]
    found = []
    for engine in (LoopEngine(task.spec), BatchedEngine(task.spec)):
        blocks = engine.train(models, batches, task.inputs, task.labels, 0.005)
        found.append(torch.cat([block.updates for block in blocks]))
    difference = float((found[0] - found[1]).norm() / found[0].norm())
    assert difference < 1e-4, f"the engines differ by {difference}"
    return difference


def measure(reading: str, rounds: int) -> dict[str, float | str]:
    whole = airfl.preset("paper")
    config = whole.replace({"system.trials": 1, "engine.eval_every": 1, **READINGS[reading]})
    simulation = open_simulation(config, "airfl-dp", open_task(config, [0], load_samples(config, torch.device("cpu"))))
    state = simulation.init()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        state, records = simulation.step(state)
        times.append(time.perf_counter() - begin)
        print(f"  {reading}: round {state.round}, {times[-1]:.1f} s, accuracy {records[0].accuracy:.3f}", flush=True)
    per_round = sorted(times)[len(times) // 2]
    samples = int((simulation.task.batches(0, simulation.schedule.active[:, 0]) >= 0).sum())
    return {
        "reading": reading,
        "rounds_measured": rounds,
        "seconds_per_round": per_round,
        "samples_per_second": samples / per_round,
        "share_of_matmul_rate": samples / per_round * FLOP_PER_SAMPLE / matmul_flops(),
        "hours_per_scheme_and_trial": per_round * whole.system.rounds / 3600,
        "hours_whole_preset": per_round * whole.system.rounds * whole.system.trials * len(whole.scheme.names) / 3600,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report = {
        "provenance": provenance(),
        "engines_relative_difference": check_equality(),
        "readings": [measure(reading, arguments.rounds) for reading in READINGS],
    }
    if arguments.json:
        print(json.dumps(report))
        return
    for row in report["readings"]:
        print(
            f"{row['reading']}: {row['seconds_per_round']:.1f} s a round, {row['samples_per_second']:,.0f} samples/s, "
            f"{100 * row['share_of_matmul_rate']:.0f} % of this machine's matrix product rate; extrapolated: "
            f"{row['hours_per_scheme_and_trial']:.2f} h for one scheme and trial, "
            f"{row['hours_whole_preset']:.1f} h for the whole preset"
        )


if __name__ == "__main__":
    main()
