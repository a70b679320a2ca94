"""The append-only list of what a run released, with a JSON round trip."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, TypeVar, overload

import numpy as np

from airfl.privacy.events import SEEING, Observer, PrivacyError, RoundEvent, require
from airfl.privacy.exact import TINY, Exact, square_over
from airfl.privacy.rows import Seen, checksum, event_of, former_of, plain, row_of, vector

VERSION = 3
#: Read as well.
FORMER = 2
#: How far, relatively, the largest of what is seen of the devices may be from what is booked with the round.
CLOSE = 1e-9

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
        devices: for observers who see signals, Σ_t (c_t r_it)² of every device by its number, [n]: what its visibility
            r_it adds up to over its own rounds. An observer is missing where some round was booked without it.
    """

    events: Sequence[RoundEvent] = ()
    devices: Mapping[Observer, np.ndarray] = field(default_factory=dict, repr=False)
    _folded: dict[Hashable, tuple[int, Any]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.events, Events):
            object.__setattr__(self, "events", Events(list(self.events), len(self.events)))
        devices = {name: values.view() for name, values in self.devices.items()}
        for values in devices.values():
            values.flags.writeable = False
        object.__setattr__(self, "devices", MappingProxyType(devices))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ledger):
            return NotImplemented
        same = self.events == other.events and self.devices.keys() == other.devices.keys()
        return same and all(np.array_equal(own, other.devices[name]) for name, own in self.devices.items())

    def __hash__(self) -> int:
        return hash(self.events)

    def __reduce__(self) -> Any:
        return Ledger, (self.events, dict(self.devices))

    @staticmethod
    def repeated(event: RoundEvent, rounds: int) -> Ledger:
        """``rounds`` rounds like the given one; takes no more room than one."""
        return Ledger(Repeated(event, rounds))

    @staticmethod
    def kept(events: Sequence[RoundEvent], devices: Mapping[Observer, np.ndarray]) -> Ledger:
        """A ledger as it was kept somewhere; sums per device that cannot come from its rounds are refused."""
        for observer, totals in devices.items():
            _check_devices(events, observer, totals)
        return Ledger(events, devices)

    def append(self, event: RoundEvent, seen: Seen = MappingProxyType({})) -> Ledger:
        """Return a ledger with one more event; rounds must come in order.

        Args:
            seen: how visible every device was to observers of signals, by its number, [n]; 0 for one that was silent.
                Sums per device go on where all rounds have it, for one and the same number of devices.
        """
        require(
            not self.events or event.round > self.events[-1].round,
            f"round {event.round} cannot be booked after round {self.events[-1].round if self.events else None}",
        )
        assert isinstance(self.events, Events)
        devices = {}
        for observer, values in seen.items():
            squares = _squares(event, observer, values)
            before = self.devices.get(observer) if self.events else np.zeros(len(squares))
            if before is not None and len(before) == len(squares):
                with np.errstate(over="ignore"):
                    devices[observer] = before + squares
        return Ledger(self.events.and_then(event), devices, dict(self._folded))

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

    @property
    def noise_follows_data(self) -> bool:
        """Whether the noise of some round was chosen by an estimate from updates, so that no ε is a proof."""
        return self.fold("noise_follows_data", False, lambda so_far, event, _: so_far or event.noise_follows_data)

    @property
    def hides_participation(self) -> bool:
        """Whether in some round nobody can tell from the noise who took part."""
        return self.fold("hides_participation", False, lambda so_far, event, _: so_far or event.hides_participation)

    def to_mapping(self) -> dict[str, Any]:
        """Plain data; an infinite clip norm (unclipped scheme), and the infinite sums it leads to, are null."""
        rows, devices = self.rows(), self.devices_row()
        return {"version": VERSION, "sha256": checksum([rows, devices]), "events": rows, "devices": devices}

    def rows(self, start: int = 0) -> list[dict[str, Any]]:
        """Events from number ``start`` on as plain data."""
        return [row_of(event) for event in self.events[start:]]

    def devices_row(self) -> dict[str, list[float | None]]:
        """Sums per device as plain data."""
        return {name: plain(values) for name, values in self.devices.items()}

    @staticmethod
    def from_rows(rows: Sequence[Mapping[str, Any]], devices: Mapping[Any, Any]) -> Ledger:
        """Inverse of ``rows`` and ``devices_row``; sums that cannot come from these rounds are refused."""
        return Ledger.kept(_in_order(rows).events, _vectors(devices))

    @staticmethod
    def from_mapping(data: Any) -> Ledger:
        """Inverse of ``to_mapping``, also for what version 2 wrote; anything else is refused."""
        if not isinstance(data, dict) or "events" not in data:
            raise PrivacyError("not a ledger: expected an object with `version` and `events`")
        version, rows = data.get("version"), data["events"]
        devices: Any = data.get("devices")
        if version not in (VERSION, FORMER):
            raise PrivacyError(f"ledger version {version!r} is not supported; expected {VERSION}")
        require(isinstance(rows, list), "not a ledger: `events` must be a list")
        require(version == FORMER or isinstance(devices, dict), "not a ledger: `devices` must be an object")
        ledger = _in_order(rows, former=version == FORMER)
        # An accident or a careless edit shows; who forges both does not: a checksum is no signature.
        require(
            data.get("sha256") == checksum(rows if version == FORMER else [rows, devices]),
            "the ledger was changed after it was written: its content does not match its checksum; use the original "
            "file",
        )
        return ledger if version == FORMER else Ledger.kept(ledger.events, _vectors(devices))

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


