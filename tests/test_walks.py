"""Three people with a question each, from an empty notebook to an answer; what it took before and what it takes now.

Files and lines were counted by doing the same at commit 0393cc5, before objects could be given in place of import
paths and before results showed themselves. Lines are lines of code without blank ones and imports; a notebook counts as
one file.
"""

from __future__ import annotations

import math

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from torch import nn

import airfl

mpl.use("Agg")


def test_a_researcher_with_her_own_model_data_and_combiner():
    """Does my combiner learn as well as yours, with my network on my data?

    Before: 3 files (the notebook, my_parts.py with three functions, mine.npz, since arrays of a notebook could not be
    given), 20 lines: 8 in my_parts.py, 1 to write mine.npz, 11 in the notebook, 6 of them for a table and a figure.
    Now: 1 file, 9 lines.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2400, 2)).astype(np.float32)  # her data: not counted
    y = (x[:, 0] * x[:, 1] > 0).astype(int)

    def strongest(channels):
        loudest = channels.abs().square().sum(-1).argmax(-1)
        return channels.take_along_dim(loudest[..., None, None], dim=-2).squeeze(-2)

    config = airfl.preset("demo").replace({"system.num_devices": 20, "system.num_antennas": 16})
    config = config.replace({"learning.dataset": (x[:2000], y[:2000], x[2000:], y[2000:]), "learning.num_classes": 2})
    config = config.replace({"learning.model": lambda: nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))})
    config = config.replace({"learning.learning_rate": 0.5, "learning.batch_size": 10, "learning.clip_norm": 2.0})
    rows = airfl.sweep(config, axes={"scheme.combiner": ["auto", strongest]}, trials=1)  # shows itself
    axes = rows.plot(by="scheme")

    assert len(rows) == 8
    assert len(axes.containers) == 4
    assert all(row["accuracy_mean"] > 0.9 for row in rows if row["scheme"] == "fedavg")
    assert "here:strongest-" in repr(rows)
    plt.close("all")


def test_a_privacy_engineer_with_a_kept_run(tiny, tmp_path):
    """What ε does this link give, against whom, at my δ?

    Before: 1 file, 5 lines: the ledgers, the relation and `airfl.privacy.epsilon_of` had to be found and joined.
    Now: 1 file, 3 lines.
    """
    airfl.save(
        airfl.run(tiny.replace({"scheme.names": ["fedavg", "airfl-dp"]})), tmp_path / "run"
    )  # theirs: not counted

    result = airfl.load(tmp_path / "run")
    for observer in ("model", "models", "base-station", "everything"):
        print(observer, result.epsilon(delta=1e-7, observer=observer))

    found = [result.epsilon(1e-7, observer) for observer in ("model", "models", "base-station", "everything")]
    assert 50.0 < found[0] == found[1] < found[2] < found[3] == math.inf
    assert result.epsilon() == pytest.approx(50.0)  # at the δ of the run it is the budget


def test_a_radio_engineer_with_a_budget():
    """How much power may 6,000 devices use, with 4, 16 or 64 antennas, so that the noise alone gives ε = 1?

    Before: 1 file, 6 lines, with `airfl.linkplan` and `airfl.linkplan.show.sentences`, which no page named.
    Now: 1 file, 4 lines.
    """
    link = {"distance_m": 500.0, "bandwidth_hz": 1e6, "parameters": 7850, "rounds": 50, "epsilon": 1.0}
    for antennas in (4, 16, 64):
        print(antennas, airfl.plan(devices=6000, antennas=antennas, **link).quantities.power_w)
    plan = airfl.plan(devices=6000, antennas=16, power_w=1e-3, **link)  # shows itself

    assert not plan.is_perk
    assert "DP is not a perk" in repr(plan)
    powers = [airfl.plan(devices=6000, antennas=m, **link).quantities.power_w for m in (4, 16, 64)]
    assert powers == sorted(powers, reverse=True)
    assert airfl.plan(devices=6000, antennas=16, **{**link, "power_w": powers[1] * 0.99}).is_perk
