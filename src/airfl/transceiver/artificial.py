"""Noise that devices add themselves, and what a base station that looks at every antenna then sees.

Device k sends s_k(Δ̄_k + ζ_k) with ζ_k ~ CN(0, ν) per symbol. At the antennas the covariance of what covers a device is
C = σ²I + ν Σ_k p_k p_kᴴ, with p_k = h_k s_k, and device i is seen with √(σ² p_iᴴ C⁻¹ p_i), in units in which the noise
is σ² per antenna. The power limit then reads |s_k|²(c²/d + ν) ≤ P: the combiner's norm grows by κ = √(1 + dν/c²).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Visibility:
    """How visible each device is at the antennas, for any artificial noise.

    Attributes:
        energy: |u_jᴴ p_i|² in the singular directions u_j of all paths together, [..., j, K].
        spectrum: squared singular values, [..., j].
        noise_power: σ².
    """

    energy: torch.Tensor
    spectrum: torch.Tensor
    noise_power: float

    def norms(self, artificial: float | torch.Tensor = 0.0, growth: float = 1.0) -> torch.Tensor:
        """√(σ² p_iᴴ C⁻¹ p_i) with ν = ``artificial`` and all scalars s_i divided by κ = ``growth``, [..., K]."""
        nu = torch.as_tensor(artificial, dtype=torch.float64)[..., None]
        cover = growth**2 * self.noise_power + nu * self.spectrum
        return (self.noise_power * (self.energy / cover.unsqueeze(-1)).sum(dim=-2)).sqrt()


def visibility(paths: torch.Tensor, noise_power: float) -> Visibility:
    """Take apart the paths p_i = h_i s_i, [..., K, m]; a device with p_i = 0 is silent."""
    _, singular, right = torch.linalg.svd(paths.mT, full_matrices=False)
    spectrum = singular.square()
    return Visibility(spectrum.unsqueeze(-1) * right.abs().square(), spectrum, noise_power)


def norm_growth(artificial: float, clip_norm: float, dim: int) -> float:
    """κ = √(1 + dν/c²): how much the combiner's norm grows to leave room for artificial noise in the power limit."""
    return math.sqrt(1.0 + dim * artificial / clip_norm**2)
