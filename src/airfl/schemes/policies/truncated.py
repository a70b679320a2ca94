"""Truncated channel inversion: who fades below a threshold is silent, and all others invert their channels.

Device i sends what block b carries where |u_bᴴh_ib|² ≥ γ a_b Λ_i, with u_b of norm 1, Λ_i its mean power per antenna
and a_b the gain of the array, and then with s_ib = 1/(w_bᴴh_ib), w_b = q_b u_b: gains are 1 or 0, the noise is
v_b = q_b²σ²/2 and amplitude at the receiver is √ρ = 1/q. As in Zhu, Wang & Huang (2018) and Wen, Xing & Simeone (2023),
who have one antenna, with

    q² = κ c²/(d P Λ_min),     κ by what power is counted (``threshold``).

Several antennas: one u = (1, …, 1)/√m for all blocks has the same law, a = 1, and as little use of the antennas. Or a
u_b for each block with q_b as small as who sends there allows: where fading h̃_i = h_i/√Λ_i is strongest, and a_b the
mean of |u_bᴴh̃_i|² over who takes part; or the run's combiner for h̃_i, which lifts the weakest so that few fade, a = 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from airfl.channel.laws.law import Placed
from airfl.config import Config
from airfl.errors import InputError
from airfl.schemes.parts import DesigningPolicy
from airfl.schemes.policies.directions import Directions, key_of, one_direction, own_directions
from airfl.schemes.policies.threshold import PowerLaw, balanced_threshold, bound_of, power_cost, stated_threshold
from airfl.schemes.transceivers import Scene, Transceiver
from airfl.transceiver.levels import allocate_levels, raised

#: Weight of a round that tells nothing beside those that do.
NEXT_TO_NOTHING = 1e-12


@dataclass(frozen=True)
class TruncatedInversion(DesigningPolicy):
    """Inversion above a threshold, one amplitude for all, and no smaller noise than the budget asks for.

    Attributes:
        fills: whether devices fill the entries that they send up to the clip norm, as memories do.
    """

    fills: bool = False

    def ignores_participation(self, config: Config) -> bool:
        """See ``DesigningPolicy.ignores_participation``: q follows from the law and from all who are scheduled."""
        return has_one_direction(config) and (config.scheme.truncation_power == "peak" or _has_law(config))

    def transceiver(self, scene: Scene) -> Transceiver:
        """See ``DesigningPolicy.transceiver``."""
        config = scene.config
        mean_power, inside = scene.radio.link.law.amplitude**2, _inside(scene)
        weakest = torch.from_numpy(np.where(inside, mean_power, np.inf).min(axis=1))
        law = self._law(config, scene.grid.count)
        threshold = _thresholds(scene, weakest, inside.sum(axis=1), law)
        active = _only(scene.active(), inside)
        along = directions(scene, active, inside)
        unit, heard = along.unit, along.heard
        own = torch.from_numpy(np.take_along_axis(mean_power[:, None], np.maximum(active, 0), axis=2))
        level = threshold[:, None, None] * along.level
        sends = heard.abs().square() >= own.unsqueeze(-1) * level.unsqueeze(2)
        sends &= torch.from_numpy(active >= 0).unsqueeze(-1)
        peak = _peak(config, heard, sends, level * weakest[:, None, None])
        minimum = scene.reach * peak * self._saved(scene, active, heard, sends, peak, threshold)[:, None, None]
        books_all = self.ignores_participation(config) and not config.system.everyone
        norm = within(scene, minimum, None if books_all else sends.any(dim=(2, 3)))
        scaling = torch.where(sends, 1.0 / (norm.unsqueeze(2) * torch.where(sends, heard, 1.0)), 0.0)
        rule, same = config.scheme.truncation_power, self.ignores_participation(config)
        combiner = unit * norm.unsqueeze(-1)
        return Transceiver(active, combiner, scaling, minimum.amin(dim=-1), rule, ignores_participation=same)

    def _saved(
        self,
        scene: Scene,
        active: np.ndarray,
        heard: torch.Tensor,
        sends: torch.Tensor,
        peak: torch.Tensor,
        threshold: torch.Tensor,
    ) -> torch.Tensor:
        """What norms are over those that the peak asks for, [trials]; one at most."""
        config, blocks = scene.config, scene.grid.count
        if config.scheme.truncation_power == "peak":
            return torch.ones_like(threshold)
        if has_one_direction(config) and _has_law(config):
            law = self._law(config, blocks)
            costs = [power_cost(gamma, law) * gamma for gamma in threshold.tolist()]
            return torch.tensor(costs, dtype=torch.float64).sqrt()
        spent = torch.where(sends, 1.0 / (heard.abs() * peak.unsqueeze(2)).square(), 0.0)
        return _saved_in_run(scene, active, sends, spent, filled=self.fills and blocks > 1)

    def _law(self, config: Config, blocks: int) -> PowerLaw:
        if config.scheme.truncation_power == "peak":
            return "most"
        return "filled" if self.fills and blocks > 1 else "mean"


def has_one_direction(config: Config) -> bool:
    """Whether all blocks share a combiner's direction that no channel has a part in."""
    return config.system.num_antennas == 1 or config.scheme.truncation_combiner == "one"


