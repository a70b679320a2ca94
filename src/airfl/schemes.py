"""Which parts each scheme joins. To add one: an entry in ``SCHEMES`` and its name in ``config.SchemeName``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from airfl.air import Reception
from airfl.channel import Link
from airfl.config import Config
from airfl.errors import InputError
from airfl.privacy import ACCOUNTANTS, RoundEvent, Sampling
from airfl.randomness import stream
from airfl.transceiver import COMBINERS, Design, Perk, Transmission, allocate, perk, transmit, zero_forcing
from airfl.transceiver.design import reach

#: (minimum norms π [trials, T], budget A or None) -> combiner norms q [trials, T], q ≥ π
NormPolicy = Callable[[torch.Tensor, float | None], torch.Tensor]

#: Channel coefficients held at a time while the rounds are designed.
DESIGN_CHUNK = 4_000_000


@dataclass(frozen=True)
class Scheme:
    """A way to aggregate.

    Attributes:
        clips: whether devices clip their updates.
        norms: how the combiner's norm follows from the minimum π_t and the budget; None: ideal, noiseless channel.
        keeps_budget: whether the scheme promises to stay within the privacy budget.
    """

    name: str
    title: str
    sentence: str
    clips: bool
    norms: NormPolicy | None
    keeps_budget: bool = False


def _least_noise(minimum: torch.Tensor, budget: float | None) -> torch.Tensor:
    return minimum


def _within_budget(minimum: torch.Tensor, budget: float | None) -> torch.Tensor:
    if budget is None:
        raise InputError("this scheme keeps a privacy budget; give `privacy.epsilon` or `privacy.epsilon_tilde`")
    return allocate(minimum, budget)


SCHEMES: dict[str, Scheme] = {
    scheme.name: scheme
    for scheme in (
        Scheme("fedavg", "Vanilla FL", "Ideal channel, no clipping: what learning alone can do.", False, None),
        Scheme("fedavg-clip", "FL with clipping", "Ideal channel, clipped updates: the price of clipping.", True, None),
        Scheme(
            "airfl-mimo", "AirFL-MIMO", "Fading channel, least noise: the price of the radio link.", True, _least_noise
        ),
        Scheme(
            "airfl-dp",
            "AirFL-DP",
            "Fading channel, noise raised where the privacy budget asks for it: the price of privacy.",
            True,
            _within_budget,
            keeps_budget=True,
        ),
    )
}


def sampling_of(config: Config) -> Sampling:
    """The law by which the run draws its active devices."""
    n, k = config.system.num_devices, config.system.num_active
    return Sampling("all" if k == n else "without-replacement", n, k)


@dataclass(frozen=True)
class RadioPlan:
    """The transceiver setting of every round, for all trials of a batch.

    Attributes:
        active: who transmits, [trials, T, K].
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
        channels = _served(self.link, [round_index], self.active[:, round_index : round_index + 1])[:, 0]
        combiner = self._combiner[:, round_index]
        sent = transmit(combiner, channels, self.clip_norm, self.dim, config.channel.power_w)
        reception = Reception(
            round_index, sent.gains, noise_var, self.link.noise_power, channels, sent.tx_scaling, combiner
        )
        return reception, sent

    def perks(self) -> list[Perk]:
        """The perk test of every trial; empty without a budget or over an ideal channel."""
        if self.minimum is None or self.budget is None:
            return []
        power = self.link.config.channel.power_w
        return [
            perk(row, self.budget, power, self.link.weakest_path_gain(index), self.link.noise_power)
            for index, row in enumerate(self.minimum)
        ]


def plan_rounds(config: Config, scheme: Scheme, link: Link, dim: int) -> RadioPlan:
    """Design all rounds of all trials: combiner direction, minimum norm π_t, and the norm q_t the scheme asks for."""
    clip_norm = config.learning.clip_norm_for(dim)
    rounds = range(config.system.rounds)
    active = link.active(rounds)
    if scheme.norms is None:
        return RadioPlan(scheme, link, dim, clip_norm, active)
    budget = _budget(config, link.noise_power, clip_norm, dim)
    design = _design(config, link, rounds, active)
    minimum = design.norm * reach(clip_norm, dim, config.channel.power_w)
    norm = scheme.norms(minimum, budget)
    combiner = design.combiner * (norm / design.norm).unsqueeze(-1)
    return RadioPlan(scheme, link, dim, clip_norm, active, minimum, norm, budget, combiner)


def _design(config: Config, link: Link, rounds: Sequence[int], active: np.ndarray) -> Design:
    """Run the combiner method over chunks of rounds and join the results, [trials, T, ...]."""
    system, scheme = config.system, config.scheme
    everyone = np.broadcast_to(np.arange(system.num_devices), (*active.shape[:2], system.num_devices))
    served = everyone if scheme.combiner_columns == "all" else active
    per_round = len(link.trials) * system.num_devices * system.num_antennas
    size = max(1, DESIGN_CHUNK // per_round)
    parts = []
    for start in range(0, len(rounds), size):
        chunk = rounds[start : start + size]
        channels = _served(link, chunk, served[:, start : start + size])
        if scheme.combiner == "zero-forcing":
            design = zero_forcing(channels, _phases(config, link, chunk, served.shape[2]))
        else:
            design = COMBINERS[scheme.combiner](channels)
        parts.append(design.require_ok())
    return Design(
        torch.cat([part.combiner for part in parts], dim=1),
        torch.cat([part.norm for part in parts], dim=1),
        torch.cat([part.lower_bound for part in parts], dim=1),
        torch.cat([part.iterations for part in parts], dim=1),
        tuple(word for part in parts for word in part.status),
    )


def _served(link: Link, rounds: Sequence[int], served: np.ndarray) -> torch.Tensor:
    """Channels of the devices numbered in served [trials, rounds, K], as [trials, rounds, K, m]."""
    return torch.from_numpy(np.take_along_axis(link.channels(rounds), served[..., None], axis=2))


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
