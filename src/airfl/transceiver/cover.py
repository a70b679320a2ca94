"""What devices send to hide in: noise of their own, noise in quadrature, and masks that cancel in the sum.

Device i sends s_i(x_i + α_i + jζ_i + Σ ±u) with wᴴh_i s_i = 1. The base station keeps the real part of wᴴy: there α_i
stays, jζ_i is thrown away, and of two devices that share a mask one adds u and the other takes it off again. Where a
symbol carries two coordinates nothing is thrown away: there is no ζ, and α and u are complex, with parts as large as
those of real ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Cover:
    """Variances per real coordinate, [trials].

    Attributes:
        own: a² of noise in phase: the sum hears it too.
        quadrature: e² of noise in quadrature: the sum does not hear it.
        masks: b² of a mask that two devices share, once added and once taken off.
    """

    own: torch.Tensor
    quadrature: torch.Tensor
    masks: torch.Tensor

    @staticmethod
    def of(own: float = 0.0, quadrature: float = 0.0, masks: float = 0.0, trials: int = 1) -> Cover:
        """The same for all trials."""
        return Cover(*(torch.full((trials,), value, dtype=torch.float64) for value in (own, quadrature, masks)))

    @staticmethod
    def stacked(covers: list[Cover]) -> Cover:
        """Those of several trials, one after another."""
        parts = zip(*((one.own, one.quadrature, one.masks) for one in covers), strict=True)
        return Cover(*(torch.cat(part) for part in parts))

    def __getitem__(self, rows: int | slice) -> Cover:
        """Those of some trials."""
        where = slice(rows, rows + 1) if isinstance(rows, int) else rows
        return Cover(self.own[where], self.quadrature[where], self.masks[where])

    def repeated(self, copies: int) -> Cover:
        """Every trial ``copies`` times, one after another."""
        return Cover(*(part.repeat_interleave(copies) for part in (self.own, self.quadrature, self.masks)))

    def power(self, degrees: torch.Tensor) -> torch.Tensor:
        """What it adds to the power of every entry that is sent, given how many masks each device has, [trials, K]."""
        return (self.own + self.quadrature).unsqueeze(-1) + self.masks.unsqueeze(-1) * degrees

    def is_nothing(self) -> bool:
        """Whether no trial has any."""
        return not bool((self.own + self.quadrature + self.masks > 0).any())


def mask_edges(generator: np.random.Generator, senders: int, degree: int) -> np.ndarray:
    """Which of some senders share masks, pairs of their places, [E, 2]: ``degree``/2 random Hamiltonian cycles.

    One cycle alone makes it connected. With no more senders than the degree every pair shares one mask; a single sender
    has nobody to share one with.
    """
    if senders <= degree:
        return np.stack(np.triu_indices(senders, k=1), axis=1)
    cycles = [generator.permutation(senders) for _ in range(degree // 2)]
    return np.concatenate([np.stack([cycle, np.roll(cycle, -1)], axis=1) for cycle in cycles])


def degrees_of(edges: np.ndarray, senders: int) -> np.ndarray:
    """How many masks each sender shares, [K]."""
    return np.bincount(edges.ravel(), minlength=senders)


def laplacian_of(edges: np.ndarray, senders: int) -> np.ndarray:
    """L of the graph of masks, [K, K]: what one unit of variance per mask adds up to over the devices."""
    laplacian = np.zeros((senders, senders))
    np.add.at(laplacian, (edges, edges), 1.0)
    np.add.at(laplacian, (edges, edges[:, ::-1]), -1.0)
    return laplacian


def mask_degree(senders: int, degree: int) -> int:
    """How many masks each of so many senders shares with others."""
    return senders - 1 if senders <= degree else degree
