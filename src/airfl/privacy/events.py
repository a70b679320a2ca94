"""What one round released: everything an accountant needs, and nothing else."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Literal, get_args

#: What changes between two neighbouring fleets: one device's contribution becomes nothing (that it took part is not
#: hidden; dp-accounting's REPLACE_SPECIAL), or its data become any other.
Neighbours = Literal["zero-out", "replace"]
Observer = Literal["model", "models", "base-station", "eavesdropper", "everything"]
SamplingLaw = Literal["all", "poisson", "without-replacement", "binomial", "multinomial"]
NoiseSource = Literal["none", "channel", "artificial", "channel+artificial"]

NEIGHBOURS: tuple[Neighbours, ...] = get_args(Neighbours)
#: Other names, of older versions.
NEIGHBOUR_ALIASES: dict[str, Neighbours] = {"add-remove": "zero-out"}
OBSERVERS: tuple[Observer, ...] = get_args(Observer)
#: Those who see signals and not only what is made of them: each device is visible to them in its own way.
SEEING: tuple[Observer, ...] = ("base-station", "eavesdropper", "everything")
SAMPLING_LAWS: tuple[SamplingLaw, ...] = get_args(SamplingLaw)
#: Beyond this, squares leave the range of floating point.
MOST, _LIMIT = 1e150, "1e150"
NOISE_SOURCES: tuple[NoiseSource, ...] = get_args(NoiseSource)


class PrivacyError(ValueError):
    """A privacy question that cannot be answered as asked."""


def relation_of(name: str) -> Neighbours:
    """The relation that a name stands for, also by an older name."""
    found = NEIGHBOUR_ALIASES.get(name, name)
    require(found in NEIGHBOURS, f"`neighbours` must be one of {', '.join(NEIGHBOURS)}; got {name!r}")
    return found  # type: ignore[return-value]


def zeroes_out(neighbours: str) -> bool:
    """Whether a device's contribution becomes nothing, rather than any other one."""
    return relation_of(neighbours) == "zero-out"


def reach(neighbours: Neighbours) -> float:
    """How far one device can move what is sent, in clip norms: 1 where its update becomes zero, 2 for any other one."""
    return 1.0 if zeroes_out(neighbours) else 2.0


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


def _require_number(name: str, value: object, *, positive: bool = False) -> None:
    """Refuse what is not a finite number that is at least zero, or above it."""
    good = isinstance(value, int | float) and not isinstance(value, bool)
    above = good and MOST < value < math.inf  # type: ignore[operator]
    require(not above, f"`{name}` must be at most {_LIMIT}, beyond which squares overflow; got {value!r}")
    good = good and (0 < value <= MOST if positive else 0 <= value <= MOST)  # type: ignore[operator]
    require(good, f"`{name}` must be finite and {'positive' if positive else 'not negative'}; got {value!r}")


@dataclass(frozen=True)
class Sampling:
    """How the devices of a round were chosen: the law, not the outcome.

    Attributes:
        law: all | poisson (each with probability K/n) | without-replacement (K of n) | with replacement, so that a
            device counts as often as it was drawn: binomial (each draws its own number, Bin(K, 1/n)) | multinomial (K
            draws in all; it earns no credit, since the draws of the others give a device's own away).
        num_devices: n.
        num_active: K; the expected number for poisson and binomial.
        most: how often a device counts at most, with replacement; more is cut.
    """

    law: SamplingLaw
    num_devices: int
    num_active: float
    most: int = 1

    def __post_init__(self) -> None:
        require(self.law in SAMPLING_LAWS, f"unknown sampling law {self.law!r}")
        _require_number("num_devices", self.num_devices)
        _require_number("num_active", self.num_active)
        require(
            0 < self.num_active <= self.num_devices,
            f"a round needs 0 < K <= n; got K = {self.num_active}, n = {self.num_devices}",
        )
        whole = isinstance(self.most, int) and self.most >= 1
        require(
            whole and (self.most == 1 or self.replaces), f"`most` must be 1, or more with replacement; got {self.most}"
        )
        require(
            not self.replaces or float(self.num_active).is_integer(),
            f"the number of draws must be whole; got {self.num_active}",
        )

    @property
    def rate(self) -> float:
        """r = K/n, the chance to take part; with replacement 1 − (1 − 1/n)^K."""
        if self.replaces:
            return 1.0 - self.multiplicities[0]
        return self.num_active / self.num_devices

    @property
    def replaces(self) -> bool:
        """Whether a device may be drawn more than once."""
        return self.law in ("binomial", "multinomial")

    @property
    def multiplicities(self) -> tuple[float, ...]:
        """P(N = k) for k = 0 to ``most``, of N ~ Bin(K, 1/n) cut at ``most``."""
        draws, others = int(self.num_active), self.num_devices - 1
        if others == 0:
            return (*(0.0 for _ in range(self.most)), 1.0)
        chances = [(others / self.num_devices) ** draws]
        for k in range(self.most):
            chances.append(chances[-1] * max(0, draws - k) / ((k + 1) * others))
        return (*chances[:-1], max(0.0, 1.0 - math.fsum(chances[:-1])))


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

    def __post_init__(self) -> None:
        for name in ("diameter", "learning_rate", "local_steps", "mean_gain"):
            _require_number(name, getattr(self, name), positive=name != "mean_gain")
        if self.smoothness is not None:
            _require_number("smoothness", self.smoothness, positive=True)