def _in_order(rows: Sequence[Any], *, former: bool = False) -> Ledger:
    """A ledger of events as plain data; version 2 said of every round what is seen of the devices."""
    ledger = Ledger()
    for number, row in enumerate(rows):
        with _naming(f"event {number}"):
            ledger = ledger.append(*former_of(row)) if former else ledger.append(event_of(row))
    return ledger


def _vectors(devices: Mapping[Any, Any]) -> dict[Observer, np.ndarray]:
    """Sums per device that were plain data."""
    found: dict[Observer, np.ndarray] = {}
    for name, values in devices.items():
        with _naming(f"entry `devices` for {name!r}"):
            found[name] = vector(values)
    return found


def _squares(event: RoundEvent, observer: Observer, values: np.ndarray) -> np.ndarray:
    """(c r_i)² of every device; 0 only where nothing was seen of it."""
    require(observer in SEEING, f"no observer named {observer!r} sees signals")
    largest, own = event.visibility(observer), np.asarray(values, dtype=np.float64)
    require(
        largest is not None
        and own.shape == (event.sampling.num_devices,)
        and bool((own >= 0.0).all())
        and abs(float(own.max()) - largest) <= CLOSE * largest,
        f"what observer `{observer}` sees has one entry per device, none negative, and the largest of them is booked "
        "with the round",
    )
    found = np.zeros(len(own))
    there = own > 0.0
    with np.errstate(over="ignore", under="ignore"):
        found[there] = np.maximum((event.clip_norm * own[there]) ** 2, TINY)
    return found


def _check_devices(events: Sequence[RoundEvent], observer: Observer, totals: np.ndarray) -> None:
    """Refuse sums per device that cannot come from the largest of every round."""
    require(observer in SEEING, f"not a ledger: no observer named {observer!r} sees signals")
    most, total, good = 0.0, Exact(), bool((totals >= 0.0).all())
    for event in events:
        largest = event.visibility(observer)
        good = good and largest is not None and len(totals) == event.sampling.num_devices
        square = square_over((event.clip_norm, largest or 0.0), 1.0)
        most, total = max(most, square), total.plus(square)
    with np.errstate(over="ignore"):
        together, loudest = float(totals.sum()), float(totals.max(initial=0.0))
    # Nobody is seen more than the most visible device of every round; somebody is in each of them, as much as it.
    wide = 1.0 + 10.0 * CLOSE
    good = good and most <= loudest * wide and loudest <= total.value * wide and total.value <= together * wide
    require(good, f"not a ledger: what observer `{observer}` sees of the devices does not go with the rounds")


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Say which part of a ledger it is that cannot be read."""
    try:
        yield
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise PrivacyError(f"ledger {what} is not valid: {error}") from None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not a number")
