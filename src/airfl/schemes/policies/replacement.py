"""Devices drawn with replacement: who is drawn N times counts N times.

In the manner of J. Hu, Z. Yan, J. Zhang, IEEE Trans. Wireless Commun. 2024, of which the abstract was read: the plain
form. M draws; device i was drawn N_i times, at most N_max of them count, and it sends N_i·clip(Δ_i), divided by M:

    s_i = N_i/(wᴴh_i),    Δ̂ = Σ_i N_i Δ̄_i + noise.

Every combiner leaves room for N_max, |wᴴh_i| ≥ N_max g: that is the price.
"""

from __future__ import annotations

import numpy as np
import torch

from airfl.channel.blocks import place_of
from airfl.config import Config
from airfl.privacy import Sampling
from airfl.randomness import stream
from airfl.schemes.parts import DesigningPolicy
from airfl.schemes.transceivers import Scene, Transceiver
from airfl.transceiver.design import received_gains
from airfl.transceiver.levels import allocate_levels, raised
from airfl.transceiver.radio import designed_by_count


class WithReplacement(DesigningPolicy):
    """s_i = N_i/(wᴴh_i) with N_i as often as device i was drawn; the least noise that keeps the promise, if any."""

    def sampling(self, config: Config) -> Sampling:
        """M draws: exactly as many in all, or each device's own coins, Bin(M, 1/n)."""
        system, law = config.system, config.scheme.replacement
        return Sampling(law, system.num_devices, system.num_active, config.scheme.replacement_cap)

    def ignores_participation(self, config: Config) -> bool:
        """Where coins are a device's own, and combiners serve all n whoever is drawn."""
        whole = config.scheme.combiner_columns == "all"
        return config.scheme.replacement == "binomial" and whole and config.channel.estimation_error == 0.0

    def transceiver(self, scene: Scene) -> Transceiver:
        """See ``DesigningPolicy.transceiver``."""
        config = scene.config
        counts = drawn(config, scene)
        active, times = _compact(counts)
        everyone = np.broadcast_to(np.arange(counts.shape[2]), counts.shape)
        served = everyone if config.scheme.combiner_columns == "all" else active
        unit, norm, heard = _designs(scene, served, active)
        least = norm * scene.reach * config.scheme.replacement_cap
        level = _levels(scene, least, counts.max(axis=2))
        raised_norm = raised(least, level)
        scaling = torch.from_numpy(times).unsqueeze(-1) / (heard * raised_norm.unsqueeze(2))
        scaling = torch.where(torch.from_numpy(active >= 0).unsqueeze(-1), scaling, 0.0)
        # A total is shared out over rounds by how often devices were drawn, so norms follow the draws; a floor is one.
        same = self.ignores_participation(config) and (scene.budget is None or scene.budget.total is None)
        combiner = unit * raised_norm.unsqueeze(-1)
        return Transceiver(active, combiner, scaling, least.amin(dim=-1), ignores_participation=same)


def drawn(config: Config, scene: Scene) -> np.ndarray:
    """N_i of every device, cut at N_max, [trials, T, n]."""
    link = scene.radio.link
    keys = link.trials if link.participation_keys is None else link.participation_keys
    return np.stack([[multiplicities(config, key, t) for t in scene.rounds] for key in keys])


def multiplicities(config: Config, key: int, t: int) -> np.ndarray:
    """N_i of one round, cut at N_max, [n]."""
    system = config.system
    generator, number = stream(system.seed, "multiplicity", key, t), system.num_devices
    if config.scheme.replacement == "binomial":
        found = generator.binomial(system.num_active, 1.0 / number, number)
    else:
        found = generator.multinomial(system.num_active, np.full(number, 1.0 / number))
    return np.minimum(found, config.scheme.replacement_cap)


def _compact(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Who was drawn, −1 where fewer were, and how often, [trials, T, K] each."""
    width = max(1, int((counts > 0).sum(axis=2).max()))
    order = np.argsort(counts == 0, axis=2, kind="stable")[..., :width]
    times = np.take_along_axis(counts, order, axis=2)
    return np.where(times > 0, order, -1), times


def _designs(scene: Scene, served: np.ndarray, active: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Combiners of norm 1 [trials, T, B, m], the norms that reach all they serve, and wᴴh_i of active devices."""
    counts, units, norms, gains = (served >= 0).sum(axis=2), [], [], []
    for number in range(scene.grid.count):
        # A round without anyone is designed for the first device: something has to be received.
        channels = torch.stack([scene.channels(t, number, np.maximum(served[:, t], 0)) for t in scene.rounds], dim=1)
        more = place_of(number, scene.grid, scene.config.channel).key if scene.grid.count > 1 else ()
        design = designed_by_count(scene.config, scene.radio, channels, counts, [(t, *more) for t in scene.rounds])
        unit = design.combiner / design.norm.unsqueeze(-1)
        heard = [
            received_gains(unit[:, t], scene.channels(t, number, np.maximum(active[:, t], 0))) for t in scene.rounds
        ]
        units.append(unit)
        norms.append(design.norm)
        gains.append(torch.stack(heard, dim=1))
    return torch.stack(units, dim=2), torch.stack(norms, dim=2), torch.stack(gains, dim=3)


def _levels(scene: Scene, least: torch.Tensor, largest: np.ndarray) -> torch.Tensor:
    """What norms are raised to, [trials, T]: Σ max_i N_it²/q_t² ≤ A, or the floor where credit goes by the law."""
    if scene.budget is None:
        return least.amin(dim=-1)
    if scene.budget.total is None:
        return torch.full(least.shape[:2], scene.budget.floor, dtype=torch.float64)
    weights = torch.from_numpy(np.maximum(largest, 1).astype(np.float64)).square()
    return allocate_levels(least, scene.budget.total, weights)
