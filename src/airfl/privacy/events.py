"""What one round released: everything an accountant needs, and nothing else."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Neighbours = Literal["add-remove", "replace"]
Observer = Literal["model", "models", "base-station"]
SamplingLaw = Literal["all", "poisson", "without-replacement"]
NoiseSource = Literal["none", "channel", "artificial", "channel+artificial"]

NEIGHBOURS: tuple[Neighbours, ...] = ("add-remove", "replace")


class PrivacyError(ValueError):
    """A privacy question that cannot be answered as asked."""


def require(condition: bool, message: str) -> None:
    """Raise ``PrivacyError(message)`` unless ``condition`` holds."""
    if not condition:
        raise PrivacyError(message)


def check_delta(delta: float) -> None:
    """Refuse a δ outside (0, 1)."""
    require(0.0 < delta < 1.0, f"`delta` must lie in (0, 1); got {delta}. Typical: 1e-5.")


def check_epsilon(epsilon: float) -> None:
    """Refuse an ε that is negative or not a number."""
    require(epsilon >= 0.0, f"`epsilon` must not be negative; got {epsilon}.")


@dataclass(frozen=True)
class Sampling:
    """How the devices of a round were chosen: the law, not the outcome.

    Attributes:
        law: all | poisson (each with probability K/n) | without-replacement (K of n).
        num_devices: n.
        num_active: K; the expected number for poisson.
    """

    law: SamplingLaw
    num_devices: int
    num_active: float

    def __post_init__(self) -> None:
        require(self.law in ("all", "poisson", "without-replacement"), f"unknown sampling law {self.law!r}")
        require(
            0 < self.num_active <= self.num_devices,
            f"a round needs 0 < K <= n; got K = {self.num_active}, n = {self.num_devices}",
        )

    @property
    def rate(self) -> float:
        """r = K/n."""
        return self.num_active / self.num_devices


@dataclass(frozen=True)
class Domain:
    """An enforced bound on the model and a stated smoothness; accountants that use D are void without it.

    Attributes:
        diameter: D of the ball that the model is projected on after every round.
        smoothness: L, an assumption of the user's; None if not stated.
        learning_rate: η.
        local_steps: Q, the largest over devices.
        mean_gain: Σ_i |gain_i| / K.
    """

    diameter: float
    smoothness: float | None
    learning_rate: float
    local_steps: int
    mean_gain: float


@dataclass(frozen=True)
class RoundEvent:
    """One round.

    Attributes:
        round: t.
        clip_norm: c.
        gain_bound: max_i |gain_i|; 1 when the transmit scalars invert the channel.
        noise_var: v, noise variance per real coordinate of the received sum; 0 over an ideal channel.
        noise_source: where that noise comes from.
        noise_power: σ², whole complex power per antenna; None over an ideal channel.
        received_norm: max_i ‖h_i s_i‖; None over an ideal channel.
        sampling: the sampling law.
        update_factor: η_g η / K, from received sum to model.
        domain: the enforced domain, if any.
    """

    round: int
    clip_norm: float
    gain_bound: float
    noise_var: float
    noise_source: NoiseSource
    noise_power: float | None
    received_norm: float | None
    sampling: Sampling
    update_factor: float
    domain: Domain | None = None

    def __post_init__(self) -> None:
        # An infinite clip norm is how an unclipped scheme is booked: its sensitivity has no bound.
        require(self.clip_norm > 0, f"`clip_norm` must be positive; got {self.clip_norm}")
        for name in ("gain_bound", "noise_var"):
            value = getattr(self, name)
            require(math.isfinite(value) and value >= 0, f"`{name}` must be finite and not negative; got {value}")
        for name in ("noise_power", "received_norm"):
            value = getattr(self, name)
            require(value is None or (math.isfinite(value) and value > 0), f"`{name}` must be positive; got {value}")

    def contribution(self, neighbours: Neighbours) -> float:
        """How far one device can move what is sent: c for add-remove (its update becomes zero), 2c for replace."""
        return (1.0 if neighbours == "add-remove" else 2.0) * self.clip_norm

    def sensitivity(self, neighbours: Neighbours) -> float:
        """S, how far one device can move the received sum: its contribution times the largest gain."""
        return self.contribution(neighbours) * self.gain_bound
