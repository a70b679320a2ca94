"""A study's folder is only built on, or read from, where it is what was written."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import tomli_w

from airfl import runs, sweeps
from airfl.errors import InputError
from airfl.imports import source_digest
from airfl.runs.sameness import processor
from airfl.sweeps import planfile, sweep
from airfl.sweeps.batch import Folder, digest
from airfl.sweeps.summary import NOTES, TABLES, write_notes
from airfl.web.library import Library
from tests.fuzz import inprocess
from tests.test_sweep import STUDY, flip

TEXT = tomli_w.dumps(STUDY)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished study and its file."""
    out = tmp_path_factory.mktemp("whole") / "study"
    from airfl.study import make_study
    from airfl.sweeps.executors import InProcess, Settings

    with runs.locked(out):
        plan, folder = sweeps.open_folder(make_study(STUDY), TEXT, out, resume=False, threads=1)
        sweeps.run_sweep(plan, folder, InProcess(Settings()))
    return out


@pytest.fixture
def copy(whole, tmp_path):
    """Of the finished study, in the working directory of ``call``, beside its file."""
    shutil.copytree(whole, tmp_path / "o")
    (tmp_path / "s.toml").write_text(TEXT)
    return tmp_path / "o"


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def change_plan(folder, **changes):
    """Write plan.json anew, with a sound checksum."""
    stored = json.loads((folder / "plan.json").read_text())
    made = {**{key: value for key, value in stored.items() if key != "checksum"}, **changes}
    (folder / "plan.json").write_text(json.dumps({**made, "checksum": planfile._checksum(made)}))


@pytest.mark.parametrize(("key", "other"), [("source", "0123456789ab"), ("torch", "9.9.9+cpu")])
def test_other_code_of_the_same_version_is_refused_and_shown(call, copy, key, other):
    code = json.loads((copy / "plan.json").read_text())["code"]
    change_plan(copy, code={**code, key: other})
    (copy / "parts" / "batch-00001.json").unlink()
    before = content(copy)
    status, _, error = call("sweep", "s.toml", "--out", "o", "--resume")
    assert status == 2
    assert f"{key}: begun with {other}, now {code[key]}" in error
    assert "--anyway" in error
    assert len([line for line in error.splitlines() if line.strip()]) == 1
    assert content(copy) == before
    status, out, error = call("sweep", "s.toml", "--out", "o", "--resume", "--anyway", "--json")
    assert status == 0, error
    assert json.loads(out.splitlines()[-1])["done"] == 16
    told = [json.loads((copy / "parts" / f"batch-0000{number}.json").read_text())["provenance"] for number in (0, 1)]
    assert "begun_with" not in told[0]
    assert told[1]["begun_with"][key] == other
    assert told[1][key] == code[key]
    assert json.loads((copy / "provenance.json").read_text())["source"] == [code["source"]]


def test_another_processor_goes_on_and_is_said(call, copy, caplog):
    change_plan(copy, processor="Elbrus-8SV")
    (copy / "parts" / "batch-00001.json").unlink()
    status, _, error = call("sweep", "s.toml", "--out", "o", "--resume")
    assert (status, "begun on another processor (Elbrus-8SV)" in caplog.text) == (0, True), error
    assert json.loads((copy / "provenance.json").read_text())["processor"] == [processor()]


def test_an_edited_file_of_the_package_is_other_code(call, copy, monkeypatch):
    monkeypatch.setattr("airfl.imports.source_sha256", lambda: "edited")
    status, _, error = call("sweep", "s.toml", "--out", "o", "--resume")
    assert status == 2
    assert "now edited" in error


