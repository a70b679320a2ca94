"""Trackers hear every cell once, whatever happens."""

from __future__ import annotations

import pytest

from airfl import runs, sweeps
from airfl.errors import InputError
from airfl.study import make_study
from airfl.sweeps.executors import InProcess, Settings
from tests.test_sweep import STUDY

pytestmark = pytest.mark.filterwarnings("ignore")  # the trackers' own


def sweep(out, names, resume=False):
    with runs.locked(out):
        plan, folder = sweeps.open_folder(make_study(STUDY), "", out, resume=resume, threads=1)
        trackers = runs.make_trackers(names, out)
        standing, _ = sweeps.run_sweep(plan, folder, InProcess(Settings()), trackers=trackers)
    return plan, folder, standing


def mlflow_runs(out):
    tracking = pytest.importorskip("mlflow.tracking")
    client = tracking.MlflowClient(tracking_uri=f"sqlite:///{out / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("small")
    return client, client.search_runs([experiment.experiment_id])


def scalars(folder):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = accumulator.EventAccumulator(str(folder))
    found.Reload()
    return [(event.step, event.value) for event in found.Scalars("accuracy")]


def test_both_hear_every_cell_once(tmp_path):
    out = tmp_path / "study"
    _, _, standing = sweep(out, ["tensorboard", "mlflow"])
    assert standing.done == 16
    rows = sweeps.summarise(*sweeps.find_plan(out))
    client, found = mlflow_runs(out)
    assert len(found) == 16
    one = next(run for run in found if run.data.params["point"] == "1" and run.data.params["scheme"] == "airfl-dp")
    assert one.data.params["channel.power_w"] == "0.001"
    assert len(client.get_metric_history(one.info.run_id, "accuracy")) == 6
    events = sorted((out / "tensorboard").glob("*/*/*"))
    assert len(events) == 16
    finals = [scalars(path)[-1] for path in events if "point-00001/airfl-dp" in str(path)]
    assert [step for step, _ in finals] == [6, 6]
    mean = next(r for r in rows if r["scheme"] == "airfl-dp" and r["channel.power_w"] == 1e-3)["accuracy_mean"]
    assert sum(value for _, value in finals) / 2 == pytest.approx(mean, abs=1e-6)


def test_a_kill_before_the_note_tells_a_batch_again_and_keeps_it_single(tmp_path):
    out = tmp_path / "study"
    plan, _, _ = sweep(out, ["mlflow"])
    (out / "tracked" / f"{plan.batches[0].name}.json").unlink()
    sweep(out, ["mlflow"], resume=True)
    assert len(mlflow_runs(out)[1]) == 16


def test_a_study_without_trackers_may_get_one_later(tmp_path):
    out = tmp_path / "study"
    sweep(out, [])
    assert not (out / "mlflow.db").exists()
    assert not (out / "tracked").exists()
    sweep(out, ["tensorboard"], resume=True)
    assert len(list((out / "tensorboard").glob("*/*/*"))) == 16


def test_a_tracker_that_cannot_write_costs_no_study(tmp_path, caplog, monkeypatch):
    def broken(*arguments):
        raise RuntimeError("database is locked")

    monkeypatch.setattr("airfl.runs.tracking.MLflow.begin", broken)
    _, _, standing = sweep(tmp_path / "study", ["mlflow"])
    assert standing.done == 16
    assert "database is locked" in caplog.text


def test_names(tmp_path, call):
    with pytest.raises(InputError, match="no tracker named `wandb`; known: tensorboard, mlflow"):
        runs.make_trackers(["wandb"], tmp_path)


def test_a_run_is_told_round_by_round(tmp_path, call):
    small = [f"--set={key}={value}" for key, value in STUDY["set"].items()]
    code, _, error = call(
        "run", "paper", *small, "--scheme", "fedavg", "--trials", "2", "--out", "r", "--track", "tensorboard", "--json"
    )
    assert code == 0, error
    for trial in (0, 1):
        assert [step for step, _ in scalars(tmp_path / f"r/tensorboard/fedavg/trial-{trial}")] == [1, 2, 3, 4, 5, 6]
