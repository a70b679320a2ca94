"""What is too large, too deep, too small or named too oddly is refused in one sentence, before anything is done."""

from __future__ import annotations

import errno
import sys

import pytest
import tomli_w
import torch

import airfl
from airfl import memory, runs
from airfl.config import from_toml, parse_override, preset
from airfl.devices.task import WIDTH, Task
from airfl.errors import InputError
from airfl.runs.store import write_bytes
from airfl.runs.tracking import make_trackers
from airfl.study import make_study
from tests.test_cli import TINY
from tests.test_sweep import STUDY, run


def refused(outcome, *words):
    """Exit code 2 and one sentence with these words; the sentence."""
    code, _, error = outcome
    lines = [line for line in error.splitlines() if line.strip()]
    assert code == 2, (code, error)
    assert len(lines) == 1, error
    for word in words:
        assert word in lines[0]
    return lines[0]


@pytest.mark.parametrize(
    "change",
    [
        {
            "grid": {
                f"channel.{key}": [1.0 + i for i in range(1000)] for key in ("power_w", "bandwidth_hz", "carrier_hz")
            }
        },
        {"trials": 10**9},
        {"trials": 10**30},
        {"list": [{"system.seed": seed, "scheme.names": ["airfl-dp"]} for seed in range(100)], "trials": 10**5},
    ],
)
def test_a_study_of_too_many_cells_is_counted_and_not_listed(call, tmp_path, monkeypatch, change):
    monkeypatch.setattr("airfl.study.Study.points", lambda study: pytest.fail("the points were listed"))
    (tmp_path / "s.toml").write_text(tomli_w.dumps({**STUDY, "grid": {}, **change}))
    for more in (["--dry-run"], ["--out", "o"]):
        refused(call("sweep", "s.toml", *more), "cells", "at most")
    assert not (tmp_path / "o").exists()


def test_the_number_of_points_is_what_listing_them_gives():
    study = {
        **STUDY,
        "grid": {"privacy.epsilon": [1.0, 2.0, 3.0], "system.seed": [1, 2]},
        "zip": [{"channel.power_w": [1e-9, 1e-3], "system.rounds": [2, 3]}],
        "list": [{"learning.clip_norm": 1.0}, {"learning.clip_norm": 2.0}],
    }
    made = make_study(study)
    assert made.num_points == len(list(made.points())) == 24
    assert make_study({**STUDY, "grid": {}}).num_points == 1


@pytest.mark.parametrize(
    ("key", "value", "word"),
    [
        ("system.trials", 10**9, "records"),
        ("system.trials", 10**40, "system.trials"),
        ("system.rounds", 10**9, "system.rounds"),
        ("system.num_antennas", 10**9, "channels"),
        ("learning.local_steps", 10**9, "local steps"),
        ("learning.local_epochs", 10**10, "local steps"),
        ("learning.local_epochs", 10**6, "samples"),
    ],
)
def test_what_cannot_fit_is_refused_with_the_estimate(call, tmp_path, key, value, word):
    chosen = ["--trials", str(value)] if key == "system.trials" else ["--set", f"{key}={value}"]
    rest = [text for text in TINY[:-2] if "=" in text and not (key.startswith("learning") and "local_steps" in text)]
    sets = [part for text in rest for part in ("--set", text)]
    said = refused(call("run", "paper", *sets, *chosen, "--out", "o"), "memory", word, "lower")
    assert "B of memory" in said
    assert not (tmp_path / "o").exists()


def test_a_batch_of_a_study_that_cannot_fit_is_refused_before_anything_is_written(call, tmp_path):
    (tmp_path / "s.toml").write_text(tomli_w.dumps({**STUDY, "set": {**STUDY["set"], "system.num_antennas": 10**9}}))
    for more in (["--dry-run"], ["--out", "o"]):
        refused(call("sweep", "s.toml", *more), "a batch of this study needs at least", "num_antennas")
    assert not (tmp_path / "o" / "plan.json").exists()


def test_the_estimate_never_exceeds_what_a_run_takes(tiny, monkeypatch):
    """Arrays that were really there while the run was opened, against the bytes that the estimate has for them."""
    found = runs.run(tiny)
    needs = {need.what: need.amount for need in memory.needs_of(tiny, 2)}
    link = airfl.channel.open_link(tiny, (0, 1))
    assert needs["channels of a round"] == link.channels([0]).nbytes
    assert needs["who is active"] == link.active(range(tiny.system.rounds)).nbytes
    assert needs["positions"] == 2 * link.law.distances_m.nbytes
    samples = airfl.devices.load_samples(tiny, torch.device("cpu"))
    task = airfl.devices.open_task(tiny, (0, 1), samples)
    assert needs["local steps"] <= task.batches(0, link.active([0])[:, 0]).nbytes
    kept = [row for entry in found.schemes.values() for row in entry.records]
    kept += [event for entry in found.schemes.values() for ledger in entry.ledgers for event in ledger.events]
    sizes = [sys.getsizeof(vars(item)) + sum(map(sys.getsizeof, vars(item).values())) for item in kept]
    assert needs["records"] <= sum(sizes)
    monkeypatch.setattr(memory, "physical_bytes", lambda: sum(needs.values()))
    memory.require_memory(memory.needs_of(tiny, 2))
    monkeypatch.setattr(memory, "physical_bytes", lambda: sum(needs.values()) - 1)
    with pytest.raises(InputError, match="needs at least"):
        memory.require_memory(memory.needs_of(tiny, 2))


