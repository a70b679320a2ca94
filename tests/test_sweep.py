"""Studies that survive: kills, damage, full disks, company in the same folder."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import tomli_w
import torch

from airfl import runs, sweeps
from airfl.errors import InputError
from airfl.privacy import ledger as ledgers
from airfl.runs import checkpoint
from airfl.simulate import open_simulation
from airfl.study import make_plan, make_study
from airfl.sweeps import batch as batches
from airfl.sweeps.batch import Folder, Stopped, run_batch
from airfl.sweeps.executors import InProcess, Processes, Settings
from airfl.transceiver import radio

STUDY = {
    "name": "small",
    "base": "paper",
    "schemes": ["airfl-mimo", "airfl-dp"],
    "trials": 2,
    "rows_per_batch": 4,
    "set": {
        "system.num_devices": 6,
        "system.num_antennas": 8,
        "system.participation": 1.0,
        "system.rounds": 6,
        "learning.dataset": "digits",
        "learning.split": "standard",
        "learning.model": "softmax",
        "learning.local_steps": 2,
        "learning.learning_rate": 0.1,
        "learning.clip_norm": 1.0,
        "privacy.accountant": "gaussian",
        "scheme.combiner": "zero-forcing",
    },
    "grid": {"privacy.epsilon": [5.0, 50.0], "channel.power_w": [1e-9, 1e-3]},
}
ALL_DONE = {"cells": 16, "done": 16, "failed": 0, "running": 0, "messages": []}


def run(study, out, executor=None, resume=False):
    made = make_study(study)
    with runs.locked(out):
        plan, folder = sweeps.open_folder(made, "", out, resume=resume, threads=1)
        return sweeps.run_sweep(plan, folder, executor or InProcess(Settings(every_rounds=2)))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The study without any interruption."""
    out = tmp_path_factory.mktemp("whole") / "study"
    standing, interrupted = run(STUDY, out)
    assert (standing.done, standing.failed, interrupted) == (16, 0, False)
    return out


def test_results_have_every_axis_and_each_cell_once(whole):
    table = pq.read_table(whole / "results.parquet").to_pylist()
    cells = {(row["privacy.epsilon"], row["channel.power_w"], row["scheme"], row["trial"]) for row in table}
    assert len(cells) == 16
    assert len(table) == 16 * 6
    assert {"round", "accuracy", "loss", "epsilon"} <= set(table[0])
    assert all(row["epsilon"] <= row["privacy.epsilon"] for row in table if row["scheme"] == "airfl-dp")
    summary = (whole / "summary.csv").read_text().splitlines()
    assert len(summary) == 1 + 8
    provenance = json.loads((whole / "provenance.json").read_text())
    plan, _ = sweeps.find_plan(whole)
    assert provenance["config_sha256"] == {str(point): plan.config(point).sha256() for point in range(4)}
    assert len(set(provenance["config_sha256"].values())) == 4
    assert provenance["seed"] == plan.base.system.seed
    assert provenance["seconds"] > 0
    standing = sweeps.standing_of(whole)
    assert standing.summary == {**ALL_DONE, "seconds_left": 0.0}
    assert not list((whole / "checkpoints").glob("*"))


def test_a_cell_is_what_a_run_of_its_own_gives(whole):
    plan, _ = sweeps.find_plan(whole)
    alone = runs.run(plan.config(1)).schemes["airfl-dp"].final()
    rows = pq.read_table(whole / "results.parquet").to_pylist()
    mine = [r for r in rows if r["point"] == 1 and r["scheme"] == "airfl-dp" and r["round"] == 6]
    assert [row["accuracy"] for row in mine] == pytest.approx([record.accuracy for record in alone], abs=1e-6)


