"""Folders of runs for the tests of the browser: made once, copied, damaged."""

from __future__ import annotations

from pathlib import Path

import airfl
from airfl import runs, sweeps
from airfl.study import make_study
from airfl.sweeps.executors import InProcess, Settings

SET = {
    "system.num_devices": 5,
    "system.num_antennas": 6,
    "system.participation": 1.0,
    "system.rounds": 3,
    "learning.dataset": "digits",
    "learning.split": "standard",
    "learning.model": "softmax",
    "learning.local_steps": 2,
    "learning.learning_rate": 0.1,
    "learning.clip_norm": 1.0,
    "privacy.accountant": "gaussian",
    "privacy.epsilon": 50.0,
}
STUDY = {
    "name": "small_study",
    "base": "paper",
    "schemes": ["airfl-mimo", "airfl-dp"],
    "trials": 2,
    "rows_per_batch": 2,
    "set": SET,
    "grid": {"channel.power_w": [1e-9, 1e-3], "scheme.combiner": ["zero-forcing", "mrc"]},
}


def make_run(out: Path) -> airfl.Result:
    """A run of two schemes and two trials."""
    config = airfl.preset("paper").replace({**SET, "system.trials": 2, "scheme.names": ["fedavg", "airfl-dp"]})
    return runs.save(runs.run(config), out)


def make_study_folder(out: Path) -> None:
    """A study of four configurations, two schemes and two trials, in batches of their own."""
    with runs.locked(out):
        plan, folder = sweeps.open_folder(make_study(STUDY), "name = 'small'\n", out, resume=False, threads=1)
        sweeps.run_sweep(plan, folder, InProcess(Settings()))
