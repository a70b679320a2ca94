"""As many devices as a combiner of given norm can reach: `select-mse`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from airfl.schemes.parts import DesigningPolicy
from airfl.schemes.policies.pointing import inverted
from airfl.schemes.transceivers import Scene, Transceiver
from airfl.transceiver.design import received_gains
from airfl.transceiver.radio import combiner_for
from airfl.transceiver.reachable import reach_most

#: Channel coefficients held at a time.
CHUNK = 1_000_000


class MostDevices(DesigningPolicy):
    """‖w‖ = q̄ in every round, q̄ from ``scheme.sum_noise_db``; whoever it reaches sends, with unit gain.

    Where a promise is kept q̄ is at least what T rounds need: then more devices are reached.
    """

    def transceiver(self, scene: Scene) -> Transceiver:
        """See ``DesigningPolicy.transceiver``."""
        active, norm = scene.active(), scene.norm_at(scene.config.scheme.sum_noise_db)
        wanted = norm
        if scene.total is not None:
            norm = max(norm, (len(scene.rounds) / scene.total) ** 0.5 * (1.0 + 1e-12 * len(scene.rounds)))
        shape = *active.shape, scene.grid.count
        combiner = torch.zeros(*shape[:2], shape[3], scene.config.system.num_antennas, dtype=torch.complex128)
        gains, heard = torch.zeros(shape, dtype=torch.float64), torch.zeros(shape, dtype=torch.complex128)
        for (t, number), found, unit, reached in _searched(scene, active, norm):
            combiner[:, t, number] = norm * unit
            gains[:, t, :, number] = reached.double()
            heard[:, t, :, number] = received_gains(norm * unit, found)
        scaling = inverted(gains, heard)
        order = np.argsort(~(gains > 0).any(dim=-1).numpy(), axis=2, kind="stable")
        sends = np.take_along_axis((gains > 0).any(dim=-1).numpy(), order, axis=2)
        sending = np.where(sends, np.take_along_axis(active, order, axis=2), -1)
        scaling = scaling.gather(2, torch.from_numpy(order).unsqueeze(-1).expand(shape))
        width = max(1, int(sends.sum(axis=2).max()))
        least = torch.full(active.shape[:2], wanted, dtype=torch.float64)
        return Transceiver(sending[:, :, :width], combiner, scaling[:, :, :width], least)


def _searched(
    scene: Scene, active: np.ndarray, norm: float
) -> Iterator[tuple[tuple[int, int], torch.Tensor, torch.Tensor, torch.Tensor]]:
    """(t, block), channels [trials, K, m], directions [trials, m] and who is reached [trials, K], block by block."""
    find = combiner_for(scene.config, scene.radio)
    places = [(t, number) for t in scene.rounds for number in range(scene.grid.count)]
    trials, count = active.shape[0], active.shape[2]
    size = max(1, CHUNK // (trials * count * scene.config.system.num_antennas))
    for first in range(0, len(places), size):
        some = places[first : first + size]
        channels = torch.stack([scene.channels(t, number, active[:, t]) for t, number in some])
        there = torch.stack([torch.from_numpy(active[:, t] >= 0) for t, _ in some])
        flat, mask = channels.flatten(0, 1) * (norm / scene.reach), there.flatten(0, 1)
        unit = torch.zeros(len(flat), flat.shape[2], dtype=torch.complex128)
        unit[:, 0] = 1.0
        reached = torch.zeros(mask.shape, dtype=torch.bool)
        for number in mask.sum(dim=1).unique().tolist():  # places that are not taken come last
            if number > 0:
                rows = mask.sum(dim=1) == number
                unit[rows], reached[rows, :number] = reach_most(flat[rows, :number], find)
        for index, place in enumerate(some):
            rows = slice(index * trials, (index + 1) * trials)
            yield place, channels[index], unit[rows], reached[rows]
