"""Study files as nobody should write them."""

from __future__ import annotations

import copy
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import tomli_w

from tests.fuzz.inprocess import call
from tests.fuzz.studies import STUDY
from tests.fuzz.tally import Tally

TEXTS: tuple[str, ...] = (
    "",
    "x",
    "base = 3",
    'base = "paper"\n[[zip]]\n',
    "base = 'paper'\nx = " + "[" * 3000 + "]" * 3000,
    "base = 'paper'\n" + ".".join("a" * 2000) + " = 1",
    "base = 'paper'\ntrials = 1" + "0" * 4400,
    "base = 'paper'\ntrials = nan",
    "base = '\\u0000'",
    "base = 'nowhere.toml'",
    "base = '.'",
    "base = '/dev/null'",
    "base = 'paper'\n[set]\n'' = 1",
    "base = 'paper'\n[set]\n'system' = 1",
    "base = 'paper'\n[set]\n'.' = 1",
    "base = 'paper'\n[set]\n'system.rounds.more' = 1",
    "base = 'paper'\nname = '..'",
    "base = 'paper'\nname = '[/red]'",
    "\ufeffbase = 'paper'",
)

VALUES: tuple[Any, ...] = (
    *(0, -1, 1, 2, 10**12, 10**18, 10**30, 10**400, 0.0, -0.0, 0.5, 1e-46, 1e-300, 1e39, 1e300),
    *(
        float("nan"),
        float("inf"),
        True,
        False,
        "",
        "[/red]",
        "\0",
        "\n",
        "é" * 300,
        ":",
        "a:b",
        "os:getcwd",
        "..",
        [],
        [1],
        {},
    ),
)
KEYS: tuple[str, ...] = (
    *("system.seed", "system.rounds", "system.num_devices", "system.num_antennas", "system.participation"),
    *("learning.batch_size", "learning.local_steps", "learning.learning_rate", "learning.clip_norm", "learning.model"),
    *(
        "learning.dataset",
        "learning.data_dir",
        "learning.features",
        "learning.server_step",
        "learning.samples_per_device",
    ),
    *(
        "channel.power_w",
        "channel.fading",
        "channel.trace_file",
        "channel.csi_error",
        "privacy.epsilon",
        "privacy.delta",
    ),
    *(
        "privacy.accountant",
        "scheme.names",
        "scheme.combiner",
        "engine.backend",
        "engine.eval_every",
        "name",
        "nonsense",
    ),
)
SANE: tuple[tuple[str, Any], ...] = (
    *(("system.seed", 10**30), ("system.seed", 0), ("learning.data_dir", "[/red]"), ("learning.data_dir", "\n:x:")),
    *(("learning.batch_size", 10**9), ("learning.learning_rate", 1e-40), ("learning.learning_rate", 1e30)),
    *(("learning.server_step", 1e60), ("learning.server_step", 1e-30), ("system.num_antennas", 1000)),
    *(("privacy.epsilon", 1e-9), ("privacy.epsilon", 1e9), ("privacy.delta", 1e-200), ("privacy.delta", 0.999)),
    *(("channel.power_w", 1e-30), ("channel.power_w", 1e12), ("system.participation", 1e-9), ("learning.model", "mlp")),
    *(("channel.noise_density_dbm_hz", -400.0), ("channel.noise_density_dbm_hz", 400.0), ("engine.eval_every", 10**9)),
    *(("learning.samples_per_device", 1), ("learning.clip_norm", 1e-12), ("learning.clip_norm", 1e12)),
)


def _odd_study(draw: random.Random) -> str:
    """A study with one to three oddities, as TOML."""
    if draw.random() < 0.25:
        return draw.choice(TEXTS)
    study = copy.deepcopy(STUDY)
    study["trials"] = 1
    study["set"]["system.rounds"] = 1
    for _ in range(draw.choice([1, 1, 2])):
        key, value = draw.choice(KEYS), draw.choice(VALUES)
        if draw.random() < 0.4:  # odd, and meant to run
            key, value = draw.choice(SANE)
        place = draw.choice(["grid", "grid", "zip", "list", "set", "top"])
        if place in ("grid", "set") and not isinstance(study[place], dict):
            continue
        if place == "grid":
            study["grid"][key] = draw.choice([[value], [value, draw.choice(VALUES)], [1.0, value], [], [value] * 3])
        elif place == "zip":
            study["zip"] = [draw.choice([{}, {key: []}, {key: [value]}, {key: [value], "system.seed": [1, 2]}])]
        elif place == "list":
            study["list"] = [draw.choice([{}, {key: value}, {key: value, "system.seed": 3}])]
        elif place == "set":
            study["set"][key] = value
        else:
            name = draw.choice(["name", "base", "schemes", "trials", "rows_per_batch", "set", "grid", "zip", "list"])
            study[name] = value
    return tomli_w.dumps(study)


def odd_studies(count: int, seed: int) -> Tally:
    """Dry-run, run and read ``count`` odd study files: each works, or is refused and leaves nothing behind."""
    tally = Tally()
    for number in range(seed, seed + count):
        text = _odd_study(random.Random(number))
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "s.toml").write_text(text, encoding="utf-8")
            tally.count(*_judge(folder, number))
    return tally


def _judge(folder: Path, number: int) -> tuple[Any, int, str]:
    planned = call("sweep", "s.toml", "--dry-run", "--json", folder=folder)
    ended = call("sweep", "s.toml", "--out", "o", "--json", folder=folder)
    for one in (planned, ended):
        if one.hung:
            return "hang", number, one.error[-300:]
        # Cells may fail (1): training diverged, or what only data can show. A budget cannot be met: 3.
        if not (one.code == 0 or one.refused or (one is ended and one.code in (1, 3) and len(one.sentences) == 1)):
            return "traceback", number, one.error[-600:]
    if planned.code == 2 and ended.code != 2:
        return "silent_difference", number, "planned and run do not agree"
    if ended.code == 2:
        left = [path.name for path in folder.iterdir() if path.name not in ("s.toml", "o")]
        held = [path.name for path in (folder / "o").glob("*") if path.name != ".lock"]
        return ("silent_difference", number, f"left behind: {left} {held}") if left or held else ("refused", number, "")
    for command in ("report", "status"):
        for more in (["--json"], []):
            read = call(command, "o", *more, folder=folder)
            if read.code != 0:
                return "traceback", number, f"{command}: {read.error[-600:]}"
            if more and json.loads(read.out)["cells"] != json.loads(planned.out)["cells"]:
                return "silent_difference", number, f"{command}: {read.out[:200]}"
    return "ok", number, ""