@dataclass(frozen=True)
class RoundEvent:
    """One round.

    Attributes:
        round: t; −1 for what devices release once before the first round, such as a mean and a variance.
        clip_norm: c.
        gain_bound: max_i |gain_i|; 1 when the transmit scalars invert the channel.
        noise_var: v, noise variance per real coordinate of the received sum; 0 over an ideal channel.
        noise_source: where that noise comes from.
        noise_power: σ², whole complex power per antenna; None over an ideal channel.
        sampling: the sampling law.
        update_factor: η_g η / K, from received sum to model.
        domain: the enforced domain, if any.
        hides_participation: whether noise_var would have been the same whoever took part; sampling hides nothing else.
        gradient_var: an estimate of the variance per coordinate that mini-batches add to the received sum; None if not
            estimated. Only `park2023` looks at it.
        base_station: max_i √(p̃_iᵀ Σ⁻¹ p̃_i), how visible the most visible device is at all antennas together: p̃_i is its
            path, real and imaginary parts stacked, and Σ the covariance of all that covers it. A device that moves by S
            is told apart with μ = S times this. None: there is no bound.
        eavesdropper: the same for an eavesdropper with antennas of her own, who hears the broadcast models too.
        everything: the same for anyone who sees what every device sends, by itself and without receiver noise.
        noise_follows_data: whether the noise was chosen by an estimate from updates; then what any accountant says of
            it is no proof.
    """

    round: int
    clip_norm: float
    gain_bound: float
    noise_var: float
    noise_source: NoiseSource
    noise_power: float | None
    sampling: Sampling
    update_factor: float
    domain: Domain | None = None
    hides_participation: bool = False
    gradient_var: float | None = None
    base_station: float | None = None
    eavesdropper: float | None = None
    everything: float | None = None
    noise_follows_data: bool = False

    def __post_init__(self) -> None:
        good = isinstance(self.round, int) and self.round >= -1
        require(good, f"`round` must be 0, 1, 2, ..., or -1 before the first one; got {self.round!r}")
        # An infinite clip norm is how an unclipped scheme is booked: its sensitivity has no bound.
        if self.clip_norm != math.inf:
            _require_number("clip_norm", self.clip_norm, positive=True)
        for name in ("gain_bound", "noise_var"):
            _require_number(name, getattr(self, name))
        _require_number("update_factor", self.update_factor, positive=True)
        if self.noise_power is not None:
            _require_number("noise_power", self.noise_power, positive=True)
        for name in ("gradient_var", "base_station", "eavesdropper", "everything"):
            if getattr(self, name) is not None:
                _require_number(name, getattr(self, name))
        require(
            self.noise_source in NOISE_SOURCES,
            f"`noise_source` must be one of {', '.join(NOISE_SOURCES)}; got {self.noise_source!r}",
        )
        for name in ("hides_participation", "noise_follows_data"):
            value = getattr(self, name)
            require(isinstance(value, bool), f"`{name}` must be true or false; got {value!r}")

    def visibility(self, observer: Observer) -> float | None:
        """How visible the most visible device is to an observer who sees signals; None: there is no bound."""
        value: float | None = getattr(self, observer.replace("-", "_"))
        return value

    def contribution(self, neighbours: Neighbours) -> float:
        """How far one device can move what is sent: c for zero-out (its update becomes zero), 2c for replace."""
        return reach(neighbours) * self.clip_norm

    def sensitivity(self, neighbours: Neighbours) -> float:
        """S, how far one device can move the received sum: its contribution times the largest gain.

        0 only where nobody is heard: what is too small to have all its digits is rounded up.
        """
        if self.gain_bound == 0.0:
            return 0.0
        return max(self.contribution(neighbours) * self.gain_bound, sys.float_info.min)
