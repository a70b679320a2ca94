"""The smallest combiner that every device can reach, for any number of antennas and devices.

minimise ‖w‖² subject to |h_iᴴ w| ≥ 1, i = 1..K: single-group multicast beamforming, NP-hard in general.

With unit directions d_i = h_i/‖h_i‖, limits ρ_i = 1/‖h_i‖ and z = Dᴴw, two stages of the alternating direction method
of multipliers share one linear operator, w = (I + τ D Dᴴ)⁻¹ τ D (z − y):

1. explore: z is projected on the true, non-convex set |z_i| ≥ ρ_i, from several starting points at once;
2. polish: from the best of them, z is projected on the half planes Re(e^{−iψ_i} z_i) ≥ ρ_i, a convex inner problem
   whose phases ψ_i = arg(d_iᴴ w) are renewed every few steps (successive convex approximation).

Every candidate is scaled so that its weakest device is reached exactly, so it is feasible whatever the iteration did.
References: Huang & Sidiropoulos 2016 (consensus ADMM for QCQPs); Tran, Hanif & Juntti 2014 (convex approximation).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from airfl.transceiver.combiners.ascent import uphill
from airfl.transceiver.combiners.zero_forcing import zero_forcing
from airfl.transceiver.design import Design, better_of, check_channels, finish

#: Polishing steps between two renewals of the phases.
RENEW = 10
#: Devices per antenna beyond which only those that are hardest to reach are iterated on, and how often they are chosen
#: anew.
WORKING_SET, RENEWALS = 20, 8
#: Polishing steps with all devices after that.
LAST_POLISH = 200
#: Channel coefficients beyond which a pass over all of them is slow.
LARGE = 200_000
#: Channel coefficients iterated on at a time; more only cost memory.
CHUNK = 2_500_000
#: Guards divisions.
TINY = torch.finfo(torch.float64).tiny
#: Step stretching of the convex stage (over-relaxation).
STRETCH = 1.6


@dataclass(frozen=True)
class Effort:
    """How hard to look: starting points, exploring steps, survivors, polishing steps, and the penalty τ of both stages.

    The numbers were chosen on Rayleigh channels with the paper's path loss.
    """

    starts: int = 16
    explore: int = 200
    keep: int = 4
    polish: int = 100
    penalty: float = 1.5


def default_effort(num_devices: int, num_antennas: int) -> Effort:
    """Full effort while a step is cheap; with many devices per antenna a step is a pass over memory."""
    if num_devices <= 3 * num_antennas:
        return Effort()
    if num_devices * num_antennas <= LARGE:
        return Effort(starts=8, explore=100, keep=4, polish=300, penalty=0.5)
    return Effort(starts=4, explore=60, keep=1, polish=60, penalty=0.5)


def multicast(channels: torch.Tensor, effort: Effort | None = None) -> Design:
    """Return the best combiner found for channels [..., K, m]; see the module's first lines.

    Starting points are the same for every instance, so results do not depend on how instances are batched.
    """
    flat, usable = check_channels(channels)
    num_devices, num_antennas = flat.shape[1:]
    effort = effort or default_effort(num_devices, num_antennas)
    size = max(1, CHUNK // (num_devices * num_antennas))
    combiner = torch.cat([_solve(part, effort) for part in flat.split(size)])
    design = finish(combiner, channels, usable, effort.explore + effort.polish)
    # Never worse than the closed form, where there is one.
    return better_of(design, zero_forcing(channels)) if num_devices <= num_antennas else design


def _solve(channels: torch.Tensor, effort: Effort) -> torch.Tensor:
    """The best combiner found for channels [B, K, m], [B, m], not yet scaled."""
    num_devices, num_antennas = channels.shape[1:]
    problem = _Problem.of(channels)
    if num_devices > WORKING_SET * num_antennas and num_devices * num_antennas > LARGE:
        w = _by_working_sets(problem, effort)
    else:
        w = _polish(problem, _explore(problem, effort), effort)
    best = problem.value(w).argmin(dim=1)
    return w.gather(2, best[:, None, None].expand(-1, num_antennas, 1)).squeeze(-1)


@dataclass(frozen=True)
class _Problem:
    """Directions D as rows d_iᴴ [B, K, m], limits ρ [B, K, 1], and the eigenvectors that all penalties share."""

    rows: torch.Tensor
    limits: torch.Tensor
    values: torch.Tensor
    vectors: torch.Tensor

    @staticmethod
    def of(channels: torch.Tensor) -> _Problem:
        length = torch.linalg.vector_norm(channels, dim=-1, keepdim=True).clamp(min=TINY)
        rows = (channels / length).conj()
        limits = length.amin(dim=1, keepdim=True) / length
        return _Problem(rows, limits, *_eigen(rows))

    def part(self, devices: torch.Tensor) -> _Problem:
        """The problem of some devices, numbered [B, W]."""
        rows = self.rows.gather(1, devices.unsqueeze(-1).expand(-1, -1, self.rows.shape[2]))
        limits = self.limits.gather(1, devices.unsqueeze(-1))
        return _Problem(rows, limits, *_eigen(rows))

    def hardest(self, w: torch.Tensor, count: int) -> torch.Tensor:
        """The ``count`` devices that combiner w [B, m, 1] reaches least, [B, count]."""
        heard = ((self.rows @ w).abs() / self.limits).squeeze(-1)
        return heard.topk(count, dim=1, largest=False).indices

    def operators(self, tau: float) -> tuple[Callable[..., torch.Tensor], Callable[..., torch.Tensor]]:
        """(z − y) -> Dᴴ w and (z − y) -> w, for w = (I + τ D Dᴴ)⁻¹ τ D (z − y)."""
        rows, vectors = self.rows, self.vectors
        inverse = (vectors * (tau / (1.0 + tau * self.values)).unsqueeze(1)) @ vectors.mH
        if rows.shape[1] <= 2 * rows.shape[2]:
            smooth = (vectors * (tau * self.values / (1.0 + tau * self.values)).unsqueeze(1)) @ vectors.mH
            return lambda a: smooth @ a, lambda a: rows.mH @ (inverse @ a)
        return lambda a: rows @ (inverse @ (rows.mH @ a)), lambda a: inverse @ (rows.mH @ a)

    def value(self, w: torch.Tensor) -> torch.Tensor:
        """‖w‖² after scaling w [B, m, S] so that the weakest device is just reached, [B, S]; infinite for w = 0."""
        heard = ((self.rows @ w).abs() / self.limits).amin(dim=1)
        value = w.abs().square().sum(dim=1) / heard.square()
        return torch.where(torch.isfinite(value), value, torch.inf)

    def better(
        self, w: torch.Tensor, best: torch.Tensor, best_value: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Column by column the better of w and the best so far, [B, m, S], and its value, [B, S]."""
        value = self.value(w)
        improved = value < best_value
        return torch.where(improved.unsqueeze(1), w, best), torch.where(improved, value, best_value)


