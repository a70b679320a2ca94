"""The threshold of truncated channel inversion: what it costs in power, and which one a bound on convergence asks for.

A device sends where its fading power |h̃|² is at least γ. Under Rayleigh fading that is a share λ = e^{−γ} of all times.
An inverted channel takes 1/|h̃|² of power; in units of what a channel of its mean power takes that is

    κ = 1/γ            at most;
    κ = E₁(γ)          on average over fading, where what is not sent saves power;
    κ = e^γ E₁(γ)      on average, where the entries that are sent are filled up to the clip norm again,

with E₁(γ) = ∫_γ^∞ e^{−x}/x dx. Noise in the sum is proportional to κ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from airfl.catalogue import USUAL_SENT
from airfl.config import Config
from airfl.errors import InputError

#: What power is counted: the most of it, the mean, or the mean where sent entries are filled up.
PowerLaw = Literal["most", "mean", "filled"]


def power_cost(threshold: float, law: PowerLaw) -> float:
    """κ(γ)."""
    if law == "most":
        return 1.0 / threshold
    from scipy.special import exp1  # here, so that what truncates nothing need not load it

    mean = float(exp1(threshold))
    return math.exp(threshold) * mean if law == "filled" else mean


def balanced_threshold(error: float, noise: float, law: PowerLaw) -> float:
    """γ that minimises A(e^{2γ} − 1) + B κ(γ): what truncation leaves for later against what inversion costs.

    Convex in γ. With W of Lambert, κ = E₁ gives γ = W(3B/(2A))/3, and κ = 1/γ gives γ = W(√(B/(2A))); for e^γ E₁ it is
    the root of 2A e^{2γ} = B(1/γ − e^γ E₁(γ)).

    Args:
        error: A > 0.
        noise: B > 0.
    """
    if not (error > 0 and noise > 0 and math.isfinite(error) and math.isfinite(noise)):
        raise InputError(f"both terms of the bound must be positive and finite; got {error} and {noise}")
    from scipy.optimize import brentq
    from scipy.special import lambertw

    if law == "mean":
        return float(lambertw(1.5 * noise / error).real) / 3.0
    most = float(lambertw(math.sqrt(0.5 * noise / error)).real)  # κ falls fastest here: no other root is larger
    if law == "most":
        return most

    def slope(log_threshold: float) -> float:
        threshold = math.exp(log_threshold)
        gain = 1.0 / threshold - power_cost(threshold, "filled")
        return math.log(2.0 * error / noise) + 2.0 * threshold - math.log(gain)

    high = math.log(most)
    low = high - 1.0
    while slope(low) > 0:
        low -= 1.0
    return math.exp(float(brentq(slope, low, high, xtol=1e-14)))


@dataclass(frozen=True)
class Bound:
    """The two terms of the bound on convergence that a threshold may follow.

    A = 48 η² Q² L² G₂²/r² for what memory delays, B = 2 η L σ² c²/(Q K² P Λ_min) for noise, with K = r n.
    """

    error: float
    noise: float


def bound_of(
    config: Config, clip_norm: float, noise_power: float, power_w: float, weakest: float, scheduled: int
) -> Bound:
    """A and B of a run, for the stated smoothness L and gradient bound G₂.

    Args:
        clip_norm: c.
        noise_power: σ², W.
        weakest: Λ_min of who is scheduled.
        scheduled: how many that are.
    """
    learning, system = config.learning, config.system
    smoothness, gradient, steps = config.privacy.smoothness, config.scheme.gradient_bound, learning.local_steps
    if smoothness is None or gradient is None or steps is None:
        raise InputError(
            "a threshold that follows from `scheme.gradient_bound` needs the smoothness and the number of steps too; "
            "give `privacy.smoothness` and `learning.local_steps`"
        )
    rate, senders = learning.learning_rate, max(1.0, system.participation * scheduled)
    error = 48.0 * (rate * steps * smoothness * gradient / system.participation) ** 2
    noise = 2.0 * rate * smoothness * noise_power * clip_norm**2 / (steps * senders**2 * power_w * weakest)
    return Bound(error, noise)


def stated_threshold(config: Config) -> float:
    """γ as it is configured, by itself or by the share λ = e^{−γ}; a usual share where nothing is said."""
    scheme = config.scheme
    if scheme.truncation_threshold is not None:
        return scheme.truncation_threshold
    return -math.log(USUAL_SENT if scheme.truncation_share is None else scheme.truncation_share)
