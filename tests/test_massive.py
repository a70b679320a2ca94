"""Many devices: presets, the demo on a small scale, the study of devices against ε."""

from __future__ import annotations

import csv
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from experiments.perk import merge_csv, merge_json

from airfl import preset
from airfl.channel import open_link
from airfl.linkplan.accuracy import Measured, shipped
from airfl.paper.studies import read_rows
from airfl.rounds import arrange
from airfl.schemes import SCHEMES
from airfl.transceiver import open_radio
from airfl.transceiver.combiners.annealed import annealed
from airfl.transceiver.combiners.mrc import mrc

ROOT = Path(__file__).parents[1]
MASSIVE = ROOT / "experiments" / "results" / "massive.csv"


PRESETS = {"massive-linear": 7850, "massive": 29_994, "massive-scattering": 39_700, "massive-cnn": 582_026}


@pytest.mark.parametrize(("name", "dim"), PRESETS.items())
def test_presets_are_perks_by_a_little(name, dim):
    """The channel's own noise meets the budget, with less than 2 dB to spare: neither wasted nor missed."""
    config = preset(name).replace({"system.trials": 1})
    rounds = config.system.rounds
    few = config.replace({"system.rounds": 16})
    plan = arrange(few, SCHEMES["airfl-dp"], open_radio(few, (0,)), dim, [1])
    (found,) = plan.perks()
    margin = found.margin_db - 10 * math.log10(rounds / 16)  # the same budget spread over all rounds
    assert 0.0 <= margin <= 2.0
    assert config.neighbours == "zero-out"
    assert config.system.everyone


def test_committed_results_reach_what_was_asked_and_keep_their_budgets():
    rows = {(row["preset"], row["epsilon"]): row for row in read_rows(MASSIVE)}
    asked = {"massive": {0.5: 0.80, 1.0: 0.83, 2.0: 0.85}, "massive-scattering": {0.5: 0.82, 1.0: 0.85, 2.0: 0.87}}
    for name, levels in asked.items():
        for epsilon, accuracy in levels.items():
            row = rows[name, epsilon]
            assert row["accuracy_mean"] >= accuracy
            assert row["epsilon_spent"] <= epsilon
            assert row["trials"] == 5


def test_the_planner_predicts_the_cost_of_a_model_it_was_not_fitted_on():
    rows = [row for row in read_rows(MASSIVE) if row["preset"] == "massive-scattering"]
    (noiseless,) = (row["accuracy_mean"] for row in rows if math.isinf(row["epsilon"]))
    shared = ("devices", "model", "epsilon", "delta", "neighbours")
    private = [row for row in rows if math.isfinite(row["epsilon"])]
    assert len(private) == 3
    for row in private:
        own = {key: row[key] for key in shared}
        measured = Measured(**own, accuracy=row["accuracy_mean"], noiseless=noiseless)
        predicted = shipped(PRESETS["massive-scattering"]).cost(measured.residual, noiseless)
        assert predicted == pytest.approx(noiseless - measured.accuracy, abs=0.01)


def test_the_combiner_serves_everybody_and_beats_the_cheap_one():
    config = preset("massive-linear").replace({"system.num_devices": 2000})
    channels = torch.from_numpy(open_link(config, (0,)).channels(range(3)))
    found = annealed(channels)
    heard = (channels @ found.combiner.conj().unsqueeze(-1)).abs()
    assert float(heard.min()) >= 1 - 1e-9
    assert bool((10 * torch.log10(mrc(channels).norm.square() / found.norm.square()) > 12.0).all())


def test_results_of_other_models_are_kept(tmp_path):
    path = tmp_path / "some.csv"
    first = [{"model": "linear", "devices": 50, "accuracy": 0.5}, {"model": "linear", "devices": 200, "accuracy": 0.6}]
    merge_csv(path, first, ("model", "devices"))
    new = [{"model": "linear", "devices": 200, "accuracy": 0.7}, {"model": "cnn", "devices": 50, "accuracy": math.nan}]
    rows = merge_csv(path, new, ("model", "devices"))
    assert rows[0] == first[0]
    assert rows[1:] == new
    assert path.read_text().split() == ["model,devices,accuracy", "linear,50,0.5", "linear,200,0.7", "cnn,50,nan"]
    merge_json(tmp_path / "some.json", {"a": 1, "b": 2})
    merge_json(tmp_path / "some.json", {"b": 3})
    assert json.loads((tmp_path / "some.json").read_text()) == {"a": 1, "b": 3}


def test_the_study_of_devices_tunes_on_validation_and_tests_once(tmp_path):
    command = [sys.executable, "-m", "experiments.perk", "--out", str(tmp_path), "--models", "linear"]
    done = subprocess.run([*command, "--scale", "smoke"], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "perk.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == [
        *("devices", "model", "epsilon", "delta", "neighbours"),
        *("accuracy_mean", "accuracy_std", "trials", "noiseless_accuracy"),
    ]
    assert {(row["devices"], row["epsilon"]) for row in rows} == {
        (n, e) for n in ("50", "1000") for e in ("0.5", "8", "inf")
    }
    plan = json.loads((tmp_path / "tune-linear" / "plan.json").read_text())
    assert plan["base"]["learning"]["split"] == "validation"
    accuracy = {(row["devices"], row["epsilon"]): float(row["accuracy_mean"]) for row in rows}
    assert accuracy["1000", "0.5"] > accuracy["50", "0.5"]
    notes = json.loads((tmp_path / "perk.json").read_text())
    assert notes["linear"]["tuning_budget"] == "2 runs a cell"
    assert [len(accuracies) for _, _, accuracies in notes["linear"]["validation"]] == [2] * 6
