"""A run that is not finished: its checkpoints, and what they belong to, in the run's folder."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from airfl.config import Config, from_toml
from airfl.engines import precision_of
from airfl.errors import InputError, about_file
from airfl.imports import beside, look_beside
from airfl.parallel import torch_threads
from airfl.rounds import State
from airfl.runs.checkpoint import Checkpoints
from airfl.runs.ledgers import RESUME as FILE
from airfl.runs.ledgers import require_files
from airfl.runs.lock import locked, require_free
from airfl.runs.manifest import is_sealed, require_ours, sealed
from airfl.runs.result import Status
from airfl.runs.sameness import code_of, processor, require_same_code, warn_other_processor
from airfl.runs.store import prepare_folder, write_text
from airfl.runs.together import Log
from airfl.shards import Shards
from airfl.simulate import Simulation

FORMAT = "airfl-unfinished/1"
CHECKPOINTS = "checkpoints"
#: How a run adds up what devices send, with shards and without.
IN_SHARDS, AT_ONCE = "in shards", "at once"
#: Writing a checkpoint may take one part in so many of the time: records of many rounds are long.
SHARE = 20


@dataclass(frozen=True)
class Begun:
    """How a run was begun: its configuration, the code and kind of device, and PyTorch's threads, which round.

    The processor rounds too; None where an older version did not say which it was.
    """

    config: Config
    code: dict[str, Any]
    threads: int
    processor: str | None


def identity(simulation: Simulation) -> dict[str, str]:
    """What the bits of a run follow from, beside its configuration; how many shards there are changes none."""
    device = simulation.start.device
    precision, kept = precision_of(simulation.engine, simulation.config, device), simulation.task.spec.kept_digest()
    return {
        **code_of(simulation.config.imports),
        **({"what the model does not train": kept} if kept else {}),
        "device": device.type,
        "precision": precision,
        "sums": sums_of(simulation),
    }


def sums_of(simulation: Simulation) -> str:
    """How sums over devices are rounded: of groups of them, which shards share out, or of all at once."""
    return IN_SHARDS if isinstance(simulation.crew, Shards) else AT_ONCE


def require_same_sums(begun: Begun, folder: Path, now: Mapping[str, str], *, anyway: bool) -> None:
    """Refuse to go on with sums that are rounded otherwise: groups of devices in shards, or all of them at once."""
    before = begun.code.get("sums", AT_ONCE)
    if before == now.get("sums"):
        return
    then, mend = ("with", "give") if before == IN_SHARDS else ("without", "leave out")
    words = f"`{folder}` was begun {then} --shards, and sums are rounded otherwise now"
    if not anyway:
        raise InputError(f"{words}; {mend} --shards, or add --anyway to mix the two")
    logging.getLogger("airfl").warning("%s; going on anyway", words)


def read_begun(folder: Path) -> Begun:
    """What there is to resume in a folder."""
    path = folder / FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        sound = data["format"] == FORMAT and is_sealed(data)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"`{folder}` holds no unfinished run: it has no {FILE}; name the folder of one") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise InputError(f"`{path}` is damaged, or not of this version; begin the run again in another folder")
    for place in reversed(data.get("beside", [])):
        look_beside(Path(place) / FILE)
    return Begun(from_toml(data["config"]), data["code"], data["threads"], data.get("processor"))


def require_own_checkpoints(folder: Path) -> None:
    """Refuse links and files of others where checkpoints are to be written."""
    for path in (folder / FILE, folder / CHECKPOINTS):
        if path.is_symlink():
            raise InputError(f"`{path}` is a link; nothing is written through links: remove it")
    if (folder / FILE).exists():
        read_begun(folder)
    elif (folder / CHECKPOINTS).exists():
        raise InputError(f"`{folder / CHECKPOINTS}` was not written by airfl; move it or name another folder")


@contextmanager
def claimed(out: str | Path, force: bool = False) -> Iterator[Path]:
    """Hold the folder of a run from before its first round to after its last file; a refusal leaves nothing behind."""
    require_free(out)
    folder = prepare_folder(out, force)
    with locked(folder):
        prepare_folder(out, force)  # somebody may have finished in between
        require_files(folder)
        require_ours(folder)
        require_own_checkpoints(folder)
        yield folder


@contextmanager
def resumed(out: str | Path) -> Iterator[tuple[Path, Begun]]:
    """Hold the folder of an unfinished run, with as many threads as it was begun with."""
    folder = Path(out)
    if not folder.is_dir():
        raise InputError(f"`{out}` holds no unfinished run: there is no such folder")
    require_free(folder)
    require_files(folder)
    read_begun(folder)
    with locked(folder):
        require_ours(folder)
        require_own_checkpoints(folder)
        begun = read_begun(folder)
        with torch_threads(begun.threads):
            yield folder, begun


class Keeper:
    """Keeps the checkpoints of one run, every so many seconds; a disk that is full costs them, not the run.

    Args:
        begun: what is resumed; default: a run that begins.
        anyway: resume with other code or on another device too.
    """

    def __init__(
        self, folder: Path, every_seconds: float = 60.0, begun: Begun | None = None, *, anyway: bool = False
    ) -> None:
        self._folder, self._every, self._begun, self._anyway = folder, every_seconds, begun, anyway
        self._resumed, self._checkpoints = begun, Checkpoints(folder / CHECKPOINTS)
        self._wait, self._saved_at = every_seconds, time.monotonic()
        self._marks: dict[str, _Mark] = {}
        self.has_checkpoints = begun is not None

    def restore(self, simulations: Mapping[str, Simulation]) -> dict[str, Log]:
        """Logs as the last checkpoint has them; fresh ones where nothing is resumed."""
        logs = {name: Log([simulation]) for name, simulation in simulations.items()}
        if self._resumed is not None:
            now = identity(next(iter(simulations.values())))
            require_same_sums(self._resumed, self._folder, now, anyway=self._anyway)
            code = {**self._resumed.code, "sums": now.get("sums")}
            require_same_code(code, self._folder, anyway=self._anyway, now=now)
            if now["device"] == "cpu":
                warn_other_processor(self._resumed.processor, self._folder)
            logs = self._checkpoints.restore(simulations)
        for log in logs.values():
            if log.current is not None and log.current.round == 0:
                log.current = None
        self._marks = {name: _Mark.of(log) for name, log in logs.items()}
        return logs

    def after_round(self, logs: Mapping[str, Log]) -> None:
        """Remember where all stand, and write a checkpoint if it is time for one."""
        self._marks = {name: _Mark.of(log) for name, log in logs.items()}
        if time.monotonic() - self._saved_at >= self._wait:
            self.save()

    def save(self) -> None:
        """A checkpoint of where all stood after the last round that is complete, with its records."""
        begin = time.monotonic()
        logs = {name: mark.log() for name, mark in self._marks.items()}
        try:
            self._begin(next(iter(logs.values())).simulations[0])
            self._checkpoints.save(sum((log.current or log.states[-1]).round for log in logs.values()), logs)
            self.has_checkpoints = True
        except (OSError, InputError) as error:  # or memories are out of reach
            logging.getLogger("airfl").warning("no checkpoint of the run in `%s`: %s", self._folder, about_file(error))
        self._saved_at = time.monotonic()
        self._wait = max(self._every, SHARE * (self._saved_at - begin))

    def conclude(self, logs: Mapping[str, Log]) -> None:
        """All rounds are done: if there are checkpoints, one more, so that a save that fails costs little."""
        self._marks = {name: _Mark.of(log) for name, log in logs.items()}
        if self.has_checkpoints:
            self.save()

    def provenance(self) -> dict[str, Any]:
        """What a resumed run adds to its provenance."""
        if self._resumed is None:
            return {}
        return {"begun_with": {**self._resumed.code, "processor": self._resumed.processor}}

    def forget(self) -> None:
        """The run is over and saved."""
        self._checkpoints.drop()
        (self._folder / FILE).unlink(missing_ok=True)

    def _begin(self, first: Simulation) -> None:
        """Before the first checkpoint: those of another run go, and the folder says whose the new ones are."""
        if self._begun is not None:
            return
        self._checkpoints.drop()
        begun = Begun(first.config, identity(first), torch.get_num_threads(), processor())
        content = {"format": FORMAT, "config": begun.config.to_toml(), "code": begun.code, "threads": begun.threads}
        content |= {"processor": begun.processor, "beside": beside()}
        write_text(self._folder / FILE, json.dumps(sealed(content), indent=1) + "\n")
        self._begun = begun


@dataclass(frozen=True)
class _Mark:
    """Where a log stood: its records are only ever added to, so their number is enough."""

    of_log: Log
    current: State | None
    states: tuple[State, ...]
    records: int
    status: Status
    message: str
    seconds: float

    @staticmethod
    def of(log: Log) -> _Mark:
        return _Mark(log, log.current, tuple(log.states), len(log.records), log.status, log.message, log.seconds)

    def log(self) -> Log:
        """The log as it was; one that has not begun gets its first state, which a checkpoint must find."""
        found = Log(self.of_log.simulations)
        found.current, found.states = self.current, list(self.states)
        found.records = self.of_log.records[: self.records]
        found.status, found.message, found.seconds = self.status, self.message, self.seconds
        if found.current is None and not found.states:
            found.current = found.simulations[0].init()
        return found
