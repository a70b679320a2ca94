"""A bar while the combiners of many blocks are designed, and what hears of it."""

from __future__ import annotations

import time

import pytest

import airfl
from airfl.report import progress
from airfl.report.progress import LateSteps, RunProgress
from airfl.terminal import be_quiet
from airfl.transceiver import wideband

BLOCKS = {"channel.coherence_hz": 2.5e6, "scheme.combiner": "auto", "scheme.names": ["airfl-mimo"], "system.trials": 1}


class Deaf:
    """Knows rounds only, as progress from outside did before there were blocks."""

    def __init__(self):
        self.rounds = 0

    def start(self, scheme, rounds):
        self.rounds += rounds

    def round(self, scheme, records):
        self.rounds -= 1


class Listening(Deaf):
    def __init__(self):
        super().__init__()
        self.heard = []

    def design(self, done, total):
        self.heard.append((done, total))


def test_progress_hears_of_blocks(tiny, monkeypatch):
    monkeypatch.setattr(wideband, "CHUNK", 5 * 9 * 16)
    listening, deaf = Listening(), Deaf()
    runs = [airfl.run(tiny.replace(BLOCKS), progress=one) for one in (listening, deaf)]
    # Four rounds of eight blocks, five at a time.
    assert listening.heard == [(done, 32) for done in (5, 10, 15, 20, 25, 30, 32)]
    assert listening.rounds == deaf.rounds == 0
    assert all(run.schemes["airfl-mimo"].status == "done" for run in runs)


@pytest.mark.parametrize("patience", [0.0, 60.0])
def test_the_bar_waits_some_seconds(tiny, monkeypatch, patience):
    monkeypatch.setattr(LateSteps, "PATIENCE_S", patience)
    with RunProgress(tiny) as progress:
        progress.design(3, 32)
        (task,) = progress._bar.tasks
        shown = (task.completed, task.total, task.fields["state"])
        assert shown == ((3, 32, "combiners of blocks …") if patience == 0.0 else (0, None, "data and channels …"))
        progress.start("airfl-dp", 4)
        assert [task.description for task in progress._bar.tasks] == ["airfl-dp"]


def test_nothing_is_drawn_where_nobody_looks_on(call, tmp_path, monkeypatch):
    monkeypatch.setattr(LateSteps, "PATIENCE_S", 0.0)
    small = ["learning.dataset=digits", "learning.model=softmax", "learning.local_steps=1", "system.rounds=2"]
    small += ["system.num_devices=6", "system.num_antennas=4", "system.trials=1", "scheme.combiner=auto"]
    small += ["channel.coherence_hz=5e6"]
    sets = [word for one in small for word in ("--set", one)]
    code, _, error = call("run", "paper", *sets, "--scheme", "airfl-mimo", "--out", str(tmp_path / "r"), "--json")
    assert code == 0, error
    assert "blocks …" not in error


def test_a_pipe_gets_a_line_now_and_then(monkeypatch, capsys):
    """Of bars that are not full, and none of what is over before the first line is due."""
    monkeypatch.setattr(progress, "NEXT_S", 0.02)
    monkeypatch.setattr(progress, "FIRST_S", 60.0)
    with progress.Steps("quick", 2) as steps:
        steps.advance(1)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(LateSteps, "PATIENCE_S", 0.0)
    with LateSteps("drops") as late:
        said = []
        for done in (3, 7):
            late.stand(done, 40)
            for _ in range(500):
                said += capsys.readouterr().err.splitlines()
                if f"drops {done}/40" in said:
                    break
                time.sleep(0.02)
    assert set(said) == {"drops 3/40", "drops 7/40"}
    be_quiet()
    try:
        with LateSteps("drops") as late:
            late.stand(3, 40)
            assert type(late._bar) is not progress._Lines
    finally:
        be_quiet(False)
    assert capsys.readouterr().err == ""
