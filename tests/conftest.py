"""Small configurations that need no file and run in a blink."""

from __future__ import annotations

import os
import signal
import sys

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"  # before anything imports Flower
if not os.path.exists("/dev/nvidiactl"):
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton: kernels run on the CPU then

import pytest
import torch
from hypothesis import settings

import airfl
from airfl import cli

settings.register_profile("airfl", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("airfl")
torch.set_num_threads(int(os.environ.get("AIRFL_TEST_THREADS", "1")))
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell leaves it in what it starts in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def same_on_every_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ``auto`` picks must not depend on who runs the tests."""
    monkeypatch.setattr("airfl.engines.engine.has_bf16", lambda: False)


@pytest.fixture
def tiny() -> airfl.Config:
    """Digits, softmax regression, 12 devices of which 9 are active, 16 antennas."""
    return airfl.preset("paper").replace(
        {
            "name": "tiny",
            "system.trials": 2,
            "system.num_devices": 12,
            "system.num_antennas": 16,
            "system.participation": 0.75,
            "system.rounds": 4,
            "learning.dataset": "digits",
            "learning.split": "standard",
            "learning.model": "softmax",
            "learning.local_steps": 3,
            "learning.learning_rate": 0.1,
            "learning.clip_norm": 1.0,
            "privacy.epsilon": 50.0,
            "privacy.accountant": "gaussian",
        }
    )


@pytest.fixture
def shielded(tiny) -> airfl.Config:
    """Twelve devices in a small cell with much power, three antennas."""
    return tiny.replace(
        {
            "system.participation": 1.0,
            "system.num_antennas": 3,
            "channel.power_w": 0.2,
            "channel.cell_radius_m": 200.0,
            "channel.min_distance_m": 10.0,
            "privacy.epsilon": 4.0,
            "privacy.neighbours": "zero-out",
            "scheme.names": ["airfl-shielded"],
            "scheme.combiner": "auto",
        }
    )


@pytest.fixture
def call(monkeypatch, capsys, tmp_path):
    """Run the command line in this process; returns exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    # How many lines of progress there are is a matter of how slow the machine is.
    monkeypatch.setattr("airfl.report.progress._Lines._tell", lambda lines: None)
    monkeypatch.syspath_prepend(os.path.dirname(os.path.dirname(__file__)))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["airfl", *arguments])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run