def test_powers_and_clips_share_channels_and_combiners(monkeypatch):
    grid = {
        "channel.power_w": [1e-9, 1e-3],
        "learning.clip_norm": [1.0, 2.0],
        "channel.cell_radius_m": [500.0, 900.0],
    }
    plan = make_plan(make_study({**STUDY, "grid": grid, "rows_per_batch": 100}), 1)
    designed, honest = [], radio._join_chunks
    monkeypatch.setattr(radio, "_join_chunks", lambda *asked: designed.append(asked) or honest(*asked))
    (whole_batch,) = plan.batches
    simulations = batches.open_batch(plan, whole_batch, "cpu")
    assert len(designed) == 2  # one for each radius
    for key, simulation in simulations.items():
        config = plan.config(int(key.split("/")[0]))
        assert simulation.schedule.link.config.channel.power_w == config.channel.power_w
        assert simulation.schedule.clip_norm == config.learning.clip_norm
        alone = open_simulation(simulation.config, simulation.scheme.name, simulation.task)
        assert torch.equal(simulation.schedule.noise_var, alone.schedule.noise_var)
        ours, theirs = (some.schedule.setting(1) for some in (simulation, alone))
        assert torch.equal(ours.gains, theirs.gains)


def test_stopping_after_any_round_changes_no_bit(whole, tmp_path):
    plan = make_plan(make_study(STUDY), 1)
    for rounds in (1, 3, 5):
        folder = Folder(tmp_path / f"after-{rounds}")
        for batch in plan.batches:
            left = [rounds]

            def stop(left=left):
                left[0] -= 1
                return left[0] == 0

            with pytest.raises(Stopped):
                run_batch(plan, batch, folder, every_rounds=2, should_stop=stop)
            run_batch(plan, batch, folder, every_rounds=2)
            assert folder.part(batch).read_bytes() == Folder(whole).part(batch).read_bytes()


def test_worker_processes_give_the_same_bits(whole, tmp_path):
    standing, _ = run(STUDY, tmp_path / "two", Processes(Settings(every_rounds=2), 2))
    assert standing.done == 16
    assert (tmp_path / "two" / "results.parquet").read_bytes() == (whole / "results.parquet").read_bytes()


def damaged_checkpoints(tmp_path, damage):
    """Stop a batch after five rounds, with checkpoints at 2, 4 and 5, and hurt the newest."""
    plan = make_plan(make_study(STUDY), 1)
    folder, batch, left = Folder(tmp_path / "hurt"), plan.batches[0], [5]

    def stop():
        left[0] -= 1
        return left[0] == 0

    with pytest.raises(Stopped):
        run_batch(plan, batch, folder, every_rounds=2, should_stop=stop)
    newest = sorted(folder.checkpoints(batch).glob("*.json"))[-1]
    assert len(list(folder.checkpoints(batch).glob("*.json"))) == checkpoint.KEEP
    damage(newest)
    return plan, folder, batch


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    "damage",
    [
        flip,
        lambda path: path.write_bytes(path.read_bytes()[:100]),
        lambda path: flip(path.with_suffix(".safetensors")),
        lambda path: path.with_suffix(".safetensors").unlink(),
        lambda path: path.write_bytes(b""),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(whole, tmp_path, damage, caplog):
    plan, folder, batch = damaged_checkpoints(tmp_path, damage)
    run_batch(plan, batch, folder, every_rounds=2)
    assert "damaged" in caplog.text
    assert "000005" in caplog.text
    assert folder.part(batch).read_bytes() == Folder(whole).part(batch).read_bytes()


@pytest.mark.parametrize(
    ("damage", "left"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), 4),  # what only the newest counts on
        (flip, 0),
        (Path.unlink, 0),
        (lambda path: path.write_bytes(path.read_bytes() + b"half a li"), 5),  # killed while it was written
    ],
)
def test_rounds_that_are_damaged_are_run_again(whole, tmp_path, damage, left, caplog):
    plan, folder, batch = damaged_checkpoints(tmp_path, lambda path: damage(path.with_name(checkpoint.HISTORY)))
    assert rounds_restored(plan, batch, folder) == {left}
    assert caplog.text.count("is damaged") == {5: 0, 4: 1, 0: 2}[left]
    again = [2]

    def stop():
        again[0] -= 1
        return again[0] == 0

    if left < 4:
        with pytest.raises(Stopped):
            run_batch(plan, batch, folder, every_rounds=2, should_stop=stop)
        names = {path.stem for path in folder.checkpoints(batch).glob("*.json")}
        assert names == {"000002"}  # and none of the damaged ones
        assert rounds_restored(plan, batch, folder) == {2}
    run_batch(plan, batch, folder, every_rounds=2)
    assert folder.part(batch).read_bytes() == Folder(whole).part(batch).read_bytes()


