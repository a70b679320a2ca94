"""Rounds and sums as plain data, as files hold them."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from airfl.privacy.events import SEEING, Domain, Observer, RoundEvent, Sampling, require

#: How visible every device is to observers of signals, by its number.
Seen = Mapping[Observer, np.ndarray]


def row_of(event: RoundEvent) -> dict[str, Any]:
    """An event as plain data; an infinite clip norm is null."""
    row = asdict(event)
    row["clip_norm"] = event.clip_norm if math.isfinite(event.clip_norm) else None
    if not event.sampling.replaces:
        del row["sampling"]["most"]
    if not event.noise_follows_data:
        del row["noise_follows_data"]
    return row


def event_of(row: Mapping[str, Any]) -> RoundEvent:
    """Inverse of ``row_of``."""
    fields = dict(row)
    fields["clip_norm"] = math.inf if fields["clip_norm"] is None else fields["clip_norm"]
    fields["sampling"] = Sampling(**fields["sampling"])
    if fields.get("domain") is not None:
        fields["domain"] = Domain(**fields["domain"])
    return RoundEvent(**fields)


def former_of(row: Mapping[str, Any]) -> tuple[RoundEvent, Seen]:
    """A round of version 2, and what it says of every device.

    It kept ‖h s‖, weighted by what covers it, in units of the receiver's noise: √(σ² pᴴ C⁻¹ p), of the loudest device
    and, if they were not too many, of each. In today's units that is √(2/σ²) times as much.
    """
    fields = dict(row)
    norm, norms, power = fields.pop("received_norm"), fields.pop("device_norms", None), fields["noise_power"]
    unknown = [name for name in fields if name.replace("_", "-") in SEEING]
    require(not unknown, f"version 2 has no {', '.join(unknown)}")
    if norm is None or power is None:
        require(norms is None, "`device_norms` goes with `received_norm` and `noise_power`")
        return event_of(fields), {}
    require(norm > 0.0 and power > 0.0, "`received_norm` and `noise_power` must be positive")
    unit = math.sqrt(2.0) / math.sqrt(power)
    if norms is None:
        return event_of({**fields, "base_station": unit * norm}), {}
    own = vector(norms)
    require(
        abs(own.max(initial=0.0) - norm) <= 1e-9 * norm + 1e-300,
        "the largest of `device_norms` must be `received_norm`",
    )
    # A round in which nobody sent had the least of all numbers as its `received_norm`: nothing is seen there.
    return event_of({**fields, "base_station": float((unit * own).max())}), {"base-station": unit * own}


def plain(values: np.ndarray) -> list[float | None]:
    """Numbers for JSON, which has no infinity: null stands for it."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def vector(values: Any) -> np.ndarray:
    """Inverse of ``plain``; only numbers that are not negative."""
    good = isinstance(values, list) and all(
        value is None or (isinstance(value, int | float) and not isinstance(value, bool) and value >= 0.0)
        for value in values
    )
    require(good, f"expected a list of numbers that are not negative; got {str(values)[:60]}")
    return np.array([math.inf if value is None else float(value) for value in values], dtype=np.float64)


def checksum(content: Any) -> str:
    """SHA-256 of plain data."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
