"""The append-only list of what a run released, with a JSON round trip."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from airfl.privacy.events import Domain, PrivacyError, RoundEvent, Sampling, require

VERSION = 2


@dataclass(frozen=True)
class Ledger:
    """Events in the order in which they happened; ``append`` returns a new ledger."""

    events: tuple[RoundEvent, ...] = ()

    def append(self, event: RoundEvent) -> Ledger:
        """Return a ledger with one more event; rounds must come in order."""
        require(
            not self.events or event.round > self.events[-1].round,
            f"round {event.round} cannot be booked after round {self.events[-1].round if self.events else None}",
        )
        return Ledger((*self.events, event))

    def to_mapping(self) -> dict[str, Any]:
        """Plain data; an infinite clip norm (unclipped scheme) is written as null."""
        rows = []
        for event in self.events:
            row = asdict(event)
            row["clip_norm"] = event.clip_norm if math.isfinite(event.clip_norm) else None
            row["device_norms"] = None if event.device_norms is None else list(event.device_norms)
            rows.append(row)
        return {"version": VERSION, "sha256": _checksum(rows), "events": rows}

    @staticmethod
    def from_mapping(data: Any) -> Ledger:
        """Inverse of ``to_mapping``; anything else is refused."""
        if not isinstance(data, dict) or "events" not in data:
            raise PrivacyError("not a ledger: expected an object with `version` and `events`")
        if data.get("version") != VERSION:
            raise PrivacyError(f"ledger version {data.get('version')!r} is not supported; expected {VERSION}")
        rows = data["events"]
        require(isinstance(rows, list), "not a ledger: `events` must be a list")
        ledger = Ledger()
        for number, row in enumerate(rows):
            try:
                fields = dict(row)
                fields["clip_norm"] = math.inf if fields["clip_norm"] is None else fields["clip_norm"]
                fields["sampling"] = Sampling(**fields["sampling"])
                if fields.get("domain") is not None:
                    fields["domain"] = Domain(**fields["domain"])
                if fields.get("device_norms") is not None:
                    fields["device_norms"] = tuple(fields["device_norms"])
                ledger = ledger.append(RoundEvent(**fields))
            except (TypeError, KeyError, ValueError) as error:
                raise PrivacyError(f"ledger event {number} is not valid: {error}") from None
        # An accident or a careless edit shows; who forges both does not: a checksum is no signature.
        require(
            data.get("sha256") == _checksum(rows),
            "the ledger was changed after it was written: its events do not match its checksum; use the original file",
        )
        return ledger

    def to_json(self) -> str:
        """JSON text; ``from_json`` reads it back to an equal ledger."""
        return json.dumps(self.to_mapping(), indent=1, allow_nan=False)

    @staticmethod
    def from_json(text: str) -> Ledger:
        """Inverse of ``to_json``."""
        try:
            data = json.loads(text, parse_constant=_refuse)
        except ValueError as error:
            raise PrivacyError(f"not a ledger: {error}") from None
        return Ledger.from_mapping(data)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def _checksum(rows: list[dict[str, Any]]) -> str:
    text = json.dumps(rows, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