def rounds_restored(plan, batch, folder):
    logs = checkpoint.Checkpoints(folder.checkpoints(batch)).restore(batches.open_batch(plan, batch, "cpu"))
    return {0 if log.current is None else log.current.round for log in logs.values()}


@pytest.mark.parametrize("rounds", [12, 24])
def test_every_round_is_written_into_checkpoints_once(tmp_path, monkeypatch, rounds):
    """So twice as many rounds are twice the work, and not four times."""
    written = {"record": 0, "event": 0}

    def counted(name, honest):
        def function(thing):
            written[name] += 1
            return honest(thing)

        return function

    monkeypatch.setattr(checkpoint, "_plain", counted("record", checkpoint._plain))
    monkeypatch.setattr(ledgers, "row_of", counted("event", ledgers.row_of))
    monkeypatch.setattr(batches, "write_part", lambda *arguments: None)
    study = {**STUDY, "set": {**STUDY["set"], "system.rounds": rounds}}
    plan = make_plan(make_study(study), 1)
    batch = plan.batches[0]
    run_batch(plan, batch, Folder(tmp_path), every_rounds=2)
    cells = len(batch.points) * len(batch.trials) * len(STUDY["schemes"])
    assert written == {"record": cells * (rounds - 2), "event": cells * (rounds - 2)}  # none after the last round


def test_a_checkpoint_of_an_earlier_version_is_gone_on_from(whole, tmp_path):
    """Each had all rounds in itself."""

    def as_it_was(path):
        history = path.with_name(checkpoint.HISTORY)
        content = json.loads(path.read_bytes().partition(b"\n")[2])
        del content["history"]
        for line in history.read_text().splitlines():
            for key, entry in content["entries"].items():
                checkpoint._add(entry, json.loads(line)[key])
        body = json.dumps(content).encode()
        head = json.dumps({"format": "airfl-checkpoint/1", "sha256": hashlib.sha256(body).hexdigest()})
        path.write_bytes(head.encode() + b"\n" + body)
        history.unlink()

    plan, folder, batch = damaged_checkpoints(tmp_path, as_it_was)
    assert rounds_restored(plan, batch, folder) == {5}
    run_batch(plan, batch, folder, every_rounds=1)
    assert folder.part(batch).read_bytes() == Folder(whole).part(batch).read_bytes()


def test_rounds_are_not_written_through_a_link(tmp_path, caplog):
    plan, folder = make_plan(make_study(STUDY), 1), Folder(tmp_path / "s")
    (tmp_path / "other").write_text("mine")
    folder.checkpoints(plan.batches[0]).mkdir(parents=True)
    (folder.checkpoints(plan.batches[0]) / checkpoint.HISTORY).symlink_to(tmp_path / "other")
    run_batch(plan, plan.batches[0], folder, every_rounds=2)
    assert (tmp_path / "other").read_text() == "mine"
    assert "no checkpoint" in caplog.text
    assert folder.finished(plan.batches[0]) is not None


