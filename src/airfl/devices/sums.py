"""Weighted sums of updates in the span of the same samples: asked for one by one, found by one product."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

#: Samples in one matrix product, and values in them: they stay in the caches.
TILE, TILE_VALUES = 1024, 2**20
#: Rows of a product come in groups of so many, filled with zeros: a row's bits do not depend on what is beside it.
GROUP = 4


class Sum:
    """Σ_i weights_i Δ_i, [d], float64, of coefficients [C, B, S]; found when it is first looked at, or before."""

    def __init__(self, home: Sums, coefficients: torch.Tensor, weights: torch.Tensor) -> None:
        self._home: Sums | None = home
        self._asked: tuple[torch.Tensor, torch.Tensor] | None = (coefficients, weights)
        self._found: torch.Tensor | None = None

    @property
    def found(self) -> torch.Tensor:
        """The sum."""
        if (home := self._home) is not None:
            home.find()
        assert self._found is not None
        return self._found

    def scaled(self) -> torch.Tensor:
        """Coefficients as they go into the sum, [C, n], for n = B·S samples."""
        assert self._asked is not None
        coefficients, weights = self._asked
        return (coefficients.double() * weights.unsqueeze(1)).flatten(1)

    def settle(self, total: torch.Tensor) -> None:
        """Take the sum, and let go of what it was made of."""
        self._found = total
        self._asked = self._home = None


class Sums:
    """All sums over some samples [n, F].

    Those that are asked for before ``find`` share one product: samples are widened to float64 once, and a product of
    many rows is faster than as many of few.
    """

    def __init__(self, samples: torch.Tensor, bias: bool) -> None:
        self._samples, self._bias = samples, bias
        self._waiting: list[Sum] = []
        self._lock = threading.Lock()

    @property
    def wanted(self) -> bool:
        """Whether anybody waits for a sum."""
        return bool(self._waiting)

    def ask(self, coefficients: torch.Tensor, weights: torch.Tensor) -> Sum:
        """A sum to be found."""
        self._waiting.append(Sum(self, coefficients, weights))
        return self._waiting[-1]

    def find(self) -> None:
        """Find all sums that were asked for; on any thread."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            for sum_, total in zip(waiting, self._products([one.scaled() for one in waiting]), strict=True):
                sum_.settle(total)

    def _products(self, scaled: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Of coefficients [C, n] each with the samples."""
        if not scaled:
            return []
        x, rows = self._samples, -(-len(scaled[0]) // GROUP) * GROUP
        tile = min(tile_of(x.shape[1]), len(x))
        total = scaled[0].new_zeros(len(scaled) * rows, x.shape[1])
        a, product = total.new_zeros(len(total), len(x)), torch.empty_like(total)
        for number, own in enumerate(scaled):
            a[number * rows : number * rows + len(own)] = own
        wide = a.new_empty(tile, x.shape[1])  # a new array for each part would cost more than the product
        for some, part in zip(a.split(tile, dim=1), x.split(tile), strict=True):
            total += torch.mm(some, wide[: len(part)].copy_(part), out=product)
        parts = [total[number * rows : number * rows + len(own)] for number, own in enumerate(scaled)]
        if self._bias:
            return [torch.cat([part.flatten(), own.sum(dim=1)]) for part, own in zip(parts, scaled, strict=True)]
        return [part.flatten() for part in parts]


def tile_of(width: int) -> int:
    """Samples of this many values in one matrix product."""
    return max(1, min(TILE, TILE_VALUES // width))