def directions(scene: Scene, active: np.ndarray, inside: np.ndarray) -> Directions:
    """Found once for all that ask."""
    config, radio = scene.config, scene.radio
    if has_one_direction(config):
        return one_direction(scene, active)
    key = key_of(scene)
    if key not in radio.blocks:
        everyone = np.broadcast_to(np.arange(inside.shape[1]), (*active.shape[:2], inside.shape[1]))
        radio.blocks[key] = own_directions(scene, active, _only(everyone, inside), radio.link.law.amplitude)
    found: Directions = radio.blocks[key]
    return found


def within(scene: Scene, minimum: torch.Tensor, heard: torch.Tensor | None = None) -> torch.Tensor:
    """q_tb ≥ π_tb with the least noise that keeps the budget, [trials, T, B].

    Args:
        heard: rounds in which somebody sends, [trials, T]: the others tell nothing. Default: all are booked.
    """
    if scene.budget is None:
        return minimum
    if scene.budget.total is None:  # an accountant that has a floor alone
        return minimum.clamp(min=scene.budget.floor)
    weights = None if heard is None else torch.where(heard, 1.0, NEXT_TO_NOTHING).double()
    return raised(minimum, allocate_levels(minimum, scene.budget.total, weights))


def _has_law(config: Config) -> bool:
    """Whether |uᴴh̃|² is exponential with mean 1 for a fixed u."""
    channel = config.channel
    return channel.fading == "rayleigh" and (config.system.num_antennas == 1 or not channel.antenna_correlation)


def _inside(scene: Scene) -> np.ndarray:
    """Who is scheduled at all, [trials, n]: everybody, or who is near enough."""
    radius, law = scene.config.scheme.interior_radius_m, scene.radio.link.law
    if radius is None:
        return np.ones(law.amplitude.shape, dtype=bool)
    if not isinstance(law, Placed):
        raise InputError(
            f"`scheme.interior_radius_m` asks how far devices are, and fading `{scene.config.channel.fading}` does not "
            "say; leave it out"
        )
    inside: np.ndarray = law.distances_m <= radius
    if not inside.any(axis=1).all():
        nearest = float(law.distances_m[~inside.any(axis=1)].min())
        raise InputError(
            f"no device of a trial is within `scheme.interior_radius_m` = {radius:g}; the nearest is {nearest:.3g} m "
            "away: give a larger radius"
        )
    return inside


def _only(active: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Of devices numbered in active [trials, T, K], those that are scheduled; −1 comes last."""
    if inside.all():
        return active
    rows = np.arange(len(active))[:, None, None]
    kept = np.where((active >= 0) & inside[rows, np.maximum(active, 0)], active, -1)
    return np.take_along_axis(kept, np.argsort(kept < 0, axis=2, kind="stable"), axis=2)


def _thresholds(scene: Scene, weakest: torch.Tensor, scheduled: np.ndarray, law: PowerLaw) -> torch.Tensor:
    """γ of every trial, [trials]."""
    config, link = scene.config, scene.radio.link
    if config.scheme.gradient_bound is None:
        return torch.full_like(weakest, stated_threshold(config))
    found = []
    for path_gain, count in zip(weakest.tolist(), scheduled.tolist(), strict=True):
        bound = bound_of(config, scene.length, link.noise_power, scene.power_w, path_gain, count)
        found.append(balanced_threshold(bound.error, bound.noise, law))
    return torch.tensor(found, dtype=torch.float64)


def _peak(config: Config, heard: torch.Tensor, sends: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """q_tb/g at which nobody exceeds P in any symbol, [trials, T, B].

    Args:
        least: γaΛ_min, which nobody who sends is below, [trials, T, B].
    """
    surely = least.rsqrt()
    if has_one_direction(config):
        return surely
    weakest = torch.where(sends, heard.abs(), torch.inf).amin(dim=2)
    return torch.where(weakest.isfinite(), 1.0 / weakest, surely)


def _saved_in_run(
    scene: Scene, active: np.ndarray, sends: torch.Tensor, spent: torch.Tensor, *, filled: bool
) -> torch.Tensor:
    """How much smaller norms may be where the mean power over a run's rounds counts, [trials]: one at most.

    Args:
        spent: |s|² over what the peak allows, [trials, T, K, B].
        filled: whether the energy of an update lies in what is sent of it.
    """
    shares = torch.tensor(scene.grid.shares, dtype=torch.float64)
    power = spent @ shares
    if filled:
        power = power / (sends.double() @ shares).clamp(min=1e-300)
    found = []
    for row, numbers in zip(power.numpy(), active, strict=True):
        there = numbers >= 0
        total, count = np.bincount(numbers[there], row[there]), np.bincount(numbers[there])
        largest = float((total / np.maximum(count, 1)).max()) if there.any() else 0.0
        found.append(min(1.0, largest) ** 0.5 if largest > 0 else 1.0)
    return torch.tensor(found, dtype=torch.float64)
