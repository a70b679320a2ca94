"""Kinds of canaries: along what direction, from which device, in which round; drawn anew for every repetition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from airfl.analysis.audit.worlds import Plant, random_direction
from airfl.config import Config
from airfl.devices import UpdateBlock
from airfl.devices.models import ModelSpec
from airfl.privacy import Observer
from airfl.privacy.looks import Look
from airfl.randomness import stream
from airfl.rounds import State

#: Repetitions that a kind of canary needs, but for the first, to have a look of its own.
FEWEST = 30


@dataclass(frozen=True)
class Canaries:
    """The canary of every repetition, the same with it in and with it out.

    Attributes:
        names: the kinds.
        directions: of length 1, [kinds, d].
        kinds: of each repetition, [R].
        devices: who sends it, [R].
        rounds: in which round only, [R]; −1: in all of them.
    """

    names: tuple[str, ...]
    directions: torch.Tensor = field(repr=False)
    kinds: np.ndarray = field(repr=False)
    devices: np.ndarray = field(repr=False)
    rounds: np.ndarray = field(repr=False)

    def of(self, repetitions: range) -> Planted:
        """Those of some repetitions."""
        part = slice(repetitions.start, repetitions.stop)
        return Planted(self.directions, self.kinds[part], self.devices[part], self.rounds[part])

    def looks(self, scores_in: np.ndarray, scores_out: np.ndarray) -> list[Look]:
        """Scores of all repetitions, [R], by kind."""
        found = []
        for kind, name in enumerate(self.names):
            which = np.flatnonzero(self.kinds == kind)
            observer: Observer = "models" if name == "one round" else "model"
            found.append(Look(name, observer, scores_in[which], scores_out[which], which))
        return found


class Planted:
    """Canaries of the rows of one batch, and how far models moved along them."""

    def __init__(self, directions: torch.Tensor, kinds: np.ndarray, devices: np.ndarray, rounds: np.ndarray) -> None:
        self._directions, self._kinds = directions, torch.from_numpy(kinds)
        self._devices, self._rounds = torch.from_numpy(devices), torch.from_numpy(rounds)
        self._moved = torch.zeros(len(kinds), dtype=torch.float64)

    def planting(self, length: float) -> Plant:
        """What plants them: every canary's device sends its direction, so long."""

        def plant(block: UpdateBlock, devices: torch.Tensor, t: int) -> UpdateBlock:
            trial = block.trial.cpu()
            hits = (devices == self._devices[trial]) & ((self._rounds[trial] < 0) | (self._rounds[trial] == t))
            kinds = self._kinds[trial]
            for kind in kinds[hits].unique().tolist():
                where = (hits & (kinds == kind)).to(block.trained.device)
                block = block.planted(where, (length * self._directions[kind]).to(block.trained.device))
            return block

        return plant

    def witness(self, before: State, after: State) -> None:
        """Note how far the models of this round moved where the canary has but one."""
        rows = torch.nonzero(self._rounds == before.round)[:, 0]
        if len(rows):
            where = rows.to(after.models.device)
            self._moved[rows] = self._along(after.models[where] - before.models[where], rows)

    def scores(self, start: torch.Tensor, released: torch.Tensor) -> np.ndarray:
        """How far each model moved against its canary's direction, [rows]."""
        whole = self._along(released - start, torch.arange(len(start)))
        return -torch.where(self._rounds < 0, whole, self._moved).numpy()

    def _along(self, moves: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        directions = self._directions.to(moves.device)[self._kinds[rows].to(moves.device)]
        return (moves * directions).sum(dim=1, dtype=torch.float64).cpu()


def draw_canaries(
    config: Config, spec: ModelSpec, quietest: np.ndarray | None, repetitions: int, loudest: int | None = None
) -> Canaries:
    """The canaries of an audit.

    Args:
        quietest: a direction along which little noise was seen in draws that the trainings do not use.
        loudest: the device that sends them all; None: any device does.
    """
    kinds = _directions(config.system.seed, spec, quietest)
    names = list(kinds)[: 1 + repetitions // (2 * FEWEST)]
    generator = stream(config.system.seed, "canaries", 3)
    # Every second one is of the plainest kind, along which training itself pulls least; the others take turns.
    turn = np.arange(repetitions)
    which = np.where(turn % 2 == 0, 0, 1 + turn // 2 % max(1, len(names) - 1)) if len(names) > 1 else 0 * turn
    devices = generator.integers(config.system.num_devices, size=repetitions)
    rounds = generator.integers(config.system.rounds, size=repetitions)
    if loudest is not None:
        devices = np.full_like(devices, loudest)
    single = np.array([name == "one round" for name in names])
    return Canaries(
        tuple(names),
        torch.stack([kinds[name] for name in names]),
        which,
        devices,
        np.where(single[which], rounds, -1),
    )


def _directions(seed: int, spec: ModelSpec, quietest: np.ndarray | None) -> dict[str, torch.Tensor]:
    """Of every kind of canary, the plainest first."""
    dim, generator = spec.dim, stream(seed, "canaries", 0)
    found = {"any direction": random_direction(generator, dim)}
    found["one round"] = random_direction(stream(seed, "canaries", 4), dim)
    generator = stream(seed, "canaries", 5)
    if quietest is not None:
        found["least noise seen"] = torch.from_numpy(quietest).float()
    found["smallest layer"] = _within_layer(generator, spec)
    place = int(generator.integers(dim))
    found["one coordinate"] = _sparse(dim, {place: 1.0})
    other = (place + dim // 2) % dim
    if other != place:
        found["two coordinates"] = _sparse(dim, {place: 0.5**0.5, other: -(0.5**0.5)})
    return found


def _within_layer(generator: np.random.Generator, spec: ModelSpec) -> torch.Tensor:
    """A random direction within the layer that has the fewest parameters: biases, mostly."""
    sizes = [shape.numel() for shape in spec.shapes]
    smallest = int(np.argmin(sizes))
    direction, start = torch.zeros(spec.dim), sum(sizes[:smallest])
    direction[start : start + sizes[smallest]] = random_direction(generator, sizes[smallest])
    return direction


def _sparse(dim: int, entries: dict[int, float]) -> torch.Tensor:
    direction = torch.zeros(dim)
    for place, value in entries.items():
        direction[place] = value
    return direction


def layers_of(spec: ModelSpec) -> Sequence[tuple[str, int]]:
    """Name and size of every tensor of parameters."""
    return [(name, shape.numel()) for name, shape in zip(spec.names, spec.shapes, strict=True)]
