"""Folders of runs: whole or refused, one writer at a time, nothing of others touched, resumed to the same bits."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import airfl
from airfl import runs
from airfl.errors import InputError
from airfl.privacy import PrivacyError
from airfl.report import write_report
from airfl.report.figures import FIGURES as DRAWN
from airfl.runs import ledgers, manifest, unfinished
from airfl.runs.lock import LOCK, is_locked, locked
from airfl.runs.sameness import processor
from tests.fuzz import inprocess

ROUNDS = 40
SMALL = [
    "--set", "learning.dataset=digits", "--set", "learning.split=standard", "--set", "learning.model=softmax",
    "--set", "learning.local_steps=2", "--set", f"system.rounds={ROUNDS}", "--set", "system.num_devices=12",
    "--set", "system.num_antennas=16", "--set", "learning.clip_norm=1.0", "--trials", "2", "--device", "cpu",
    "--scheme", "fedavg", "--scheme", "airfl-dp",
]  # fmt: skip
SAME = ("config.toml", "rounds.parquet", "ledger.json", "model.safetensors")


@pytest.fixture(scope="module")
def results():
    """Two runs of one configuration that differ in ε."""
    base = airfl.preset("paper").replace(
        {
            "system.trials": 2,
            "system.num_devices": 6,
            "system.num_antennas": 8,
            "system.rounds": 2,
            "learning.dataset": "digits",
            "learning.split": "standard",
            "learning.model": "softmax",
            "learning.local_steps": 1,
            "learning.clip_norm": 1.0,
            "privacy.accountant": "gaussian",
            "scheme.names": ["airfl-dp"],
        }
    )
    return [airfl.run(base.replace({"privacy.epsilon": epsilon})) for epsilon in (8.0, 2.0)]


@pytest.fixture(scope="module")
def original(results, tmp_path_factory):
    """A whole run with its report, not to be touched."""
    out = tmp_path_factory.mktemp("original") / "o"
    write_report(airfl.save(results[0], out), out)
    return out


@pytest.fixture
def folder(original, tmp_path):
    """A whole run with its report."""
    return shutil.copytree(original, tmp_path / "o")


@pytest.fixture
def drawn(original, monkeypatch):
    """Figures that need no drawing."""
    figures = {path.name: path.read_bytes() for path in (original / "figures").iterdir()}
    monkeypatch.setattr("airfl.report.page.render_figures", lambda result: figures)


def files_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without_manifest(folder):
    """As the version before manifests wrote a run."""
    ledgers = json.loads((folder / "ledger.json").read_text())
    del ledgers["sha256"]
    (folder / "ledger.json").write_text(json.dumps({**ledgers, "format": "airfl-ledgers/2"}, indent=1))
    (folder / "manifest.json").unlink()
    return folder


def test_the_manifest_vouches_for_every_file(folder):
    written = files_in(folder)
    listed = json.loads(written.pop("manifest.json"))
    assert listed["files"] == {name: hashlib.sha256(data).hexdigest() for name, data in written.items()}
    assert (listed["format"], listed["airfl"], listed["pending"]) == ("airfl-run/1", airfl.__version__, [])
    assert set(manifest.FIGURES) == {f"figures/{name}.{kind}" for name in DRAWN for kind in ("png", "pdf")}


WRITE = {"save": airfl.save, "report": write_report}


@pytest.mark.parametrize("step", WRITE)
def test_a_full_disk_leaves_the_old_run_whole(results, folder, monkeypatch, drawn, step):
    """No room at the first file, the second, and so on to the last: every byte stays, and nothing half-written."""
    before, honest, room = files_in(folder), os.fsync, [0]

    def full(handle):
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        honest(handle)

    count = (6 if step == "save" else 9) + 2  # and two manifests
    monkeypatch.setattr(os, "fsync", full)
    for fits in range(count):
        room[0] = fits
        with pytest.raises(OSError, match=f"No space left on device: '{folder}/.*'"):
            WRITE[step](results[1], folder)
        assert files_in(folder) == before
    assert airfl.load(folder).config.privacy.epsilon == 8.0
    room[0] = count + 1
    WRITE[step](results[1], folder)
    assert airfl.load(folder).config.privacy.epsilon == (2.0 if step == "save" else 8.0)


class Killed(BaseException):
    """Nothing after it is done."""


@pytest.mark.parametrize("step", WRITE)
def test_cut_short_between_renames_it_says_so(results, original, tmp_path, monkeypatch, drawn, step):
    honest, left = os.replace, [0]

    def killed(source, target):
        left[0] -= 1
        if left[0] < 0:
            raise Killed
        honest(source, target)

    for done in range((6 if step == "save" else 9) + 2):
        folder = shutil.copytree(original, tmp_path / str(done))
        left[0] = done
        monkeypatch.setattr(os, "replace", killed)
        with pytest.raises(Killed):
            WRITE[step](results[1], folder)
        monkeypatch.setattr(os, "replace", honest)
        if step == "report" or done == 0:  # data are as they were
            assert airfl.load(folder).config.privacy.epsilon == 8.0
        else:
            for read in (airfl.load, runs.read_ledgers, lambda folder: runs.read_ledgers(folder / "ledger.json")):
                with pytest.raises(InputError, match="cut short"):
                    read(folder)
        airfl.save(results[1], folder)  # what is half there is ours, and can be replaced
        assert airfl.load(folder).config.privacy.epsilon == 2.0


def test_no_flipped_bit_loads_silently(folder, caplog):
    """A few bits of every file; data are refused, report.html and figures are named."""
    data = set(manifest.DATA) | {"manifest.json"}
    for name, content in files_in(folder).items():
        for place in range(0, len(content), max(1, len(content) // 12)):
            hurt = bytearray(content)
            hurt[place] ^= 1 << (place % 8)
            (folder / name).write_bytes(bytes(hurt))
            caplog.clear()
            if name in data:
                with pytest.raises((InputError, PrivacyError)):
                    airfl.load(folder)
                with pytest.raises((InputError, PrivacyError)):
                    runs.read_ledgers(folder)
            else:
                airfl.load(folder)
                assert name in caplog.text
        (folder / name).write_bytes(content)
    caplog.clear()
    airfl.load(folder)
    assert caplog.text == ""


def test_no_change_to_a_lone_ledger_file_is_taken(folder, tmp_path, caplog):
    text = (folder / "ledger.json").read_text()
    data, lone = json.loads(text), tmp_path / "lone.json"

    def read(content):
        lone.write_text(content if isinstance(content, str) else json.dumps(content))
        return runs.read_ledgers(lone)

    original = read(text)
    assert (original.delta, len(original.schemes["airfl-dp"])) == (1e-5, 2)
    assert caplog.text == ""
    one_trial = {"airfl-dp": data["schemes"]["airfl-dp"][:1]}
    for change in ({"delta": 1e-3}, {"neighbours": "zero-out"}, {"schemes": one_trial}, {"extra": 1}):
        with pytest.raises(InputError, match="changed after it was written"):
            read({**data, **change})
    with pytest.raises(InputError, match="changed after"):  # one flipped bit away
        read({**data, "format": "airfl-ledgers/2"})
    with pytest.raises(InputError, match="changed after"):
        read({key: value for key, value in data.items() if key != "sha256"})
    for place in range(0, len(text), len(text) // 60):
        hurt = bytearray(text.encode())
        hurt[place] ^= 1
        lone.write_bytes(bytes(hurt))
        try:
            assert runs.read_ledgers(lone) == original
        except (InputError, PrivacyError):
            continue
    old = {key: value for key, value in data.items() if key != "sha256"}
    assert read({**old, "format": "airfl-ledgers/2"}) == original
    assert "older version" in caplog.text


def test_a_ledger_of_another_run_is_refused_in_this_folder(results, folder, tmp_path, call):
    airfl.save(results[1], tmp_path / "p")
    shutil.copy(tmp_path / "p" / "ledger.json", folder / "ledger.json")
    for path in ("o", "o/ledger.json"):
        code, _, error = call("epsilon", "--ledger", path)
        assert (code, "is not what was written" in error, len(error.splitlines())) == (2, True, 1)
    assert call("epsilon", "--ledger", "p")[1] == call("epsilon", "--ledger", "p/ledger.json")[1]


def test_runs_of_the_version_before_load_with_a_word_and_may_be_replaced(results, folder, caplog, call):
    without_manifest(folder)
    assert airfl.load(folder).config == results[0].config
    assert "no manifest" in caplog.text
    code, out, _ = call("report", "o", "--json")
    assert (code, json.loads(out)["schemes"]["airfl-dp"]["status"]) == (0, "done")
    assert not (folder / "manifest.json").exists()  # nobody can vouch for it now
    assert airfl.save(results[1], folder).out == str(folder)
    assert airfl.load(folder).config == results[1].config
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("name", manifest.DATA)
def test_damage_to_a_run_of_the_version_before_is_refused_plainly(folder, name):
    without_manifest(folder)
    content = (folder / name).read_bytes()
    half = content[: len(content) // 2]
    for hurt in (b"", half, b"[]", b"{}", b"[" * 9999):
        (folder / name).write_bytes(hurt)
        if name == "provenance.json" and hurt in (b"[]", b"{}"):
            continue  # it may hold anything
        with pytest.raises((InputError, PrivacyError)):
            airfl.load(folder)


def test_report_makes_page_and_figures_anew(folder, call):
    before = files_in(folder)
    for name in ("report.html", "figures/accuracy.png"):
        (folder / name).write_bytes(b"hurt")
    (folder / "figures" / "loss.pdf").unlink()
    code, out, _ = call("report", "o")
    assert (code, "AirFL-DP" in out, "report.html" in out) == (0, True, True)
    after = files_in(folder)
    for name in ("figures/accuracy.png", "figures/loss.pdf", "summary.json"):
        assert after[name] == before[name]
    assert set(after) == set(before)
    assert json.loads(call("report", "o", "--json")[1]) == {**json.loads(before["summary.json"]), "out": "o"}
    (folder / "model.safetensors").write_bytes(b"hurt")
    code, _, error = call("report", "o")
    assert (code, "model.safetensors" in error.splitlines()[-1]) == (2, True)
    assert not (folder / LOCK).exists()


def refused(*arguments, folder):
    """What a command said that was refused in a sentence; one that hangs is ended."""
    ended = inprocess.call(*arguments, folder=folder)
    assert not ended.hung
    assert ended.refused, ended.error
    return ended.sentences[0]


@pytest.mark.parametrize("name", ["manifest.json", "summary.json", "model.safetensors", "report.html", "resume.json"])
def test_a_pipe_where_a_file_belongs_is_not_waited_for(folder, tmp_path, monkeypatch, name):
    monkeypatch.setattr(inprocess, "PATIENCE", 20)
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    for command in (["report", "o"], ["report", "o", "--out", "f"], ["epsilon", "--ledger", "o"], ["status", "o"],
                    ["run", "--resume", "o"], ["run", "paper", *SMALL, "--out", "o", "--force"]):  # fmt: skip
        assert f"`o/{name}` is a pipe" in refused(*command, folder=tmp_path), command
    (folder / name).unlink()
    os.mkfifo(folder / "mine.json")  # what is none of our names is none of our business
    assert "pipe" not in inprocess.call("report", "o", folder=tmp_path).error


def test_a_file_that_is_far_too_large_is_not_read(folder, monkeypatch):
    sizes = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    grows = ("ledger.json", "rounds.parquet", "model.safetensors", "report.html")
    most = max(size for name, size in sizes.items() if name not in grows)
    monkeypatch.setattr(ledgers, "MOST", most)
    assert max(sizes[name] for name in grows[:3]) > most
    assert airfl.load(folder).schemes  # what grows with rounds, devices and models may be larger
    with monkeypatch.context() as patch:
        patch.setattr("airfl.memory.physical_bytes", lambda: most)
        with pytest.raises(InputError, match="more than half of this machine's memory"):
            airfl.load(folder)
    (folder / "report.html").write_bytes(bytes(most + 1))
    assert airfl.load(folder).schemes  # a page is made anew
    monkeypatch.setattr(ledgers, "check_contents", lambda *a: pytest.fail("it was read"))
    for name, words in (("model.safetensors", "is large, and not what was written"), ("summary.json", "far smaller")):
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(bytes(most + 1))
        with pytest.raises(InputError, match=words):
            airfl.load(folder)
        (folder / name).write_bytes(before)


@pytest.mark.parametrize("command", ["report", "status", "epsilon"])
def test_a_run_that_is_not_finished_says_how_to_go_on(call, tmp_path, command):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "resume.json").write_text("{}")
    words = [command, *(["--ledger"] if command == "epsilon" else []), "o"]
    assert call(*words) == (2, "", "airfl: the run in `o` is not finished; go on with: airfl run --resume o\n")
    if command != "epsilon":
        with locked(tmp_path / "o"):
            assert "another airfl is at work there; wait for it" in call(*words)[2]


def test_a_run_on_a_disk_that_can_only_be_read_is_reported(folder, call, monkeypatch, caplog):
    def acquire(self, **more):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), self.lock_file)

    (folder / LOCK).touch()  # a killed one left it before the disk was made read-only
    before = files_in(folder)
    monkeypatch.setattr("airfl.runs.lock.FileLock.acquire", acquire)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    assert not is_locked(folder)
    code, out, error = call("report", "o")
    assert (code, "AirFL-DP" in out, "Report:" in out, error) == (0, True, False, "")
    assert "report.html stays as it is" in caplog.text
    assert json.loads(call("report", "o", "--json")[1])["schemes"]
    assert files_in(folder) == before


def test_a_name_that_is_no_text_goes_out_as_it_came_in(folder, tmp_path):
    """Where it is written down its odd byte is spelt."""
    name = os.fsdecode(b"caf\xe9")
    folder.rename(tmp_path / name)
    command = [sys.executable, "-m", "airfl.cli", "report", name, "--out", f"fig-{name}"]
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, cwd=tmp_path, env=strict, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(b"fig-caf\xe9/report.html\n")
    assert r"airfl report 'caf\xe9'" in (tmp_path / f"fig-{name}" / "table.tex").read_text()


# One writer


def held(folder):
    """Another process that holds a folder until its standard input is closed."""
    code = (
        "import sys; from airfl.runs.lock import locked\n"
        "with locked(sys.argv[1]):\n    print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    process.stdout.close()
    return process


def test_a_second_writer_is_refused_at_once_and_touches_nothing(call, tmp_path):
    (tmp_path / "s.toml").write_text('name = "s"\nbase = "demo"\nschemes = ["fedavg"]\ntrials = 1\n')
    first = held(tmp_path / "o")
    try:
        assert is_locked(tmp_path / "o")
        for command in (
            ["run", "paper", *SMALL, "--out", "o"],
            ["run", "paper", *SMALL, "--out", "o", "--force"],
            ["demo", "--out", "o", "--force"],
            ["sweep", "s.toml", "--out", "o"],
            ["reproduce", "fig2", "--from-results", "--out", "o"],
            ["arena", "--from-results", "--out", "o"],
        ):
            code, out, error = call(*command)
            assert (code, out) == (2, ""), command
            assert "another airfl is at work" in error
            assert len(error.splitlines()) == 1
            assert [path.name for path in (tmp_path / "o").iterdir()] == [LOCK]
    finally:
        first.stdin.close()
        assert first.wait(30) == 0
    assert not (tmp_path / "o").exists()  # it had stayed empty


def test_after_a_kill_the_folder_is_free(tmp_path):
    process = held(tmp_path / "o")
    process.kill()
    process.wait()
    process.stdin.close()
    assert [path.name for path in (tmp_path / "o").iterdir()] == [LOCK]
    with locked(tmp_path / "o"):
        assert is_locked(tmp_path / "o")
    assert runs.prepare_folder(tmp_path / "o") == tmp_path / "o"


@pytest.mark.parametrize(
    "make", [Path.mkdir, lambda path: path.symlink_to("nowhere"), lambda path: path.symlink_to(__file__), os.mkfifo]
)
def test_what_has_the_name_of_a_lock_and_is_none_holds_nobody_up(folder, call, make):
    make(folder / LOCK)
    assert not is_locked(folder)
    for command in (["report", "o"], ["run", "paper", *SMALL, "--out", "o", "--force"]):
        code, _, error = call(*command)
        assert (code, "another airfl" in error, len(error.splitlines())) == (2, False, 1), error
        assert f"`o/{LOCK}` is a folder or a link" in error
        assert "remove it" in error
    assert airfl.load(folder).schemes


def test_many_who_come_and_go_never_meet(tmp_path):
    """Lock files are removed while others wait for them: still only one is inside at a time."""
    code = (
        "import os, sys, time; from pathlib import Path; from airfl.errors import InputError\n"
        "from airfl.runs.lock import locked\n"
        "folder, inside, entered = Path(sys.argv[1]), Path(sys.argv[2]), 0\n"
        "end = time.monotonic() + 30\n"
        "while entered < 150 and time.monotonic() < end:\n"
        "    try:\n"
        "        with locked(folder):\n"
        "            os.close(os.open(inside, os.O_CREAT | os.O_EXCL)); os.unlink(inside); entered += 1\n"
        "    except InputError: pass\n"
        "print(entered)\n"
    )
    (tmp_path / "o").mkdir()
    command = [sys.executable, "-c", code, str(tmp_path / "o"), str(tmp_path / "inside")]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        out, error = process.communicate(timeout=60)
        assert (process.returncode, error) == (0, "")
        assert int(out) > 0
    assert list((tmp_path / "o").iterdir()) == []


def test_a_refused_study_leaves_no_lock(call, tmp_path):
    (tmp_path / "s.toml").write_text('name = "s"\nbase = "demo"\nschemes = ["fedavg"]\ntrials = 1\n')
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".profile").write_text("mine")
    for command in (["sweep", "s.toml", "--out", "home"], ["run", "paper", *SMALL, "--out", "home"]):
        assert call(*command)[0] == 2
        assert files_in(tmp_path / "home") == {".profile": b"mine"}


# What is not ours


def test_files_of_others_and_links_survive(call, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "accuracy.png").write_text("mine")
    (outside / "budget.png").write_text("mine")
    for number, (make, words) in enumerate(
        [
            (lambda o: (o / "model.safetensors").write_text("mine"), "not written by airfl"),
            (lambda o: (o / "report.html").write_text("mine"), "not written by airfl"),
            (lambda o: (o / "manifest.json").write_text('{"name": "web"}'), "not a manifest"),
            (lambda o: (o / "checkpoints").mkdir(), "not written by airfl"),
            (lambda o: (o / "resume.json").write_text("{}"), "not of this version"),
            (lambda o: (o / "figures").symlink_to(outside), "is a link"),
            (lambda o: (o / "checkpoints").symlink_to(outside), "is a link"),
            (lambda o: (o / "ledger.json").symlink_to(outside / "absent"), "is a link"),
            (lambda o: (o / "config.toml").mkdir(), "not written by airfl"),
        ]
    ):
        folder = tmp_path / f"o{number}"
        folder.mkdir()
        make(folder)
        before = {path.name: path.lstat().st_mtime_ns for path in folder.iterdir()}
        code, _, error = call("run", "paper", *SMALL, "--out", folder.name, "--force")
        assert (code, words in error, len(error.splitlines())) == (2, True, 1), error
        assert {path.name: path.lstat().st_mtime_ns for path in folder.iterdir()} == before
    assert {path.name: path.read_text() for path in outside.iterdir()} == dict.fromkeys(
        ("accuracy.png", "budget.png"), "mine"
    )


def test_force_replaces_what_the_manifest_lists_and_nothing_else(results, folder):
    for name in ("notes.txt", ".env", "figures/mine.png", ".config.toml.backup"):
        (folder / name).write_text("mine")
    (folder / ".airfl-staging-of-a-killed-one").mkdir()
    airfl.save(results[1], folder)
    for name in ("notes.txt", ".env", "figures/mine.png", ".config.toml.backup"):
        assert (folder / name).read_text() == "mine"
    assert not (folder / "figures" / "accuracy.png").exists()  # the old run's
    assert not (folder / ".airfl-staging-of-a-killed-one").exists()
    assert airfl.load(folder).config == results[1].config


def test_a_manifest_cannot_point_outside(folder, tmp_path):
    (tmp_path / "outside").write_text("mine")
    told = json.loads((folder / "manifest.json").read_text())
    del told["sha256"]
    told["files"]["../outside"] = hashlib.sha256(b"mine").hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest.sealed(told)))
    with pytest.raises(InputError, match="not a manifest"):
        airfl.load(folder)


# Interrupted and resumed


class StopAt:
    """Sends a signal to this process when a round is heard."""

    def __init__(self, number, scheme, round_number):
        self.number, self.scheme, self.round_number = number, scheme, round_number

    def __call__(self, tracked, scheme, records):
        self.honest(tracked, scheme, records)
        if scheme == self.scheme and records[0].round == self.round_number:
            signal.raise_signal(self.number)

    def plant(self, monkeypatch):
        self.honest = runs.Tracked.round
        monkeypatch.setattr(runs.Tracked, "round", lambda *heard: self(*heard))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "o"
    pairs = dict(airfl.config.parse_override(word) for word in SMALL if "=" in word)
    more = {"system.trials": 2, "engine.device": "cpu", "scheme.names": ["fedavg", "airfl-dp"]}
    airfl.save(airfl.run(airfl.read("paper", {**pairs, **more})), out)
    return out


def start(out, *more, arguments=("paper", *SMALL)):
    """A run in a process of its own; its output goes to files beside the folder."""
    where = [] if "--resume" in arguments else ["--out", str(out)]
    command = [sys.executable, "-m", "airfl.cli", "run", *arguments, *where, "--json", *more]
    with Path(f"{out}.out").open("w") as output, Path(f"{out}.err").open("w") as errors:
        return subprocess.Popen(
            command,
            stdout=output,
            stderr=errors,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            # A job in the background of a shell is begun deaf to Ctrl-C, and its children with it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )


def same_bits(one, other):
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in SAME)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_asked_to_stop_it_saves_and_resumes_to_the_same_bits(undisturbed, call, tmp_path, monkeypatch, drawn, number):
    """Also when asked again while it saves."""
    StopAt(number, "airfl-dp", 17).plant(monkeypatch)
    honest, again = manifest._stage, []

    def asked_again(*arguments):
        again.append(number)
        signal.raise_signal(number)
        return honest(*arguments)

    monkeypatch.setattr(manifest, "_stage", asked_again)
    code, out, error = call("run", "paper", *SMALL, "--out", "o", "--json")
    assert (code, "airfl run --resume o" in error) == (130, True)
    assert again
    folder = tmp_path / "o"
    kept = airfl.load(folder)
    assert {entry.status for entry in kept.schemes.values()} == {"interrupted"}
    assert kept.summary["schemes"]["airfl-dp"]["rounds"] == 17
    assert json.loads(out)["schemes"]["airfl-dp"]["status"] == "interrupted"
    assert (folder / "report.html").is_file()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    code, out, error = call("run", "--resume", "o", "--json")
    assert code == 0, error
    assert same_bits(folder, undisturbed)
    assert json.loads(out)["schemes"]["airfl-dp"]["rounds"] == ROUNDS
    assert not (folder / "checkpoints").exists()
    assert not (folder / "resume.json").exists()
    assert airfl.load(folder).provenance["begun_with"]["device"] == "cpu"


def test_killed_or_terminated_anywhere_a_run_resumes_to_the_same_bits(undisturbed, call, tmp_path):
    """SIGKILL once there are checkpoints, SIGTERM in what goes on, then to the end."""
    out, steps = tmp_path / "o", ("--checkpoint-seconds", "0")
    process = start(out, *steps)
    seen = wait_for_checkpoints(process, out, 1)
    process.kill()
    process.wait()
    assert seen
    assert not (out / "summary.json").exists()
    resume = ("--resume", str(out))
    process = start(out, *steps, arguments=resume)
    wait_for_checkpoints(process, out, 2)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (130, 0), Path(f"{out}.err").read_text()
    assert "Traceback" not in Path(f"{out}.err").read_text()
    if process.returncode == 130:
        assert airfl.load(out).schemes["airfl-dp"].status == "interrupted"
        assert call("run", *resume)[0] == 0
    assert same_bits(out, undisturbed)


def wait_for_checkpoints(process, out, count):
    end, seen = time.monotonic() + 60, set()
    while time.monotonic() < end and process.poll() is None and len(seen) < count:
        seen |= {path.name for path in (out / "checkpoints").glob("[0-9]*.json")}
        time.sleep(0.002)
    return seen


def interrupted(call, monkeypatch, *more):
    StopAt(signal.SIGINT, "airfl-dp", 5).plant(monkeypatch)
    assert call("run", "paper", *SMALL, "--out", "o", *more)[0] == 130
    monkeypatch.setattr(runs.Tracked, "round", lambda *heard: None)


def test_other_code_is_refused_unless_told(call, tmp_path, monkeypatch, drawn):
    interrupted(call, monkeypatch)
    with monkeypatch.context() as elsewhere:  # where `auto` is another precision
        elsewhere.setattr("airfl.runs.unfinished.precision_of", lambda *_: "bf16")
        code, _, error = call("run", "--resume", "o")
        assert (code, "precision: begun with float32, now bf16" in error) == (2, True)
    path = tmp_path / "o" / "resume.json"
    told = json.loads(path.read_text())
    del told["sha256"]
    told["code"] = {**told["code"], "torch": "1.0"}
    path.write_text(json.dumps(manifest.sealed(told)))
    before = files_in(tmp_path / "o")
    code, _, error = call("run", "--resume", "o")
    assert (code, "torch: begun with 1.0" in error, len(error.strip().splitlines())) == (2, True, 1)
    assert files_in(tmp_path / "o") == before
    assert call("run", "--resume", "o", "--anyway")[0] == 0
    assert airfl.load(tmp_path / "o").provenance["begun_with"]["torch"] == "1.0"


def test_another_processor_is_gone_on_with_and_said(call, tmp_path, monkeypatch, drawn, caplog):
    interrupted(call, monkeypatch)
    path = tmp_path / "o" / "resume.json"
    told = json.loads(path.read_text())
    assert told["processor"] == processor()
    del told["sha256"]
    path.write_text(json.dumps(manifest.sealed({**told, "processor": "Elbrus-8SV"})))
    code, said = call("run", "--resume", "o")[0], caplog.text
    assert (code, "begun on another processor (Elbrus-8SV)" in said, "not to the bit" in said) == (0, True, True)
    made = airfl.load(tmp_path / "o").provenance
    assert (made["processor"], made["begun_with"]["processor"]) == (processor(), "Elbrus-8SV")


@pytest.mark.parametrize(
    ("begun", "other", "words"), [(["--shards", "2"], [], "give --shards"), ([], ["--shards", "2"], "leave")]
)
def test_sums_are_rounded_as_they_were_unless_told(call, tmp_path, monkeypatch, drawn, begun, other, words):
    """In shards or without; how many there are changes nothing."""
    interrupted(call, monkeypatch, *begun)
    before = files_in(tmp_path / "o")
    code, _, error = call("run", "--resume", "o", *other)
    assert (code, words in error, len(error.strip().splitlines())) == (2, True, 1)
    assert files_in(tmp_path / "o") == before
    mixed = ["--resume", "o", "--shards", "5"] if begun else ["--resume", "o", *other, "--anyway"]
    assert call("run", *mixed)[0] == 0


def test_what_cannot_be_resumed(call, tmp_path, monkeypatch, drawn):
    for arguments, words in (
        (["run"], "one of the two"),
        (["run", "paper", "--resume", "o"], "one of the two"),
        (["run", "--resume", "absent"], "no unfinished run"),
        (["run", "--resume", "o", "--trials", "2"], "leave out"),
        (["run", "--resume", "o", "--force"], "leave out"),
        (["run", "paper", "--anyway"], "goes with --resume"),
        (["run", "paper", "--checkpoint-seconds", "nan"], "checkpoint-seconds"),
    ):
        code, _, error = call(*arguments)
        assert (code, words in error, len(error.splitlines())) == (2, True, 1), (arguments, error)
    assert list(tmp_path.iterdir()) == []
    interrupted(call, monkeypatch)
    path = tmp_path / "o" / "resume.json"
    path.write_text(path.read_text().replace("rounds = 40", "rounds = 41"))
    code, _, error = call("run", "--resume", "o")
    assert (code, "damaged" in error) == (2, True)


def test_a_new_run_over_an_unfinished_one_never_takes_its_checkpoints(call, tmp_path, monkeypatch, drawn):
    interrupted(call, monkeypatch)
    other = ["--set", "system.seed=7", "--force"]
    interrupted(call, monkeypatch, *other)
    assert unfinished.read_begun(tmp_path / "o").config.system.seed == 7
    assert call("run", "--resume", "o")[0] == 0
    assert call("run", "paper", *SMALL, "--set", "system.seed=7", "--out", "p")[0] == 0
    assert same_bits(tmp_path / "o", tmp_path / "p")


@pytest.mark.parametrize("place", ["train", "record", "release"])
def test_stopped_in_the_middle_of_a_round_nothing_is_missing_after_resuming(results, tmp_path, monkeypatch, place):
    """In training, between a round and its records (what was sent is booked), and before the release."""
    config, calls = results[0].config.replace({"scheme.names": ["fedavg", "airfl-dp"]}), []
    whole = airfl.run(config)
    owner, name = {
        "train": ("airfl.runs.together", "advance_together"),
        "record": ("airfl.simulate.Simulation", "record"),
        "release": ("airfl.simulate.Simulation", "release"),
    }[place]
    honest = getattr(airfl.runs.together if place == "train" else airfl.simulate.Simulation, name)

    def stop(*arguments):
        calls.append(place)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return honest(*arguments)

    monkeypatch.setattr(f"{owner}.{name}", stop)
    first = airfl.run(config, keeper=runs.Keeper(tmp_path))
    monkeypatch.undo()
    assert "interrupted" in {entry.status for entry in first.schemes.values()}
    again = airfl.run(config, keeper=runs.Keeper(tmp_path, 60.0, unfinished.read_begun(tmp_path)))
    for scheme, entry in whole.schemes.items():
        assert repr(again.schemes[scheme].records) == repr(entry.records)
        assert again.schemes[scheme].ledgers == entry.ledgers
        assert again.schemes[scheme].models.equal(entry.models)


def test_a_save_that_fails_costs_no_training(undisturbed, call, tmp_path, monkeypatch, drawn):
    def full(result, folder):
        raise OSError(errno.ENOSPC, "No space left on device", f"{folder}/ledger.json")

    monkeypatch.setattr(runs, "write_run", full)
    code, _, error = call("run", "paper", *SMALL, "--out", "o", "--checkpoint-seconds", "0")
    assert (code, "o/ledger.json" in error, "airfl run --resume o" in error) == (1, True, True)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    trained = []
    monkeypatch.setattr("airfl.runs.together.advance_together", lambda *asked: trained.append(asked))
    assert call("run", "--resume", "o")[0] == 0
    assert trained == []
    assert same_bits(tmp_path / "o", undisturbed)


def test_resumed_with_as_many_threads_as_begun(call, tmp_path, monkeypatch, drawn):
    import torch

    with airfl.parallel.torch_threads(2):
        interrupted(call, monkeypatch)
    used, honest = [], runs.run
    monkeypatch.setattr(runs, "run", lambda *a, **k: used.append(torch.get_num_threads()) or honest(*a, **k))
    assert call("run", "--resume", "o")[0] == 0
    assert (used, torch.get_num_threads()) == ([2], 1)


def test_sweeps_leave_dotfiles_of_others_alone(tmp_path):
    from airfl.study import make_plan, make_study
    from airfl.sweeps.batch import Folder
    from airfl.sweeps.sweep import _sweep_up

    plan = make_plan(make_study({"name": "s", "base": "demo", "schemes": ["fedavg"], "trials": 1}), 1)
    folder = Folder(tmp_path)
    (tmp_path / "parts").mkdir()
    for name in (".git.ignore", ".env.local", "parts/.mine", ".airfl-plan.json.x.json", "parts/.airfl-a.json.x.json"):
        (tmp_path / name).write_text("")
    _sweep_up(plan, folder)
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {".git.ignore", ".env.local", "parts/.mine"}
