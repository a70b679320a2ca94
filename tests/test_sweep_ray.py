"""Studies on a real Ray cluster of two nodes, one of which is killed on the way; and Ray that is lost altogether."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import tomli_w

from airfl import preset
from airfl.sweeps import executor_ray
from tests.test_sweep import STUDY

ray_cluster = pytest.importorskip("ray.cluster_utils")
exceptions = pytest.importorskip("ray.exceptions")
pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@pytest.fixture
def cluster(monkeypatch):
    """A head and one more node, one core each."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    memory = 80 * 2**20
    head = {"num_cpus": 1, "object_store_memory": memory, "include_dashboard": False}
    found = ray_cluster.Cluster(initialize_head=True, head_node_args=head)
    found.more = found.add_node(num_cpus=1, object_store_memory=memory)
    yield found
    found.shutdown()


def sweep(study, out, *more, **environment):
    return start("sweep", str(study), "--out", str(out), "--json", *more, **environment)


def start(*arguments, **environment):
    command = [sys.executable, "-m", "airfl.cli", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_a_node_that_is_killed_costs_nothing(cluster, tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(
        tomli_w.dumps(
            {
                **STUDY,
                "schemes": ["airfl-dp", "tci-memory"],
                "rows_per_batch": 2,
                "set": {**STUDY["set"], "system.rounds": 80},
            }
        )
    )
    alone = sweep(study, tmp_path / "alone", "--workers", "2")
    out, err = alone.communicate(timeout=300)
    assert alone.returncode == 0, err
    hurt = tmp_path / "hurt"
    process = sweep(study, hurt, "--executor", "ray", "--address", cluster.address)
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None:
        pulses = [json.loads(path.read_text() or "{}") for path in (hurt / "running").glob("*.json")]
        if len(pulses) == 2 and all(pulse.get("rounds", 0) > 0 for pulse in pulses):
            break  # one batch on each node, both under way
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    before = len(list((hurt / "parts").glob("*.json")))
    cluster.remove_node(cluster.more, allow_graceful=False)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert before < 4
    assert json.loads(out.splitlines()[-1])["done"] == 16
    assert (hurt / "results.parquet").read_bytes() == (tmp_path / "alone" / "results.parquet").read_bytes()


def test_a_cluster_that_is_not_there(tmp_path):
    study = tmp_path / "study.toml"
    study.write_text(tomli_w.dumps(STUDY))
    process = sweep(study, tmp_path / "o", "--executor", "ray", "--address", "127.0.0.1:1")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2, (out, err)
    assert "no Ray cluster" in err
    assert "Traceback" not in err
    assert not (tmp_path / "o").exists()


def test_a_cluster_of_its_own_leaves_no_files(tmp_path):
    study, out = tmp_path / "study.toml", tmp_path / "o"
    study.write_text(tomli_w.dumps({**STUDY, "trials": 1, "set": {**STUDY["set"], "system.rounds": 1}}))
    with tempfile.TemporaryDirectory(dir="/tmp") as own:  # short: sockets lie in it
        process = sweep(study, out, "--executor", "ray", "--workers", "1", TMPDIR=own)
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert os.listdir(own) == []


def raylet_of(pid):
    """The raylet that a process has begun."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            number, _, rest = stat.read_text().partition(" (raylet) ")
        except OSError:  # it has just gone
            continue
        if rest and int(rest.split()[1]) == pid:
            return int(number)
    raise AssertionError("no raylet")


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_a_raylet_that_is_killed_ends_in_a_sentence(tmp_path, command):
    """Ray ends the process at once if it is talked to just then, and says so after a while otherwise."""
    name, out = str(tmp_path / "it.toml"), str(tmp_path / "o")
    settings = {**STUDY["set"], "system.rounds": 60}
    if command == "run":
        config = preset("paper").replace({**settings, "system.rounds": 5000, "scheme.names": ["airfl-dp"]})
        text, more = config.to_toml(), ("--shards", "2", "--checkpoint-seconds", "0")
        begun = tmp_path / "o" / "resume.json"
    else:
        text, more = tomli_w.dumps({**STUDY, "trials": 1, "rows_per_batch": 2, "set": settings}), ()
        begun = tmp_path / "o" / "running" / "batch-00000.json"
    Path(name).write_text(text)
    # So that a raylet that does not answer is given up after three seconds.
    quick = {"period_ms": "1000", "timeout_ms": "1000", "failure_threshold": "3"}
    environment = {f"RAY_health_check_{key}": value for key, value in quick.items()}
    process = start(command, name, "--out", out, "--executor", "ray", "--quiet", *more, **environment)
    end = time.monotonic() + 120
    while time.monotonic() < end and process.poll() is None and not begun.exists():
        time.sleep(0.02)
    assert process.poll() is None, process.communicate()
    os.kill(raylet_of(process.pid), signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    said = [line for line in err.splitlines() if line.startswith("airfl: ")]
    assert process.returncode == 1, err
    assert len(said) == 1, err
    assert "Traceback" not in err
    assert "raylet on this machine" in said[0]
    assert " is gone" in said[0]
    assert "go on with" in said[0]
    assert "--resume" in said[0]
    if command == "sweep":
        again = sweep(name, out, "--resume")
        found, err = again.communicate(timeout=120)
        assert again.returncode == 0, err
        assert json.loads(found.splitlines()[-1])["done"] == 8


LAST_WORDS = """
import contextlib, os, sys
from airfl.shards import cluster
stack = contextlib.ExitStack()
cluster._call_witness(stack, [sys.argv[1]])
if sys.argv[2] == "killed":
    os._exit(1)
if sys.argv[2] == "closed":
    stack.close()
"""


@pytest.mark.parametrize("end", ["killed", "closed", "by itself"])
def test_only_a_process_that_is_ended_has_a_witness_speak(tmp_path, end):
    left = tmp_path / "files"
    left.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", LAST_WORDS, str(left), end], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == (end == "killed")
    assert (done.stderr.startswith("airfl: ended from outside: by Ray"), done.stderr.count("\n")) == (
        (True, 1) if end == "killed" else (False, 0)
    )
    assert left.exists() == (end != "killed")


def test_a_cluster_that_is_lost_is_a_sentence(call, tmp_path, monkeypatch):
    def lost(*arguments):
        raise exceptions.RayError("The actor is dead.\nWorker exit detail: Owner's node has crashed.")

    monkeypatch.setattr(executor_ray, "connect", lambda stack, address: None)
    monkeypatch.setattr(executor_ray.RayCluster, "_run", lost)
    (tmp_path / "s.toml").write_text(tomli_w.dumps(STUDY))
    status, _, error = call("sweep", "s.toml", "--out", "o", "--executor", "ray", "-q")
    assert status == 1
    assert error.splitlines()[-1] == (
        "airfl: the Ray cluster cannot go on: its raylet on this machine is gone; "
        "go on with: airfl sweep s.toml --out o --resume"
    )


def test_a_node_without_the_data_is_named(tmp_path):
    study = tmp_path / "study.toml"
    changed = {**STUDY["set"], "learning.dataset": "fashion-mnist", "learning.data_dir": "nowhere"}
    study.write_text(tomli_w.dumps({**STUDY, "set": changed}))
    process = sweep(study, tmp_path / "o", "--executor", "ray", "--quiet")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2, err
    (said,) = (line for line in err.splitlines() if line.startswith("airfl: "))
    assert f"the Ray node `{os.uname().nodename}` cannot read the study's data: `learning.data_dir` = nowhere" in said
    assert said.endswith("every node needs them at the same path: put them there, then go on")
    assert "Traceback" not in err
