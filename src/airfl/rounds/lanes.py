"""Training that several schemes or budgets share."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch


@dataclass(frozen=True)
class Lane:
    """Rows of trials that are trained once for all who stand at the same models.

    Attributes:
        place: where the first of them lies among all rows that are trained.
        first: the first trial's row; ``last`` is one beyond the last.
        owners: the simulations that take these updates.
    """

    place: int
    first: int
    last: int
    owners: tuple[int, ...]

    @property
    def end(self) -> int:
        """One beyond the place of the last of them."""
        return self.place + self.last - self.first


def met_by(lanes: Sequence[Lane], first: int, last: int) -> Sequence[Lane]:
    """Those of some lanes, in the order of their places, that have places from ``first`` to ``last``."""
    begin, end = (bisect_right(lanes, place, key=lambda lane: lane.place) for place in (first, last))
    return lanes[begin - 1 : end]


def shared_lanes(models: Sequence[torch.Tensor]) -> list[Lane]:
    """What has to be trained, given everyone's models [trials, d] of the same trials.

    All schemes start alike. Where the channel alone meets a budget, or the budget and not the power sets the noise,
    they stay alike, to the last bit: their noise is drawn by the same keys.
    """
    if len(models) == 1:
        return [Lane(0, 0, len(models[0]), (0,))]
    marks = torch.stack([some.sum(dim=1) for some in models]).cpu().numpy()  # only what agrees in these is compared
    leader = np.tile(np.arange(len(models))[:, None], (1, len(models[0])))
    for number, row in np.ndindex(leader.shape):
        for earlier in np.flatnonzero(marks[:number, row] == marks[number, row]).tolist():
            if leader[earlier, row] == earlier and torch.equal(models[earlier][row], models[number][row]):
                leader[number, row] = earlier
                break
    lanes: list[Lane] = []
    place = 0
    for number in range(len(models)):
        for row in np.flatnonzero(leader[number] == number).tolist():
            owners = tuple(np.flatnonzero(leader[:, row] == number).tolist())
            before = lanes[-1] if lanes else None
            if before is not None and before.owners == owners and before.last == row:
                lanes[-1] = replace(before, last=row + 1)
            else:
                lanes.append(Lane(place, row, row + 1, owners))
            place += 1
    return lanes
