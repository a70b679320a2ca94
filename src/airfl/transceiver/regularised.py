"""Power control over rounds with a limit on every device's mean power: regularised inversion of the channel.

With k_i = |w̄ᴴ h_i|/g in every round, r_it the amplitude in units of 1/g and gains q_t k_it r_it,

    minimise Σ_t ω_t [Σ_i (1 − q_t k_it r_it)² + β q_t²]
    subject to mean_t r_it² ≤ 1 for every device,  r_it² ≤ R in every round,  Σ_t 1/q_t² ≤ A where a promise is kept.

For given norms r_it = q k/((q k)² + λ_i/ω_t), capped, with λ_i ≥ 0 such that device i keeps to its mean power; a device
saves where its channel is poor and where errors count little. For given amplitudes q_t = Σ a/(β + Σ a²), a = k r,
raised as the promise asks. Each step lowers the error, and they take turns. Since a_it ≤ 1/q_t after the first of them,
what a round tells is at most 1/q_t².

This is the plain form of Cao, Zhu, Xu, Cui (Optimized power control for over-the-air federated edge learning, 2021;
theirs solves an optimality gap by successive approximation in a trust region).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from airfl.transceiver.power_control import norms_within, spend

#: Turns at most, and the relative gain below which they end.
TURNS, ENOUGH = 200, 1e-8
#: Steps at most for log λ, and how far below its largest value it is looked for.
STEPS, RANGE = 80, 80.0

#: log λ [trials, n] -> what it makes of a device's power, and the slope of that.
Power = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Fleet:
    """What does not change between turns.

    Attributes:
        strength: k, [trials, T, K, B]; 0 where nobody transmits.
        device: whose each place is, [trials, T, K], from 0; any where nobody transmits.
        num_devices: n.
        beta: β.
        shares: of a round's symbols, [B].
        omega: ω_t, [T].
        peak: R.
        total: A; None where nothing is promised.
    """

    strength: torch.Tensor
    device: torch.Tensor
    num_devices: int
    beta: float
    shares: torch.Tensor
    omega: torch.Tensor
    peak: float
    total: float | None

    def by_device(self, values: torch.Tensor) -> torch.Tensor:
        """Sums of [trials, T, K] over the rounds of each device, [trials, n]."""
        sums = torch.zeros(len(values), self.num_devices, dtype=torch.float64)
        return sums.scatter_add(1, self.device.flatten(1), values.flatten(1))

    def of_device(self, values: torch.Tensor) -> torch.Tensor:
        """Values [trials, n] at the places of each device, [trials, T, K, 1]."""
        return values.gather(1, self.device.flatten(1)).reshape(self.device.shape).unsqueeze(-1)

    @property
    def counts(self) -> torch.Tensor:
        """In how many rounds each device sends, [trials, n]; at least one, so that it divides."""
        return self.by_device((self.strength > 0).any(dim=-1).double()).clamp(min=1.0)

    def mean_power(self, amplitude: torch.Tensor) -> torch.Tensor:
        """mean_t Σ_b share_b r² over the rounds in which a device sends, [trials, n]."""
        return self.by_device((amplitude.square() * self.shares).sum(dim=-1)) / self.counts

    def error(self, norm: torch.Tensor, amplitude: torch.Tensor) -> torch.Tensor:
        """Σ_t ω_t Σ_b share_b [Σ_i (1 − q k r)² + β q²], [trials]."""
        missing = (1.0 - norm.unsqueeze(-2) * self.strength * amplitude).square() * (self.strength > 0)
        each = missing.sum(dim=-2) + self.beta * norm.square()
        summed: torch.Tensor = ((each * self.shares).sum(dim=-1) * self.omega).sum(dim=-1)
        return summed


def take_turns(fleet: Fleet) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Norms and amplitudes, and the norms that they started from, [trials, T, B], [trials, T, K, B], [trials, T, B].

    They start where every round keeps to the mean power by itself, so the error is never above that.
    """
    # At its peak a device is heard √R louder than the mean power alone would let it.
    norm, _ = norms_within(fleet.strength, fleet.beta, fleet.total, fleet.shares, fleet.omega, fleet.peak**0.5)
    first, amplitude = norm, amplitudes(fleet, norm)
    before = fleet.error(norm, amplitude)
    going = torch.ones_like(before, dtype=torch.bool)  # trials do not wait for each other
    for _ in range(TURNS):
        turned = best_norms(fleet, amplitude, norm)
        sent = amplitudes(fleet, turned)
        error = fleet.error(turned, sent)
        better = (going & (error < before))[:, None, None]
        norm, amplitude = torch.where(better, turned, norm), torch.where(better.unsqueeze(-1), sent, amplitude)
        going = going & (before - error > ENOUGH * before)
        if not bool(going.any()):
            break
        before = torch.minimum(before, error)
    return norm, amplitude, first


