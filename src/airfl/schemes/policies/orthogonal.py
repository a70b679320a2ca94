"""Random orthogonalisation, without channel knowledge at the devices: `random-orth`."""

from __future__ import annotations

import numpy as np
import torch

from airfl.schemes.parts import DesigningPolicy
from airfl.schemes.policies.pointing import heard_by, inverted, pointing
from airfl.schemes.transceivers import Scene, Transceiver
from airfl.transceiver import allocate
from airfl.transceiver.levels import allocate_levels, raised

#: Of the largest weight, what a round counts in which nobody is heard.
NOTHING = 1e-12


class RandomOrthogonal(DesigningPolicy):
    """All devices send alike, s_i = s/√Λ_i, and the base station listens along the sum of their channels.

    h_s = Σ_i h_i/√Λ_i is learnt from one pilot that all send together, w = h_s/(m s). Gains Re(h_sᴴ h̃_i)/m have mean 1
    and variance (K + 1)/(2m), and s² = Λ_min symbols·P/C². Where a promise is kept s is smaller.

    With ``scheme.gain_feedback`` (the plain form of the enhanced variant) devices are told wᴴ h_i and invert it.

    Wei, Shen, Yang, Poor (Random orthogonalization for federated learning in massive MIMO systems, 2022).
    """

    def transceiver(self, scene: Scene) -> Transceiver:
        """See ``DesigningPolicy.transceiver``."""
        plain, complex_symbols = scene.config.scheme.selection == "all", scene.grid.per_symbol > 1
        active = scene.active() if plain else pointing(scene).active  # a schedule goes by the run's combiner
        amplitude = scene.radio.link.law.amplitude
        combiner = summed(scene, active) / scene.config.system.num_antennas  # for s = 1
        heard = heard_by(scene, active, combiner)
        if scene.config.scheme.gain_feedback:
            gains = torch.from_numpy(active >= 0).double().unsqueeze(-1).expand(heard.shape)
            alone = inverted(gains, heard)
            # The device that is heard worst sends at full power.
            strongest = alone.abs().amax(dim=-2)
        else:
            own = np.take_along_axis(amplitude[:, None], np.maximum(active, 0), axis=2)
            alone = torch.from_numpy(np.where(active < 0, 0.0, 1.0 / own)).unsqueeze(-1).expand(heard.shape)
            weakest = torch.from_numpy(1.0 / amplitude.min(axis=1))
            strongest = weakest[:, None, None].expand(heard.shape[0], heard.shape[1], heard.shape[3])
            # The imaginary part is another coordinate, or nothing.
            alone, gains = alone.to(torch.complex128), (heard if complex_symbols else heard.real) * alone
        loudest = gains.abs().amax(dim=-2)  # does not change with s
        scale = torch.where(strongest > 0, strongest, 1.0) * scene.reach  # 1/s
        minimum = scale * torch.linalg.vector_norm(combiner, dim=-1)
        norm = minimum if scene.total is None else _within(minimum, loudest, scene.total)
        scale = scale * (norm / minimum)
        least = torch.where(loudest > 0, minimum, torch.inf).amin(dim=-1)
        least = torch.where(least.isfinite(), least, minimum.amin(dim=-1))
        return Transceiver(active, scale.unsqueeze(-1) * combiner, alone / scale.unsqueeze(-2), least)


def summed(scene: Scene, active: np.ndarray) -> torch.Tensor:
    """h_s = Σ_i h_i/√Λ_i over those who take part, [trials, T, B, m]; where nobody does, any direction."""
    amplitude = scene.radio.link.law.amplitude
    total = torch.zeros(*active.shape[:2], scene.grid.count, scene.config.system.num_antennas, dtype=torch.complex128)
    for t in scene.rounds:
        own = np.take_along_axis(amplitude, np.maximum(active[:, t], 0), axis=1)
        share = torch.from_numpy(np.where(active[:, t] < 0, 0.0, 1.0 / own)).unsqueeze(-1)
        for number in range(scene.grid.count):
            total[:, t, number] = (scene.channels(t, number, active[:, t]) * share).sum(dim=1)
    silent = (total.abs() == 0).all(dim=-1)
    total[..., 0] = torch.where(silent, torch.ones_like(total[..., 0]), total[..., 0])
    return total


def _within(minimum: torch.Tensor, loudest: torch.Tensor, total: float) -> torch.Tensor:
    """The least noise that keeps Σ_t max_b G_tb²/q_tb² ≤ A: the squared gain bounds are the budget's weights."""
    bound = loudest.amax(dim=-1)
    bound = torch.maximum(bound, NOTHING * bound.amax(dim=-1, keepdim=True)).clamp(min=1e-100)
    usable = total * (1.0 - 1e-12)
    if minimum.shape[-1] == 1:
        return allocate(minimum[..., 0], usable, bound.square()).unsqueeze(-1)
    ratios = torch.where(loudest > 0, loudest, bound.unsqueeze(-1)) / bound.unsqueeze(-1)
    level = allocate_levels(minimum / ratios, usable, bound.square(), ratios)
    return raised(minimum, level, ratios)
