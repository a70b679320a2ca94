"""Another CPU rounds otherwise and changes nothing else: a few golden runs with the plainest instructions there are.

`make test-cpus` has all golden runs, and the files that compare closely, under four settings.
"""

from __future__ import annotations

import os
import subprocess
import sys

from airfl.runs.sameness import processor

#: What ATen, MKL and oneDNN do on a CPU that has nothing beyond SSE.
PLAIN = {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"}
#: Runs in which an arbitrary phase would be another draw of the noise, one whose loss is large, and a trained network.
FEW = ("shielded-signal", "shielded-csi-error", "shielded-dropout", "zero-sum-signal", "truncated", "massive")


def test_golden_runs_are_those_of_any_other_cpu():
    chosen = [f"tests/test_golden.py::test_a_small_run_gives_what_it_gave[{name}]" for name in FEW]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen],
        env={**os.environ, **PLAIN, "PYTEST_ADDOPTS": ""},
        cwd=os.path.dirname(os.path.dirname(__file__)),
        capture_output=True,
        text=True,
    )
    assert f"{len(FEW)} passed" in done.stdout, done.stdout[-3000:] + done.stderr[-1000:]


def test_a_processor_says_its_model_and_what_libraries_may_use():
    command = [sys.executable, "-c", "from airfl.runs.sameness import processor; print(processor())"]
    plain = subprocess.run(command, env={**os.environ, **PLAIN}, capture_output=True, text=True, check=True).stdout
    assert "ATen DEFAULT, MKL COMPATIBLE, oneDNN SSE41" in plain
    assert plain.partition(", ATen")[0] == processor().partition(", ATen")[0]
