"""Where a round of local training goes on a GPU: time by kernel, and what is left for the caller.

python -m benchmarks.kernels [--workload W2] [--precision bf16] [--json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

import airfl
from airfl.devices.models import build_model
from airfl.engines import choose_engine
from benchmarks.machine import provenance
from benchmarks.training import BATCH, CLASSES, SHAPE, STEPS, WORKLOADS, problem, train

#: Rounds that are looked at.
ROUNDS = 5


def measure(name: str, precision: str) -> dict[str, Any]:
    """Milliseconds of a round by kernel, and of the whole round."""
    device, work = torch.device("cuda"), WORKLOADS[name]
    spec = build_model(work.model, SHAPE, CLASSES)
    engine = choose_engine(
        airfl.preset("demo").replace(engine={"precision": precision}), spec, device, torch.zeros(1, *SHAPE)
    )
    data = problem(work, spec, device)
    for _ in range(3):
        train(engine, data)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(ROUNDS):
        train(engine, data)
    torch.cuda.synchronize()
    seconds = (time.perf_counter() - begin) / ROUNDS
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(ROUNDS):
            train(engine, data)
        torch.cuda.synchronize()
    kernels: dict[str, float] = defaultdict(float)
    for entry in seen.key_averages():
        # PyTorch's own names are templates without end.
        kernels[entry.key.split("<")[0].split("(")[0][-60:]] += entry.self_device_time_total / 1e3 / ROUNDS
    kept = {key: round(value, 4) for key, value in sorted(kernels.items(), key=lambda item: -item[1]) if value > 1e-4}
    return {
        "workload": name,
        "precision": precision,
        "milliseconds": round(1e3 * seconds, 3),
        "samples_per_second": round(work.trials * work.devices * STEPS * BATCH / seconds),
        "kernel_milliseconds": round(sum(kept.values()), 3),
        "kernels": kept,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), action="append")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    asked = parser.parse_args()
    if not asked.json:
        print(json.dumps(provenance()))
    for name in asked.workload or ["W1", "W2", "W3"]:
        row = measure(name, asked.precision)
        if asked.json:
            print(json.dumps(row), flush=True)
            continue
        print(f"{name}: {row['milliseconds']:.3f} ms a round, kernels {row['kernel_milliseconds']:.3f} ms")
        for key, value in row["kernels"].items():
            print(f"  {value:8.4f}  {key}")


if __name__ == "__main__":
    main()
