"""A lower bound on ‖w‖² that needs no trust: weak duality of the semidefinite relaxation.

Any λ ≥ 0 with Σ λ_i h_i h_iᴴ ⪯ I proves ‖w‖² ≥ Σ λ_i for every w with |wᴴ h_i| ≥ 1, since
Σ λ_i ≤ Σ λ_i |wᴴ h_i|² ≤ ‖w‖². The best such λ is found by Newton's method on the barrier

    Σ λ_i + μ log det(I − Σ λ_i h_i h_iᴴ) + μ Σ log λ_i,   μ → 0,

whose gap to the relaxation's value is (K + m) μ. However the iteration ends, λ is divided by the largest eigenvalue of
Σ λ_i h_i h_iᴴ, so the bound holds.
"""

from __future__ import annotations

import dataclasses

import torch

from airfl.transceiver.design import Design, check_channels

#: Complex numbers that the Newton systems of one chunk of instances may hold.
CHUNK = 8_000_000
#: More devices than this are not looked at all at once; the bound then grows from the ones that bind.
WORKING_SET = 500


def certificate(channels: torch.Tensor, iterations: int = 80, tolerance: float = 1e-3) -> torch.Tensor:
    """Lower bound on ‖w‖² for channels [..., K, m], shape [...]; 0 for an instance that cannot be served.

    Args:
        iterations: Newton steps at most.
        tolerance: stop when the relaxation's value is known to this relative accuracy.
    """
    flat, usable = check_channels(channels)
    size = max(1, CHUNK // min(flat.shape[1], WORKING_SET) ** 2)
    bounds = torch.cat([_bound(part, iterations, tolerance) for part in flat.split(size)])
    return torch.where(usable, bounds, 0.0).reshape(channels.shape[:-2])


def certify(design: Design, channels: torch.Tensor, iterations: int = 80, tolerance: float = 1e-3) -> Design:
    """Return the design with its lower bound, and so its gap, filled in."""
    return dataclasses.replace(design, lower_bound=certificate(channels, iterations, tolerance))


def prices(channels: torch.Tensor, iterations: int = 80, tolerance: float = 1e-2) -> torch.Tensor:
    """λ_i of the bound Σ λ_i ≤ ‖w‖², [..., K]: what each device costs.

    Only the weakest ``WORKING_SET`` devices are looked at; the others have λ_i = 0, as those have that cost nothing.
    """
    flat, _ = check_channels(channels)
    length = torch.linalg.vector_norm(flat, dim=-1)
    count = min(WORKING_SET, flat.shape[1])
    chosen = length.topk(count, dim=1, largest=False).indices
    part = flat.gather(1, chosen.unsqueeze(-1).expand(-1, -1, flat.shape[2]))
    near = length.gather(1, chosen)
    reward = (near.amin(dim=1, keepdim=True) / near).square()
    weights = _weights(part / near.unsqueeze(-1), reward, iterations, tolerance)[0]
    found = torch.zeros_like(length).scatter_(1, chosen, weights / near.square())
    return found.reshape(channels.shape[:-1])


def _bound(channels: torch.Tensor, iterations: int, tolerance: float) -> torch.Tensor:
    batch, num_devices, num_antennas = channels.shape
    length = torch.linalg.vector_norm(channels, dim=-1)
    directions = channels / length.unsqueeze(-1)
    # With λ_i = l_i/‖h_i‖² the constraint has unit directions and the weakest device the largest reward.
    reward = (length.amin(dim=1, keepdim=True) / length).square()
    scale = length.amin(dim=1).square()
    if num_devices <= WORKING_SET:
        value, _ = _newton(directions, reward, iterations, tolerance)
        exact: torch.Tensor = value / scale
        return exact
    chosen = reward.topk(min(WORKING_SET // 2, num_devices), dim=1).indices
    best = torch.zeros(batch, dtype=torch.float64, device=channels.device)
    for _ in range(5):
        part = directions.gather(1, chosen.unsqueeze(-1).expand(-1, -1, num_antennas))
        value, heard = _newton(part, reward.gather(1, chosen), iterations, tolerance)
        best = torch.maximum(best, value)
        # heard: the relaxation's W as a factor; the devices it reaches least would raise the bound most.
        reached = (directions.conj() @ heard).abs().square().sum(dim=-1) / reward
        reached.scatter_(1, chosen, torch.inf)
        missing = reached.topk(min(WORKING_SET // 10, num_devices - chosen.shape[1]), dim=1, largest=False).indices
        chosen = torch.cat([chosen, missing], dim=1)
    bound: torch.Tensor = best / scale
    return bound


def _newton(
    directions: torch.Tensor, reward: torch.Tensor, iterations: int, tolerance: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Bound Σ c_i l_i [B] for directions [B, K, m] and rewards c [B, K], and a root of the relaxation's W."""
    weights, mu = _weights(directions, reward, iterations, tolerance)
    # Divided by the largest eigenvalue, and a hair for the rounding of that: feasible whatever happened above.
    largest = _largest(directions, weights) * (1.0 + 1e-10)
    bound = (reward * weights).sum(dim=1) / torch.clamp(largest, min=torch.finfo(torch.float64).tiny)
    filled = _weighted(directions, weights)
    identity = torch.eye(directions.shape[2], dtype=torch.complex128, device=directions.device).expand_as(filled)
    factor, info = torch.linalg.cholesky_ex(identity - filled)
    factor = torch.where((info == 0)[:, None, None], factor, identity)
    root = torch.linalg.solve_triangular(factor, identity, upper=False)
    return bound, mu.unsqueeze(-1).sqrt() * root.mH


def _weights(
    directions: torch.Tensor, reward: torch.Tensor, iterations: int, tolerance: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Newton's method on the barrier: l [B, K] strictly inside the constraint, and the last μ [B, 1]."""
    batch, num_devices, num_antennas = directions.shape
    identity = torch.eye(num_antennas, dtype=torch.complex128, device=directions.device)
    weights = torch.full((batch, num_devices), 0.25 * num_antennas / (num_devices + num_antennas), dtype=torch.float64)
    weights = weights.to(directions.device)
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
    return weights, mu


def _weighted(directions: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Σ_i l_i d_i d_iᴴ."""
    return (directions.mT * weights.unsqueeze(1)) @ directions.conj()


def _largest(directions: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    largest: torch.Tensor = torch.linalg.eigvalsh(_weighted(directions, weights))[:, -1]
    return largest
