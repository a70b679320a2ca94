"""The fuzzers at full size: ``python -m tests.fuzz`` runs all, ``python -m tests.fuzz plans --count 300`` one."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz import FUZZERS


def main() -> int:
    """Run what was asked for; a JSON line each; exit code 1 if an input ended otherwise than it may."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("kind", nargs="?", choices=[*FUZZERS, "all"], default="all")
    parser.add_argument("--count", type=int, help="inputs; default: each fuzzer's own number")
    parser.add_argument("--seed", type=int, default=0)
    wish = parser.parse_args()
    clean = True
    for name, (fuzzer, count) in FUZZERS.items():
        if wish.kind not in (name, "all"):
            continue
        begin = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            tally = fuzzer(wish.count or count, wish.seed, Path(folder))
        seconds = round(time.perf_counter() - begin, 1)
        print(json.dumps({"fuzzer": name, "seconds": seconds, **tally.summary}), flush=True)
        clean = clean and tally.clean
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
