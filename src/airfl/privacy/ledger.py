"""The append-only list of what a run released, with a JSON round trip."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar, overload

import numpy as np

from airfl.privacy.events import SEEING, Domain, Observer, PrivacyError, RoundEvent, Sampling, require

VERSION = 3
#: The least square that is kept of something that was seen: what is too small to be told is rounded up.
TINY = sys.float_info.min


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


@dataclass(frozen=True, eq=False)
class Ledger:
    """Events in the order in which they happened; ``append`` returns a new ledger.

    Attributes:
        devices: for every observer who sees signals, Σ_t (c_t r_it)² of every device by its number, [n]: what its
            visibility r_it adds up to over its own rounds. Empty where rounds were booked without it.
    """

    events: Sequence[RoundEvent] = ()
    devices: Mapping[Observer, np.ndarray] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    _folded: dict[Hashable, tuple[int, Any]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.events, Events):
            object.__setattr__(self, "events", Events(list(self.events), len(self.events)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        same = self.events == other.events and self.devices.keys() == other.devices.keys()
        return same and all(np.array_equal(own, other.devices[name]) for name, own in self.devices.items())

    def __hash__(self) -> int:
        return hash(self.events)

    @staticmethod
    def repeated(event: RoundEvent, rounds: int) -> Ledger:
        """``rounds`` rounds like the given one; takes no more room than one."""
        return Ledger(Repeated(event, rounds))

    def append(self, event: RoundEvent, seen: Mapping[Observer, np.ndarray] = MappingProxyType({})) -> Ledger:
        """Return a ledger with one more event; rounds must come in order.

        Args:
            seen: how visible every device was to observers of signals, by its number, [n]; 0 for one that was silent.
        """
        require(
            not self.events or event.round > self.events[-1].round,
            f"round {event.round} cannot be booked after round {self.events[-1].round if self.events else None}",
        )
        assert isinstance(self.events, Events)
        devices = {
            observer: squares if not self.events else self.devices[observer] + squares
            for observer, squares in ((name, _squares(event, name, values)) for name, values in seen.items())
            if not self.events or observer in self.devices
        }
        return Ledger(self.events.and_then(event), MappingProxyType(devices), dict(self._folded))

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
        devices = {name: _plain(values) for name, values in self.devices.items()}
        return {"version": VERSION, "sha256": _checksum([rows, devices]), "events": rows, "devices": devices}

    @staticmethod
    def from_mapping(data: Any) -> Ledger:
        """Inverse of ``to_mapping``; anything else is refused."""
        if not isinstance(data, dict) or "events" not in data:
            raise PrivacyError("not a ledger: expected an object with `version` and `events`")
        if data.get("version") == 2:
            return _former(data)
        if data.get("version") != VERSION:
            raise PrivacyError(f"ledger version {data.get('version')!r} is not supported; expected {VERSION}")
        rows, devices = data["events"], data.get("devices")
        require(isinstance(rows, list) and isinstance(devices, dict), "not a ledger: expected `events` and `devices`")
        _check_sum(data, [rows, devices])
        ledger = Ledger()
        for number, row in enumerate(rows):
            ledger = ledger.append(_read(number, lambda row=row: event_of(row)))
        kept = {name: _read(name, lambda values=values: _vector(values)) for name, values in devices.items()}
        for name, values in kept.items():
            require(name in SEEING, f"not a ledger: no observer named {name!r} sees signals")
            _check_devices(ledger, name, values)
        return Ledger(ledger.events, MappingProxyType(kept))

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
    return row


def event_of(row: Mapping[str, Any]) -> RoundEvent:
    """Inverse of ``row_of``."""
    fields = dict(row)
    fields["clip_norm"] = math.inf if fields["clip_norm"] is None else fields["clip_norm"]
    fields["sampling"] = Sampling(**fields["sampling"])
    if fields.get("domain") is not None:
        fields["domain"] = Domain(**fields["domain"])
    return RoundEvent(**fields)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a number")


def _squares(event: RoundEvent, observer: Observer, values: np.ndarray) -> np.ndarray:
    """(c r_i)² of every device; 0 only where nothing was seen of it."""
    largest = event.visibility(observer)
    require(
        largest is not None and len(values) == event.sampling.num_devices,
        f"what observer `{observer}` sees has one entry per device, and the largest of them is booked with the round",
    )
    found = np.zeros(len(values))
    there = values > 0.0
    with np.errstate(over="ignore", under="ignore"):
        found[there] = np.maximum((event.clip_norm * values[there]) ** 2, TINY)
    return found


def _check_devices(ledger: Ledger, observer: Observer, totals: np.ndarray) -> None:
    """Refuse sums per device that do not go with what was booked round by round."""
    sizes = {event.sampling.num_devices for event, _ in ledger.runs()}
    seen = [event.clip_norm * (event.visibility(observer) or 0.0) for event in ledger.events]
    largest, most = float(totals.max(initial=0.0)), math.fsum(value**2 for value in seen if value < 1e150)
    fits = sizes <= {len(totals)} and bool((totals >= 0.0).all())
    bounded = all(0.0 <= value < 1e150 for value in seen)
    if fits and bounded:
        fits = max((value**2 for value in seen), default=0.0) <= largest * (1 + 1e-9) + TINY
        fits = fits and largest <= most * (1 + 1e-9) + len(seen) * TINY
    require(fits, f"not a ledger: what observer `{observer}` sees of the devices does not go with the rounds")


def _former(data: Mapping[str, Any]) -> Ledger:
    """A ledger of version 2: it kept ‖h s‖, weighted by what covers it, in units of the receiver's noise."""
    rows = data["events"]
    require(isinstance(rows, list), "not a ledger: `events` must be a list")
    _check_sum(data, rows)
    ledger = Ledger()
    for number, row in enumerate(rows):
        event, norms = _read(number, lambda row=row: _former_event(row))
        ledger = ledger.append(event, {} if norms is None else {"base-station": norms})
    return ledger


def _former_event(row: Mapping[str, Any]) -> tuple[RoundEvent, np.ndarray | None]:
    fields = dict(row)
    norm, norms, power = fields.pop("received_norm"), fields.pop("device_norms", None), fields["noise_power"]
    if norm is None or power is None:
        return event_of(fields), None
    unit = math.sqrt(2.0 / power)
    return event_of({**fields, "base_station": unit * norm}), None if norms is None else unit * np.asarray(norms, float)


def _read(what: int | str, make: Callable[[], S]) -> S:
    try:
        return make()
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise PrivacyError(f"ledger event {what} is not valid: {error}") from None


def _plain(values: np.ndarray) -> list[float | None]:
    """Numbers for JSON, which has no infinity: null stands for it."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


def _vector(values: Sequence[float | None]) -> np.ndarray:
    return np.array([math.inf if value is None else float(value) for value in values])


def _check_sum(data: Mapping[str, Any], content: Any) -> None:
    # An accident or a careless edit shows; who forges both does not: a checksum is no signature.
    require(
        data.get("sha256") == _checksum(content),
        "the ledger was changed after it was written: its events do not match its checksum; use the original file",
    )


def _checksum(rows: Any) -> str:
    text = json.dumps(rows, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
