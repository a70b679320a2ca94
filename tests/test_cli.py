from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

import airfl
from airfl.privacy import ACCOUNTANTS
from airfl.schemes import SCHEMES, LeastNoise

TINY = [
    "--set", "learning.dataset=digits", "--set", "learning.split=standard", "--set", "learning.model=softmax",
    "--set", "learning.local_steps=2", "--set", "system.rounds=2", "--set", "system.num_devices=12",
    "--set", "system.num_antennas=16", "--set", "learning.clip_norm=1.0", "--trials", "1",
]  # fmt: skip


def test_run_prints_json_last_and_writes_everything(call, tmp_path):
    code, out, err = call("run", "paper", *TINY, "--out", "here", "--json")
    assert code == 0, err
    summary = json.loads(out.strip().splitlines()[-1])
    assert summary["out"] == "here"
    assert list(summary["schemes"]) == ["fedavg", "fedavg-clip", "airfl-mimo", "airfl-dp"]
    assert json.loads((tmp_path / "here" / "summary.json").read_text()) == summary
    for name in ("config.toml", "rounds.parquet", "ledger.json", "model.safetensors", "report.html"):
        assert (tmp_path / "here" / name).is_file()
    assert "airfl-dp" in err  # progress goes to standard error
    assert "airfl-dp" not in out.replace(out.strip().splitlines()[-1], "")


def test_run_for_people(call, tmp_path):
    code, out, _ = call("run", "paper", *TINY, "--scheme", "airfl-dp", "--scheme", "fedavg", "--device", "cpu")
    assert code == 0
    assert "AirFL-DP" in out
    report = out.strip().splitlines()[-1]
    assert report.startswith("Report: ")
    assert os.path.isfile(report.removeprefix("Report: "))
    assert report.removeprefix("Report: ").startswith(str(tmp_path / "runs" / "paper-"))


