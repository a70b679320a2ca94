"""Cyclic coordinate minimisation over the phases, for m ≥ K.

With M = (HᴴH)⁻¹ the combiner w = H M u has h_iᴴ w = u_i and ‖w‖² = uᴴ M u, so P1 is

    minimise uᴴ M u subject to |u_i| ≥ 1.

For one coordinate, with b = Σ_{j≠i} M_ij u_j: u_i = −b/M_ii if that lies outside the unit circle, else −b/|b|, and
unchanged if b = 0. Every step is exact, so the value never rises.
"""

from __future__ import annotations

import numpy as np
import torch

from airfl.errors import InputError
from airfl.transceiver.combiners.zero_forcing import zero_forcing
from airfl.transceiver.design import Design, better_of, check_channels, finish

#: (starting points left, sweeps with them): most starts are given up early.
SCHEDULE = ((32, 8), (8, 16), (2, 80))


def coordinate(channels: torch.Tensor, schedule: tuple[tuple[int, int], ...] = SCHEDULE) -> Design:
    """Return the best combiner found for channels [..., K, m] with K ≤ m.

    The first start is u = 1 (zero forcing), the others have random phases, the same ones for every instance.
    """
    flat, usable = check_channels(channels)
    num_devices, num_antennas = flat.shape[1:]
    if num_devices > num_antennas:
        raise InputError(
            f"coordinate minimisation needs K <= m; got K = {num_devices}, m = {num_antennas} (use `multicast`)"
        )
    length = torch.linalg.vector_norm(flat, dim=-1)
    directions = flat / length.unsqueeze(-1)
    gram = directions.conj() @ directions.mT
    factor, info = torch.linalg.cholesky_ex(gram)
    usable = usable & (info == 0)
    factor = torch.where(
        usable[:, None, None], factor, torch.eye(num_devices, dtype=factor.dtype, device=factor.device)
    )
    matrix = torch.cholesky_inverse(factor)
    limits = length.amin(dim=1, keepdim=True) / length  # |z_i| ≥ ρ_i for z = u/‖h‖, scaled: spreads M's decades evenly
    z = _search(matrix, limits, schedule)
    combiner = (directions.mT @ (matrix @ z.unsqueeze(-1))).squeeze(-1)
    design = finish(combiner, channels, usable, sum(sweeps for _, sweeps in schedule))
    return better_of(design, zero_forcing(channels))


def _search(matrix: torch.Tensor, limits: torch.Tensor, schedule: tuple[tuple[int, int], ...]) -> torch.Tensor:
    """The best z [B, K] of all starts after the schedule's sweeps."""
    batch, num_devices = limits.shape
    starts = schedule[0][0]
    angles = np.random.Generator(np.random.Philox(key=num_devices)).uniform(-np.pi, np.pi, (num_devices, starts))
    angles[:, 0] = 0.0
    z = limits.unsqueeze(-1) * torch.from_numpy(np.exp(1j * angles)).to(limits.device)
    diagonal = matrix.diagonal(dim1=-2, dim2=-1).real
    for left, sweeps in schedule:
        product = matrix @ z
        best = (z.conj() * product).sum(dim=1).real.topk(min(left, z.shape[2]), dim=1, largest=False).indices
        z = z.gather(2, best.unsqueeze(1).expand(batch, num_devices, -1)).contiguous()
        product = matrix @ z
        for _ in range(sweeps):
            for i in range(num_devices):
                rest = product[:, i] - diagonal[:, i, None] * z[:, i]
                size = rest.abs()
                radius = torch.maximum(size / diagonal[:, i, None], limits[:, i, None])
                new = torch.where(size > 0, -torch.sgn(rest) * radius, z[:, i])
                product += matrix[:, :, i, None] * (new - z[:, i]).unsqueeze(1)
                z[:, i] = new
    value = (z.conj() * (matrix @ z)).sum(dim=1).real
    return z.gather(2, value.argmin(dim=1)[:, None, None].expand(batch, num_devices, 1)).squeeze(-1)
