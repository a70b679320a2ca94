"""Zero forcing: the published closed form for m ≥ K."""

from __future__ import annotations

import torch

from airfl.errors import InputError
from airfl.transceiver.design import Design, Status, received_gains

#: A solved instance reproduces |wᴴ h_i| = 1 at least this well.
RESIDUAL = 1e-6
#: The same for directions that lie close together: what is heard is a difference of large numbers, and rounded by them.
LOOSE_RESIDUAL = 1e-2
#: How much of the rounding that was seen is made room for, and the sine of the angle from which on a direction counts.
ROOM, SAME_DIRECTION = 4.0, 1e-11


def zero_forcing(channels: torch.Tensor, phases: torch.Tensor | None = None) -> Design:
    """w = H (HᴴH)⁻¹ u with |u_i| = 1, so that hᵢᴴ w = u_i: every device is heard with modulus one (paper, Remark 2).

    Args:
        channels: h_i as rows, [..., K, m] with K ≤ m.
        phases: u, [..., K] or [K], complex with modulus one; default all ones.

    The Gram matrix is formed from unit-norm columns: path loss spreads ‖h_i‖² over many decades, and the scaling
    keeps its condition number that of the directions alone. It is the square of theirs; where that is too much, as in
    a city seen by correlated antennas, the directions are made orthogonal instead.
    """
    num_devices, num_antennas = channels.shape[-2:]
    if num_devices < 1 or num_devices > num_antennas:
        raise InputError(
            f"zero forcing needs 1 <= K <= m; got K = {num_devices} devices and m = {num_antennas} antennas"
        )
    channels = channels.to(torch.complex128)
    u = torch.ones(num_devices, dtype=torch.complex128, device=channels.device) if phases is None else phases
    if not torch.allclose(u.abs(), torch.ones_like(u.abs())):
        raise InputError("every entry of the phase vector u must have modulus 1")
    length = torch.linalg.vector_norm(channels, dim=-1, keepdim=True)
    directions = channels / length
    rhs = u.to(torch.complex128).expand(channels.shape[:-1]).unsqueeze(-1) / length
    combiner, residual = _by_gram(directions, rhs, channels)
    sound = _is_sound(combiner, residual, RESIDUAL)
    if not bool(sound.all()):
        again, left = _by_orthogonal(directions, rhs, channels)
        combiner = torch.where(sound.unsqueeze(-1), combiner, again)
        residual = torch.where(sound, residual, left)
        sound = sound | _is_sound(again, left, LOOSE_RESIDUAL)
    solved = sound.reshape(-1).tolist()
    status: tuple[Status, ...] = tuple("ok" if good else "singular" for good in solved)
    # Rounding leaves |wᴴ h_i| a few ulp below one; a hair more norm makes the power constraint hold exactly.
    combiner = combiner * (1.0 + residual.unsqueeze(-1))
    norm = torch.where(sound, torch.linalg.vector_norm(combiner, dim=-1), torch.inf)
    return Design(combiner, norm, torch.zeros_like(norm), torch.zeros_like(norm, dtype=torch.int64), status)


def _by_gram(directions: torch.Tensor, rhs: torch.Tensor, channels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """w = D (DᴴD)⁻¹ rhs, [..., m], and how far |wᴴ h_i| is from one, [...]; NaN where the matrix is not definite."""
    factor, info = torch.linalg.cholesky_ex(directions.conj() @ directions.mT)
    combiner = (directions.mT @ torch.cholesky_solve(rhs, factor)).squeeze(-1)
    residual = (received_gains(combiner, channels).abs() - 1.0).abs().amax(dim=-1)
    return combiner, torch.where(info == 0, residual, torch.nan)


def _by_orthogonal(
    directions: torch.Tensor, rhs: torch.Tensor, channels: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The same from D = QR: w = Q R⁻ᴴ rhs."""
    q, r = torch.linalg.qr(directions.mT)
    apart = torch.diagonal(r, dim1=-2, dim2=-1).abs().amin(dim=-1) > SAME_DIRECTION
    combiner = (q @ torch.linalg.solve_triangular(r.mH, rhs, upper=False)).squeeze(-1)
    residual = (received_gains(combiner, channels).abs() - 1.0).abs().amax(dim=-1)
    # Whoever forms wᴴ h in another order of sums finds it rounded differently by as much.
    return combiner, torch.where(apart, ROOM * residual, torch.nan)


def _is_sound(combiner: torch.Tensor, residual: torch.Tensor, bound: float) -> torch.Tensor:
    return (residual <= bound) & torch.isfinite(torch.linalg.vector_norm(combiner, dim=-1))
