"""A lower bound on ‖w‖² that needs no trust: weak duality of the semidefinite relaxation.

Any λ ≥ 0 with Σ λ_i h_i h_iᴴ ⪯ I proves ‖w‖² ≥ Σ λ_i for every w with |wᴴ h_i| ≥ 1, since
Σ λ_i ≤ Σ λ_i |wᴴ h_i|² ≤ ‖w‖². For few devices the best such λ is found by Newton's method on the barrier

    Σ λ_i + μ log det(I − Σ λ_i h_i h_iᴴ) + μ Σ log λ_i,   μ → 0,

whose gap to the relaxation's value is (K + m) μ; for many by the first-order method of ``saddle``, which measures the
gap over all devices. However the iteration ends, λ is divided by the largest eigenvalue of Σ λ_i h_i h_iᴴ, so the bound
holds.
"""

from __future__ import annotations

import dataclasses

import torch

from airfl.transceiver.design import Design, check_channels
from airfl.transceiver.saddle import HAIR, bracket

#: Complex numbers that the Newton systems of one chunk of instances may hold.
CHUNK = 8_000_000
#: Up to this many devices Newton's method is the faster one.
FEW = 250
#: First-order steps that are allowed for each Newton step; they are that much cheaper.
FIRST_ORDER = 50
#: Share of the bound that ``prices`` spreads over all devices, so that those that cost nothing are in order, too.
SPREAD = 1e-3


def certificate(channels: torch.Tensor, iterations: int = 80, tolerance: float = 1e-3) -> torch.Tensor:
    """Lower bound on ‖w‖² for channels [..., K, m], shape [...]; 0 for an instance that cannot be served.

    Args:
        iterations: Newton steps at most; with more than ``FEW`` devices ``FIRST_ORDER`` times as many others.
        tolerance: stop when the relaxation's value is known to this relative accuracy.
    """
    flat, usable = check_channels(channels)
    if flat.shape[1] > FEW:
        bounds = torch.stack([bracket(one, tolerance, FIRST_ORDER * iterations).lower for one in flat])
    else:
        size = max(1, CHUNK // flat.shape[1] ** 2)
        bounds = torch.cat([_bound(part, iterations, tolerance) for part in flat.split(size)])
    return torch.where(usable, bounds, 0.0).reshape(channels.shape[:-2])


def certify(design: Design, channels: torch.Tensor, iterations: int = 80, tolerance: float = 1e-3) -> Design:
    """Return the design with its lower bound, and so its gap, filled in."""
    return dataclasses.replace(design, lower_bound=certificate(channels, iterations, tolerance))


def prices(channels: torch.Tensor, iterations: int = 80, tolerance: float = 1e-2) -> torch.Tensor:
    """λ_i > 0 of the bound Σ λ_i ≤ ‖w‖², [..., K]: what each device costs, the least for those reached best."""
    flat, _ = check_channels(channels)
    if flat.shape[1] > FEW:
        found = torch.stack([_spread(one, tolerance, FIRST_ORDER * iterations) for one in flat])
    else:
        directions, reward, length = _normalised(flat)
        found = _weights(directions, reward, iterations, tolerance) / length.square()
    return found.reshape(channels.shape[:-1])


def _spread(channels: torch.Tensor, tolerance: float, iterations: int) -> torch.Tensor:
    """Prices [K] of one instance, each device with a little that falls with how well it is reached."""
    known = bracket(channels, tolerance, iterations)
    reach = ((channels.conj() @ known.matrix) * channels).sum(dim=-1).real
    found = known.prices + SPREAD * known.lower * reach.amin() / reach / len(channels)
    return found / (_largest(channels.unsqueeze(0), found.unsqueeze(0)) * HAIR)


def _normalised(channels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Unit directions, rewards and ‖h_i‖ of channels [B, K, m].

    With λ_i = l_i/‖h_i‖² the constraint has unit directions and the weakest device the largest reward. Only the angles
    between directions matter: with fewer devices than antennas they are told in a basis of the span, [B, K, K].
    """
    length = torch.linalg.vector_norm(channels, dim=-1)
    directions = channels / length.unsqueeze(-1)
    if channels.shape[1] < channels.shape[2]:
        directions = torch.linalg.qr(directions.mT).R.mT
    return directions, (length.amin(dim=1, keepdim=True) / length).square(), length


def _bound(channels: torch.Tensor, iterations: int, tolerance: float) -> torch.Tensor:
    directions, reward, length = _normalised(channels)
    weights = _weights(directions, reward, iterations, tolerance)
    # Feasible whatever happened to the iteration.
    largest = torch.clamp(_largest(directions, weights) * HAIR, min=torch.finfo(torch.float64).tiny)
    bound: torch.Tensor = (reward * weights).sum(dim=1) / largest / length.amin(dim=1).square()
    return bound


def _weights(directions: torch.Tensor, reward: torch.Tensor, iterations: int, tolerance: float) -> torch.Tensor:
    """Newton's method on the barrier: l [B, K] strictly inside the constraint."""
    batch, num_devices, num_antennas = directions.shape
    identity = torch.eye(num_antennas, dtype=torch.complex128, device=directions.device)
    weights = torch.full_like(reward, 0.25 * num_antennas / (num_devices + num_antennas))
    weights = 0.5 * weights / _largest(directions, weights).unsqueeze(1)
    mu = 3.0 * (reward * weights).sum(dim=1, keepdim=True) / (num_devices + num_antennas)
    done = torch.zeros(batch, 1, dtype=torch.bool, device=directions.device)
    for _ in range(iterations):
        slack = identity - _weighted(directions, weights)
        factor, first_info = torch.linalg.cholesky_ex(slack)
        white = torch.linalg.solve_triangular(factor, directions.mT, upper=False)
        inner = white.mH @ white  # d_iᴴ (I − Σ l d dᴴ)⁻¹ d_j
        gradient = reward - mu * inner.diagonal(dim1=-2, dim2=-1).real + mu / weights
        hessian = mu.unsqueeze(-1) * inner.abs().square() + torch.diag_embed(mu / weights.square())
        root, second_info = torch.linalg.cholesky_ex(hessian)
        step = torch.cholesky_solve(gradient.unsqueeze(-1), root).squeeze(-1)
        decrement = (gradient * step).sum(dim=1, keepdim=True) / mu
        # An instance whose systems can no longer be solved keeps the λ it has: any λ will do after the final scaling.
        broken = ((first_info > 0) | (second_info > 0) | ~torch.isfinite(step).all(dim=1)).unsqueeze(1)
        done = done | broken
        change = torch.linalg.eigvalsh(
            torch.where(done.unsqueeze(-1), identity, (white * step.unsqueeze(1)) @ white.mH)
        )
        longest = torch.maximum((-step / weights).amax(dim=1, keepdim=True), change[:, -1:]).clamp(min=0.95)
        weights = torch.where(done, weights, weights + step * (0.95 / longest))
        value = (reward * weights).sum(dim=1, keepdim=True)
        done = done | ((num_devices + num_antennas) * mu <= tolerance * value)
        if bool(done.all()):
            break
        mu = torch.where(~done & (decrement < 1.0), 0.2 * mu, mu)
    return weights


def _weighted(directions: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Σ_i l_i d_i d_iᴴ."""
    return (directions.mT * weights.unsqueeze(1)) @ directions.conj()


def _largest(directions: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    largest: torch.Tensor = torch.linalg.eigvalsh(_weighted(directions, weights))[:, -1]
    return largest
