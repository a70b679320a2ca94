"""Local training against the plain PyTorch loop.

    python -m benchmarks.training [--workload W1] [--device cuda] [--precision bf16] [--json] [--scaling]

W1: the paper's CNN, 45 devices, 5 steps of 10 samples. W2: ten trials of W1. W3: the small CNN, 6,000 devices with 10
samples each. W4: softmax regression, 6,000 devices. W5: the same, with ten samples each. Equality with the loop comes
first, then time. The plain loop is what people write: a copy of the module for every device, ``torch.optim.SGD``,
default threads; it is timed on some of the devices and compared per sample.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import airfl
from airfl.devices.models import ModelSpec, build_model
from airfl.devices.precision import resolve_precision
from airfl.engines import choose_engine
from airfl.engines.engine import Engine
from airfl.engines.loop import LoopEngine
from benchmarks.machine import provenance

SHAPE, CLASSES, STEPS, BATCH, RATE = (1, 28, 28), 10, 5, 10, 0.05
#: Median relative difference of updates from the loop's. Single ones may be further off: rounding can move which pixel
#: a pooling layer takes, and that of the loop in the same precision does so too.
TOLERANCE = {"float32": 1e-4, "tf32": 0.2, "bf16": 0.4}


@dataclass(frozen=True)
class Workload:
    """A round of local training."""

    model: str
    trials: int
    devices: int
    own: int | None = None


WORKLOADS = {
    "W1": Workload("paper-cnn", 1, 45),
    "W2": Workload("paper-cnn", 10, 45),
    "W3": Workload("small-cnn", 1, 6000),
    "W4": Workload("softmax", 1, 6000),
    "W5": Workload("softmax", 1, 6000, own=10),
}


def flops_per_sample(spec: ModelSpec) -> int:
    """Forward and backward pass: three times two operations per multiplication of convolutions and linear layers."""
    total = 0

    def count(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        nonlocal total
        if isinstance(layer, nn.Conv2d):
            total += output[0].numel() * layer.weight[0].numel()
        elif isinstance(layer, nn.Linear):
            total += layer.weight.numel()

    hooks = [layer.register_forward_hook(count) for layer in spec.module.modules()]
    with torch.no_grad():
        spec.module(torch.zeros(1, *SHAPE))
    for hook in hooks:
        hook.remove()
    return 3 * 2 * total


def bytes_per_sample(spec: ModelSpec) -> float:
    """The floor of memory traffic with all but the weights fused away: float32 weights read twice and written once."""
    return 3 * 4 * spec.dim / BATCH


def matmul_rate(device: torch.device, precision: str) -> float:
    """The machine's own matrix product rate, FLOP/s, best of several."""
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    size = 8192 if device.type == "cuda" else 1024
    torch.backends.cuda.matmul.allow_tf32 = precision != "float32"
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    best = min(_timed(lambda: a @ b, device) for _ in range(8))
    torch.backends.cuda.matmul.allow_tf32 = False
    return 2 * size**3 / best


