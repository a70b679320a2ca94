"""The paper's convergence bound, term by term (paper, Sec. IV-A, its proposition on convergence).

1/T Σ_t E[ᾱ_t ‖∇f(θ_t)‖²] = O( (f(θ⁰) − f*)/(ηQT) + G² + L²η²Q(σ_l² + Qσ_g²) + ηLc²/Q
                               + Lη/(r²n²QT) Σ_t (d‖w_t‖²σ² + rnΛ_t) )

The constant that O(·) hides is taken as 1 here, so the terms can be compared with each other, and their sum is not a
proven bound. The paper prints ‖f(θ_t)‖² on the left; the gradient is meant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import NamedTuple

from airfl.errors import InputError


class ConvergenceTerms(NamedTuple):
    """The five terms, in the order of the paper; all in units of a squared gradient."""

    initial_gap: float
    lipschitz: float
    local_drift: float
    clipping: float
    estimation: float

    @property
    def total(self) -> float:
        """Their sum; never below G², which ‖∇f‖² cannot exceed by assumption anyway."""
        return math.fsum(self)


@dataclass(frozen=True)
class ConvergenceBound:
    """What the bound is made of. Smoothness, Lipschitz constant and variances are assumptions that you state.

    Attributes:
        learning_rate: η > 0, of the local steps.
        local_steps: Q ≥ 1, SGD steps of a device in a round.
        smoothness: L > 0, of the loss of every sample.
        lipschitz: G > 0, Lipschitz constant of the loss of every sample, so that ‖∇f‖ ≤ G everywhere.
        gradient_var: σ_l² ≥ 0, E‖batch gradient − ∇f_i‖².
        dissimilarity: σ_g² ≥ 0, ‖∇f_i − ∇f‖².
        initial_gap: f(θ⁰) − f* ≥ 0.
        clip_norm: c > 0.
        num_devices: n ≥ 1.
        dim: d ≥ 1.
        noise_power: σ² ≥ 0, whole complex power per antenna.
        combiner_norm2: ‖w_t‖² ≥ 0 of every round; its length is T.
        participation: r in (0, 1].
        misalignment: Λ_t = E Σ_i |1 − gain_i|² ‖Δ̄_i‖² of every round, or one number for all; 0 with unit gains. At most
            c² times the column ``misalignment`` of a run's rounds.
        real_part: whether the base station keeps the real part only, as airfl does; then half of σ² counts. The paper
            counts all of it.
    """

    learning_rate: float
    local_steps: int
    smoothness: float
    lipschitz: float
    gradient_var: float
    dissimilarity: float
    initial_gap: float
    clip_norm: float
    num_devices: int
    dim: int
    noise_power: float
    combiner_norm2: Sequence[float]
    participation: float = 1.0
    misalignment: Sequence[float] | float = 0.0
    real_part: bool = False

    def __post_init__(self) -> None:
        for name in ("learning_rate", "smoothness", "lipschitz", "clip_norm", "participation"):
            if not 0.0 < _number(getattr(self, name)) < math.inf:
                raise InputError(f"`{name}` must be a finite number above 0; got {getattr(self, name)!r}")
        for name in ("gradient_var", "dissimilarity", "initial_gap", "noise_power"):
            _check_size(name, getattr(self, name))
        for name in ("local_steps", "num_devices", "dim"):
            value = _number(getattr(self, name))
            if not 1.0 <= value < math.inf or value != math.floor(value):
                raise InputError(f"`{name}` must be a whole number of at least 1; got {getattr(self, name)!r}")
        if self.participation > 1.0:
            raise InputError(f"`participation` must lie in (0, 1]; got {self.participation}")
        object.__setattr__(self, "combiner_norm2", _per_round("combiner_norm2", self.combiner_norm2))
        if not self.combiner_norm2:
            raise InputError("`combiner_norm2` must hold one number per round; got none")
        if isinstance(self.misalignment, Real):
            _check_size("misalignment", self.misalignment)
            return
        misaligned = _per_round("misalignment", self.misalignment)
        if len(misaligned) != self.rounds:
            raise InputError(
                f"`misalignment` must hold as many rounds as `combiner_norm2`, {self.rounds}; got {len(misaligned)}"
            )
        object.__setattr__(self, "misalignment", misaligned)

    @property
    def rounds(self) -> int:
        """T."""
        return len(self.combiner_norm2)

    @property
    def step_product(self) -> float:
        """ηQL. The proposition asks for η = O(1/(QL)): with the constant 1, for a product of at most 1."""
        return self.learning_rate * self.local_steps * self.smoothness

    def estimation_errors(self) -> tuple[float, ...]:
        """d‖w_t‖²σ² + rnΛ_t: at least the mean squared error of the received sum, E‖Δ̂ − ΣΔ̄‖², in every round."""
        d, r, n = self.dim, self.participation, self.num_devices
        sigma2 = self.noise_power / 2.0 if self.real_part else self.noise_power
        given = self.misalignment
        misaligned = given if isinstance(given, Sequence) else (given,) * self.rounds
        return tuple(
            d * norm2 * sigma2 + r * n * lam for norm2, lam in zip(self.combiner_norm2, misaligned, strict=True)
        )

    def estimation_by_round(self) -> tuple[float, ...]:
        """Lη/(r²n²Q) (d‖w_t‖²σ² + rnΛ_t): the last term is the mean of these over the rounds."""
        active = self.participation * self.num_devices
        factor = self.smoothness * self.learning_rate / (active * active * self.local_steps)
        return tuple(factor * error for error in self.estimation_errors())

    def terms(self) -> ConvergenceTerms:
        """The five terms by name."""
        eta, q, t, smooth, c = self.learning_rate, self.local_steps, self.rounds, self.smoothness, self.clip_norm
        return ConvergenceTerms(
            initial_gap=self.initial_gap / (eta * q * t),
            lipschitz=self.lipschitz * self.lipschitz,
            local_drift=smooth * smooth * eta * eta * q * (self.gradient_var + q * self.dissimilarity),
            clipping=eta * smooth * c * c / q,
            estimation=math.fsum(self.estimation_by_round()) / t,
        )


def _per_round(name: str, values: object) -> tuple[float, ...]:
    """The values as plain floats, each finite and at least 0."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"`{name}` must hold one number per round; got {values!r}")
    listed = tuple(values)
    for t, value in enumerate(listed):
        _check_size(f"{name}[{t}]", value)
    return tuple(float(value) for value in listed)


def _check_size(name: str, value: object) -> None:
    if not 0.0 <= _number(value) < math.inf:
        raise InputError(f"`{name}` must be a finite number of at least 0; got {value!r}")


def _number(value: object) -> float:
    """The value as a float; NaN, which fails every comparison, where it is no number."""
    if not isinstance(value, Real):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
