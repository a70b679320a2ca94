"""The transceiver setting of every round: who transmits, with what combiner, scalars and noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from airfl.air import Reception
from airfl.channel import Link
from airfl.config import Config
from airfl.errors import InputError
from airfl.privacy import ACCOUNTANTS, RoundEvent, Sampling
from airfl.randomness import stream
from airfl.schemes import Outlook, Scheme
from airfl.transceiver import (
    COMBINERS,
    SELECTIONS,
    Design,
    Perk,
    Transmission,
    last_round_factor,
    perk,
    transmit,
    zero_forcing,
)
from airfl.transceiver.design import reach, received_gains

#: Channel coefficients held at a time while the rounds are designed.
DESIGN_CHUNK = 4_000_000


def sampling_of(config: Config) -> Sampling:
    """The law by which the run draws its active devices."""
    n, k = config.system.num_devices, config.system.num_active
    return Sampling("all" if k == n else "without-replacement", n, k)


@dataclass(frozen=True)
class RadioPlan:
    """The transceiver setting of every round, for all trials of a batch.

    Attributes:
        active: who transmits, [trials, T, K].
        gain_bound: G_t, no device is heard with a larger gain, [trials, T]; None over an ideal channel.
        minimum: π_t, [trials, T]; None over an ideal channel.
        norm: q_t = ‖w_t‖, [trials, T]; None over an ideal channel.
        budget: A, the allowed Σ 1/q_t²; None without a privacy budget.
    """

    scheme: Scheme
    link: Link
    dim: int
    clip_norm: float
    active: np.ndarray = field(repr=False)
    minimum: torch.Tensor | None = None
    norm: torch.Tensor | None = None
    budget: float | None = None
    gain_bound: torch.Tensor | None = None
    _combiner: torch.Tensor | None = field(default=None, repr=False)

    @property
    def noise_var(self) -> torch.Tensor:
        """v_t = q_t² σ²/2 per real coordinate, [trials, T]."""
        if self.norm is None:
            return torch.zeros(self.active.shape[:2], dtype=torch.float64)
        return self.norm.square() * (self.link.noise_power / 2.0)

    def reception(self, round_index: int) -> tuple[Reception, Transmission | None]:
        """The setting of one round; channels are drawn again from their keys rather than kept."""
        noise_var = self.noise_var[:, round_index]
        if self._combiner is None:
            gains = torch.ones(self.active.shape[0], self.active.shape[2], dtype=torch.complex128)
            return Reception(round_index, gains, noise_var, self.link.noise_power), None
        config = self.link.config
        active = self.active[:, round_index : round_index + 1]
        channels = _served(self.link.channels([round_index]), active)[:, 0]
        known = _served(self.link.estimates([round_index]), active)[:, 0]
        combiner = self._combiner[:, round_index]
        sent = transmit(combiner, known, self.clip_norm, self.dim, config.channel.power_w, channels)
        reception = Reception(
            round_index, sent.gains, noise_var, self.link.noise_power, channels, sent.tx_scaling, combiner
        )
        return reception, sent

    def never_heard(self) -> list[int]:
        """How many devices do not transmit in any round of a trial: the bias of participation and selection."""
        total = self.link.config.system.num_devices
        return [total - len(np.unique(row)) for row in self.active]

    def perks(self) -> list[Perk]:
        """The perk test of every trial; empty without a budget or over an ideal channel."""
        if self.minimum is None or self.budget is None or self.gain_bound is None:
            return []
        power = self.link.config.channel.power_w
        return [
            perk(row, self.budget, power, self.link.weakest_path_gain(index), self.link.noise_power)
            for index, row in enumerate(self.minimum / self.gain_bound)
        ]


def plan_rounds(
    config: Config, scheme: Scheme, link: Link, dim: int, local_steps: Sequence[int] | None = None
) -> RadioPlan:
    """Design all rounds of all trials: combiner direction, minimum norm π_t, and the norm q_t the scheme asks for.

    Args:
        local_steps: Q of each trial; only a bound that uses an enforced domain needs it.
    """
    clip_norm = config.learning.clip_norm_for(dim)
    rounds = range(config.system.rounds)
    if scheme.norms is None:
        return RadioPlan(scheme, link, dim, clip_norm, link.active(rounds))
    budget = _budget(config, link.noise_power, clip_norm, dim)
    design, active, gain_bound = _design(config, link, rounds)
    factor = reach(clip_norm, dim, config.channel.power_w)

    def law(count: int) -> torch.Tensor:
        if config.channel.fading == "trace":
            raise InputError('measured channels have no law to draw from; use scheme.online = "estimate"')
        # Rounds after the last one: the same positions and the same law, but never the run's own draws.
        later, _, bound = _design(config, link, range(len(rounds), len(rounds) + count))
        return later.norm * factor / bound

    minimum = design.norm * factor
    factors = _last_factors(config, clip_norm, active.shape[2], local_steps)
    norm = scheme.norms(Outlook(minimum, gain_bound.square(), budget, law, factors, config, link.trials))
    combiner = design.combiner * (norm / design.norm).unsqueeze(-1)
    return RadioPlan(scheme, link, dim, clip_norm, active, minimum, norm, budget, gain_bound, combiner)


def _design(config: Config, link: Link, rounds: range) -> tuple[Design, np.ndarray, torch.Tensor]:
    """Design chunks of rounds and join them: the designs, who transmits, and the gain bounds, [trials, T, ...]."""
    per_round = len(link.trials) * config.system.num_devices * config.system.num_antennas
    size = max(1, DESIGN_CHUNK // per_round)
    parts = [_design_chunk(config, link, rounds[start : start + size]) for start in range(0, len(rounds), size)]
    designs = [part[0] for part in parts]
    joined = Design(
        torch.cat([design.combiner for design in designs], dim=1),
        torch.cat([design.norm for design in designs], dim=1),
        torch.cat([design.lower_bound for design in designs], dim=1),
        torch.cat([design.iterations for design in designs], dim=1),
        tuple(word for design in designs for word in design.status),
    )
    return joined, np.concatenate([part[1] for part in parts], axis=1), torch.cat([part[2] for part in parts], dim=1)


def _design_chunk(config: Config, link: Link, rounds: range) -> tuple[Design, np.ndarray, torch.Tensor]:
    system, scheme = config.system, config.scheme
    known, active = link.estimates(rounds), link.active(rounds)
    if scheme.selection != "all":
        keep = max(1, round(scheme.selection_keep * system.num_active))
        chosen = SELECTIONS[scheme.selection](_served(known, active), keep).numpy()
        active = np.take_along_axis(active, chosen, axis=2)
    everyone = np.broadcast_to(np.arange(system.num_devices), (*active.shape[:2], system.num_devices))
    served = everyone if scheme.combiner_columns == "all" else active
    channels = _served(known, served)
    if scheme.combiner == "zero-forcing":
        design = zero_forcing(channels, _phases(config, link, rounds, served.shape[2]))
    else:
        design = COMBINERS[scheme.combiner](channels)
    design.require_ok()
    return design, active, _gain_bound(config, link, design, _served(known, active), active)


def _gain_bound(config: Config, link: Link, design: Design, known: torch.Tensor, active: np.ndarray) -> torch.Tensor:
    """G_t that no |wᴴ h_i|/|wᴴ ĥ_i| exceeds, but for a chance of ``channel.csi_outage`` over a whole trial.

    Given ĥ_i, wᴴ(h_i − ĥ_i) is CN(0, τ Λ_i ‖w‖²), whose modulus exceeds √(τ Λ_i) ‖w‖ √log(N/p) with probability p/N;
    N = K·T events share the outage p. The bound does not change when w is scaled.
    """
    channel = config.channel
    if channel.csi_error == 0.0:
        return torch.ones_like(design.norm)
    events = active.shape[2] * config.system.rounds
    spread = torch.from_numpy(link.error_std(active)) * math.sqrt(math.log(events / channel.csi_outage))
    heard = received_gains(design.combiner, known).abs()
    return 1.0 + (spread * design.norm.unsqueeze(-1) / heard).amax(dim=-1)


def _last_factors(
    config: Config, clip_norm: float, num_active: int, local_steps: Sequence[int] | None
) -> tuple[float, ...] | None:
    """B of P3 per trial; None unless the published bound, with its domain, its smoothness and unit gains, applies."""
    learning, privacy = config.learning, config.privacy
    applies = privacy.accountant == "paper" and learning.server_step == 1.0 and config.channel.csi_error == 0.0
    if learning.domain_diameter is None or privacy.smoothness is None or local_steps is None or not applies:
        return None
    if num_active != config.system.num_active:  # silent devices change the normaliser that the bound assumes
        return None
    return tuple(
        last_round_factor(
            learning_rate=learning.learning_rate,
            smoothness=privacy.smoothness,
            local_steps=steps,
            participation=sampling_of(config).rate,
            diameter=learning.domain_diameter,
            num_devices=config.system.num_devices,
            clip_norm=clip_norm,
        )
        for steps in local_steps
    )


def _served(channels: np.ndarray, served: np.ndarray) -> torch.Tensor:
    """Of channels [trials, rounds, n, m], those of the devices numbered in served [trials, rounds, K]."""
    return torch.from_numpy(np.take_along_axis(channels, served[..., None], axis=2))


def _phases(config: Config, link: Link, rounds: Sequence[int], count: int) -> torch.Tensor | None:
    if config.scheme.phases == "ones":
        return None
    angles = [
        [stream(config.system.seed, "phases", trial, t).uniform(-np.pi, np.pi, count) for t in rounds]
        for trial in link.trials
    ]
    return torch.from_numpy(np.exp(1j * np.asarray(angles)))


def _budget(config: Config, noise_power: float, clip_norm: float, dim: int) -> float | None:
    epsilon = config.privacy.epsilon_for(dim)
    if epsilon is None:
        return None
    template = RoundEvent(
        round=0,
        clip_norm=clip_norm,
        gain_bound=1.0,
        noise_var=0.0,
        noise_source="channel",
        noise_power=noise_power,
        received_norm=None,
        sampling=sampling_of(config),
        update_factor=1.0,
    )
    return ACCOUNTANTS[config.privacy.accountant].budget(epsilon, config.privacy.delta, template, config.neighbours)
