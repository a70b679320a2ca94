"""Semidefinite relaxation with Gaussian randomisation: the literature's baseline, through cvxpy.

minimise tr W subject to h_iᴴ W h_i ≥ 1, W ⪰ 0; then w ~ CN(0, W), scaled until every device is reached, best of many
(Sidiropoulos, Davidson & Luo 2006). One instance at a time, so it is slow; it is here to be compared with.
"""

from __future__ import annotations

import contextlib

import numpy as np
import torch

from airfl.errors import InputError
from airfl.transceiver.design import Design, check_channels, finish

#: Gaussian randomisations per instance.
SAMPLES = 1000


def sdr(channels: torch.Tensor, samples: int = SAMPLES, accuracy: float = 1e-5) -> Design:
    """Return the best of ``samples`` randomisations for channels [..., K, m].

    The solver's value is no proof (it is accurate to ``accuracy`` at best), so no lower bound is reported.
    """
    flat, usable = check_channels(channels)
    rows = [_one(h.cpu().numpy(), samples, accuracy)[0] for h in flat]
    return finish(torch.from_numpy(np.stack(rows)).to(flat.device), channels, usable, samples)


def relaxation_value(channels: np.ndarray, accuracy: float = 1e-6) -> float:
    """Value of the relaxation for one instance [K, m], as cvxpy finds it."""
    return _one(channels, 1, accuracy)[1]


def _one(channels: np.ndarray, samples: int, accuracy: float) -> tuple[np.ndarray, float]:
    try:
        import cvxpy
    except ImportError:
        raise InputError('combiner `sdr` needs cvxpy; install it with: pip install "airfl[oracles]"') from None
    num_devices, num_antennas = channels.shape
    length = np.linalg.norm(channels, axis=1)
    directions = channels / length[:, None]
    limits = (length.min() / length) ** 2
    # W lives in the span of the channels: with fewer devices than antennas an orthonormal basis of it is smaller.
    basis = np.linalg.qr(directions.T)[0] if num_devices < num_antennas else np.eye(num_antennas)
    reduced = directions @ basis.conj()
    size = basis.shape[1]
    matrix = cvxpy.Variable((size, size), hermitian=True)
    heard = [cvxpy.real(row.conj() @ matrix @ row) >= limit for row, limit in zip(reduced, limits, strict=True)]
    problem = cvxpy.Problem(cvxpy.Minimize(cvxpy.real(cvxpy.trace(matrix))), [matrix >> 0, *heard])
    with contextlib.suppress(cvxpy.error.SolverError):
        problem.solve(solver=cvxpy.SCS, eps=accuracy, max_iters=20_000)
    if matrix.value is None:  # w = 0 reaches nobody, so the design comes out as infeasible
        return np.zeros(num_antennas, dtype=np.complex128), float("nan")
    values, vectors = np.linalg.eigh(np.asarray(matrix.value))
    root = vectors * np.sqrt(values.clip(min=0.0))
    generator = np.random.Generator(np.random.Philox(key=size))
    draws = root @ generator.standard_normal((size, samples, 2)).view(np.complex128)[..., 0]
    reached = (np.abs(reduced.conj() @ draws) / np.sqrt(limits)[:, None]).min(axis=0)
    best = int(np.argmin((np.abs(draws) ** 2).sum(axis=0) / reached**2))
    return basis @ draws[:, best], float(problem.value) / float(length.min()) ** 2
