"""Real fleets: accuracy against ε with a trusted and a shielded base station, and what a device gains, by its size.

    python -m experiments.fleets tune --out fleets       # steps and clip norms on the validation split, one trial
    python -m experiments.fleets study --out fleets      # all data sets, every ε, five trials; goes on where it stopped

`tune` chooses the server's step and the clip norm for every ε and for no noise, with a trusted base station, of a few
that are tried. It also chooses how far a device goes with a layer of its own, from the model that it gets and from
nothing (local only). Tuning is not private. `study` trains every ε of a trial
together, and adds the two ends: one model of all training samples in one place, and every device by itself.

Writes fleets.csv (a row per data set, trial and way of training), fleets_sizes.csv (the same for devices of a size, on
their own later samples) and fleets.json (what was tuned, provenance) to the output folder.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

import airfl
from airfl.config import Config
from airfl.devices import Task, load_samples, open_task
from airfl.devices.measures import auc, calibration_error, spread
from airfl.devices.personal import personal_scores
from airfl.runs.execute import provenance_of
from airfl.runs.store import write_csv
from airfl.runs.together import Log, run_together
from airfl.simulate import Simulation, open_simulation
from airfl.transceiver import open_radio
from experiments.perk import merge_json

DATASETS = ("flights", "insteval", "shakespeare")
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
#: Clip norms and server's steps that are tried, by ε; without noise also without clipping.
GRID = {
    "plain": [(0.1, 1.0), (0.1, 3.0), (0.1, 10.0), (0.1, 30.0)],
    "clipped": [(0.1, 30.0), (0.1, 60.0), (0.3, 10.0), (0.3, 20.0)],
    "0.5": [(0.1, 3.0), (0.1, 10.0)],
    "1": [(clip, step) for clip in (0.1, 0.3) for step in (3.0, 10.0, 30.0)],
    "2": [(0.1, 10.0), (0.1, 30.0), (0.3, 10.0)],
    "4": [(clip, step) for clip in (0.1, 0.3) for step in (3.0, 10.0, 30.0)],
    "8": [(0.1, 30.0), (0.3, 10.0), (0.3, 20.0)],
}
SCHEMES = {"plain": "fedavg", "clipped": "fedavg-clip"}
RATES, LOCAL_STEPS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0), 100
#: Where they take long fewer are tried.
FEWER_RATES = {"shakespeare": (0.03, 0.3, 1.0)}
#: Models that devices go on from by themselves.
PERSONAL = ("federated", "trusted/0.5", "trusted/2", "trusted/8")
#: Training samples of a device, as edges of groups.
SIZES = {
    "flights": (1, 9, 17, 33, 64, 10**6),
    "insteval": (1, 9, 17, 25, 33, 10**6),
    "shakespeare": (1, 101, 200, 10**6),
}
#: With the validation split fewer devices are left to train.
VALIDATION_DEVICES = {"flights": 2550, "insteval": 1950, "shakespeare": 600}
COLUMNS = (
    "dataset", "trial", "way", "epsilon", "accuracy", "auc", "loss", "calibration_error", "own_accuracy",
    "device_accuracy_mean", "device_accuracy_p10", "personal_accuracy", "personal_accuracy_mean",
    "personal_accuracy_p10", "chance", "noise_var", "epsilon_models", "epsilon_base_station",
)  # fmt: skip
SIZE_COLUMNS = (
    "dataset", "trial", "way", "epsilon", "from", "below", "devices", "samples", "loss", "accuracy", "auc",
    "personal_loss", "personal_accuracy", "personal_auc",
)  # fmt: skip


def task_of(name: str, trial: int, changes: Mapping[str, Any]) -> tuple[Config, Task]:
    config = airfl.preset(name).replace({"engine.eval_every": 10_000, "learning.metrics": [], **changes})
    return config, open_task(config, (trial,), load_samples(config, torch.device("cpu")))


def trained(config: Config, task: Task, ways: Mapping[str, tuple[str, dict[str, Any]]]) -> dict[str, Log]:
    """Train several schemes and budgets of one trial together."""
    radio = open_radio(config, task.trials)
    simulations: dict[str, Simulation] = {}
    for way, (scheme, changes) in ways.items():
        own = config.replace({**changes, "scheme.names": [scheme]})
        simulations[way] = open_simulation(own, scheme, task, radio.at(own))
    logs = {way: Log([simulation]) for way, simulation in simulations.items()}
    run_together(simulations, logs)
    return logs


def loss_of(task: Task, model: torch.Tensor) -> float:
    tested = torch.from_numpy(task.partitions[0].test)
    return float(F.cross_entropy(task.scores(model, tested), task.labels[tested]))


def tune(name: str, known: dict[str, float]) -> dict[str, Any]:
    """The best clip norm and step for each ε by loss, and rates of layers of one's own by accuracy.

    Args:
        known: losses of earlier sittings; they are not computed anew.
    """
    changes = {"learning.split": "validation", "system.num_devices": VALIDATION_DEVICES[name]}
    config, task = task_of(name, 0, changes)
    cells = [(goal, clip, step) for goal, pairs in GRID.items() for clip, step in pairs]
    ways: dict[str, tuple[str, dict[str, Any]]] = {}
    for goal, clip, step in cells:
        own: dict[str, Any] = {"learning.server_step": step, "learning.clip_norm": clip}
        if goal not in SCHEMES:
            own["privacy.epsilon"] = float(goal)
        ways[f"{goal}/{clip:g}/{step:g}"] = (SCHEMES.get(goal, "airfl-dp"), own)
    # The model that devices go on from is always trained anew.
    logs = trained(config, task, {way: own for way, own in ways.items() if way not in known or way == "8/0.1/30"})
    losses = {**known, **{way: loss_of(task, log.states[0].released[0]) for way, log in logs.items()}}
    found: dict[str, Any] = {"losses": {way: round(losses[way], 5) for way in ways}}
    for goal in ("none", *(key for key in GRID if key not in SCHEMES)):
        mine = [way for way in ways if way.split("/")[0] in (SCHEMES if goal == "none" else (goal,))]
        best = min(mine, key=losses.__getitem__)
        kind, clip, step = best.split("/")
        scheme = SCHEMES.get(kind, "airfl-dp")
        found[goal] = {"scheme": scheme, "clip_norm": float(clip), "server_step": float(step)}
    model = logs["8/0.1/30"].states[0].released[0]
    for key, start, steps in (("personal", model, 30), ("local", torch.zeros_like(model), LOCAL_STEPS)):
        mine = task.labels[torch.from_numpy(task.partitions[0].own)]
        rates = {
            rate: float(F.cross_entropy(own_scores(task, start, steps, rate), mine))
            for rate in FEWER_RATES.get(name, RATES)
        }
        own_losses = {str(rate): round(value, 5) for rate, value in rates.items()}
        found[key] = {"rate": min(rates, key=rates.__getitem__), "losses": own_losses}
    return found


def own_scores(task: Task, model: torch.Tensor, steps: int, rate: float) -> torch.Tensor:
    partition = task.partitions[0]
    parts = (partition.train, partition.offsets, partition.own, partition.own_offsets)
    return personal_scores(task.spec, model, task.inputs, task.labels, parts, steps, rate)


def central(task: Task) -> torch.Tensor:
    """One model of all training samples: L-BFGS from zero, every sample counts the same, a little ridge."""
    train = torch.from_numpy(task.partitions[0].train)
    inputs, labels = task.inputs[train].flatten(1), task.labels[train]
    weight = torch.zeros(task.spec.dim // (inputs.shape[1] + 1), inputs.shape[1] + 1, requires_grad=True)
    solver = torch.optim.LBFGS([weight], max_iter=60, history_size=10, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(inputs @ weight[:, :-1].T + weight[:, -1], labels) + 1e-5 * weight.square().sum()
        loss.backward()
        return loss

    solver.step(closure)  # type: ignore[no-untyped-call]
    found = weight.detach()
    return torch.cat([found[:, :-1].reshape(-1), found[:, -1]])


def study(name: str, trial: int, tuned: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]], Any]:
    """All ways of training in one trial: rows of the table, rows by size of device, provenance."""
    config, task = task_of(name, trial, {})
    ways: dict[str, tuple[str, dict[str, Any]]] = {"federated": (tuned["none"]["scheme"], settings(tuned["none"]))}
    for epsilon in EPSILONS:
        own = {"privacy.epsilon": epsilon, **settings(tuned[f"{epsilon:g}"])}
        ways[f"trusted/{epsilon:g}"] = ("airfl-dp", own)
        ways[f"shielded/{epsilon:g}"] = ("airfl-shielded", own)
    logs = trained(config, task, ways)
    partition, rate = task.partitions[0], tuned["personal"]["rate"]
    rows: list[dict[str, Any]] = []
    sizes: list[dict[str, Any]] = []
    models: dict[str, torch.Tensor] = {"central": central(task)}
    for way, log in logs.items():
        assert log.status == "done", (name, trial, way, log.message)
        models[way] = log.states[0].released[0]
    own = torch.from_numpy(partition.own)
    chance = task.chance
    for way, model in models.items():
        kind, _, epsilon_text = way.partition("/")
        key = {"dataset": name, "trial": trial, "way": kind, "epsilon": epsilon_text}
        tested = torch.from_numpy(partition.test)
        probabilities, labels = task.scores(model, tested).softmax(dim=1), task.labels[tested]
        plain = task.scores(model, own)
        personal = own_scores(task, model, 30, rate) if way in PERSONAL else None
        own_all, mean, low = spread(right_of(task, plain), partition.own_offsets)
        rows.append({
            **key, "chance": chance, "accuracy": float((probabilities.argmax(dim=1) == labels).double().mean()),
            "auc": auc(probabilities, labels), "loss": float(F.nll_loss(probabilities.clamp(min=1e-30).log(), labels)),
            "calibration_error": calibration_error(probabilities, labels), "own_accuracy": own_all,
            "device_accuracy_mean": mean, "device_accuracy_p10": low,
        })  # fmt: skip
        if personal is not None:
            rows[-1] |= dict(zip(COLUMNS[11:14], spread(right_of(task, personal), partition.own_offsets), strict=True))
        if way in logs:
            entry = logs[way].result(perks=False)
            rows[-1] |= {
                "noise_var": entry.records[-1].noise_var, "epsilon_models": entry.epsilon(),
                "epsilon_base_station": entry.epsilon(observer="base-station"),
            }  # fmt: skip
        sizes += [{**key, **part} for part in by_size(name, task, plain, personal)]
    alone = own_scores(task, torch.zeros(task.spec.dim), LOCAL_STEPS, tuned["local"]["rate"])
    key = {"dataset": name, "trial": trial, "way": "local", "epsilon": ""}
    own_all, mean, low = spread(right_of(task, alone), partition.own_offsets)
    rows.append(
        {**key, "chance": chance, "own_accuracy": own_all, "device_accuracy_mean": mean, "device_accuracy_p10": low}
    )
    sizes += [{**key, **part} for part in by_size(name, task, alone, None)]
    return rows, sizes, provenance_of(torch.device("cpu"), logs["federated"].simulations[0])


def settings(best: Mapping[str, Any]) -> dict[str, Any]:
    return {f"learning.{key}": best[key] for key in ("clip_norm", "server_step")}


def right_of(task: Task, scores: torch.Tensor) -> np.ndarray:
    """Whether scores of the devices' own later samples name them right."""
    named: np.ndarray = (scores.argmax(dim=1) == task.labels[torch.from_numpy(task.partitions[0].own)]).numpy()
    return named