@pytest.mark.parametrize("damage", [flip, lambda path: path.write_bytes(path.read_bytes()[:-9]), Path.unlink])
@pytest.mark.parametrize("which", ["part", "receipt"])
def test_a_damaged_part_is_done_again_and_nothing_else(whole, tmp_path, damage, which):
    out = tmp_path / "study"
    run(STUDY, out)
    plan, folder = sweeps.find_plan(out)
    damage(getattr(folder, which)(plan.batches[1]))
    before = folder.receipt(plan.batches[0]).read_bytes()
    standing, _ = run(STUDY, out, resume=True)
    assert (standing.done, standing.failed) == (16, 0)
    assert folder.receipt(plan.batches[0]).read_bytes() == before
    assert (out / "results.parquet").read_bytes() == (whole / "results.parquet").read_bytes()


def test_no_flipped_bit_of_a_receipt_goes_unnoticed(tmp_path):
    out = tmp_path / "study"
    run(STUDY, out)
    plan, folder = sweeps.find_plan(out)
    batch = plan.batches[0]
    path, part = folder.receipt(batch), folder.part(batch)
    written, rows, receipt = path.read_bytes(), part.read_bytes(), folder.finished(batch)
    for place in range(0, len(written), 11):
        data = bytearray(written)
        data[place] ^= 1
        path.write_bytes(bytes(data))
        assert folder.finished(batch) in (None, receipt), data[place - 10 : place + 10]
        part.write_bytes(rows)  # it was put aside


def test_a_full_disk_costs_checkpoints_but_not_results_that_are_there(whole, tmp_path, monkeypatch, caplog):
    """Checkpoints that find no room are left out; a part that finds none fails its batch, and --resume mends that."""

    def full(*arguments):
        raise OSError(errno.ENOSPC, "no space left on device")

    out = tmp_path / "study"
    monkeypatch.setattr(checkpoint.Checkpoints, "save", full)
    honest, calls = batches.write_bytes, []

    def sometimes(path, data):
        calls.append(path)
        if len(calls) == 2:
            full()
        honest(path, data)

    monkeypatch.setattr(batches, "write_bytes", sometimes)
    standing, _ = run(STUDY, out)
    assert "no checkpoint" in caplog.text
    assert standing.failed == 8
    assert standing.done == 8
    assert "no space left" in standing.messages[0]
    monkeypatch.undo()
    standing, _ = run(STUDY, out, resume=True)
    assert (standing.done, standing.failed) == (16, 0)
    assert (out / "results.parquet").read_bytes() == (whole / "results.parquet").read_bytes()


def test_a_diverging_cell_fails_alone(tmp_path):
    study = {**STUDY, "grid": {"learning.server_step": [1.0, 1e60]}}
    standing, _ = run(study, tmp_path / "study")
    assert standing.done == 4
    assert standing.failed == 4
    assert "diverged" in standing.messages[0]
    rows = pq.read_table(tmp_path / "study" / "results.parquet").to_pylist()
    assert {row["learning.server_step"] for row in rows if row["round"] == 6} == {1.0}


def test_a_diverged_cell_does_not_cost_the_others_their_checkpoints(tmp_path):
    study = {**STUDY, "schemes": ["airfl-dp"], "grid": {"learning.server_step": [1e60, 1.0]}}
    plan, folder, left, told = make_plan(make_study(study), 1), Folder(tmp_path / "s"), [4], []

    def stop():
        left[0] -= 1
        return left[0] == 0

    def heard(now, total):
        told.append((now, total))

    with pytest.raises(Stopped):
        run_batch(plan, plan.batches[0], folder, every_rounds=2, should_stop=stop, heard=heard)
    assert told == [(1, 6), (2, 6), (3, 6), (4, 6)]
    assert {path.stem for path in folder.checkpoints(plan.batches[0]).glob("*.json")} == {"000002", "000004"}


