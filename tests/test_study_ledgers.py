"""Studies keep their ledgers, read ε from them, and go on wherever their folder is moved."""

from __future__ import annotations

import json
import shutil
import sys

import numpy as np
import pytest
import tomli_w

import airfl
from airfl import runs, sweeps
from airfl.errors import InputError
from airfl.imports import beside
from airfl.paper import studies
from airfl.privacy import Ledger, RoundEvent, Sampling, epsilon_of
from airfl.study import make_plan, read_study
from airfl.sweeps import batch as batches
from airfl.sweeps.batch import Stopped, run_batch
from airfl.sweeps.ledgers import pack, unpack
from tests.test_study_folders import content
from tests.test_sweep import STUDY, flip, run

#: Transmit scalars that do not quite invert the channel: gains above one.
ERRED = {**STUDY, "set": {**STUDY["set"], "system.rounds": 3, "channel.csi_error": 0.05}, "grid": {}}


@pytest.fixture(scope="module")
def erred(tmp_path_factory):
    out = tmp_path_factory.mktemp("erred") / "study"
    run(ERRED, out)
    return out


def event(number, noise_var=2.0, **more):
    sampling = Sampling("without-replacement", 3, 2)
    fields = {"round": number, "clip_norm": 1.0, "gain_bound": 1.0, "noise_var": noise_var, "noise_source": "channel"}
    fields |= {"noise_power": 0.1, "sampling": sampling, "update_factor": 0.1, "base_station": 1.0}
    return RoundEvent(**{**fields, **more})


def booked(*events):
    """A ledger with sums per device: the first is seen half as well as the second, the third not at all."""
    ledger = Ledger()
    for one in events:
        ledger = ledger.append(one, {"base-station": np.array([0.5, 1.0, 0.0]) * one.base_station})
    return ledger


def test_ledgers_come_back_as_they_were_and_what_comes_twice_is_kept_once():
    even = booked(*(event(t) for t in range(40)))
    gaps = booked(event(1), event(3), event(4, 0.1 + 0.2, base_station=1 / 3), event(5))
    bare = event(0, clip_norm=float("inf"), noise_power=None, base_station=None, gradient_var=1e-300)
    ledgers = {(0, "a", 0): even, (0, "a", 1): booked(*even.events), (7, "b:c", 0): gaps, (7, "b:c", 2): Ledger([bare])}
    ledgers[7, "b:c", 3] = Ledger(gaps.events)  # the same rounds without sums are another ledger
    ledgers[8, "a", 0] = Ledger()
    data = pack(ledgers)
    assert unpack(data) == ledgers
    assert list(unpack(data)) == list(ledgers)
    assert pack(unpack(data)) == data
    assert len(pack({(0, "a", t): even for t in range(50)})) < len(pack({(0, "a", 0): even})) + 500
    assert len(pack({(0, "a", 0): even})) < 500


def test_the_ledgers_of_a_study_are_those_of_its_runs(erred):
    plan, _ = sweeps.find_plan(erred)
    for scheme, alone in runs.run(plan.config(0)).schemes.items():
        kept = sweeps.ledgers_of(erred, 0, scheme)
        assert [len(ledger.events) for ledger in kept] == [3, 3]
        assert kept == list(alone.ledgers)
    for point, scheme in ((0, "fedavg"), (1, "airfl-dp")):
        with pytest.raises(InputError, match="no configuration"):
            sweeps.ledgers_of(erred, point, scheme)


