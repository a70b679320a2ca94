"""The paper's figures as committed studies: run them through the sweep machinery, gather one row per point.

A figure is drawn from one or more studies of ``experiments/studies``, each in two variants: ``authors`` (what was
published) and ``airfl`` (the same physics with our design and exact accounting).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from airfl.channel.budget import interference_of, noise_of, power_limit_w
from airfl.config import Config
from airfl.errors import InputError
from airfl.places import experiments_folder
from airfl.privacy import GaussianAccountant, Ledger, gaussian_epsilon, reach
from airfl.rounds import arrange
from airfl.runs.result import finite_or_none
from airfl.runs.store import read_csv, write_atomically, write_csv, write_text
from airfl.schemes import SCHEMES
from airfl.study import Plan, Study, read_study
from airfl.sweeps.batch import Folder
from airfl.sweeps.executors import Event, Executor
from airfl.sweeps.ledgers import Cell
from airfl.sweeps.summary import read_ledgers, receipts_of, sound_receipts
from airfl.sweeps.sweep import Standing, start_or_resume
from airfl.transceiver import open_radio

Row = dict[str, Any]

VARIANTS = ("authors", "airfl")
COLUMNS = (
    *("variant", "scheme", "epsilon_tilde", "epsilon", "power_w", "clip_factor", "domain_diameter", "round", "trials"),
    *("accuracy_mean", "accuracy_low", "accuracy_high", "loss_mean", "epsilon_exact"),
)
#: Columns of a point and the configuration keys they come from.
AXES = {
    "epsilon_tilde": "privacy.epsilon_tilde",
    "clip_factor": "learning.clip_factor",
    "domain_diameter": "learning.domain_diameter",
}
SMOKE: dict[str, Any] = {
    "system.num_devices": 20,
    "system.num_antennas": 40,
    "system.rounds": 12,
    "learning.model": "softmax",
    "learning.local_steps": 20,
    "learning.learning_rate": 0.03,
    "engine.eval_every": 4,
    "engine.train_loss": "local",
}
HALF: dict[str, Any] = {"system.rounds": 25}
#: What each scale changes in a study, and its trials, at most.
SCALES: dict[str, tuple[dict[str, Any], int]] = {"full": ({}, 10**6), "half": (HALF, 5), "smoke": (SMOKE, 2)}


@dataclass(frozen=True)
class PaperFigure:
    """What a figure is drawn from.

    Attributes:
        studies: names without the variant.
        every_round: rows of all rounds, not of the last alone.
    """

    studies: tuple[str, ...]
    every_round: bool = False


FIGURES = {
    "fig3": PaperFigure(("fig3",), every_round=True),
    "fig4": PaperFigure(("fig4",), every_round=True),
    "fig5": PaperFigure(("fig3", "fig5")),
    "fig6": PaperFigure(("fig6",)),
    "clip": PaperFigure(("clip",)),
    "domain": PaperFigure(("domain",)),
}


def study_of(name: str, variant: str, scale: str, trials: int | None) -> tuple[Study, str]:
    """A committed study at some scale."""
    changes, most = SCALES[scale]
    study, text = read_study(experiments_folder() / "studies" / f"{name}-{variant}.toml")
    count = trials or min(study.trials or 1, most)
    return study.model_copy(update={"trials": count, "overrides": {**study.overrides, **changes}}), text


def run_study(
    name: str,
    variant: str,
    out: Path,
    executor: Executor,
    heard: Callable[[Event | None, Standing], None],
    *,
    scale: str = "full",
    trials: int | None = None,
    threads: int = 1,
) -> tuple[Plan, Folder, Standing, bool]:
    """Run a study, or what is left of it, in a folder of its own under ``out``."""
    study, text = study_of(name, variant, scale, trials)
    return start_or_resume(study, text, out / "studies" / f"{name}-{variant}", executor, heard, threads=threads)


def gather(plan: Plan, folder: Folder, variant: str, *, every_round: bool) -> list[Row]:
    """One row per configuration, scheme and round, over trials; low and high are the 2.5 and 97.5 percentiles."""
    loss = "train_loss" if plan.base.engine.train_loss == "global" else "loss"
    columns = ["point", "scheme", "trial", "round", "accuracy", loss, "epsilon", "noise_var"]
    cells: dict[tuple[int, str], dict[int, list[dict[str, Any]]]] = {}
    for record in pq.read_table(folder.path / "results.parquet", columns=columns).to_pylist():
        cells.setdefault((record["point"], record["scheme"]), {}).setdefault(record["trial"], []).append(record)
    dim = notes_of(plan, folder)["dim"]
    good, booked = good_cells(plan, folder), _booked(plan, folder)
    rows: list[Row] = []
    for (point, scheme), trials in sorted(cells.items(), key=lambda item: item[0][0]):
        config = plan.config(point)
        own = [(point, scheme, trial) for trial in trials if (point, scheme, trial) in good]
        complete = [trials[trial] for _, _, trial in own]
        if not complete:
            continue
        table = {key: np.array([[record[key] for record in t] for t in complete]) for key in columns[3:]}
        budget = scheme in ("airfl-dp", "airfl-dp-online")
        axes = {column: plan.points[point].get(key) for column, key in AXES.items()}
        if budget and axes["epsilon_tilde"] is None:
            axes["epsilon_tilde"] = config.privacy.epsilon_tilde
        axes["power_w"] = power_limit_w(config.channel) if scheme.startswith("airfl") else None
        if all(cell in booked for cell in own):
            mu = np.array([booked[cell] for cell in own]).max(axis=0)
        else:
            mu = _from_noise(config, dim, table["noise_var"])
        for t in range(config.system.rounds) if every_round else (config.system.rounds - 1,):
            accuracy = table["accuracy"][:, t]
            if np.isnan(accuracy).any():  # not every round is tested
                continue
            low, high = np.percentile(accuracy, [2.5, 97.5])
            rows.append(
                {
                    **{"variant": variant, "scheme": scheme, **axes, "round": t + 1, "trials": len(complete)},
                    "epsilon": finite_or_none(float(table["epsilon"][:, t].max())),
                    "accuracy_mean": float(accuracy.mean()),
                    "accuracy_low": float(low),
                    "accuracy_high": float(high),
                    "loss_mean": float(table[loss][:, t].mean()),
                    "epsilon_exact": finite_or_none(gaussian_epsilon(config.privacy.delta, float(mu[t]))),
                }
            )
    return rows


def good_cells(plan: Plan, folder: Folder) -> set[tuple[int, str, int]]:
    """Cells that are done: neither diverged nor refused."""
    cells = [cell for receipt in receipts_of(plan, folder) for cell in receipt["cells"] if cell["status"] == "done"]
    return {(cell["point"], cell["scheme"], cell["trial"]) for cell in cells}


def _booked(plan: Plan, folder: Folder) -> dict[Cell, list[float]]:
    """μ of the first rounds of every cell by exact accounting, from its ledger, where the folder has one."""
    receipts = sound_receipts(plan, folder)
    found: dict[Cell, list[float]] = {}
    for batch in plan.batches:
        ledgers = read_ledgers(folder, batch, receipts[batch.name]) if batch.name in receipts else None
        for cell, ledger in (ledgers or {}).items():
            so_far, found[cell] = Ledger(), []
            for event in ledger.events:
                so_far = so_far.append(event)
                found[cell].append(GaussianAccountant(so_far, plan.config(cell[0]).neighbours).mu)
    return found


def _from_noise(config: Config, dim: int, noise_var: np.ndarray) -> np.ndarray:
    """The same of the worst trial for a folder without ledgers; right for unit gains, as these schemes have.

    μ² = Σ_t S²/v_t with S = 2c for replaced devices, c for added or removed ones, and v_t without interference.
    """
    if not (noise_var > 0).all():
        return np.full(noise_var.shape[1], math.inf)
    sensitivity = config.learning.clip_norm_for(dim) * reach(config.neighbours)
    noise = noise_of(config.channel)
    share = noise / (noise + interference_of(config.channel))
    mu: np.ndarray = np.sqrt(np.cumsum(sensitivity**2 / (share * noise_var), axis=1)).max(axis=0)
    return mu


def notes_of(plan: Plan, folder: Folder) -> dict[str, Any]:
    """Provenance of a study: parameters, how it was computed, how long it took."""
    receipts = receipts_of(plan, folder)
    if not receipts:
        raise InputError(f"`{folder.path}` has no finished batch yet; run the study first")
    first = receipts[0]["provenance"]
    return {
        "study": plan.study.name,
        "dim": first["model_parameters"],
        "seconds": round(sum(receipt["seconds"] for receipt in receipts), 1),
        "cells": sum(len(receipt["cells"]) for receipt in receipts),
        "trials": plan.base.system.trials,
        "seed": plan.base.system.seed,
        "loss_mean": f"{'training' if plan.base.engine.train_loss == 'global' else 'test'} images",
        **{
            key: first[key]
            for key in ("airfl", "source", "torch", "device", "processor", "engine", "precision")
            if key in first
        },
        "finished": max(receipt["provenance"]["finished"] for receipt in receipts),
    }


def link_notes(plan: Plan, dim: int) -> dict[str, Any]:
    """Where the perk ends on a study's link: worst-case SNR at the threshold, and the SNR of one watt; no training.

    The threshold is given for every trial. The back-off is how far devices hold their power below the limit at the
    base's own power, on average.
    """
    config = plan.base.replace({"scheme.names": ["airfl-dp"]})
    schedule = arrange(config, SCHEMES["airfl-dp"], open_radio(config, range(config.system.trials)), dim)
    perks = schedule.perks()
    gain = schedule.link.weakest_path_gain(0) / schedule.link.noise_power
    return {
        "snr_threshold_db": [round(perk.snr_threshold_db, 3) for perk in perks],
        "snr_of_one_watt_db": 10.0 * math.log10(gain),
        "power_backoff_db": float(10.0 * (schedule.norm / schedule.minimum).square().mean().log10()),
    }


def write_rows(rows: Sequence[Row], out: Path, name: str) -> None:
    """The data of a figure as CSV and Parquet."""
    kinds = {"variant": pa.string(), "scheme": pa.string(), "round": pa.int64(), "trials": pa.int64()}
    schema = pa.schema([(key, kinds.get(key, pa.float64())) for key in COLUMNS])
    write_table([{key: row[key] for key in COLUMNS} for row in rows], out, name, schema)


def write_table(rows: Sequence[Row], out: Path, name: str, schema: pa.Schema | None = None) -> None:
    """Rows as CSV and Parquet."""
    write_csv(out / f"{name}.csv", rows, None if schema is None else schema.names, digits=6)
    table = pa.Table.from_pylist(list(rows), schema=schema)
    write_atomically(out / f"{name}.parquet", lambda path: pq.write_table(table, path))


def read_rows(path: Path) -> list[Row]:
    """Rows of a figure's CSV; empty where it is missing."""
    return read_csv(path) if path.is_file() else []


def write_notes(notes: Mapping[str, Any], out: Path, name: str) -> None:
    """Provenance of a figure."""
    write_text(out / f"{name}.json", json.dumps(notes, indent=1, allow_nan=False) + "\n")


def read_notes(path: Path) -> dict[str, Any]:
    """Provenance of a figure; empty where it is missing."""
    if not path.is_file():
        return {}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
