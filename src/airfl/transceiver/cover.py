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
        circular: whether every pair shares a mask, and one in each part of a symbol: zero-sum perturbations.
        share: own noise of device i, in phase and in quadrature, is a² and e² times this, by its number, [trials, n];
            None: all add alike.
    """

    own: torch.Tensor
    quadrature: torch.Tensor
    masks: torch.Tensor
    circular: bool = False
    share: torch.Tensor | None = None

    @staticmethod
    def of(
        own: float = 0.0, quadrature: float = 0.0, masks: float = 0.0, trials: int = 1, *, circular: bool = False
    ) -> Cover:
        """The same for all trials."""
        parts = [torch.full((trials,), value, dtype=torch.float64) for value in (own, quadrature, masks)]
        return Cover(parts[0], parts[1], parts[2], circular)

    @staticmethod
    def stacked(covers: list[Cover]) -> Cover:
        """Those of several trials, one after another."""
        own, quadrature, masks = (
            torch.cat([getattr(one, name) for one in covers]) for name in ("own", "quadrature", "masks")
        )
        shares = [one.share for one in covers if one.share is not None]
        return Cover(own, quadrature, masks, covers[0].circular, torch.cat(shares) if shares else None)

    def __getitem__(self, rows: int | slice) -> Cover:
        """Those of some trials."""
        where = slice(rows, rows + 1) if isinstance(rows, int) else rows
        share = None if self.share is None else self.share[where]
        return Cover(self.own[where], self.quadrature[where], self.masks[where], self.circular, share)

    def repeated(self, copies: int) -> Cover:
        """Every trial ``copies`` times, one after another."""
        parts = [part.repeat_interleave(copies) for part in (self.own, self.quadrature, self.masks)]
        share = None if self.share is None else self.share.repeat_interleave(copies, dim=0)
        return Cover(parts[0], parts[1], parts[2], self.circular, share)

    def power(self, degrees: torch.Tensor, active: np.ndarray | None = None) -> torch.Tensor:
        """What it adds to the power of every entry that is sent, [trials, K].

        Args:
            degrees: how many masks each device has, [trials, K].
            active: the devices' numbers, [trials, K], where some add more than others.
        """
        alike = (self.own + self.quadrature).unsqueeze(-1)
        if self.share is not None and active is not None:
            alike = alike * self.weights(active)
        return alike + self.masks.unsqueeze(-1) * degrees * self.mask_parts

    def weights(self, active: np.ndarray) -> torch.Tensor:
        """Own noise of the devices numbered in active [trials, ..., K], in units of a²; 0 where nobody sends."""
        there = torch.from_numpy(active >= 0).double()
        if self.share is None:
            return there
        places = torch.from_numpy(active).clamp(min=0)
        return self.share.gather(1, places.flatten(1)).view(places.shape) * there

    @property
    def mask_parts(self) -> int:
        """In how many parts of a symbol that carries one coordinate masks are."""
        return 2 if self.circular else 1

    def is_nothing(self) -> bool:
        """Whether no trial has any."""
        return not bool((self.own + self.quadrature + self.masks > 0).any())


def unknown_to_all(adds: torch.Tensor, honest: torch.Tensor) -> torch.Tensor:
    """What is left of own noise for whoever looks at the sum and knows most of it, [...].

    Devices that collude tell everybody what they add, and so an honest one is left with that of the other honest ones:
    without it, if it adds most. A lone honest sender has nobody else to be curious about, and covers itself from all.

    Args:
        adds: variance of what each device adds, [..., K].
        honest: who sends and does not collude, [..., K].
    """
    mine = adds * honest
    # The largest is left out, not taken off: what is small beside it keeps its digits.
    others = mine.scatter(-1, mine.argmax(dim=-1, keepdim=True), 0.0)
    return torch.where(honest.sum(dim=-1) > 1, others.sum(dim=-1), mine.sum(dim=-1))


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