def test_epsilon_is_that_of_the_ledgers_also_where_gains_are_not_one(erred):
    plan, folder = sweeps.find_plan(erred)
    rows = {row["scheme"]: row for row in sweeps.summarise(plan, folder)}
    gathered = {row["scheme"]: row for row in studies.gather(plan, folder, "authors", every_round=False)}
    alone = runs.run(plan.config(0)).summary["schemes"]
    config, dim = plan.config(0), studies.notes_of(plan, folder)["dim"]
    for scheme in STUDY["schemes"]:
        ledgers = sweeps.ledgers_of(erred, 0, scheme)
        assert max(event.gain_bound for ledger in ledgers for event in ledger.events) > 1.0
        right = epsilon_of(ledgers, "gaussian", config.neighbours, "model", config.privacy.delta)
        assert rows[scheme]["epsilon_by_observer"] == alone[scheme]["epsilon_by_observer"]
        assert rows[scheme]["epsilon_by_observer"]["model"]["gaussian"] == right
        assert gathered[scheme]["epsilon_exact"] == right
        noise = [[event.noise_var for event in ledger.events] for ledger in ledgers]
        derived = studies._from_noise(config, dim, np.array(noise))
        assert airfl.gaussian_epsilon(config.privacy.delta, float(derived[-1])) < 0.99 * right  # too small a promise
    header, *lines = (erred / "summary.csv").read_text().splitlines()
    column = header.split(",").index("epsilon_exact_base_station")
    assert float(lines[0].split(",")[column]) == rows["airfl-mimo"]["epsilon_by_observer"]["base-station"]["gaussian"]


def test_a_folder_without_ledgers_is_read_as_before(erred, tmp_path):
    shutil.copytree(erred, tmp_path / "old")
    plan, folder = sweeps.find_plan(tmp_path / "old")
    before = sweeps.summarise(plan, folder)
    for batch in plan.batches:
        folder.ledgers(batch).unlink()
        receipt = json.loads(folder.receipt(batch).read_text())
        older = {k: v for k, v in receipt.items() if k not in ("ledgers_sha256", "checksum")}
        older["format"] = batches.NO_LEDGERS
        folder.receipt(batch).write_text(json.dumps({**older, "checksum": batches._checksum(older)}))
    rows = sweeps.summarise(plan, folder)
    assert rows == [{**row, "epsilon_by_observer": None, "noise_follows_data": None} for row in before]
    assert len(studies.gather(plan, folder, "authors", every_round=True)) == 2 * 3
    with pytest.raises(InputError, match="before studies kept their ledgers"):
        sweeps.ledgers_of(folder.path, 0, "airfl-dp")
    assert run(ERRED, tmp_path / "old", resume=True)[0].done == 4
    assert not list((tmp_path / "old" / "parts").glob("*.gz"))  # finished is finished


@pytest.mark.parametrize("damage", [flip, lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
def test_damaged_ledgers_are_refused_and_done_again(call, erred, tmp_path, damage):
    shutil.copytree(erred, tmp_path / "o")
    (tmp_path / "s.toml").write_text(tomli_w.dumps(ERRED))
    file = tmp_path / "o" / "parts" / "batch-00000.ledgers.json.gz"
    damage(file)
    before = content(tmp_path / "o")
    for command in ("report", "status"):
        status, out, error = call(command, "o", "--json")
        assert (status, out, len(error.splitlines())) == (2, "", 1)
        assert file.name in error
    assert content(tmp_path / "o") == before
    run(ERRED, tmp_path / "o", resume=True)
    assert file.read_bytes() == (erred / "parts" / file.name).read_bytes()
    plan, folder = sweeps.find_plan(tmp_path / "o")
    assert sweeps.summarise(plan, folder) == sweeps.summarise(*sweeps.find_plan(erred))


def own_base(folder):
    """A study with a base of its own, in a file beside it, and a model in another one."""
    folder.mkdir(parents=True)
    net = "from torch import nn\ndef net(shape, n):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, n))\n"
    (folder / "moving_nets.py").write_text(net)
    (folder / "mine.toml").write_text(airfl.preset("paper").replace({"system.seed": 5}).to_toml())
    changed = {**STUDY["set"], "learning.model": "moving_nets:net", "system.rounds": 3}
    study = {
        **STUDY,
        "base": "mine.toml",
        "set": changed,
        "grid": {"channel.power_w": [1e-9, 1e-3]},
        "rows_per_batch": 2,
    }
    (folder / "s.toml").write_text(tomli_w.dumps(study))
    return folder / "s.toml"


def interrupt(file, out):
    """One of two batches finished, the other one stopped in the middle."""
    study, text = read_study(file)
    with runs.locked(out):
        plan, folder = sweeps.open_folder(study, text, out, resume=False, threads=1, study_file=file)
        run_batch(plan, plan.batches[0], folder)
        with pytest.raises(Stopped):
            run_batch(plan, plan.batches[1], folder, should_stop=lambda: True)


def test_a_study_goes_on_wherever_its_folder_is_moved(call, tmp_path, monkeypatch):
    file = own_base(tmp_path / "here")
    try:
        assert call("sweep", str(file), "--out", "whole", "--json")[0] == 0
        interrupt(file, tmp_path / "half")
        right = json.loads(call("report", "whole", "--json")[1])
        (tmp_path / "far").mkdir()
        moved, copied = tmp_path / "far" / "study", tmp_path / "copied"
        shutil.move(tmp_path / "half", moved)
        shutil.copytree(tmp_path / "whole", copied)
        (tmp_path / "here" / "moving_nets.py").rename(moved / "moving_nets.py")
        shutil.rmtree(tmp_path / "here")
        (tmp_path / "third").mkdir()
        monkeypatch.chdir(tmp_path / "third")
        monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(tmp_path / "here")])
        sys.modules.pop("moving_nets")
        assert json.loads(call("status", str(moved), "--json")[1])["done"] == 4
        assert json.loads(call("report", str(moved), "--json")[1])["done"] == 4
        assert json.loads(call("report", str(copied), "--json")[1]) == right
        again = ("sweep", str(moved / "study.toml"), "--out", str(moved), "--resume")
        assert json.loads(call(*again, "--dry-run", "--json")[1])["cells"] == 8
        status, _, error = call(*again, "--json")
        assert status == 0, error
        assert (moved / "results.parquet").read_bytes() == (copied / "results.parquet").read_bytes()
        assert json.loads(call("report", str(moved), "--json")[1]) == right
        assert airfl.read(str(moved / "base.toml")) == sweeps.find_plan(moved)[0].base
        (moved / "mine.toml").write_text(airfl.preset("paper").replace({"system.seed": 6}).to_toml())
        status, _, error = call(*again)
        assert status == 2
        assert '"seed": 6' in error
    finally:
        sys.modules.pop("moving_nets", None)


