"""Hooks for experiment trackers: TensorBoard and MLflow. Off unless asked for; each is an extra.

A tracker hears the records of one cell (configuration, scheme, trial) at a time. A sweep tells it when a batch is
finished, a run after every round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from airfl.catalogue import no_such
from airfl.errors import InputError
from airfl.rounds import RoundRecord
from airfl.runs.execute import HearsDesign, Progress
from airfl.shards import HearsShards

METRICS = tuple(field.name for field in fields(RoundRecord) if field.type == "float")


@dataclass(frozen=True)
class Cell:
    """What a tracker files records under.

    Attributes:
        study: name of the study or run.
        name: unique within it, fit for a path.
        parameters: axes, scheme and trial.
    """

    study: str
    name: str
    parameters: Mapping[str, Any]


class Tracker(Protocol):
    """Keeps the numbers of every round for a tool that shows them."""

    name: str

    def begin(self, cell: Cell) -> None:
        """A cell is told from its first round; what was told of it before is forgotten."""
        ...

    def log(self, cell: Cell, rows: Sequence[Mapping[str, Any]]) -> None:
        """Rounds of a cell: plain records with ``round`` and the metrics."""
        ...

    def end(self, cell: Cell) -> None:
        """That was its last round."""
        ...


class TensorBoard:
    """Event files, one folder per cell; `tensorboard --logdir FOLDER` shows them."""

    name = "tensorboard"

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError("--track tensorboard needs the extra `airfl[tensorboard]`; install it") from None
        self._folder, self._make = folder, SummaryWriter
        self._writers: dict[str, Any] = {}

    def begin(self, cell: Cell) -> None:
        """See ``Tracker.begin``."""
        for old in (self._folder / cell.name).glob("events.out.tfevents.*"):
            old.unlink()
        self._writers[cell.name] = self._make(str(self._folder / cell.name))

    def log(self, cell: Cell, rows: Sequence[Mapping[str, Any]]) -> None:
        """See ``Tracker.log``."""
        for row, metric, value in _finite(rows):
            self._writers[cell.name].add_scalar(metric, value, row["round"])

    def end(self, cell: Cell) -> None:
        """See ``Tracker.end``."""
        self._writers.pop(cell.name).close()


class MLflow:
    """One MLflow run per cell, in a sqlite store; `mlflow ui --backend-store-uri sqlite:///FILE` shows them."""

    name = "mlflow"

    def __init__(self, file: Path) -> None:
        try:
            from mlflow.entities import Metric, Param
            from mlflow.tracking import MlflowClient
        except ImportError:
            raise InputError("--track mlflow needs the extra `airfl[mlflow]`; install it") from None
        self._file, self._open = file, MlflowClient
        self._metric, self._param = Metric, Param
        self._artifacts = (file.parent / "mlflow").resolve().as_uri()
        self._runs: dict[str, str] = {}

    @cached_property
    def _client(self) -> Any:
        """Made when there is something to tell: a run that is refused leaves no file."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        return self._open(tracking_uri=f"sqlite:///{self._file.resolve()}")

    def begin(self, cell: Cell) -> None:
        """See ``Tracker.begin``."""
        found = self._client.get_experiment_by_name(cell.study)
        experiment = found.experiment_id if found else self._client.create_experiment(cell.study, self._artifacts)
        for old in self._client.search_runs([experiment], f"tags.`airfl.cell` = '{cell.name}'"):
            self._client.delete_run(old.info.run_id)
        run = self._client.create_run(experiment, tags={"airfl.cell": cell.name}, run_name=cell.name).info.run_id
        self._client.log_batch(run, params=[self._param(key, str(value)) for key, value in cell.parameters.items()])
        self._runs[cell.name] = run

    def log(self, cell: Cell, rows: Sequence[Mapping[str, Any]]) -> None:
        """See ``Tracker.log``."""
        metrics = [self._metric(name, value, 0, row["round"]) for row, name, value in _finite(rows)]
        for start in range(0, len(metrics), 1000):  # MLflow's limit for one call
            self._client.log_batch(self._runs[cell.name], metrics=metrics[start : start + 1000])

    def end(self, cell: Cell) -> None:
        """See ``Tracker.end``."""
        self._client.set_terminated(self._runs.pop(cell.name))


def make_trackers(names: Sequence[str], folder: Path) -> list[Tracker]:
    """Trackers by name, with their files in ``folder``."""
    makers: dict[str, Callable[[], Tracker]] = {
        "tensorboard": lambda: TensorBoard(folder / "tensorboard"),
        "mlflow": lambda: MLflow(folder / "mlflow.db"),
    }
    for name in names:
        if name not in makers:
            raise InputError(no_such("tracker", name, makers))
    return [makers[name]() for name in dict.fromkeys(names)]


class Tracked:
    """A run's progress that trackers hear too, round by round."""

    def __init__(self, study: str, progress: Progress, trackers: Sequence[Tracker]) -> None:
        self._study, self._progress, self._trackers = study, progress, trackers
        self._cells: dict[tuple[str, int], Cell] = {}

    def start(self, scheme: str, rounds: int) -> None:
        """See ``Progress.start``."""
        self._progress.start(scheme, rounds)

    def design(self, done: int, total: int) -> None:
        """See ``HearsDesign.design``."""
        if isinstance(self._progress, HearsDesign):
            self._progress.design(done, total)

    def shards(self, done: int, total: int) -> None:
        """See ``HearsShards.shards``."""
        if isinstance(self._progress, HearsShards):
            self._progress.shards(done, total)

    def round(self, scheme: str, records: Sequence[RoundRecord]) -> None:
        """See ``Progress.round``."""
        self._progress.round(scheme, records)
        for record in records:
            key = (scheme, record.trial)
            if key not in self._cells:
                parameters = {"scheme": scheme, "trial": record.trial}
                self._cells[key] = Cell(self._study, f"{scheme}/trial-{record.trial}", parameters)
                for tracker in self._trackers:
                    tracker.begin(self._cells[key])
            for tracker in self._trackers:
                tracker.log(self._cells[key], [asdict(record)])

    def close(self) -> None:
        """The run is over."""
        for cell in self._cells.values():
            for tracker in self._trackers:
                tracker.end(cell)


def _finite(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str, float]]:
    """Every number of every round that these tools can show: neither NaN nor infinity."""
    for row in rows:
        for metric in METRICS:
            if math.isfinite(row[metric]):
                yield row, metric, row[metric]