@pytest.mark.parametrize(("points", "trials", "rows"), [(17, 10, 16), (3, 4, 4), (9, 10, 18), (1, 5, 2), (5, 1, 40)])
def test_batches_hold_every_cell_once_and_are_even(points, trials, rows):
    base = {**STUDY, "trials": trials, "rows_per_batch": rows}
    made = {**base, "grid": {"privacy.epsilon": [float(e) for e in range(1, points + 1)]}}
    batches = make_plan(make_study(made), 1).batches
    cells = [(point, trial) for batch in batches for point in batch.points for trial in batch.trials]
    assert sorted(cells) == [(point, trial) for point in range(points) for trial in range(trials)]
    assert max(len(batch.points) * len(batch.trials) for batch in batches) <= rows
    sizes = {len(batch.points) for batch in batches}
    assert max(sizes) - min(sizes) <= max(1, points // 2)
    assert len({batch.name for batch in batches}) == len(batches)


def test_parts_and_plans_of_another_layout_are_not_taken(whole, tmp_path):
    copy = tmp_path / "s"
    shutil.copytree(whole, copy)
    plan, folder = sweeps.find_plan(copy)
    receipt = folder.receipt(plan.batches[0])
    told = json.loads(receipt.read_text())
    told["cells"] = [*told["cells"][1:], {**told["cells"][0], "trial": 7}]
    del told["checksum"]
    receipt.write_text(json.dumps({**told, "checksum": batches._checksum(told)}))  # sound, but of other cells
    assert folder.finished(plan.batches[0]) is None
    stored = json.loads((copy / "plan.json").read_text())
    (copy / "plan.json").write_text(json.dumps({**stored, "format": "airfl-study/1"}))
    with pytest.raises(InputError, match="new folder"):
        sweeps.find_plan(copy)


def test_time_of_earlier_sittings_is_counted(tmp_path, monkeypatch):
    plan, folder = make_plan(make_study(STUDY), 1), Folder(tmp_path / "s")
    with pytest.raises(Stopped):
        run_batch(plan, plan.batches[0], folder, should_stop=lambda: True)

    honest = checkpoint.Checkpoints.restore

    def restored(self, simulations):
        logs = honest(self, simulations)
        assert all(log.seconds > 0.0 for log in logs.values())
        next(iter(logs.values())).seconds = 1e6
        return logs

    monkeypatch.setattr(checkpoint.Checkpoints, "restore", restored)
    run_batch(plan, plan.batches[0], folder)
    assert json.loads(folder.receipt(plan.batches[0]).read_text())["seconds"] > 1e6


def test_a_stop_in_the_last_round_loses_nothing(whole, tmp_path):
    plan, folder, left = make_plan(make_study(STUDY), 1), Folder(tmp_path / "s"), [6]

    def stop():
        left[0] -= 1
        return left[0] == 0

    with pytest.raises(Stopped):
        run_batch(plan, plan.batches[0], folder, every_rounds=100, should_stop=stop)
    assert [path.stem for path in folder.checkpoints(plan.batches[0]).glob("*.json")] == ["000006"]
    run_batch(plan, plan.batches[0], folder)
    assert folder.part(plan.batches[0]).read_bytes() == Folder(whole).part(plan.batches[0]).read_bytes()


def test_another_study_or_a_second_sweep_is_refused(whole, tmp_path):
    with pytest.raises(InputError, match="--resume"):
        run(STUDY, whole)
    with pytest.raises(InputError, match=r"another study.*rounds"):
        run({**STUDY, "set": {**STUDY["set"], "system.rounds": 7}}, whole, resume=True)
    with runs.locked(whole), pytest.raises(InputError, match="another airfl is at work"):
        run(STUDY, whole, resume=True)
    plan = json.loads((whole / "plan.json").read_text())
    (tmp_path / "old").mkdir()
    older = {key: plan[key] for key in ("format", "threads", "study", "base", "points")}
    (tmp_path / "old" / "plan.json").write_text(json.dumps({**older, "version": "0.0.1"}))
    with pytest.raises(InputError, match=r"another study or version.*0\.0\.1"):
        run(STUDY, tmp_path / "old", resume=True)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "something").touch()
    with pytest.raises(InputError, match="not empty"):
        run(STUDY, tmp_path / "full")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"grid": {"privacy.epsilon": []}}, "no values"),
        ({"grid": {"privacy.espilon": [1.0]}}, "unknown key"),
        ({"zip": [{"system.rounds": [1, 2], "system.seed": [1]}]}, "equally many"),
        ({"list": [{"privacy.epsilon": 1.0}]}, "axis twice"),
        ({"set": {"system.trials": 3}}, "is set by"),
        ({"base": "nowhere"}, "no preset"),
        ({"grid": {"learning.clip_norm": [1, "2"]}}, "of one kind"),
        ({"extra": 1}, "extra"),
        ({"schemes": ["hope"]}, "schemes"),
        ({"trials": 0}, "trials"),
    ],
)
def test_bad_studies(change, words):
    with pytest.raises(InputError, match=words):
        make_plan(make_study({**STUDY, **change}))


