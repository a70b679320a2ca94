"""How far the shards of a round are, on the bar, while the round is under way."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

import airfl
from airfl.report.bars import NotebookRun
from airfl.report.progress import RunProgress
from airfl.runs.tracking import Tracked
from airfl.shards import make_shards
from tests.test_shards import config_of, fake_cluster


@pytest.mark.parametrize("executor", ["local", "ray"])
def test_the_bar_shows_shards_while_a_round_is_under_way(tiny, monkeypatch, executor):
    """As drawn on a terminal, from none of a round's shards to all; both schemes train in the same shards."""
    if executor == "ray":
        pytest.importorskip("ray")
        crew, _ = fake_cluster(monkeypatch, count=3)
    else:
        crew = make_shards("local", 3)
    drawn = io.StringIO()

    class Looks(RunProgress):
        def shards(self, done, total):
            super().shards(done, total)
            heard.append((done, total))
            self._bar.refresh()
            assert f"shard {done}/{total}" in drawn.getvalue().splitlines()[-2 if self._heard == "" else -1]

        def round(self, scheme, records):
            super().round(scheme, records)
            assert "shard" not in self._bar.tasks[self._bar.task_ids.index(self._task[scheme])].fields["state"]

    heard = []
    terminal = Console(file=drawn, force_terminal=True, width=150)
    monkeypatch.setattr("airfl.report.progress.plain_console", lambda stream: terminal)
    progress = Looks(config_of(tiny, "all"))
    with progress:
        airfl.run(config_of(tiny, "all"), progress=Tracked("run", progress, []), shards=crew)
    assert heard == 3 * [(done, 3) for done in range(4)]


def test_shards_are_shown_beside_the_scheme_that_is_at_work(tiny):
    with RunProgress(tiny) as progress:
        progress.shards(1, 2)  # before anything has begun
        progress.start("one", 2)
        progress.start("other", 2)
        states = lambda: [task.fields["state"] for task in progress._bar.tasks]  # noqa: E731
        progress.shards(1, 2)
        assert states() == ["training …  shard 1/2", "training …"]
        (row,) = (
            airfl.run(tiny.replace({"system.rounds": 1, "system.trials": 1}), progress=False)
            .schemes["airfl-dp"]
            .records
        )
        progress.round("one", [row])
        progress.round("one", [row])
        progress.shards(0, 2)
        assert states()[1] == "training …  shard 0/2"
        assert "shard" not in states()[0]
        progress.round("other", [row])
        progress.round("other", [replace(row, round=2)])
        progress.shards(2, 2)
        assert not any("shard" in state for state in states())


def test_a_notebook_shows_shards_too(tiny, monkeypatch):
    shown = []
    monkeypatch.setattr(NotebookRun, "show", lambda self, share, words: shown.append((round(share, 3), words)))
    airfl.run(
        config_of(tiny, "all").replace({"scheme.names": ["airfl-dp"], "system.rounds": 2}),
        progress=NotebookRun(tiny),
        shards=make_shards("local", 2),
    )
    assert [share for share, _ in shown] == [0.0, 0.25, 0.5, 0.5, 0.5, 0.75, 1.0, 1.0]
    assert shown[1][1] == "0 of 2 rounds, 1 of 2 shards"
