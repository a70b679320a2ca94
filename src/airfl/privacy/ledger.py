"""The append-only list of what a run released, with a JSON round trip."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeVar, overload

from airfl.privacy.events import Domain, PrivacyError, RoundEvent, Sampling, require

VERSION = 2


S = TypeVar("S")


class Events(Sequence[RoundEvent]):
    """Events in order; looks like a tuple. Longer and longer ones share one list, so that a round costs what it costs.

    Args:
        shared: a list that only ever grows.
        length: how many of its events are meant.
    """

    def __init__(self, shared: list[RoundEvent], length: int) -> None:
        self._shared, self._length = shared, length

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> RoundEvent: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RoundEvent, ...]: ...
    def __getitem__(self, index: int | slice) -> RoundEvent | tuple[RoundEvent, ...]:
        places = range(self._length)[index]
        return self._at(places) if isinstance(places, int) else tuple(self._at(place) for place in places)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Events | tuple):
            return NotImplemented
        return len(self) == len(other) and all(own == its for own, its in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> Any:
        return type(self), (list(self), len(self))

    def _at(self, place: int) -> RoundEvent:
        return self._shared[place]

    def and_then(self, event: RoundEvent) -> Events:
        """These events and one more."""
        # Who shares the list may have gone on already; then this is another story, and gets a list of its own.
        shared = self._shared if len(self._shared) == self._length else list(self)
        shared.append(event)
        return Events(shared, len(shared))

    def runs(self, start: int) -> Iterator[tuple[RoundEvent, int]]:
        """Events from place ``start`` on, each with how many there are of it in a row, whatever their round."""
        for place in range(start, self._length):
            yield self._shared[place], 1


class Repeated(Events):
    """The same event again and again, with rounds 0, 1, 2, …; made when they are asked for."""

    def __init__(self, event: RoundEvent, length: int) -> None:
        super().__init__([event], length)

    def __reduce__(self) -> Any:
        return type(self), (self._shared[0], len(self))

    def _at(self, place: int) -> RoundEvent:
        return replace(self._shared[0], round=place)

    def and_then(self, event: RoundEvent) -> Events:
        """These events and one more."""
        return Events([*self, event], len(self) + 1)

    def runs(self, start: int) -> Iterator[tuple[RoundEvent, int]]:
        """The event, and how often it comes."""
        if start < len(self):
            yield self._shared[0], len(self) - start


@dataclass(frozen=True)
class Ledger:
    """Events in the order in which they happened; ``append`` returns a new ledger."""

    events: Sequence[RoundEvent] = ()
    _folded: dict[Hashable, tuple[int, Any]] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.events, Events):
            object.__setattr__(self, "events", Events(list(self.events), len(self.events)))

    @staticmethod
    def repeated(event: RoundEvent, rounds: int) -> Ledger:
        """``rounds`` rounds like the given one; takes no more room than one."""
        return Ledger(Repeated(event, rounds))

    def append(self, event: RoundEvent) -> Ledger:
        """Return a ledger with one more event; rounds must come in order."""
        require(
            not self.events or event.round > self.events[-1].round,
            f"round {event.round} cannot be booked after round {self.events[-1].round if self.events else None}",
        )
        assert isinstance(self.events, Events)
        return Ledger(self.events.and_then(event), dict(self._folded))

    def runs(self, start: int = 0) -> Iterator[tuple[RoundEvent, int]]:
        """Events from number ``start`` on, each with how often it comes in a row; only their rounds differ."""
        assert isinstance(self.events, Events)
        return self.events.runs(start)

    def fold(self, key: Hashable, start: S, step: Callable[[S, RoundEvent, int], S]) -> S:
        """What remains of all events when ``step(so far, event, how many)`` is applied to one after the other.

        It is kept under ``key``, here and in ledgers that go on from this one: a run that asks after every round looks
        at every event once.
        """
        done, state = self._folded.get(key, (0, start))
        for event, count in self.runs(done):
            state = step(state, event, count)
        self._folded[key] = len(self.events), state
        result: S = state
        return result

    def to_mapping(self) -> dict[str, Any]:
        """Plain data; an infinite clip norm (unclipped scheme) is written as null."""
        rows = [row_of(event) for event in self.events]
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
                ledger = ledger.append(event_of(row))
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


def row_of(event: RoundEvent) -> dict[str, Any]:
    """An event as plain data; an infinite clip norm is null."""
    row = asdict(event)
    row["clip_norm"] = event.clip_norm if math.isfinite(event.clip_norm) else None
    row["device_norms"] = None if event.device_norms is None else list(event.device_norms)
    return row


def event_of(row: Mapping[str, Any]) -> RoundEvent:
    """Inverse of ``row_of``."""
    fields = dict(row)
    fields["clip_norm"] = math.inf if fields["clip_norm"] is None else fields["clip_norm"]
    fields["sampling"] = Sampling(**fields["sampling"])
    if fields.get("domain") is not None:
        fields["domain"] = Domain(**fields["domain"])
    if fields.get("device_norms") is not None:
        fields["device_norms"] = tuple(fields["device_norms"])
    return RoundEvent(**fields)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def _checksum(rows: list[dict[str, Any]]) -> str:
    text = json.dumps(rows, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