def test_edited_code_of_the_user_is_other_code(call, tmp_path):
    module = tmp_path / "own_nets.py"
    net = "from torch import nn\ndef net(shape, n):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, n))\n"
    module.write_text(net)
    study = {**STUDY, "set": {**STUDY["set"], "learning.model": "own_nets:net", "system.rounds": 1}, "grid": {}}
    (tmp_path / "s.toml").write_text(tomli_w.dumps(study))
    try:
        status, _, error = call("sweep", "s.toml", "--out", "o", "--json")
        assert status == 0, error
        assert json.loads((tmp_path / "o" / "plan.json").read_text())["code"]["own_nets:net"] == source_digest(
            "own_nets:net"
        )
        module.write_text(net + "# edited\n")
        status, _, error = call("sweep", "s.toml", "--out", "o", "--resume")
        assert status == 2
        assert "own_nets:net: begun with" in error
        assert call("report", "o", "--json")[0] == 0  # reading executes nothing
    finally:
        sys.modules.pop("own_nets", None)


def test_finding_the_file_of_an_import_path_executes_nothing(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("raise SystemExit")
    (tmp_path / "pack" / "inner.py").write_text("raise SystemExit")
    first = source_digest("pack.inner:thing")
    assert first is not None
    (tmp_path / "pack" / "inner.py").write_text("raise SystemExit  # edited")
    assert source_digest("pack.inner:thing") not in (first, None)
    assert source_digest("nowhere.at.all:thing") is None
    assert source_digest("sys:exit") is None  # built in
    assert "pack" not in sys.modules


def test_a_plan_of_the_version_before_goes_on_with_a_plain_warning(call, copy, caplog):
    stored = json.loads((copy / "plan.json").read_text())
    older = {key: value for key, value in stored.items() if key not in ("code", "text", "checksum")}
    (copy / "plan.json").write_text(json.dumps(older, indent=1))
    assert call("report", "o", "--json")[0] == 0
    (copy / "parts" / "batch-00001.json").unlink()
    status, _, error = call("sweep", "s.toml", "--out", "o", "--resume", "--json")
    assert status == 0, error
    assert "does not say which code" in caplog.text


def test_a_study_from_before_a_key_existed_is_read_and_gone_on_with(call, copy):
    """Keys that its version did not have have their defaults, and are no difference."""
    base = json.loads((copy / "plan.json").read_text())["base"]
    gone = ("shadowing_db", "antenna_gain_dbi", "loss_db", "hall", "profile")
    assert all(key in base["channel"] for key in gone)
    older = {key: value for key, value in base["channel"].items() if key not in gone}
    change_plan(copy, base={**base, "channel": older})
    assert len(json.loads(call("report", "o", "--json")[1])["rows"]) == 8
    (copy / "parts" / "batch-00001.json").unlink()
    status, _, error = call("sweep", "s.toml", "--out", "o", "--resume", "--json")
    assert status == 0, error


def test_a_study_of_another_version_is_read_but_not_gone_on_with(call, copy):
    change_plan(copy, version="0.0.1")
    assert len(json.loads(call("report", "o", "--json")[1])["rows"]) == 8
    status, _, error = call("sweep", "s.toml", "--out", "o", "--resume")
    assert status == 2
    assert "0.0.1" in error


def test_a_report_needs_no_base_file(call, tmp_path):
    from airfl.config import preset

    (tmp_path / "base.toml").write_text(preset("paper").to_toml())
    study = {**STUDY, "base": "base.toml", "grid": {}, "set": {**STUDY["set"], "system.rounds": 1}}
    (tmp_path / "s.toml").write_text(tomli_w.dumps(study))
    assert call("sweep", "s.toml", "--out", "o", "--json")[0] == 0
    (tmp_path / "base.toml").unlink()
    assert len(json.loads(call("report", "o", "--json")[1])["rows"]) == 2


@pytest.mark.parametrize("name", ["plan.json", "study.toml", "provenance.json", "parts/batch-00000.parquet"])
def test_a_pipe_where_a_file_belongs_is_not_waited_for(copy, tmp_path, monkeypatch, name):
    monkeypatch.setattr(inprocess, "PATIENCE", 20)
    (copy / name).unlink()
    os.mkfifo(copy / name)
    for command in (["report", "o"], ["report", "o", "--out", "f"], ["status", "o"],
                    ["sweep", "s.toml", "--out", "o", "--resume"]):  # fmt: skip
        ended = inprocess.call(*command, folder=tmp_path)
        assert not ended.hung, command
        assert ended.refused, ended.error
        assert f"`o/{name}` is a pipe" in ended.sentences[0]


@pytest.mark.parametrize("command", ["report", "status"])
def test_a_folder_whose_name_is_no_text_is_refused(call, copy, tmp_path, command):
    """PyArrow opens nothing there."""
    copy.rename(tmp_path / os.fsdecode(b"caf\xe9"))
    code, _, error = call(command, os.fsdecode(b"caf\xe9"))
    assert (code, len(error.splitlines())) == (2, 1)
    assert r"the name of the folder `caf\xe9` is no UTF-8 text" in error


def swap(path: Path) -> None:
    """Two receipts, or two parts, in each other's place."""
    other = path.with_name(path.name.replace("00000", "00001"))
    first, second = path.read_bytes(), other.read_bytes()
    path.write_bytes(second)
    other.write_bytes(first)


DAMAGES = [
    flip,
    Path.unlink,
    swap,
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:-20]),
    lambda path: path.write_bytes(b"\xff\x00garbage"),
    lambda path: path.write_bytes(b"[" * 100_000),
]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", ["batch-00000.parquet", "batch-00000.json"])
def test_reading_a_damaged_study_is_refused_in_one_sentence_and_touches_nothing(call, copy, whole, damage, which):
    right = call("report", str(whole), "--json")[1]
    damage(copy / "parts" / which)
    before = content(copy)
    for command in ("report", "status"):
        status, out, error = call(command, "o", "--json")
        assert (status, out) == (2, ""), (command, out, error)
        assert "batch-0000" in error
        assert "airfl sweep STUDY --out o --resume" in error
        assert len(error.splitlines()) == 1
    assert content(copy) == before
    assert call("sweep", "s.toml", "--out", "o", "--resume", "--json")[0] == 0
    assert call("report", "o", "--json")[1] == right


