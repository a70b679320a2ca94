"""Power where nobody knows a phase: devices even out their path gain, and the base station measures energy.

A device sends √(ρ/Λ_i) x_i, so that it is heard with √ρ h̃_i, h̃ the fading alone. What the antennas hear moves by
√ρ ‖h̃_ij‖ x_ij beside noise of variance σ²/2 per real coordinate: with q = 1/√ρ for a norm the books are those of
any other scheme, v = q²σ²/2 and G = max ‖h̃_ij‖, before anything is measured.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import gammainccinv

from airfl.errors import InputError, listed
from airfl.schemes.parts import DesigningPolicy
from airfl.schemes.transceivers import Scene, Transceiver
from airfl.traits import PARTS, conflicts
from airfl.transceiver.allocation import allocate


class Energies(DesigningPolicy):
    """ρ = Λ_min P symbols/C², the same for all rounds, or less where a budget asks for it."""

    def transceiver(self, scene: Scene) -> Transceiver:
        """See ``DesigningPolicy.transceiver``."""
        config, link = scene.config, scene.radio.link
        fresh = config.scheme.fresh_fading
        active = scene.active()
        there = active >= 0
        trials, rounds = active.shape[:2]
        root = link.law.amplitude
        own = np.take_along_axis(root[:, None], np.maximum(active, 0), axis=2)
        weakest = torch.from_numpy(root.min(axis=1))
        least = (scene.reach / weakest).unsqueeze(-1).expand(trials, rounds)
        bound = self._loudest(scene, active, own) if not fresh else _outage_bound(scene, active)
        norm = least
        if scene.total is not None:  # shared out over rounds by how loud somebody is in them
            loud = bound.amax(dim=-1).clamp(min=1e-12)
            norm = torch.maximum(allocate(least, scene.total, loud.square()), least)
        combiner = torch.zeros(trials, rounds, scene.grid.count, config.system.num_antennas, dtype=torch.complex128)
        combiner[..., 0] = norm.unsqueeze(-1)
        scaling = torch.from_numpy(there / own) / norm.unsqueeze(-1)
        return Transceiver(
            active,
            combiner,
            scaling.to(torch.complex128).unsqueeze(-1).expand(*active.shape, scene.grid.count),
            least,
            detects="fresh energy" if fresh else "energy",
            bound=bound,
        )

    @staticmethod
    def _loudest(scene: Scene, active: np.ndarray, own: np.ndarray) -> torch.Tensor:
        """max_i ‖h̃_i‖ of every block as it is drawn, [trials, T, B]."""
        bound = torch.zeros(*active.shape[:2], scene.grid.count, dtype=torch.float64)
        for t in scene.rounds:
            there = torch.from_numpy(active[:, t] >= 0)
            for number in range(scene.grid.count):
                heard = torch.linalg.vector_norm(scene.channels(t, number, active[:, t]), dim=-1)
                bound[:, t, number] = torch.where(there, heard / torch.from_numpy(own[:, t]), 0.0).amax(dim=-1)
        return bound


def _outage_bound(scene: Scene, active: np.ndarray) -> torch.Tensor:
    """A length that no h̃_ij ∈ C^m of a run exceeds but for a chance p, [trials, T, 1]; log(K d T/p) for one antenna.

    ‖h̃‖² is the sum of m standard exponentials.
    """
    config = scene.config
    events = active.shape[2] * config.system.rounds * scene.grid.symbols
    squared = float(gammainccinv(config.system.num_antennas, config.channel.csi_outage / events))
    return torch.full((*active.shape[:2], 1), math.sqrt(squared), dtype=torch.float64)


def check_energies(scene: Scene, found: Transceiver) -> None:
    """Refuse what a policy from outside says of energies where it is not simulated, or would book too little."""
    fresh, name = found.detects == "fresh energy", "a policy that measures energy"
    if problems := conflicts(
        [("this policy", PARTS["Energies"])], scene.config.axes(scene.grid.count, scene.grid.bands)
    ):
        raise InputError(listed("the configuration", problems))
    if fresh != scene.config.scheme.fresh_fading:
        raise InputError(f"{name} must detect what `scheme.fresh_fading` says; got {found.detects!r}")
    if found.bound is None or found.bound.shape != found.combiner.shape[:-1]:
        raise InputError(f"{name} must say how loud devices are at most, `bound` [trials, T, B]")
    if not fresh:
        return
    own = np.take_along_axis(scene.radio.link.law.amplitude[:, None], np.maximum(found.active, 0), axis=2)
    gains = (found.scaling.abs()[..., 0] * torch.from_numpy(own) * found.norm[..., :1])[
        torch.from_numpy(found.active >= 0)
    ]
    if not bool((gains - 1.0).abs().le(1e-9).all() and (found.bound >= _outage_bound(scene, found.active)).all()):
        raise InputError(
            f"{name} under fresh fading must even out path gains, |s_i| = 1/(‖w‖ √Λ_i), and book the fading that is "
            "exceeded with a chance of `channel.csi_outage` at most"
        )