def test_axes_multiply_and_go_side_by_side():
    study = make_study(
        {
            **STUDY,
            "grid": {"privacy.epsilon": [1.0, 2.0]},
            "zip": [{"system.rounds": [1, 2, 3], "learning.learning_rate": [0.1, 0.2, 0.3]}],
            "list": [{"system.seed": 1}, {"system.seed": 2, "learning.clip_norm": 3.0}],
        }
    )
    points = list(study.points())
    assert len(points) == 2 * 3 * 2
    assert {(p["system.rounds"], p["learning.learning_rate"]) for p in points} == {(1, 0.1), (2, 0.2), (3, 0.3)}
    plan = make_plan(study)
    assert plan.num_cells == 12 * 2 * 2
    covered = [(point, trial) for batch in plan.batches for point in batch.points for trial in batch.trials]
    assert len(covered) == len(set(covered)) == 24
    for batch in plan.batches:  # only what differs in neither data nor rounds trains together
        assert len({plan.config(p).system.rounds for p in batch.points}) == 1


def test_points_may_name_their_own_schemes(tmp_path):
    points = [{"scheme.names": ["fedavg"]}, {"scheme.names": ["airfl-dp", "airfl-mimo"], "privacy.epsilon": 5.0}]
    study = {**STUDY, "grid": {}, "list": points}
    standing, _ = run(study, tmp_path / "study")
    assert (standing.summary["cells"], standing.done) == (6, 6)
    rows = pq.read_table(tmp_path / "study" / "results.parquet").to_pylist()
    assert {(row["scheme"], row["privacy.epsilon"]) for row in rows} == {
        ("fedavg", None),
        ("airfl-dp", 5.0),
        ("airfl-mimo", 5.0),
    }
    with pytest.raises(InputError, match="is set by"):
        make_study({**STUDY, "grid": {"scheme.names": [["fedavg"]]}})


def test_ten_thousand_cells_are_planned_lightly():
    study = {**STUDY, "trials": 10, "schemes": ["airfl-dp"]}
    study["grid"] = {
        "privacy.epsilon": [1 + i / 10 for i in range(50)],
        "channel.power_w": [1e-3 * i for i in range(1, 21)],
    }
    plan = make_plan(make_study(study))
    assert plan.num_cells == 10_000
    assert sum(plan.cells_of(batch) for batch in plan.batches) == 10_000


def start(study_file, out, *more):
    """A sweep in a process of its own; its output goes to files beside the folder."""
    command = [sys.executable, "-m", "airfl.cli", "sweep", str(study_file), "--out", str(out), "--json"]
    with Path(f"{out}.out").open("w") as output, Path(f"{out}.err").open("w") as errors:
        return subprocess.Popen([*command, "--checkpoint-rounds", "1", *more], stdout=output, stderr=errors)


