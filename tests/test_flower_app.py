"""The example app: beside plain FedAvg, and by `flwr run` on a real Ray cluster, as its README says."""

from __future__ import annotations

import difflib
import importlib
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("flwr")

import airfl

ROOT = Path(__file__).parents[1]
APP = ROOT / "examples" / "flower"
BIN = Path(sys.executable).parent


def code_of(name):
    """Lines of a module without its first docstring."""
    return (APP / "fashion" / name).read_text().split('"""', 2)[2].strip().splitlines()


def changed():
    """What differs between plain FedAvg and the air."""
    lines = difflib.unified_diff(code_of("server_fedavg.py"), code_of("server_app.py"), n=0, lineterm="")
    return [line for line in lines if re.match(r"[+-](?![+-])", line) and line[1:].strip()]


def test_the_air_is_a_few_lines_from_fedavg():
    lines = changed()
    assert sum(line.startswith("+") for line in lines) == 3, lines
    assert sum(line.startswith("-") for line in lines) == 3, lines
    for page in (APP / "README.md", ROOT / "docs" / "flower.md"):
        shown = re.search(r"```diff\n(.*?)```", page.read_text(), re.DOTALL).group(1).splitlines()
        assert sorted(shown) == sorted(lines), page
        assert "three lines" in page.read_text(), page


def command():
    """The command of the README, which is also that of `make flower`."""
    line = next(
        line for line in (APP / "README.md").read_text().splitlines() if "flwr run" in line and line.startswith("$")
    )
    words = shlex.split(line.removeprefix("$"))
    assert words[0] == "FLWR_TELEMETRY_ENABLED=0"
    makefile = (ROOT / "Makefile").read_text()
    assert line.split("0 ", 1)[1] in makefile
    assert "FLWR_TELEMETRY_ENABLED=0" in makefile
    return words[1:]


def test_the_app_asks_for_nothing_that_is_not_there():
    """Flower would look for an app's dependencies elsewhere; ours are in the environment that it runs in."""
    project = tomllib.loads((APP / "pyproject.toml").read_text())
    assert project["project"]["dependencies"] == []
    components = project["tool"]["flwr"]["app"]["components"].values()
    assert all((APP / Path(*name.partition(":")[0].split("."))).with_suffix(".py").is_file() for name in components)


@pytest.mark.parametrize("model", ["softmax", "small-cnn"])
@pytest.mark.parametrize("server", ["server_app", "server_fedavg"])
def test_both_servers_train_both_models(server, model, monkeypatch, capsys):
    """With the app's own nodes, without Ray."""
    from flwr.app import Context, RecordDict

    from tests.oracles.flower import FIRST_NODE, FakeGrid

    monkeypatch.syspath_prepend(str(APP))
    settings = {"model": model, "rounds": 1, "out": ""}

    def context(**node):
        named = {name.replace("_", "-"): value for name, value in node.items()}
        return Context(run_id=1, node_id=1, node_config=named, state=RecordDict(), run_config=settings)

    def answer(node, message):
        fit = importlib.import_module("fashion.client_app").fit
        return fit(message, context(partition_id=node - FIRST_NODE, num_partitions=2))

    importlib.import_module(f"fashion.{server}").main(FakeGrid(2, answer), context())
    accuracy = float(capsys.readouterr().out.split("accuracy ")[-1])
    assert accuracy > (0.5 if server == "server_fedavg" and model == "softmax" else 0.05)


@pytest.fixture
def superlink(tmp_path):
    """A SuperLink of its own, as `flwr run` would start one and leave it behind."""
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(str(free.getsockname()[1]))
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(tmp_path / "home"),
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": ports[0],
        "FLWR_LOCAL_CONTROL_API_PORT": ports[1],
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ADDRESS": "local",  # else it joins a cluster that another test has here
        "OMP_NUM_THREADS": "1",
    }
    addresses = ("--host", "127.0.0.1", "--port", ports[0], "--control-api-address", f"127.0.0.1:{ports[1]}")
    started = [str(BIN / "flower-superlink"), "--insecure", "--simulation", "--isolation", "subprocess", *addresses]
    with (tmp_path / "superlink.log").open("w") as log:
        process = subprocess.Popen(started, env=environment, stdout=log, stderr=subprocess.STDOUT)
    yield environment
    process.terminate()
    process.wait(timeout=60)


def test_the_readmes_command_runs_on_ray(superlink, tmp_path, call):
    words, out = command(), tmp_path / "run"
    for old, new in (("num-supernodes=50", "num-supernodes=4"),):
        assert any(old in word for word in words)
        words = [word.replace(old, new) for word in words]
    words += ["--run-config", f"rounds=2 out='{out}'"]
    done = subprocess.run(
        [str(BIN / words[0]), *words[1:]], cwd=ROOT, env=superlink, capture_output=True, text=True, timeout=600
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "privacy/epsilon" in said, said
    loaded = airfl.load(out)
    records = loaded.schemes["airfl-dp"].records
    assert [record.round for record in records] == [1, 2]
    assert records[1].accuracy > 0.2  # of ten classes, with four nodes and ε = 8
    code, printed, err = call("epsilon", "--ledger", str(out), "--json")
    assert code == 0, err
    assert json.loads(printed)["epsilon"] == records[1].epsilon
    # The same job by `airfl run`: the same ε to the last digit.
    job = {"system.num_devices": 4, "system.rounds": 2, "learning.model": "softmax"}
    alone = airfl.run(airfl.read(str(APP / "airfl.toml"), job), progress=None).schemes["airfl-dp"]
    assert alone.ledgers == loaded.schemes["airfl-dp"].ledgers
    assert [record.epsilon for record in alone.records] == [record.epsilon for record in records]
    assert abs(alone.records[1].accuracy - records[1].accuracy) < 0.15
