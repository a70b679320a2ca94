"""Studies on a real Ray cluster of two nodes; one of them is killed on the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time

import pytest
import tomli_w

from tests.test_sweep import STUDY

ray_cluster = pytest.importorskip("ray.cluster_utils")


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
    command = [sys.executable, "-m", "airfl.cli", "sweep", str(study), "--out", str(out), "--json", *more]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0", **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.mark.filterwarnings("ignore")  # Ray's own
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