def test_killed_again_and_again_the_results_are_the_same(tmp_path):
    """SIGKILL at moments that are spread over the work, each followed by --resume; then Ctrl-C; then to the end."""
    study = tmp_path / "study.toml"
    study.write_text(tomli_w.dumps({**STUDY, "set": {**STUDY["set"], "system.rounds": 40}}))
    undisturbed = start(study, tmp_path / "whole")
    assert undisturbed.wait(120) == 0, Path(f"{tmp_path / 'whole'}.err").read_text()
    out, resume = tmp_path / "hurt", ()
    for kill in range(4):
        process = start(study, out, *resume)
        end = time.monotonic() + 60
        while time.monotonic() < end and process.poll() is None:
            written = list((out / "checkpoints").glob("*/*.json")) + list((out / "parts").glob("*.json"))
            if len({path.name for path in written}) > kill:
                break
            time.sleep(0.01)
        process.kill()
        process.wait()
        resume = ("--resume",) if (out / "plan.json").exists() else ()
    for old in (out / "running").glob("*.json"):
        old.unlink()
    process = start(study, out, *resume)
    while process.poll() is None and not list((out / "running").glob("*.json")):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) in (130, 0)
    assert start(study, out, "--resume").wait(120) == 0, Path(f"{out}.err").read_text()
    assert json.loads(Path(f"{out}.out").read_text().splitlines()[-1])["done"] == 16
    assert (out / "results.parquet").read_bytes() == (tmp_path / "whole" / "results.parquet").read_bytes()


def half_written(out):
    """Checkpoints that are being written: their temporary names."""
    return list((out / "checkpoints").glob("*/.*"))


def test_killed_inside_checkpoint_writes(whole, tmp_path):
    """Stopped, looked at, and killed only while a half-written checkpoint lies there; then resumed to the same bits."""
    study, out = tmp_path / "study.toml", tmp_path / "hurt"
    study.write_text(tomli_w.dumps(STUDY))
    inside, resume = 0, ()
    for _ in range(3):
        process = start(study, out, *resume)
        end = time.monotonic() + 60
        while time.monotonic() < end and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            if half_written(out):
                break
            process.send_signal(signal.SIGCONT)
            time.sleep(0.0005)
        process.kill()
        process.wait()
        inside += bool(half_written(out))
        for half in half_written(out):  # so that the next round sees its own
            half.unlink()
        resume = ("--resume",) if (out / "plan.json").exists() else ()
    assert inside > 0
    assert start(study, out, *resume).wait(120) == 0, Path(f"{out}.err").read_text()
    assert (out / "results.parquet").read_bytes() == (whole / "results.parquet").read_bytes()


