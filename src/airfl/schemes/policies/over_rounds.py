"""Power control over rounds with a limit on mean power: `power-gap`."""

from __future__ import annotations

import torch

from airfl.schemes.parts import DesigningPolicy
from airfl.schemes.policies.pointing import inverted, mean_gain, pointing
from airfl.schemes.transceivers import Scene, Transceiver
from airfl.transceiver.regularised import Fleet, take_turns


class OverRounds(DesigningPolicy):
    """Regularised inversion of the channel, with more power where errors are remembered.

    Errors of round t count ω_t = ρ^(T−1−t), ρ = ``scheme.contraction``. A device keeps to the power limit on average
    over the rounds in which it sends, and to ``scheme.peak_factor`` times it in each. See ``transceiver.regularised``.
    """

    def transceiver(self, scene: Scene) -> Transceiver:
        """See ``DesigningPolicy.transceiver``."""
        found, scheme = pointing(scene), scene.config.scheme
        age = torch.arange(len(scene.rounds) - 1, -1, -1, dtype=torch.float64)
        fleet = Fleet(
            found.heard.abs() / scene.reach,
            torch.from_numpy(found.active).clamp(min=0),
            scene.config.system.num_devices,
            scene.noise_share,
            torch.tensor(scene.grid.shares, dtype=torch.float64),
            (scheme.contraction**age).clamp(min=1e-100),
            scheme.peak_factor,
            scene.total,
        )
        norm, amplitude, first = take_turns(fleet)
        gains = norm.unsqueeze(-2) * fleet.strength * amplitude
        scaling = inverted(gains, norm.unsqueeze(-2) * found.heard)
        if scene.config.scheme.gain_correction:  # of rounds that hardly anyone sends in more noise than gain is heard
            norm = norm / mean_gain(gains, (1, 2, 3)).squeeze(3)
        least = torch.minimum(norm, first).amin(dim=-1)
        return Transceiver(found.active, norm.unsqueeze(-1) * found.unit, scaling, least, "average")
