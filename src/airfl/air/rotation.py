"""A public random rotation of what devices send, so that energy is spread evenly over blocks.

    R = H diag(signs),    Rᵀ = diag(signs) H,

with H a Walsh-Hadamard matrix for each chunk of consecutive coordinates, divided by the root of its size: symmetric and
orthonormal. Chunks are powers of two; what is left of d is cut into smaller ones, so nothing is padded. An update that
was drawn without knowledge of the signs has the same mean energy on every coordinate of a chunk, wherever it lay
before. Norms stay, and so does what is booked: noise of variance v_min at least along every direction is that after any
rotation. Signs are public: an update that is made for them may lie in one block again, and is scaled down then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from airfl.randomness import stream

#: Coordinates of a chunk, a power of four: two products with a matrix of 64 rows, and a root without rounding.
CHUNK = 4096
#: Numbers that are rotated at a time.
PORTION = 2**21

#: Given vectors [n, d] and their signs: the vectors turned.
Turn = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Rotation:
    """R of one round, for each row of a batch of trials.

    Attributes:
        trials: whose signs a row has.
    """

    seed: int
    trials: tuple[int, ...]
    round_index: int

    def forth(self, vectors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """R x of vectors [n, d] of these rows [n], float64."""
        return self._in_portions(vectors, rows, lambda part, signs: spread(part * signs))

    def back(self, vectors: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Rᵀ x."""
        return self._in_portions(vectors, rows, lambda part, signs: spread(part) * signs)

    def repeated(self, copies: int) -> Rotation:
        """Every row ``copies`` times."""
        return Rotation(self.seed, tuple(trial for trial in self.trials for _ in range(copies)), self.round_index)

    def _in_portions(self, vectors: torch.Tensor, rows: torch.Tensor, turn: Turn) -> torch.Tensor:
        """A few vectors at a time: in double precision they are twice as large."""
        dim = vectors.shape[1]
        trials, places = np.unique([self.trials[row] for row in rows.tolist()], return_inverse=True)
        drawn = [signs(self.seed, trial, self.round_index, dim) for trial in trials.tolist()]
        whole = torch.from_numpy(np.stack(drawn)).to(vectors.device, torch.float64)
        turned, size = vectors.new_empty(vectors.shape, dtype=torch.float64), max(1, PORTION // dim)
        for first in range(0, len(vectors), size):
            part = slice(first, first + size)
            own = whole if len(whole) == 1 else whole[torch.from_numpy(places[part]).to(whole.device)]
            turned[part] = turn(vectors[part].double(), own)
        return turned


def signs(seed: int, trial: int, round_index: int, dim: int) -> np.ndarray:
    """The public signs of a round, [d], int8."""
    drawn = stream(seed, "rotation", trial, round_index).integers(0, 2, size=dim, dtype=np.int8)
    found: np.ndarray = 2 * drawn - 1
    return found


def spread(vectors: torch.Tensor) -> torch.Tensor:
    """H x for vectors [n, d], float64; its own inverse."""
    mixed = torch.empty_like(vectors)
    for start, size, count in pieces(vectors.shape[1]):
        part = slice(start, start + size * count)
        power = size.bit_length() - 1
        left, right = (_hadamard(2**half).to(vectors.device) for half in (power // 2, power - power // 2))
        # H of 2^(a+b) rows is that of 2^a rows times, as Kronecker's product, that of 2^b.
        table = vectors[:, part].reshape(-1, len(left), len(right))
        mixed[:, part] = (left @ (table @ (right * size**-0.5))).reshape(len(vectors), -1)
    return mixed


def pieces(dim: int) -> list[tuple[int, int, int]]:
    """Where chunks of one size begin, their size, and how many there are: as many whole ones as fit, then halves."""
    found, start, size = [], 0, CHUNK
    while start < dim:
        count = (dim - start) // size
        if count:
            found.append((start, size, count))
        start, size = start + size * count, size // 2
    return found


def chunk_means(values: torch.Tensor) -> torch.Tensor:
    """What a rotation makes of the variances [n, d] of independent noise: the mean of each chunk, [n, d]."""
    found = torch.empty_like(values)
    for start, size, count in pieces(values.shape[1]):
        part = slice(start, start + size * count)
        means = values[:, part].reshape(len(values), count, size).mean(dim=2, keepdim=True)
        found[:, part] = means.expand(-1, -1, size).flatten(1)
    return found


@cache
def _hadamard(size: int) -> torch.Tensor:
    """Sylvester's matrix of ±1, symmetric, [size, size]."""
    matrix = torch.ones(1, 1, dtype=torch.float64)
    while len(matrix) < size:
        matrix = torch.cat([torch.cat([matrix, matrix], dim=1), torch.cat([matrix, -matrix], dim=1)])
    return matrix