def test_the_base_beside_the_study_comes_before_that_of_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = own_base(tmp_path / "beside")
    study, _ = read_study(file)
    with pytest.raises(InputError, match=r"mine\.toml"):
        make_plan(study)
    (tmp_path / "mine.toml").write_text(airfl.preset("paper").replace({"system.seed": 9}).to_toml())
    assert make_plan(study).base.system.seed == 9
    assert make_plan(study, file=file).base.system.seed == 5
    assert beside()[0] == str(tmp_path / "beside")


def test_worker_processes_find_code_beside_the_study(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = own_base(tmp_path / "beside")
    study, text = read_study(file)
    with runs.locked("o"):
        plan, folder = sweeps.open_folder(study, text, "o", resume=False, threads=1, study_file=file)
        standing, _ = sweeps.run_sweep(plan, folder, sweeps.make_executor("local", 2))
    assert (standing.done, standing.messages) == (8, [])


def test_a_study_in_one_call(tmp_path, erred):
    rows = airfl.sweep(ERRED, tmp_path / "o")
    assert [row["accuracy_mean"] for row in rows] == pytest.approx(
        [row["accuracy_mean"] for row in sweeps.summarise(*sweeps.find_plan(erred))], abs=1e-6
    )
    assert airfl.sweep(tmp_path / "o" / "study.toml", tmp_path / "o", resume=True) == rows
    with pytest.raises(InputError, match="--resume"):
        airfl.sweep(ERRED, tmp_path / "o")
    with pytest.raises(InputError, match="texts, numbers"):
        airfl.sweep({**ERRED, "trials": object()})
    with pytest.raises(InputError, match="4 of 4 cells failed"):
        airfl.sweep({**ERRED, "set": {**ERRED["set"], "learning.model": "nowhere:net"}})


def test_a_report_shows_exact_epsilon_where_it_is_not_what_was_booked(call, erred, tmp_path):
    assert "ε exact" not in call("report", str(erred))[1]
    published = {**ERRED, "set": {**ERRED["set"], "privacy.accountant": "paper", "system.rounds": 1}, "trials": 1}
    run({**published, "schemes": ["airfl-dp"]}, tmp_path / "o")
    assert "ε exact" in call("report", "o")[1]