def test_memory_that_runs_out_all_the_same_is_one_sentence(call, monkeypatch):
    def full(*arguments, **named):
        raise MemoryError("Unable to allocate 7 GiB")

    monkeypatch.setattr(runs, "run", full)
    refused(call("run", "paper", *TINY, "--out", "o"), "not enough memory", "7 GiB")


@pytest.mark.parametrize("model", ["softmax", "mlp"])
@pytest.mark.parametrize("backend", ["loop", "batched", "threads"])
@pytest.mark.parametrize("samples", [1, 7, 70])
def test_a_batch_larger_than_any_device_is_no_wider_than_it_and_has_the_same_bits(
    tiny, monkeypatch, model, backend, samples
):
    changes = {"learning.samples_per_device": samples, "learning.model": model, "engine.backend": backend}
    config = tiny.replace({**changes, "system.rounds": 2, "learning.batch_size": 300, "learning.local_epochs": 2})
    narrow = runs.run(config)
    task = airfl.devices.open_task(config, (0, 1), airfl.devices.load_samples(config, torch.device("cpu")))
    assert task.batch_width == (WIDTH["cpu"] if samples < WIDTH["cpu"] else 2 * WIDTH["cpu"])
    monkeypatch.setattr(Task, "batch_width", property(lambda task: task.config.learning.batch_size))
    wide = runs.run(config)
    assert narrow.rounds == wide.rounds
    for name in narrow.schemes:
        assert torch.equal(narrow.schemes[name].models, wide.schemes[name].models)


def test_a_batch_of_a_million_trains_at_once(tiny):
    done = runs.run(tiny.replace({"learning.batch_size": 10**6, "system.rounds": 1}))
    assert done.schemes[tiny.scheme.names[0]].status == "done"


@pytest.mark.parametrize(
    "deep", ["x = " + "[" * 3000 + "]" * 3000, ".".join("a" * 3000) + " = 1", "x = 1" + "0" * 5000]
)
def test_a_file_that_no_reader_takes(call, tmp_path, deep):
    (tmp_path / "deep.toml").write_text(deep)
    refused(call("run", "deep.toml"), "TOML" if deep[0] == "x" else "deep")
    refused(call("sweep", "deep.toml"), "deep.toml")
    refused(call("plan", "deep.toml"), "deep.toml")
    key, _, value = deep.partition(" = ")
    refused(call("run", "paper", "--set", f"system.rounds={value}" if key == "x" else f"{key}={value}"))
    with pytest.raises(InputError):
        from_toml(deep)
    assert parse_override("learning.model=" + "[" * 3000)[1] == "[" * 3000


@pytest.mark.parametrize("rate", [1e-46, 1e39, 1e90])
def test_a_learning_rate_that_float32_does_not_have(call, tmp_path, rate):
    for scheme in ("fedavg", "airfl-dp"):
        out = call("run", "paper", *TINY, "--scheme", scheme, "--set", f"learning.learning_rate={rate}", "--out", "o")
        refused(out, "float32", "learning_rate")
    assert not (tmp_path / "o").exists()
    with pytest.raises(InputError, match="server_step"):
        preset("paper").replace({"learning.learning_rate": 1e-20, "learning.server_step": 1e-30})


@pytest.mark.parametrize("name", [".", "..", "...", "a/b", "", "x" * 300])
def test_names_that_are_other_folders(call, tmp_path, name):
    (tmp_path / "s.toml").write_text(tomli_w.dumps({**STUDY, "name": name}))
    refused(call("sweep", "s.toml"), "name")
    refused(call("run", "paper", *TINY, "--set", f"name={name!r}"), "name")
    assert not (tmp_path / "studies").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"s.toml"}


def test_a_zip_of_nothing(call, tmp_path):
    for group in ({}, {"system.seed": []}):
        (tmp_path / "s.toml").write_text(tomli_w.dumps({**STUDY, "zip": [group]}))
        refused(call("sweep", "s.toml", "--dry-run"), "zip")