def _eigen(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    # D Dᴴ is m × m, Dᴴ D is K × K: the same non-zero eigenvalues, so take the cheaper operator.
    gram = rows @ rows.mH if rows.shape[1] <= 2 * rows.shape[2] else rows.mH @ rows
    values, vectors = torch.linalg.eigh(gram)
    return values.clamp(min=0.0), vectors


def _by_working_sets(problem: _Problem, effort: Effort) -> torch.Tensor:
    """Iterate on the devices that are hardest to reach, look at all of them, renew the set; [B, m, 1].

    Most devices are reached with ease by any combiner that reaches the hardest, so exploring need not pass over all.
    The best seen, or what ``ascent`` finds if that is better, is then polished with all of them: one column, so that a
    step is two thin products.
    """
    count = WORKING_SET * problem.rows.shape[2] // 2
    first = problem.limits.squeeze(-1).topk(count, dim=1).indices
    w = _explore(problem.part(first), dataclasses.replace(effort, keep=1))
    best, best_value = w, problem.value(w)
    for _ in range(RENEWALS):
        w = _polish(problem.part(problem.hardest(w, count)), w, effort)
        best, best_value = problem.better(w, best, best_value)
    other = torch.cat([uphill(rows.conj()) for rows in (problem.rows / problem.limits).split(1)]).unsqueeze(-1)
    best, _ = problem.better(other.to(best.dtype), best, best_value)
    return _polish(problem, best, dataclasses.replace(effort, polish=LAST_POLISH))


def _explore(problem: _Problem, effort: Effort) -> torch.Tensor:
    """Non-convex stage: the ``keep`` best of ``starts`` combiners, [B, m, keep]."""
    batch, _, num_antennas = problem.rows.shape
    draw = np.random.Generator(np.random.Philox(key=num_antennas)).standard_normal((num_antennas, effort.starts, 2))
    first = torch.view_as_complex(torch.from_numpy(draw)).to(problem.rows)
    to_heard, to_combiner = problem.operators(effort.penalty)
    z = _outside(problem.rows @ first, problem.limits)
    y = torch.zeros_like(z)
    for _ in range(effort.explore):
        x = to_heard(z - y) + y
        z = _outside(x, problem.limits)
        y = x - z
    w = to_combiner(z - y)
    kept = problem.value(w).topk(min(effort.keep, effort.starts), dim=1, largest=False).indices
    return w.gather(2, kept.unsqueeze(1).expand(batch, num_antennas, -1))


def _polish(problem: _Problem, w: torch.Tensor, effort: Effort) -> torch.Tensor:
    """Convex stage from w [B, m, S]: successive convex approximation; returns the best iterate of each column."""
    to_heard, to_combiner = problem.operators(effort.penalty)
    heard = problem.rows @ w
    scale = (heard.abs() / problem.limits).amin(dim=1, keepdim=True).clamp(min=TINY)
    heard, best, best_value = heard / scale, w, problem.value(w)
    z, y = heard, torch.zeros_like(heard)
    for _ in range(-(-effort.polish // RENEW)):
        phase = torch.sgn(heard)
        for _ in range(RENEW):
            x = STRETCH * to_heard(z - y) + (1.0 - STRETCH) * z + y
            z = x + (problem.limits - (phase.conj() * x).real).clamp(min=0.0) * phase
            y = x - z
        w = to_combiner(z - y)
        heard = problem.rows @ w
        best, best_value = problem.better(w, best, best_value)
    return best


def _outside(x: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
    """Projection on |z_i| ≥ ρ_i: moved outwards along its own phase (along 1 from the origin)."""
    size = x.abs()
    grown = x * (torch.maximum(size, limits) / size.clamp(min=TINY))
    return torch.where(size > 0, grown, limits.to(x.dtype))
