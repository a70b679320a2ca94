"""Bring all built-in data sets that come in devices into the cache: ``python -m airfl.devices.fleets.fetch``."""

from __future__ import annotations

import sys

from airfl.devices.fleets import FLEETS, kept_at
from airfl.errors import InputError


def main() -> int:
    """Fetch and convert what is not there yet; 2 where one of them cannot be had."""
    for name, load in FLEETS.items():
        try:
            dataset = load(None)
        except InputError as error:
            print(f"airfl: {error}", file=sys.stderr)
            return 2
        print(f"{name}: {len(dataset.labels):,} samples, {kept_at(name)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