MARKUP = "[/red]"


def test_markup_in_what_a_user_wrote_is_printed_as_it_is(call, tmp_path, monkeypatch):
    """As an axis value, a folder, a scenario's name and a message."""
    monkeypatch.setenv("COLUMNS", "200")
    names = ["fashion[/red]:tada:", "fashion[/blue]"]
    study = {**STUDY, "grid": {"learning.data_dir": names}, "trials": 1}
    (tmp_path / "s.toml").write_text(tomli_w.dumps(study))
    code, out, error = call("sweep", "s.toml", "--out", "o[/red]")
    assert code == 0, error
    code, out, error = call("report", "o[/red]")
    assert code == 0, error
    assert all(name in out for name in names)
    assert "o[/red]/results.parquet" in call("status", "o[/red]")[1]
    (tmp_path / "[bold]x.toml").write_text(
        "devices = 50\nantennas = 10\nparameters = 1000\nrounds = 5\nclip_norm = 1.0\n"
    )
    code, out, error = call("plan", "[bold]x.toml", "--snr", "10", "--epsilon", "1")
    assert code == 0, error
    assert "[bold]x: " in out


def test_markup_on_progress_bars(capsys):
    from airfl.report.progress import DesignProgress, Steps

    with Steps(MARKUP, 3) as steps, DesignProgress() as design:
        steps.advance(1)
        design.advance("[/b]", 1, 2)
    from airfl.wording import plain_console

    plain_console(sys.stdout).print(f"• {MARKUP} :tada:")
    assert f"{MARKUP} :tada:" in capsys.readouterr().out


def test_a_refused_run_or_study_leaves_no_tracker_files_and_no_plan(call, tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    bad = ["--set", "learning.model=nonsense", "--track", "mlflow", "--out", "o"]
    refused(call("run", "paper", *TINY, *bad), "no model named")
    assert not (tmp_path / "o").exists()
    (tmp_path / "s.toml").write_text(tomli_w.dumps(STUDY))
    refused(call("sweep", "s.toml", "--out", "o", "--track", "wandb"), "no tracker")
    assert not (tmp_path / "o").exists()
    make_trackers(["mlflow", "tensorboard"], tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_an_executor_that_refuses_leaves_no_plan(tmp_path):
    class Refusing:
        def run(self, job):
            raise InputError("nobody there")

    with pytest.raises(InputError, match="nobody"):
        run(STUDY, tmp_path / "o", Refusing())
    assert not (tmp_path / "o" / "plan.json").exists()
    assert not (tmp_path / "o" / "study.toml").exists()


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    from pathlib import Path

    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device.*rounds\.parquet") as seen:
        write_bytes(tmp_path / "rounds.parquet", b"x")
    assert seen.value.errno == errno.ENOSPC
    assert not list(tmp_path.iterdir())


@pytest.fixture
def own_code(tmp_path):
    """A module that leaves a mark when it is imported."""
    name = f"own_code_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(
        "from pathlib import Path\nfrom torch import nn\nPath('mark').touch()\n"
        "def net(shape, classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    yield name
    sys.modules.pop(name, None)


def test_code_that_a_configuration_names_is_named_or_refused(call, tmp_path, own_code):
    (tmp_path / "received.toml").write_text(
        preset("paper").replace(dict(parse_override(text) for text in TINY if "=" in text)).to_toml()
    )
    chosen = ["--set", f"learning.model={own_code}:net"]
    refused(call("run", "received.toml", *chosen, "--no-imports", "--out", "o"), f"{own_code}:net", "--no-imports")
    refused(call("audit", "received.toml", *chosen, "--no-imports"), f"{own_code}:net")
    study = {**STUDY, "grid": {"learning.model": ["softmax", f"{own_code}:net"]}, "trials": 1}
    (tmp_path / "s.toml").write_text(tomli_w.dumps(study))
    refused(call("sweep", "s.toml", "--no-imports", "--out", "s"), f"{own_code}:net")
    assert call("sweep", "s.toml", "--dry-run", "--json")[0] == 0
    assert not (tmp_path / "mark").exists()
    assert not (tmp_path / "o").exists()
    assert not (tmp_path / "s").exists()
    code, _, error = call("run", "received.toml", *chosen, "--out", "o", "--json")
    assert code == 0, error
    assert f"'{own_code}:net'" in error
    assert (tmp_path / "mark").exists()
    code, _, error = call("run", "received.toml", "--no-imports", "--out", "p", "--json")
    assert code == 0, error
    assert "executes" not in error


def test_classifiers_name_the_versions_of_python():
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for minor in (11, 12, 13):
        assert f"Programming Language :: Python :: 3.{minor}" in project["classifiers"]
    assert any(item.startswith("filelock") for item in project["dependencies"])