def test_a_finished_batch_that_is_gone_altogether_is_missed(call, copy):
    for path in (copy / "parts").glob("batch-00001.*"):
        path.unlink()
    status, _, error = call("report", "o", "--json")
    assert status == 2
    assert "1 finished batch is not there any more" in error


def test_a_study_that_is_not_finished_is_reported_as_far_as_it_is(call, copy):
    for path in (*(copy / "parts").glob("batch-00001.*"), *(copy / name for name in (*TABLES, NOTES))):
        path.unlink()
    status, out, error = call("report", "o", "--json")
    assert (status, error) == (0, "")
    said = json.loads(out)
    assert (said["cells"], said["done"], said["failed"]) == (16, 8, 0)
    assert "8 of 16 cells" in call("report", "o")[1]
    assert json.loads(call("status", "o", "--json")[1])["done"] == 8


@pytest.mark.parametrize("damage", [*DAMAGES[:2], *DAMAGES[3:]])
@pytest.mark.parametrize("which", ["plan.json", "study.toml"])
def test_a_damaged_plan_is_refused(call, copy, damage, which):
    damage(copy / which)
    for command in ("report", "status"):
        status, out, error = call(command, "o", "--json")
        assert (status, out) == (2, ""), (command, out, error)
        assert which in error
    status, _, error = call("sweep", "s.toml", "--out", "o", "--resume", "--json")
    assert status == (0 if which == "study.toml" else 2), error
    if which == "study.toml":
        assert (copy / which).read_text() == TEXT


