"""How long light commands take, and which packages that goes to: ``python -m benchmarks.startup [--json]``.

Ratios are the best time of a command over the best time of ``python -c pass``, in turns, in one run.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections import Counter

from airfl.places import experiments_folder

STUDY = str(experiments_folder() / "studies" / "fig6-airfl.toml")
QUESTION = ["epsilon", "--clip-norm", "83.57", "--noise-var", "10726", "--rounds", "50", "--delta", "1e-5"]
INVERSE = ["epsilon", "--clip-norm", "83.57", "--rounds", "50", "--epsilon", "1", "--delta", "1e-5"]
#: Commands that train nothing; what they are given is a typo on purpose in some.
COMMANDS = {
    "--version": ["--version"],
    "--help": ["--help"],
    "run -h": ["run", "-h"],
    "runn": ["runn"],
    "presets": ["presets"],
    "presets demo": ["presets", "demo"],
    "run papper": ["run", "papper"],
    "run demo --set system.runds=3": ["run", "demo", "--set", "system.runds=3"],
    "sweep STUDY --dry-run": ["sweep", STUDY, "--dry-run"],
    "epsilon": QUESTION,
    "epsilon --epsilon 1": INVERSE,
    "epsilon --participation 0.9": [*QUESTION, "--participation", "0.9"],
    "epsilon ... 0.9 --poisson": [*QUESTION, "--participation", "0.9", "--poisson"],
}
HEAVY = ("torch", "matplotlib", "dp_accounting", "scipy.stats", "scipy.optimize")
IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")


def seconds(arguments: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *arguments], capture_output=True, check=False)
    return time.perf_counter() - begin


def packages(command: list[str]) -> tuple[list[tuple[str, float]], list[str]]:
    """The packages whose modules take longest to import, with their seconds, and the heavy ones that are loaded."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "airfl.cli", *command], capture_output=True, text=True, check=False
    )
    found: Counter[str] = Counter()
    modules = set()
    for micro, module in IMPORT.findall(done.stderr):
        found[module.partition(".")[0]] += int(micro)
        modules.add(module)
    return [(name, count / 1e6) for name, count in found.most_common(4)], [name for name in HEAVY if name in modules]


def measure(repeat: int) -> dict[str, dict[str, object]]:
    calls = {"python -c pass": ["-c", "pass"]}
    calls |= {name: ["-m", "airfl.cli", *command] for name, command in COMMANDS.items()}
    best: dict[str, float] = {}
    for _ in range(repeat):  # in turns, so that a busy minute meets all of them
        for name, arguments in calls.items():
            best[name] = min(seconds(arguments), best.get(name, float("inf")))
    floor = best.pop("python -c pass")
    rows: dict[str, dict[str, object]] = {"python -c pass": {"seconds": floor, "ratio": 1.0}}
    for name, least in best.items():
        longest, heavy = packages(COMMANDS[name])
        rows[name] = {"seconds": least, "ratio": least / floor, "packages": longest, "heavy": heavy}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    rows = measure(options.repeat)
    if options.json:
        print(json.dumps(rows))
        return
    for name, row in rows.items():
        shown = ", ".join(f"{package} {1e3 * spent:.0f} ms" for package, spent in row.get("packages", []))  # type: ignore[attr-defined]
        heavy = f"  HEAVY: {', '.join(row['heavy'])}" if row.get("heavy") else ""  # type: ignore[arg-type]
        print(f"{name:<32} {row['seconds']:6.3f} s  {row['ratio']:6.1f}×  {shown}{heavy}")


if __name__ == "__main__":
    main()
