"""Power control for the least error of the sum: `power-mse`."""

from __future__ import annotations

import torch

from airfl.schemes.parts import DesigningPolicy
from airfl.schemes.policies.pointing import inverted, mean_gain, pointing
from airfl.schemes.transceivers import Scene, Transceiver
from airfl.transceiver.power_control import norms_within


class LeastError(DesigningPolicy):
    """Devices that can invert the channel do, the others send at full power: gain_i = min(1, q k_i).

    q minimises the error of the sum in every round (``transceiver.power_control``); where a promise is kept it is
    raised as far as that asks, the same price for all rounds.
    """

    def transceiver(self, scene: Scene) -> Transceiver:
        """See ``DesigningPolicy.transceiver``."""
        found = pointing(scene)
        strength = found.heard.abs() / scene.reach
        shares = torch.tensor(scene.grid.shares, dtype=torch.float64)
        alike = torch.ones(len(scene.rounds), dtype=torch.float64)
        norm, free = norms_within(strength, scene.noise_share, scene.total, shares, alike)
        gains = (norm.unsqueeze(-2) * strength).clamp(max=1.0)
        scaling = inverted(gains, norm.unsqueeze(-2) * found.heard)
        if scene.config.scheme.gain_correction:  # gains and noise grow alike, so no more is told
            norm = norm / mean_gain(gains, (2,)).squeeze(2)
        return Transceiver(found.active, norm.unsqueeze(-1) * found.unit, scaling, free.amin(dim=-1))
