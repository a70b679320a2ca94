"""``python -m tests.fuzz NAME --count N --seed S``: one fuzzer, its tally as JSON; exit code 1 if anything offends."""

from __future__ import annotations

import argparse
import importlib
import json
import sys

import torch

from tests.fuzz.tally import Tally

#: Each is ``function(count, seed) -> Tally``, with the count that counts as complete.
FUZZERS = {
    "studies": ("tests.fuzz.studies:damaged_studies", 130),
    "odd-studies": ("tests.fuzz.odd:odd_studies", 45),
}


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("name", choices=sorted(FUZZERS))
    parser.add_argument("--count", type=int, help="inputs; default: as many as count as complete")
    parser.add_argument("--seed", type=int, default=0, help="of the first input")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    path, complete = FUZZERS[chosen.name]
    module, _, function = path.partition(":")
    found: Tally = getattr(importlib.import_module(module), function)(chosen.count or complete, chosen.seed)
    print(json.dumps({"fuzzer": chosen.name, **found.summary}, indent=1))
    return 0 if found.clean else 1


if __name__ == "__main__":
    sys.exit(main())