def test_both_readings_of_the_paper_run(call):
    for reading in ("learning.local_steps=5", "learning.local_epochs=1"):
        settings = [reading if word == "learning.local_steps=2" else word for word in TINY]
        code, out, err = call("run", "paper", *settings, "--scheme", "airfl-dp", "--json", "--out", reading)
        assert code == 0, err
        assert json.loads(out)["schemes"]["airfl-dp"]["epsilon"]["paper"] > 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "privacy.delta=0"], "delta"),
        (["--set", "privacy.epsilon=-1"], "epsilon"),
        (["--set", "system.participation=0"], "participation"),
        (["--set", "system.num_antennas=3"], "antennas"),
        (["--set", "system.num_devices=2000", "--set", "system.num_antennas=2000"], "more devices than samples"),
        (["--set", "system.round=3"], "did you mean `rounds`"),
        (["--set", "learning.clip_norm=0"], "clip_norm"),
        (["--set", "learning.learning_rate=nan"], "finite"),
        (["--set", "learning.model=tests.test_models_and_engines:not_a_module"], "torch.nn.Module"),
        (["--set", "learning.model=paper-cnn"], "square images"),
        (["--set", "learning.model=nonsense"], "no model named"),
        (["--set", "learning.dataset=nonsense"], "no data set named"),
        (["--set", "learning.dataset=fashion-mnist", "--set", "learning.data_dir=/nowhere"], "must hold the four"),
        (["--set", "learning.local_steps=2", "--set", "learning.local_epochs=2"], "say the same thing"),
        (["--scheme", "magic"], "scheme.names"),
        (["--device", "tpu"], "device"),
        (["--set", "rounds"], "section.key=value"),
        (["--trials", "0"], "trials"),
        (["--out", "/proc/airfl"], "not writable"),
        (["--out", "/dev/null/x"], "not writable"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_nothing_written(call, tmp_path, arguments, words):
    out = [] if "--out" in arguments else ["--out", "folder"]
    code, output, error = call("run", "paper", *TINY, *out, *arguments)
    assert code == 2
    assert output == ""
    lines = [line for line in error.splitlines() if line.strip() and "this executes code" not in line]
    assert len(lines) == 1, error
    assert words in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_broken_data_files(call, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for name in airfl.devices.idx.FILES:
        (data / f"{name}.gz").write_bytes(b"\x1f\x8b broken")
    code, _, error = call("run", "paper", "--set", f"learning.data_dir={data}", "--out", "o")
    assert (code, "truncated or not gzip" in error) == (2, True)
    assert not (tmp_path / "o").exists()


def test_cuda_that_is_not_there(call):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    code, _, error = call("run", "paper", *TINY, "--out", "o", "--device", "cuda")
    assert code == 2
    assert "no CUDA GPU" in error


def test_full_folder_needs_force(call, tmp_path):
    (tmp_path / "o").mkdir()
    (tmp_path / "o" / "mine.txt").write_text("keep")
    code, _, error = call("run", "paper", *TINY, "--out", "o")
    assert code == 2
    assert "--force" in error
    assert [path.name for path in (tmp_path / "o").iterdir()] == ["mine.txt"]
    assert call("run", "paper", *TINY, "--out", "o", "--force", "--json")[0] == 0
    assert (tmp_path / "o" / "mine.txt").read_text() == "keep"


def test_divergence_exits_1_and_keeps_the_records(call, tmp_path):
    code, _, error = call(
        "run", "paper", *TINY, "--set", "learning.learning_rate=1e38", "--scheme", "fedavg", "--out", "o"
    )
    assert code == 1
    assert "diverged" in error.splitlines()[-1]
    assert "Traceback" not in error
    assert json.loads((tmp_path / "o" / "summary.json").read_text())["schemes"]["fedavg"]["status"] == "diverged"
    assert not (tmp_path / "o" / "model.safetensors").exists()


def test_exceeded_budget_exits_3_without_a_model(call, tmp_path, monkeypatch):
    cheat = replace(SCHEMES["airfl-dp"], policy=LeastNoise())
    monkeypatch.setitem(SCHEMES, "airfl-dp", cheat)
    code, _, error = call("run", "paper", *TINY, "--scheme", "airfl-dp", "--out", "o")
    assert code == 3
    assert "budget is exceeded" in error
    assert not (tmp_path / "o" / "model.safetensors").exists()


def test_ctrl_c_saves_and_exits_130(tmp_path):
    command = [
        sys.executable, "-m", "airfl.cli", "run", "paper", *TINY, "--set", "system.rounds=20000",
        "--scheme", "fedavg", "--out", str(tmp_path / "o"), "--checkpoint-seconds", "0.2",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=environment,
        # A shell's background job starts with SIGINT ignored, and its children inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        while process.poll() is None and not list((tmp_path / "o").glob("checkpoints/*.json")):
            time.sleep(0.1)  # until a round is done
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, error.decode()
    assert b"Traceback" not in error
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())
    assert summary["schemes"]["fedavg"]["status"] == "interrupted"
    assert summary["schemes"]["fedavg"]["rounds"] >= 1


def epsilon(call, *arguments):
    code, out, error = call("epsilon", *arguments, "--json")
    assert code == 0, error
    return {name: answer["epsilon"] for name, answer in json.loads(out)["accountants"].items()}


@pytest.mark.parametrize(
    ("v", "published", "exact_2c", "exact_c"),
    [(36_141, 30.5, 45.1, 17.5), (10_726, 76.3, 112.9, 39.9), (6_598, 114.4, 167.0, 56.7), (3_260, 213.6, 301.6, 96.9)],
)
def test_epsilon_reproduces_the_table_of_the_papers_setting(call, v, published, exact_2c, exact_c):
    base = ["--clip-norm", "83.5721963", "--noise-var", str(v), "--rounds", "50", "--delta", "1e-5"]
    found = epsilon(call, *base, "--participation", "0.9")
    assert found["paper"] == pytest.approx(published, abs=0.051)
    assert found["gaussian"] == pytest.approx(exact_2c, abs=0.051)  # K of n are drawn: replace by default
    found = epsilon(call, *base, "--participation", "0.9", "--neighbours", "zero-out")
    assert found["gaussian"] == pytest.approx(exact_c, abs=0.051)


@pytest.mark.parametrize(
    ("mu", "expected"),
    [(0.142211, 0.5), (0.268051, 1), (0.501552, 2), (0.924931, 4), (1.666031, 8), (2.905478, 16)],
)
def test_epsilon_reproduces_the_table_of_mu(call, mu, expected):
    found = epsilon(call, "--clip-norm", str(mu), "--noise-var", "1", "--rounds", "1", "--accountant", "gaussian")
    assert found == {"gaussian": pytest.approx(expected, rel=2e-5)}


def test_a_ledger_answers_for_the_promise_it_was_made_for(call, tmp_path):
    promise = ["--set", "privacy.delta=1e-3", "--set", "privacy.neighbours=zero-out"]
    assert call("run", "paper", *TINY, *promise, "--out", "o", "--json")[0] == 0
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())["schemes"]["airfl-dp"]
    assert epsilon(call, "--ledger", "o/ledger.json", "--observer", "model") == summary["epsilon"]
    assert epsilon(call, "--ledger", "o/ledger.json", "--delta", "1e-9")["gaussian"] > summary["epsilon"]["gaussian"]
    assert call("epsilon", "--ledger", "o/ledger.json", "--scheme", "fedavgg")[0] == 2


def test_epsilon_of_a_finished_run(call, tmp_path):
    assert call("run", "paper", *TINY, "--out", "o", "--json")[0] == 0
    summary = json.loads((tmp_path / "o" / "summary.json").read_text())["schemes"]
    for observer in ("model", "models", "base-station"):
        found = epsilon(call, "--ledger", "o/ledger.json", "--delta", "1e-5", "--observer", observer)
        assert found == summary["airfl-dp"]["epsilon_by_observer"][observer]
    found = epsilon(call, "--ledger", "o/ledger.json", "--scheme", "fedavg")
    assert found == dict.fromkeys(ACCOUNTANTS)
    assert "not a proof" in call("epsilon", "--ledger", "o/ledger.json")[1]
    damaged = (tmp_path / "o" / "ledger.json").read_text()
    for text in (damaged[:-40], damaged.replace('"noise_var": 0.0', '"noise_var": -1.0'), "{}"):
        (tmp_path / "o" / "ledger.json").write_text(text)
        code, _, error = call("epsilon", "--ledger", "o/ledger.json")
        assert code == 2
        assert len(error.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (["--delta", "0"], "delta"),
        (["--clip-norm", "0"], "clip_norm"),
        (["--clip-norm", "nan"], "clip_norm"),
        (["--noise-var", "-1"], "noise_var"),
        (["--rounds", "0"], "rounds"),
        (["--participation", "0"], "participation"),
        (["--neighbours", "swap"], "neighbours"),
        (["--observer", "god"], "observer"),
        (["--observer", "base-station"], "--ledger"),
        (["--accountant", "mine"], "accountant"),
        (["--accountant", "paper", "--observer", "models"], "says nothing about"),
        (["--ledger", "absent.json"], "what-if options"),
        (["--diameter", "1"], "smoothness"),
        (["--diameter", "1", "--smoothness", "1"], "local steps"),
        (["--diameter", "1", "--diameter", "2"], "--out"),
        (["--rounds", "100000000"], "rounds"),
        (["--delta", "1e-310", "--rounds", "0"], "rounds"),
    ],
)
def test_epsilon_bad_input(call, change, words):
    code, out, error = call("epsilon", "--clip-norm", "1", "--noise-var", "1", "--rounds", "1", *change)
    assert (code, out) == (2, "")
    assert words in error
    assert len(error.strip().splitlines()) == 1


