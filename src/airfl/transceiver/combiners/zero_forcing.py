"""Zero forcing: the published closed form for m ≥ K."""

from __future__ import annotations

import torch

from airfl.errors import InputError
from airfl.transceiver.design import Design, Status, received_gains

#: A solved instance reproduces |wᴴ h_i| = 1 at least this well.
RESIDUAL = 1e-6


def zero_forcing(channels: torch.Tensor, phases: torch.Tensor | None = None) -> Design:
    """w = H (HᴴH)⁻¹ u with |u_i| = 1, so that hᵢᴴ w = u_i: every device is heard with modulus one (paper, Remark 2).

    Args:
        channels: h_i as rows, [..., K, m] with K ≤ m.
        phases: u, [..., K] or [K], complex with modulus one; default all ones.

    The Gram matrix is formed from unit-norm columns: path loss spreads ‖h_i‖² over many decades, and the scaling
    keeps its condition number that of the directions alone.
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
    gram = directions.conj() @ directions.mT
    factor, info = torch.linalg.cholesky_ex(gram)
    rhs = u.to(torch.complex128).expand(channels.shape[:-1]).unsqueeze(-1) / length
    weights = torch.cholesky_solve(rhs, factor)
    combiner = (directions.mT @ weights).squeeze(-1)
    residual = (received_gains(combiner, channels).abs() - 1.0).abs().amax(dim=-1)
    sound = (info == 0) & (residual <= RESIDUAL) & torch.isfinite(torch.linalg.vector_norm(combiner, dim=-1))
    solved = sound.reshape(-1).tolist()
    status: tuple[Status, ...] = tuple("ok" if good else "singular" for good in solved)
    # Rounding leaves |wᴴ h_i| a few ulp below one; a hair more norm makes the power constraint hold exactly.
    combiner = combiner * (1.0 + residual.unsqueeze(-1))
    norm = torch.where(sound, torch.linalg.vector_norm(combiner, dim=-1), torch.inf)
    return Design(combiner, norm, torch.zeros_like(norm), torch.zeros_like(norm, dtype=torch.int64), status)