@pytest.mark.parametrize("damage", [*DAMAGES[:2], *DAMAGES[3:]])
@pytest.mark.parametrize("which", [*TABLES, NOTES, "base.toml"])
def test_what_people_read_is_what_was_written(call, copy, whole, damage, which, caplog):
    right = call("report", str(whole), "--json")[1]
    damage(copy / which)
    names = {path.name for path in copy.rglob("*")}
    for command in ("report", "status"):
        status, out, error = call(command, "o", "--json")
        assert (status, out) == (2, ""), (command, out, error)
        assert f"`{which}`" in error
        assert "airfl sweep STUDY --out o --resume" in error
        assert len(error.splitlines()) == 1
    (item,) = Library(copy.parent).look().items
    assert item.state == "damaged"
    assert which in item.message
    assert {path.name for path in copy.rglob("*")} == names
    assert caplog.text == ""
    status, _, error = call("sweep", "s.toml", "--out", "o", "--resume", "--json")
    assert status == 0, error
    assert which in caplog.text
    assert caplog.text.count("written anew") == 1
    assert call("report", "o", "--json")[:2] == (0, right)
    assert content(copy) == content(whole)


@pytest.mark.parametrize("renames", range(5))
def test_a_kill_while_tables_are_written_leaves_a_study_that_is_read_and_gone_on_with(
    call, copy, whole, renames, monkeypatch, caplog
):
    """Of the notes without tables, each table, and the notes with both; there were those of a sitting before."""
    plan, folder = sweeps.find_plan(copy)
    for name in TABLES:
        (copy / name).write_bytes(b"of one batch")
    files = {name: digest(copy / name) for name in TABLES}
    write_notes(folder, {**sweep.provenance_of_study(plan, folder), "batches": 1}, files)
    left, honest = [renames], os.replace

    def replace(*names):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        honest(*names)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(KeyboardInterrupt) if renames < 4 else contextlib.nullcontext():
        sweep.compact(plan, folder)
    monkeypatch.undo()
    monkeypatch.chdir(copy.parent)
    for command in ("report", "status"):
        status, out, _ = call(command, "o", "--json")
        assert (status, json.loads(out)["done"]) == (0, 16)
    assert ("nothing vouches for `results.parquet` and `summary.csv`" in caplog.text) == (0 < renames < 4)
    assert call("sweep", "s.toml", "--out", "o", "--resume", "--json")[0] == 0
    assert content(copy) == content(whole)


def test_a_study_of_a_version_that_vouched_for_no_tables_is_read(call, copy, caplog):
    notes = json.loads((copy / NOTES).read_text())
    older = {key: value for key, value in notes.items() if key not in ("format", "files", "sha256")}
    (copy / NOTES).write_text(json.dumps(older))
    stored = json.loads((copy / "plan.json").read_text())
    stored = {key: value for key, value in stored.items() if key not in ("base_text", "checksum")}
    (copy / "plan.json").write_text(json.dumps({**stored, "checksum": planfile._checksum(stored)}))
    assert call("report", "o", "--json")[0] == 0
    assert caplog.text.count("nothing vouches for `results.parquet` and `summary.csv`") == 1
    assert call("sweep", "s.toml", "--out", "o", "--resume", "--json")[0] == 0
    caplog.clear()
    assert call("report", "o", "--json")[0] == 0
    assert caplog.text == ""


def test_the_base_is_taken_as_this_version_writes_it(call, copy):
    """With --anyway a study may go on with keys that it was not planned with."""
    change_plan(copy, base_text="0" * 64)
    assert call("report", "o", "--json")[0] == 0
    flip(copy / "base.toml")
    assert "`base.toml` is damaged" in call("report", "o", "--json")[2]


def test_every_flipped_bit_of_a_plan_is_noticed(copy):
    written = (copy / "plan.json").read_bytes()
    for place in range(0, len(written), 7):
        data = bytearray(written)
        data[place] ^= 1 << (place % 8)
        (copy / "plan.json").write_bytes(bytes(data))
        try:
            plan, _ = sweeps.find_plan(copy)
        except InputError:
            continue
        assert json.loads(bytes(data)) == json.loads(written), (place, plan)  # white space


def test_a_note_of_trackers_that_is_damaged_costs_nothing(copy):
    from airfl.sweeps.tracking import track

    plan, folder = sweeps.find_plan(copy)
    (copy / "tracked").mkdir()
    (copy / "tracked" / "batch-00000.json").write_text("[")
    track(plan, plan.batches[0], Folder(copy), [])
    assert folder.finished(plan.batches[0])