def test_epsilon_says_what_is_missing(call):
    code, _, error = call("epsilon", "--clip-norm", "1")
    assert code == 2
    assert "--noise-var, --rounds missing" in error


def test_epsilon_without_noise_is_null_and_json_carries_the_claim(call):
    code, out, _ = call("epsilon", "--clip-norm", "1", "--noise-var", "0", "--rounds", "1", "--json")
    answers = json.loads(out)["accountants"]
    assert code == 0
    assert set(answers) == set(ACCOUNTANTS)
    for answer in answers.values():
        assert answer["epsilon"] is None
        assert {"observer", "neighbours", "assumptions", "delta"} <= set(answer)


def test_presets(call):
    code, out, _ = call("presets", "--json")
    assert code == 0
    assert {"demo", "paper", "authors", "paper-noniid"} <= set(json.loads(out)["presets"])
    assert "paper-noniid" in call("presets")[1]
    assert "clip_factor" in call("presets", "paper")[1]
    assert "properties" in json.loads(call("presets", "--schema")[1])
    code, _, error = call("presets", "papers")
    assert (code, "did you mean `paper`" in error) == (2, True)


def test_doctor(call):
    code, out, _ = call("doctor", "--json")
    assert len(json.loads(out)["source"]) == 12
    findings = json.loads(out)
    assert code == 0
    assert findings["versions"]["airfl"] == airfl.__version__
    assert {"versions", "datasets", "devices", "threads"} <= set(findings)
    assert "fashion-mnist" in call("doctor")[1]


def test_usage_errors_exit_2(call):
    assert call("run")[0] == 2
    assert call("epsilon", "--rounds", "many")[0] == 2
