"""The paper's convergence bound beside what is measured: gradient norms and the noise term, round by round.

    python -m experiments.convergence

Writes convergence.png, .pdf, .svg, .csv and .json to experiments/results, in about half a minute on one core.
Softmax regression on scikit-learn's digits, because there the bound's assumptions hold and its constants are known:
with x̃ = (x, 1), every sample's loss is smooth with L = max‖x̃‖²/2 and Lipschitz with G = √2·max‖x̃‖, and f* ≥ 0. For the
paper's CNN nobody knows an L. η is chosen so that ηQL < 1, which the proposition asks for.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch.func import functional_call

import airfl
from airfl.devices import Samples, Task, load_samples, open_task
from airfl.paper.convergence_figure import GradientTrace, draw_convergence, running_mean
from airfl.report.progress import Steps
from airfl.simulate import Simulation, open_simulation

RESULTS = Path(__file__).parent / "results"
TRIALS, ROUNDS = 3, 400
#: Scheme, and ε at δ = 1e-5 by exact accounting where it has a budget.
CASES = (("airfl-mimo", None), ("airfl-dp", 20.0), ("airfl-dp", 3.0))
COLUMNS = (
    "scheme",
    "epsilon",
    "round",
    "trials",
    "gradient_norm2_mean",
    "gradient_norm2_low",
    "gradient_norm2_high",
    "gradient_norm2_running",
    "alpha_mean",
    "noise_term",
    "noise_term_running",
    "noise_term_published",
    "curvature_noise_term",
    "loss_mean",
)


def configuration(scheme: str, epsilon: float | None) -> airfl.Config:
    """The paper's system with a small task, exact accounting, and little power: AirFL-MIMO has noise to show."""
    return airfl.preset("paper").replace(
        {
            "name": "convergence",
            "system.trials": TRIALS,
            "system.rounds": ROUNDS,
            "learning.dataset": "digits",
            "learning.model": "softmax",
            "learning.local_steps": 5,
            "learning.learning_rate": 0.006,
            "learning.clip_norm": 3.0,
            "channel.power_w": 2e-7,
            "privacy.epsilon": 1.0 if epsilon is None else epsilon,
            "privacy.accountant": "gaussian",
            "scheme.names": [scheme],
            "engine.device": "cpu",
        }
    )


@dataclass(frozen=True)
class Measured:
    """What was seen of one scheme before every round, arrays [trials, T]: ‖∇f‖², ᾱ, f and tr ∇²f."""

    bounds: list[airfl.ConvergenceBound]
    norm2: np.ndarray
    alpha: np.ndarray
    loss: np.ndarray
    trace: np.ndarray


@dataclass(frozen=True)
class Shards:
    """All devices' training samples of one trial, device after device.

    Attributes:
        inputs: x, [N, ...].
        labels: [N].
        length2: ‖x̃‖², [N].
        weights: 1/(n·size of the device's shard), [N]: f is the mean of the devices' losses.
    """

    inputs: torch.Tensor
    labels: torch.Tensor
    length2: torch.Tensor
    weights: torch.Tensor


def shards_of(task: Task, row: int) -> Shards:
    partition = task.partitions[row]
    numbers = torch.from_numpy(np.concatenate([partition.of(device) for device in range(len(partition.sizes))]))
    inputs, sizes = task.inputs[numbers], torch.from_numpy(partition.sizes)
    weights = (1.0 / (len(sizes) * sizes)).repeat_interleave(sizes)
    return Shards(inputs, task.labels[numbers], inputs.flatten(1).double().square().sum(dim=1) + 1.0, weights)


def full_gradient(task: Task, shards: Shards, model: torch.Tensor) -> tuple[float, torch.Tensor, float]:
    """f(θ), ∇f(θ) by autograd, and tr ∇²f(θ) = mean of (1 − ‖p‖²)‖x̃‖², over all devices' training samples."""
    theta = model.detach().clone().requires_grad_()
    scores = functional_call(task.spec.module, task.spec.unflatten(theta), (shards.inputs,))
    loss = (F.cross_entropy(scores, shards.labels, reduction="none") * shards.weights).sum()
    (gradient,) = torch.autograd.grad(loss, theta)
    spread = 1.0 - scores.detach().double().softmax(dim=1).square().sum(dim=1)
    return float(loss.detach()), gradient.double(), float((spread * shards.length2 * shards.weights).sum())


def gradient_spread(task: Task, row: int, model: torch.Tensor) -> tuple[float, float]:
    """σ_l² of a mini-batch and σ_g² at one model: the largest over the devices, measured and no proof for others."""
    shards, own, across = shards_of(task, row), [], []
    _, whole, _ = full_gradient(task, shards, model)
    parts = [part.split(task.partitions[row].sizes.tolist()) for part in (shards.inputs, shards.labels)]
    for inputs, labels in zip(*parts, strict=True):
        scores = functional_call(task.spec.module, task.spec.unflatten(model), (inputs,)).detach()
        error = (scores.softmax(dim=1) - F.one_hot(labels, scores.shape[1])).double()
        each = torch.cat([torch.einsum("bo,bi->boi", error, inputs.flatten(1).double()).flatten(1), error], dim=1)
        mean = each.mean(dim=0)
        # Batches are drawn without replacement, so this is a little too much.
        own.append(float((each - mean).square().sum(dim=1).mean()) / task.config.learning.batch_size)
        across.append(float((mean - whole).square().sum()))
    return max(own), max(across)