def by_size(name: str, task: Task, plain: torch.Tensor, personal: torch.Tensor | None) -> Iterator[dict[str, Any]]:
    """Loss and accuracy on own later samples, of all devices of a size together."""
    partition, edges = task.partitions[0], SIZES[name]
    labels = task.labels[torch.from_numpy(partition.own)]
    owner = np.repeat(np.arange(len(partition.sizes)), np.diff(partition.own_offsets))
    kinds = [("", plain), *([("personal_", personal)] if personal is not None else [])]
    for low, high in pairwise(edges):
        group = (partition.sizes >= low) & (partition.sizes < high)
        mine = torch.from_numpy(group[owner])
        if int(mine.sum()):
            found: dict[str, Any] = {
                "from": low,
                "below": high,
                "devices": int(group.sum()),
                "samples": int(mine.sum()),
            }
            for prefix, of_all in kinds:
                scores = of_all[mine]
                right = (scores.argmax(dim=1) == labels[mine]).double().mean()
                found[f"{prefix}loss"] = float(F.cross_entropy(scores, labels[mine]))
                found[f"{prefix}accuracy"] = float(right)
                found[f"{prefix}auc"] = auc(scores.softmax(dim=1), labels[mine])
            yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("tune", "study"))
    parser.add_argument("--out", type=Path, default=Path("fleets"))
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="trial to begin with")
    parser.add_argument("--datasets", nargs="*", default=list(DATASETS))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    notes = arguments.out / "fleets.json"
    if arguments.part == "tune":
        for name in arguments.datasets:
            begin = time.process_time()
            earlier = json.loads(notes.read_text(encoding="utf-8")).get(f"tuned_{name}", {}) if notes.exists() else {}
            tuned = tune(name, earlier.get("losses", {}))
            spent = earlier.get("cpu_seconds", 0.0) + time.process_time() - begin
            merge_json(notes, {f"tuned_{name}": {**tuned, "cpu_seconds": round(spent, 1)}})
            print(name, {key: value for key, value in tuned.items() if key != "losses"}, flush=True)
        return
    said = json.loads(notes.read_text(encoding="utf-8"))
    table, by = arguments.out / "fleets.csv", arguments.out / "fleets_sizes.csv"
    rows, sizes = read(table), read(by)
    for trial in range(arguments.first, arguments.trials):
        for name in arguments.datasets:
            if any(row["dataset"] == name and int(row["trial"]) == trial for row in rows):
                continue
            begin = time.process_time()
            more, more_sizes, provenance = study(name, trial, said[f"tuned_{name}"])
            rows, sizes = rows + more, sizes + more_sizes
            write_csv(table, [{key: row.get(key) for key in COLUMNS} for row in rows])
            write_csv(by, [{key: row.get(key) for key in SIZE_COLUMNS} for row in sizes])
            seconds = round(time.process_time() - begin, 1)
            merge_json(notes, {"provenance": provenance, f"cpu_seconds_{name}_{trial}": seconds})
            print(name, trial, f"{seconds} s", flush=True)


def read(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    main()