def problem(work: Workload, spec: ModelSpec, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Models, batches, inputs and labels; every device has samples of its own."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.rand(60_000, *SHAPE, generator=generator) * 2 - 1
    labels = torch.randint(0, CLASSES, (60_000,), generator=generator)
    models = torch.stack([spec.initial(seed) for seed in range(work.trials)])
    batches = torch.randint(0, 60_000, (work.trials, work.devices, STEPS, BATCH), generator=generator)
    if work.own is not None:  # every step goes through all that a device has
        order = torch.rand(work.trials, work.devices, STEPS, work.own, generator=generator).argsort(dim=3)
        batches = order + work.own * torch.arange(work.devices).view(-1, 1, 1)
    return tuple(item.to(device) for item in (models, batches, inputs, labels))


def plain_loop(
    spec: ModelSpec, models: torch.Tensor, batches: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """What people write: one device after another."""
    updates = []
    for model, devices in zip(models, batches, strict=True):
        for steps in devices:
            local = copy.deepcopy(spec.module).to(models.device)
            nn.utils.vector_to_parameters(model.clone(), local.parameters())
            optimiser = torch.optim.SGD(local.parameters(), lr=RATE)
            for samples in steps:
                optimiser.zero_grad()
                F.cross_entropy(local(inputs[samples]), labels[samples]).backward()
                optimiser.step()
            updates.append((model - nn.utils.parameters_to_vector(local.parameters()).detach()) / RATE)
    return torch.stack(updates)


def train(engine: Engine, data: tuple[torch.Tensor, ...]) -> None:
    models, batches, inputs, labels = data
    for _ in engine.train(models, batches, inputs, labels, RATE):
        pass


def check(engine: Engine, spec: ModelSpec, data: tuple[torch.Tensor, ...], precision: str) -> float:
    """The median relative difference from the loop over a few devices; refuses to go on beyond the tolerance."""
    models, batches, inputs, labels = data
    few = batches[:, :3].clone()
    few[0, 1, 2:, 5:] = -1  # devices do not all have the same amount of data
    blocks = list(engine.train(models, few, inputs, labels, RATE))
    found = torch.cat([block.updates for block in blocks])
    truth = torch.cat([block.updates for block in LoopEngine(spec).train(models, few, inputs, labels, RATE)])
    middle = float(((found - truth).norm(dim=1) / truth.norm(dim=1)).median())
    assert middle <= TOLERANCE[precision], f"the engine is {middle:.2g} off the loop"
    plain = plain_loop(spec, models, batches[:, :1], inputs, labels)
    again = torch.cat([b.updates for b in LoopEngine(spec).train(models, batches[:, :1], inputs, labels, RATE)])
    assert float(((plain - again).norm(dim=1) / again.norm(dim=1)).median()) < 1e-3
    return middle


def measure(name: str, device: torch.device, precision: str, seconds: float, compiled: bool) -> dict[str, Any]:
    """One workload."""
    work = WORKLOADS[name]
    spec = build_model(work.model, SHAPE, CLASSES)
    settings = {"precision": precision, "compile": compiled}
    config = airfl.preset("demo").replace(engine=settings)
    engine = choose_engine(config, spec, device, torch.zeros(1, *SHAPE))
    data = problem(work, spec, device)
    # The loop's own products must not be rougher than its name says.
    torch.backends.cudnn.allow_tf32 = False
    difference = check(engine, spec, data, precision)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    first = _timed(lambda: train(engine, data), device)
    samples = work.trials * work.devices * STEPS * BATCH
    best = _best(lambda: train(engine, data), device, 0.7 * seconds)
    devices = min(work.devices, 9 if device.type == "cuda" or spec.dim > 100_000 else 200)
    few = (data[0][:1], data[1][:1, :devices], *data[2:])
    loop = _best(lambda: plain_loop(spec, *few), device, 0.3 * seconds) / (devices * STEPS * BATCH)
    rate, flops = samples / best, flops_per_sample(spec)
    own = matmul_rate(device, precision)
    peak = (
        torch.cuda.max_memory_allocated()
        if device.type == "cuda"
        else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    )
    return {
        "workload": name,
        "engine": engine.name,
        "precision": precision,
        "samples_per_second": rate,
        "flops_per_second": rate * flops,
        "matmul_flops_per_second": own,
        "share_of_matmul": rate * flops / own,
        "bytes_per_second_floor": rate * bytes_per_sample(spec),
        "ratio_to_loop": rate * loop,
        "loop_samples_per_second": 1.0 / loop,
        "seconds_to_first_round": first,
        "seconds_per_round": best,
        "peak_memory_bytes": peak,
        "median_difference": difference,
    }


def scaling(device: torch.device, precision: str) -> list[dict[str, Any]]:
    """Seconds per sample over ten times as many devices, trials and rounds."""
    rows = []
    cases = [("devices", 1, 45, 1), ("devices", 1, 450, 1), ("devices", 1, 4500 if device.type == "cuda" else 900, 1)]
    cases += [("trials", 1, 45, 1), ("trials", 10, 45, 1), ("rounds", 1, 45, 1), ("rounds", 1, 45, 10)]
    spec = build_model("paper-cnn", SHAPE, CLASSES)
    config = airfl.preset("demo").replace(engine={"precision": precision})
    for kind, trials, devices, rounds in cases:
        engine = choose_engine(config, spec, device, torch.zeros(1, *SHAPE))
        data = problem(Workload("paper-cnn", trials, devices), spec, device)
        train(engine, data)

        def work(engine: Engine = engine, data: Any = data, rounds: int = rounds) -> None:
            for _ in range(rounds):
                train(engine, data)

        best = _best(work, device, 2.0)
        samples = trials * devices * rounds * STEPS * BATCH
        rows.append({"over": kind, "trials": trials, "devices": devices, "rounds": rounds})
        rows[-1]["microseconds_per_sample"] = 1e6 * best / samples
    return rows


def _best(work: Callable[[], object], device: torch.device, seconds: float) -> float:
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or (time.perf_counter() < end and len(times) < 200):
        times.append(_timed(work, device))
    return min(times)


def _timed(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), action="append")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--seconds", type=float, default=10.0, help="measuring time per workload")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--scaling", action="store_true", help="ten times the devices, trials and rounds")
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    precision = resolve_precision(asked.precision, device)
    if not asked.json:
        print(json.dumps(provenance() | {"device": asked.device, "precision": precision}))
    if asked.scaling:
        for row in scaling(device, precision):
            print(json.dumps(row), flush=True)
        return
    for name in asked.workload or sorted(WORKLOADS):
        row = measure(name, device, precision, asked.seconds, not asked.no_compile)
        if asked.json:
            print(json.dumps(row), flush=True)
        else:
            print(
                f"{name} {row['engine']:<8} {precision:<8} {row['samples_per_second'] / 1e6:8.4f} M samples/s  "
                f"{row['flops_per_second'] / 1e12:7.3f} TFLOP/s ({100 * row['share_of_matmul']:.0f} % of own matmul)  "
                f"{row['ratio_to_loop']:6.1f} × plain loop  {row['peak_memory_bytes'] / 2**30:.1f} GiB",
                flush=True,
            )


if __name__ == "__main__":
    main()
