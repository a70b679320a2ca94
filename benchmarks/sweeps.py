"""Studies under fire, and what the machinery costs.

``python -m benchmarks.sweeps`` kills a small study 25 times at random moments (half of the kills only while a
checkpoint is being written), resumes it each time and compares the results bit by bit with an undisturbed one; then it
times 100 tiny cells as a study against the same cells run one after another; then it plans 10,000 cells.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import tomli_w

from airfl import runs, sweeps
from airfl.study import make_plan, make_study
from airfl.sweeps.executors import InProcess, Settings
from benchmarks.machine import provenance

TINY: dict[str, Any] = {
    "name": "tiny",
    "base": "paper",
    "schemes": ["airfl-mimo", "airfl-dp"],
    "trials": 2,
    "rows_per_batch": 4,
    "set": {
        "system.num_devices": 6,
        "system.num_antennas": 8,
        "system.participation": 1.0,
        "system.rounds": 60,
        "learning.dataset": "digits",
        "learning.split": "standard",
        "learning.model": "softmax",
        "learning.local_steps": 2,
        "learning.learning_rate": 0.1,
        "learning.clip_norm": 1.0,
        "privacy.accountant": "gaussian",
        "scheme.combiner": "zero-forcing",
    },
    "grid": {"privacy.epsilon": [5.0, 50.0], "channel.power_w": [1e-9, 1e-3]},
}


def start(study: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "airfl.cli", "sweep", str(study), "--out", str(out), "--json"]
    command += ["--checkpoint-rounds", "1", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"a sweep ended with {process.returncode}: {errors}")
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer


def kill(process: subprocess.Popen[str], out: Path, inside: bool, chance: random.Random) -> bool:
    """SIGKILL at a random moment, or at the first one at which a checkpoint is half written; whether it was."""
    end = time.monotonic() + chance.uniform(1.0, 6.0)
    while process.poll() is None and (inside or time.monotonic() < end):
        if inside and time.monotonic() > end - 3.0:
            process.send_signal(signal.SIGSTOP)
            if list((out / "checkpoints").glob("*/.*")):
                break
            process.send_signal(signal.SIGCONT)
        time.sleep(0.001)
    process.kill()
    process.communicate()
    halves = list((out / "checkpoints").glob("*/.*"))
    for half in halves:
        half.unlink()
    return bool(halves)


def under_fire(kills: int, seed: int) -> dict[str, Any]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        study, whole, hurt = Path(folder) / "study.toml", Path(folder) / "whole", Path(folder) / "hurt"
        study.write_text(tomli_w.dumps({**TINY, "set": {**TINY["set"], "system.rounds": 400}}))
        finish(start(study, whole))
        inside, alive = 0, 0
        for number in range(kills):
            resume = ("--resume",) if (hurt / "plan.json").exists() else ()
            process = start(study, hurt, *resume)
            inside += kill(process, hurt, number % 2 == 1, chance)
            alive += process.returncode == -signal.SIGKILL
            print(f"kill {number + 1}/{kills}: exit {process.returncode}", file=sys.stderr)
        answer = finish(start(study, hurt, "--resume"))
        same = (whole / "results.parquet").read_bytes() == (hurt / "results.parquet").read_bytes()
        rows = pq.read_table(hurt / "results.parquet", columns=["point", "scheme", "trial", "round"]).to_pylist()
    once = len(rows) == len({tuple(row.values()) for row in rows}) == 16 * 400
    if not (same and once and answer["done"] == 16):
        raise SystemExit(f"the results differ: same bits {same}, each cell once {once}, {answer}")
    return {"kills": kills, "killed_at_work": alive, "inside_checkpoint_writes": inside, "same_bits": same}


def overhead(repeats: int = 3) -> dict[str, Any]:
    """100 tiny cells as a study and one after another by ``runs.run``; and trained together as the engine can."""
    study = {**TINY, "trials": 5, "schemes": ["airfl-dp"]}
    study["grid"] = {"privacy.epsilon": [5.0 + i for i in range(5)], "channel.power_w": [1e-9, 1e-6, 1e-3, 1e-2]}
    found: dict[str, float] = {}
    for rows in (1, 16):  # each cell by itself, as the direct runs; and batches
        made = make_study({**study, "rows_per_batch": rows})
        plan = make_plan(made, 1)
        assert plan.num_cells == 100
        times = []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                begin = time.perf_counter()
                with runs.locked(Path(folder) / "o"):
                    plan, where = sweeps.open_folder(made, "", Path(folder) / "o", resume=False, threads=1)
                    standing, _ = sweeps.run_sweep(plan, where, InProcess(Settings()))
                times.append(time.perf_counter() - begin)
                assert standing.done == 100
        found[f"sweep_s_{rows}_rows_per_batch"] = min(times)
    direct = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for point in range(len(plan.points)):
            for trial in range(5):  # a cell by itself: one configuration, one trial
                runs.run(plan.config(point).replace({"system.trials": 1, "system.seed": trial, "engine.device": "cpu"}))
        direct.append(time.perf_counter() - begin)
    found["direct_s"] = min(direct)
    found["ratio_cell_by_cell"] = found["sweep_s_1_rows_per_batch"] / found["direct_s"]
    found["ratio_in_batches"] = found["sweep_s_16_rows_per_batch"] / found["direct_s"]
    return {key: round(value, 3) for key, value in found.items()}


def planning() -> dict[str, Any]:
    """10,000 configurations, and 1,000 with 10 trials: time to plan and show, and what it adds to memory."""
    found: dict[str, Any] = {}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name, trials, powers in (("10000_configurations", 1, 200), ("1000_configurations_10_trials", 10, 20)):
        study = {**TINY, "trials": trials, "schemes": ["airfl-dp"]}
        study["grid"] = {
            "privacy.epsilon": [1 + i / 10 for i in range(50)],
            "channel.power_w": [1e-3 * i for i in range(1, powers + 1)],
        }
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "study.toml"
            file.write_text(tomli_w.dumps(study))
            begin = time.perf_counter()
            command = [sys.executable, "-m", "airfl.cli", "sweep", str(file), "--dry-run", "--json"]
            answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            found[f"{name}_command_s"] = round(time.perf_counter() - begin, 2)
            assert answer["cells"] == 10_000
            begin = time.perf_counter()
            make_plan(make_study(study))
            found[f"{name}_plan_s"] = round(time.perf_counter() - begin, 2)
    found["memory_mib"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=25)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="write the numbers to this JSON file too")
    arguments = parser.parse_args()
    found = {
        "machine": provenance(),
        "planning": planning(),
        "overhead": overhead(),
        "under_fire": under_fire(arguments.kills, arguments.seed) if arguments.kills else None,
    }
    text = json.dumps(found, indent=1)
    if arguments.out:
        Path(arguments.out).write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
