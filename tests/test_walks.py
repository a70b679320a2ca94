"""Three people with a question each, from an empty notebook to an answer; what it took before and what it takes now.

Files and lines were counted by doing the same at commit 0393cc5, before objects could be given in place of import
paths and before results showed themselves. Lines are lines of code without blank ones and imports; a notebook counts as
one file. What it takes now is counted from the functions that are run here.
"""

from __future__ import annotations

import inspect
import math
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from torch import nn

import airfl

mpl.use("Agg")


def walked(person, *given):
    """What a person gets, how many files that took, and how many lines: all but the head and the last, ``return``.

    The folder must be empty but for the notebook, which is the function itself: nobody may need a file beside it.
    """
    beside = list(Path.cwd().iterdir())
    lines = [line for line in inspect.getsource(person).splitlines() if line.strip()]
    assert lines[0].startswith("def ")
    assert lines[-1].startswith("    return ")
    return person(*given), (1 + len(beside), len(lines) - 2)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    (tmp_path / "desk").mkdir()
    monkeypatch.chdir(tmp_path / "desk")


def researcher(x, y):
    def strongest(channels):
        loudest = channels.abs().square().sum(-1).argmax(-1)
        return channels.take_along_dim(loudest[..., None, None], dim=-2).squeeze(-2)

    config = airfl.preset("demo").replace({"system.num_devices": 20, "system.num_antennas": 16})
    config = config.replace({"learning.dataset": (x[:2000], y[:2000], x[2000:], y[2000:]), "learning.num_classes": 2})
    config = config.replace({"learning.model": lambda: nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))})
    config = config.replace({"learning.learning_rate": 0.5, "learning.batch_size": 10, "learning.clip_norm": 2.0})
    rows = airfl.sweep(config, axes={"scheme.combiner": ["auto", strongest]}, trials=1)  # shows itself
    axes = rows.plot(by="scheme")
    return rows, axes


def test_a_researcher_with_her_own_model_data_and_combiner(desk):
    """Does my combiner learn as well as yours, with my network on my data?

    Before: 3 files (the notebook, my_parts.py with three functions, mine.npz, since arrays of a notebook could not be
    given), 20 lines: 8 in my_parts.py, 1 to write mine.npz, 11 in the notebook, 6 of them for a table and a figure.
    """
    x = np.random.default_rng(0).normal(size=(2400, 2)).astype(np.float32)
    (rows, axes), (files, lines) = walked(researcher, x, (x[:, 0] * x[:, 1] > 0).astype(int))

    assert (files, lines) == (1, 9)
    assert len(rows) == 8
    assert len(axes.containers) == 4
    assert all(row["accuracy_mean"] > 0.9 for row in rows if row["scheme"] == "fedavg")
    assert "here:strongest-" in repr(rows)
    plt.close("all")


def privacy_engineer(kept):
    result = airfl.load(kept)
    for observer in ("model", "models", "base-station", "everything"):
        print(observer, result.epsilon(delta=1e-7, observer=observer))
    return result


def test_a_privacy_engineer_with_a_kept_run(tiny, tmp_path, desk, capsys):
    """What ε does this link give, against whom, at my δ?

    Before: 1 file, 5 lines: the ledgers, the relation and `airfl.privacy.epsilon_of` had to be found and joined.
    """
    airfl.save(airfl.run(tiny.replace({"scheme.names": ["fedavg", "airfl-dp"]})), tmp_path / "run")
    capsys.readouterr()
    result, (files, lines) = walked(privacy_engineer, tmp_path / "run")

    assert (files, lines) == (1, 3)
    said = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in said] == ["model", "models", "base-station", "everything"]
    found = [float(value) for _, value in said]
    assert 50.0 < found[0] == found[1] < found[2] < found[3] == math.inf
    assert result.epsilon() == pytest.approx(50.0)  # at the δ of the run it is the budget


def radio_engineer():
    link = {"distance_m": 500.0, "bandwidth_hz": 1e6, "parameters": 7850, "rounds": 50, "epsilon": 1.0}
    for antennas in (4, 16, 64):
        print(antennas, airfl.plan(devices=6000, antennas=antennas, **link).quantities.power_w)
    plan = airfl.plan(devices=6000, antennas=16, power_w=1e-3, **link)  # shows itself
    return link, plan


def test_a_radio_engineer_with_a_budget(desk, capsys):
    """How much power may 6,000 devices use, with 4, 16 or 64 antennas, so that the noise alone gives ε = 1?

    Before: 1 file, 6 lines, with `airfl.linkplan` and `airfl.linkplan.show.sentences`, which no page named.
    """
    (link, plan), (files, lines) = walked(radio_engineer)

    assert (files, lines) == (1, 4)
    assert not plan.is_perk
    assert "DP is not a perk" in repr(plan)
    powers = [float(line.split()[1]) for line in capsys.readouterr().out.splitlines()]
    assert len(powers) == 3
    assert powers == sorted(powers, reverse=True)
    assert airfl.plan(devices=6000, antennas=16, **{**link, "power_w": powers[1] * 0.99}).is_perk