@pytest.fixture
def small_disk(tmp_path):
    """A disk of its own; making one needs the right to mount."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(size):
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], capture_output=True)
        if done.returncode:
            pytest.skip(f"no right to mount: {done.stderr.decode().strip()}")
        return disk

    yield mount
    subprocess.run(["umount", disk], capture_output=True)


def test_a_disk_that_is_really_full(whole, small_disk, tmp_path):
    """What fits is kept, what does not fails with the reason; with more room --resume gives the same bits."""
    disk = small_disk("64k")
    study = tmp_path / "study.toml"
    study.write_text(tomli_w.dumps({**STUDY, "rows_per_batch": 2}))
    arguments = [sys.executable, "-m", "airfl.cli", "sweep", str(study), "--out", str(disk / "o"), "--json"]
    first = subprocess.run([*arguments, "--checkpoint-rounds", "2"], capture_output=True, text=True)
    assert first.returncode == 1, first.stderr
    assert "Traceback" not in first.stderr
    said = json.loads(first.stdout.splitlines()[-1])
    assert said["failed"] > 0
    assert said["done"] + said["failed"] == 16
    assert "no space left" in " ".join(said["messages"])
    kept = {path.name: path.read_bytes() for path in (disk / "o" / "parts").glob("*.parquet")}
    subprocess.run(["mount", "-o", "remount,size=4m", disk], check=True)
    second = subprocess.run([*arguments, "--resume"], capture_output=True, text=True)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout.splitlines()[-1])["done"] == 16
    for name, content in kept.items():
        assert (disk / "o" / "parts" / name).read_bytes() == content
    rows = pq.read_table(disk / "o" / "results.parquet").to_pylist()
    order = ("point", "scheme", "trial", "round")
    same = pq.read_table(whole / "results.parquet").to_pylist()
    keyed = [{tuple(row[key] for key in order): row["accuracy"] for row in table} for table in (rows, same)]
    assert keyed[0] == pytest.approx(keyed[1], abs=1e-6)


def test_a_folder_that_may_not_be_written(small_disk, tmp_path):
    disk = small_disk("1m")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)  # root may write where the mode forbids it
    study = tmp_path / "study.toml"
    study.write_text(tomli_w.dumps(STUDY))
    arguments = [sys.executable, "-m", "airfl.cli", "sweep", str(study), "--out", str(disk / "o"), "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 2
    assert "not writable" in done.stderr
    assert "Traceback" not in done.stderr


def test_command_line(call, tmp_path):
    (tmp_path / "s.toml").write_text(tomli_w.dumps(STUDY))
    code, out, _ = call("sweep", "s.toml", "--dry-run", "--json")
    assert (code, json.loads(out)) == (0, {"cells": 16, "batches": 2})
    code, out, _ = call("sweep", "s.toml", "--dry-run")
    assert "16 cells in 2 batches" in out
    (tmp_path / "one.toml").write_text("name = 'one'\nbase = 'demo'\nschemes = ['fedavg']\ntrials = 1\n")
    assert (
        call("sweep", "one.toml", "--dry-run")[1] == "one: 1 configuration, all schemes, 1 trial: 1 cell in 1 batch\n"
    )
    code, out, _ = call("sweep", "s.toml", "--out", "o", "--json")
    assert code == 0
    assert json.loads(out.splitlines()[-1])["done"] == 16
    assert json.loads(call("status", "o", "--json")[1]) == {**ALL_DONE, "seconds_left": 0.0}
    assert "16" in call("status", "o")[1]
    assert len(json.loads(call("report", "o", "--json")[1])["rows"]) == 8
    assert "airfl-dp" in call("report", "o")[1]
    for arguments, words in (
        (["sweep", "absent.toml"], "cannot read"),
        (["sweep", "s.toml", "--out", "o"], "--resume"),
        (["sweep", "s.toml", "--out", "p", "--executor", "cloud"], "no executor"),
        (["sweep", "s.toml", "--out", "p", "--workers", "0"], "workers"),
        (["sweep", "s.toml", "--out", "p", "--address", "x"], "--executor ray"),
        (["sweep", "s.toml", "--out", "s.toml"], "not writable"),
        (["status", "nowhere"], "holds no study"),
        (["report", "nowhere"], "holds no study"),
    ):
        code, _, error = call(*arguments)
        assert code == 2, arguments
        assert words in error, (arguments, error)


def test_a_kill_before_the_plan_was_written_costs_nothing(tmp_path):
    """The text of the study is there and the plan is not: the folder is this study's, and nobody else's."""
    from airfl.study import make_study
    from airfl.sweeps.planfile import open_folder

    study, out = make_study(STUDY), tmp_path / "out"
    _, folder = open_folder(study, "the text", out, resume=False, threads=1)
    (folder.path / "plan.json").unlink()
    plan, _ = open_folder(study, "the text", out, resume=False, threads=1)
    assert (out / "plan.json").exists()
    assert len(plan.batches) > 0
    (out / "plan.json").unlink()
    with pytest.raises(InputError, match="holds no study"):
        open_folder(study, "another text", out, resume=False, threads=1)
    assert (out / "study.toml").read_text() == "the text"