def bounds_of(simulation: Simulation) -> list[airfl.ConvergenceBound]:
    """The bound of every trial, with constants that are proven for softmax regression but for σ_l² and σ_g²."""
    config, plan, task, start = simulation.config, simulation.schedule, simulation.task, simulation.start
    assert plan.norm is not None
    found = []
    for row in range(TRIALS):
        shards = shards_of(task, row)
        largest = float(shards.length2.max())
        spread = gradient_spread(task, row, start[row])
        found.append(
            airfl.ConvergenceBound(
                learning_rate=config.learning.learning_rate,
                local_steps=task.max_local_steps(row),
                smoothness=largest / 2.0,
                lipschitz=math.sqrt(2.0 * largest),
                gradient_var=spread[0],
                dissimilarity=spread[1],
                initial_gap=full_gradient(task, shards, start[row])[0],
                clip_norm=plan.clip_norm,
                num_devices=config.system.num_devices,
                dim=plan.dim,
                noise_power=plan.link.noise_power,
                combiner_norm2=plan.norm[row].square().tolist(),
                participation=config.system.participation,
                real_part=True,
            )
        )
    return found


def measure(config: airfl.Config, scheme: str, samples: Samples, steps: Steps) -> Measured:
    """Run a scheme and look at the model before every round."""
    simulation = open_simulation(config, scheme, open_task(config, range(TRIALS), samples))
    shards = [shards_of(simulation.task, row) for row in range(TRIALS)]
    seen = np.zeros((4, TRIALS, ROUNDS))
    state = simulation.init()
    for t in range(ROUNDS):
        for row in range(TRIALS):
            loss, gradient, trace = full_gradient(simulation.task, shards[row], state.models[row])
            seen[:, row, t] = float(gradient.square().sum()), 0.0, loss, trace
        step = simulation.advance(state)
        # ᾱ_t over those who took part: they are drawn uniformly.
        seen[1, :, t] = (simulation.schedule.clip_norm / step.watch.norms).clamp(max=1.0).mean(dim=1).numpy()
        state = step.after
        steps.advance(1)
    simulation.release(state)
    return Measured(bounds_of(simulation), *seen)


def title_of(epsilon: float | None) -> str:
    return "AirFL-MIMO, no budget" if epsilon is None else f"AirFL-DP, ε = {epsilon:g}"


def trace_of(measured: Measured, epsilon: float | None) -> GradientTrace:
    noise = np.array([bound.estimation_by_round() for bound in measured.bounds])
    largest = np.array([[bound.dim * bound.smoothness] for bound in measured.bounds])
    return GradientTrace(
        title_of(epsilon), measured.alpha * measured.norm2, noise, curvature_term=noise * measured.trace / largest
    )


def rows_of(measured: Measured, trace: GradientTrace, scheme: str, epsilon: float | None) -> list[list[object]]:
    """One row per round, in the order of ``COLUMNS``."""
    gradient, noise, sharper = trace.gradient_norm2, trace.noise_term, trace.curvature_term
    assert sharper is not None
    columns = (
        gradient.mean(axis=0),
        gradient.min(axis=0),
        gradient.max(axis=0),
        running_mean(gradient).mean(axis=0),
        measured.alpha.mean(axis=0),
        noise.mean(axis=0),
        running_mean(noise).mean(axis=0),
        2.0 * noise.mean(axis=0),
        sharper.mean(axis=0),
        measured.loss.mean(axis=0),
    )
    budget = "" if epsilon is None else f"{epsilon:g}"
    return [
        [scheme, budget, t + 1, TRIALS, *(f"{value:.6g}" for value in values)]
        for t, values in enumerate(zip(*columns, strict=True))
    ]


def summary_of(measured: Measured, trace: GradientTrace, scheme: str, epsilon: float | None) -> dict[str, object]:
    """Means over the trials: the constants, the five terms with half the noise power, and what was measured."""
    bounds, sharper = measured.bounds, trace.curvature_term
    assert sharper is not None
    terms = np.mean([bound.terms() for bound in bounds], axis=0).tolist()
    constants = ("smoothness", "lipschitz", "gradient_var", "dissimilarity", "initial_gap", "step_product")
    return {
        "scheme": scheme,
        "epsilon": epsilon,
        "constants": {name: float(np.mean([getattr(bound, name) for bound in bounds])) for name in constants},
        "terms": dict(zip(bounds[0].terms()._fields, terms, strict=True)),
        "measured": float(trace.gradient_norm2.mean()),
        "measured_last_100": float(trace.gradient_norm2[:, -100:].mean()),
        "curvature_noise_term_last_100": float(sharper[:, -100:].mean()),
    }


def main() -> None:
    torch.set_num_threads(1)
    samples = load_samples(configuration(*CASES[0]), torch.device("cpu"))
    traces, rows, summaries = [], [], []
    with Steps("rounds", len(CASES) * ROUNDS) as steps:
        for scheme, epsilon in CASES:
            measured = measure(configuration(scheme, epsilon), scheme, samples, steps)
            trace = trace_of(measured, epsilon)
            traces.append(trace)
            rows += rows_of(measured, trace, scheme, epsilon)
            summaries.append(summary_of(measured, trace, scheme, epsilon))
    draw_convergence(traces, RESULTS)
    with (RESULTS / "convergence.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    provenance = {"version": airfl.__version__, "config": configuration(*CASES[-1]).to_mapping()}
    text = json.dumps({**provenance, "cases": summaries}, indent=1, ensure_ascii=False)
    (RESULTS / "convergence.json").write_text(text + "\n", encoding="utf-8")
    print(json.dumps(summaries, indent=1))


if __name__ == "__main__":
    main()