def amplitudes(fleet: Fleet, norm: torch.Tensor) -> torch.Tensor:
    """The best r for given norms, [trials, T, K, B]: regularised inversion, with λ_i that keeps to the mean power."""
    heard, cap = norm.unsqueeze(-2) * fleet.strength, fleet.peak**0.5
    omega, sends = fleet.omega[:, None, None], heard > 0

    def at(price: torch.Tensor) -> torch.Tensor:
        below = torch.where(sends, heard.square() + fleet.of_device(price) / omega, 1.0)
        return (heard / below).clamp(max=cap)

    def power(log_price: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The logarithm of a device's mean power, and its slope in log λ, [trials, n]."""
        price = log_price.exp()
        sent, added = at(price), fleet.of_device(price) / omega
        share = torch.where(sends & (sent < cap), added / torch.where(sends, heard.square() + added, 1.0), 0.0)
        falling = fleet.by_device((sent.square() * share * fleet.shares).sum(dim=-1)) / fleet.counts
        mean = fleet.mean_power(sent)
        return mean.log(), -2.0 * falling / mean

    nothing = torch.zeros(len(norm), fleet.num_devices, dtype=torch.float64)
    kept = fleet.mean_power(at(nothing)) <= 1.0
    if bool(kept.all()):
        return at(nothing)
    most = (omega * heard).flatten(1).amax(dim=1, keepdim=True).clamp(min=1e-300).log()  # r ≤ ω q k/λ
    found = _price(power, nothing + most - RANGE, nothing + most, kept)
    # A little more, so that the mean is kept after rounding.
    return at(torch.where(kept, 0.0, found.exp() * (1.0 + 1e-12)))


def _price(power: Power, low: torch.Tensor, high: torch.Tensor, settled: torch.Tensor) -> torch.Tensor:
    """log λ with power(log λ) = 0, which falls: Newton's steps, and halvings where they leave what is known."""
    at, going = 0.5 * (low + high), ~settled
    for _ in range(STEPS):
        value, slope = power(at)
        low, high = torch.where(value > 0, at, low), torch.where(value > 0, high, at)
        newton = at - value / slope
        following = torch.where((newton >= low) & (newton <= high), newton, 0.5 * (low + high))
        moved = (following - at).abs()
        at = torch.where(going, following, at)
        going = going & (moved >= 1e-13)
        if not bool(going.any()):
            break
    return at


def best_norms(fleet: Fleet, amplitude: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """The best q for given amplitudes, [trials, T, B]."""
    received = fleet.strength * amplitude
    heard, squared = received.sum(dim=-2), received.square().sum(dim=-2)
    nobody = heard <= 0
    best = torch.where(nobody, before, heard / (fleet.beta + squared))
    if fleet.total is None:
        return best

    def growth(level: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        slope = fleet.beta + squared
        rise = slope * level.unsqueeze(-1) - heard
        weight = fleet.omega.unsqueeze(-1) * fleet.shares * ((rise > 0) & ~nobody)
        return (weight * rise).sum(dim=-1), (weight * slope).sum(dim=-1)

    def told(level: torch.Tensor) -> torch.Tensor:
        norms = torch.where(nobody, torch.inf, torch.maximum(best, level.unsqueeze(-1)))
        return norms.reciprocal().square().amax(dim=-1).sum(dim=-1)

    silent = nobody.all(dim=-1)
    least = torch.where(nobody, torch.inf, best).amin(dim=-1)
    level = spend(growth, least, fleet.total, told, silent)
    return torch.maximum(best, level.unsqueeze(-1))
