"""Which parts each scheme joins. To add one: an entry in ``SCHEMES`` and its name in ``config.SchemeName``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from airfl.config import Config
from airfl.errors import InputError
from airfl.privacy import Budget, Observer, smallest
from airfl.randomness import stream
from airfl.transceiver import (
    KnownLaw,
    MovingEstimate,
    Predictions,
    allocate,
    allocate_finite_domain,
    allocate_online,
    noisy_predictions,
)

#: Draws of the fading law that the online scheme plans with.
LAW_DRAWS = 64


@dataclass(frozen=True)
class Outlook:
    """What a scheme may look at when it chooses the combiner's norms.

    Attributes:
        minimum: π_t, the least norm that the power limit allows, [trials, T].
        weights: a_t of the budget Σ a_t/q_t² ≤ A, the squared gain bounds, [trials, T].
        budget: what the promise lets it spend; None without one.
        spent: ε of one trial whose rounds have norms q, [T], and gain bounds √a; for accountants that have no A.
        epsilon: the promised ε; None without one.
        law: count -> draws of π/√a from the fading law that are not the run's own, [trials, count].
        last_factors: B of P3 for each trial, where a domain is enforced and the accountant's bound uses it; else None.
        config: the run.
        trials: trial numbers, for keyed draws.
    """

    minimum: torch.Tensor
    weights: torch.Tensor
    budget: Budget | None
    spent: Callable[[torch.Tensor, torch.Tensor], float]
    epsilon: float | None
    law: Callable[[int], torch.Tensor]
    last_factors: tuple[float, ...] | None
    config: Config
    trials: tuple[int, ...]

    def require_budget(self) -> Budget:
        """The budget, or a clear word that there is none."""
        if self.budget is None:
            raise InputError("this scheme keeps a privacy budget; give `privacy.epsilon` or `privacy.epsilon_tilde`")
        return self.budget

    def at_floor(self, floor: float) -> torch.Tensor:
        """q_t = max(π_t, floor·√a_t)."""
        return torch.maximum(self.minimum, floor * self.weights.sqrt())


#: Chooses q_t ≥ π_t, [trials, T].
NormPolicy = Callable[[Outlook], torch.Tensor]


@dataclass(frozen=True)
class Scheme:
    """A way to aggregate.

    Attributes:
        clips: whether devices clip their updates.
        norms: how the combiner's norm follows from the minimum π_t and the budget; None: ideal, noiseless channel.
        keeps_budget: whether the scheme promises to stay within the privacy budget.
        accountant: by whose arithmetic, where the scheme fixes it; else as configured.
        observer: whom the promise is about.
        artificial: whether devices add noise of their own until the promise is kept.
    """

    name: str
    title: str
    sentence: str
    clips: bool
    norms: NormPolicy | None
    keeps_budget: bool = False
    accountant: str | None = None
    observer: Observer = "model"
    artificial: bool = False


def _least_noise(outlook: Outlook) -> torch.Tensor:
    return outlook.minimum


def _within_budget(outlook: Outlook) -> torch.Tensor:
    budget = outlook.require_budget()
    if outlook.last_factors is not None and budget.total is not None:
        pairs = zip(outlook.minimum, outlook.last_factors, strict=True)
        return torch.stack([allocate_finite_domain(row, budget.total, factor) for row, factor in pairs])
    if budget.total is not None:
        return allocate(outlook.minimum, budget.total, outlook.weights)
    lifted = outlook.at_floor(budget.floor)
    for index, (row, weights) in enumerate(zip(outlook.minimum, outlook.weights, strict=True)):
        if bool((row > budget.floor * weights.sqrt()).any()):  # noisier rounds let the others be less so
            lifted[index] = _smallest_floor(outlook, row, weights, budget.floor)
    return lifted


def _smallest_floor(outlook: Outlook, minimum: torch.Tensor, weights: torch.Tensor, start: float) -> torch.Tensor:
    """q_t = max(π_t, m√a_t) with the smallest m that keeps the promise, for accountants that have no A."""
    epsilon = outlook.epsilon or 0.0
    if outlook.spent(minimum, weights) <= epsilon:
        return minimum

    def norms(floor: float) -> torch.Tensor:
        return torch.maximum(minimum, floor * weights.sqrt())

    return norms(smallest(lambda floor: outlook.spent(norms(floor), weights), epsilon, start, 1e-7))


def _every_round_alone(outlook: Outlook) -> torch.Tensor:
    return outlook.at_floor(outlook.require_budget().floor)


def _adaptive(outlook: Outlook) -> torch.Tensor:
    """Minimise Σ ω_t q_t² within the budget, ω_t = ρ^(T−1−t): noise of early rounds is forgotten, so it may be larger.

    With p = q√ω it is the plain allocation with weights ωa.
    """
    total = outlook.require_budget().total
    assert total is not None
    rounds = outlook.minimum.shape[-1]
    age = torch.arange(rounds - 1, -1, -1, dtype=torch.float64)
    omega = (outlook.config.scheme.contraction**age).clamp(min=1e-100)
    scaled = allocate(outlook.minimum * omega.sqrt(), total, outlook.weights * omega) / omega.sqrt()
    return torch.maximum(scaled, outlook.minimum)  # rounding may leave it an ulp below


def _online(outlook: Outlook) -> torch.Tensor:
    """Causal: in round t only π_0..π_t are known, and what ``scheme.online`` says about the future."""
    scheme, budget = outlook.config.scheme, outlook.require_budget().total
    if budget is None:  # the common floor needs no look ahead
        return outlook.at_floor(outlook.require_budget().floor)
    # With p = π/√a the weighted budget is the plain one.
    root = outlook.weights.sqrt()
    minimum = outlook.minimum / root
    if scheme.online == "law":
        knowledge: KnownLaw | MovingEstimate | Predictions = KnownLaw(outlook.law(LAW_DRAWS))
    elif scheme.online == "estimate":
        knowledge = MovingEstimate()
    else:
        rows = [
            noisy_predictions(
                row, scheme.prediction_correlation, stream(outlook.config.system.seed, "predictions", trial)
            )
            for row, trial in zip(minimum, outlook.trials, strict=True)
        ]
        knowledge = Predictions.made_at_start(torch.stack(rows), scheme.prediction_correlation)
    # Rounding may leave √a·(π/√a) an ulp below π.
    return torch.maximum(allocate_online(minimum, budget, knowledge) * root, outlook.minimum)


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
        Scheme(
            "airfl-dp-online",
            "AirFL-DP online",
            "The same without knowing the channels to come: the price of causality.",
            True,
            _online,
            keeps_budget=True,
        ),
        Scheme(
            "airfl-an",
            "AirFL with artificial noise",
            "Devices add noise until even the base station is kept to the budget: the price of distrusting it.",
            True,
            _least_noise,
            keeps_budget=True,
            accountant="gaussian",
            observer="base-station",
            artificial=True,
        ),
        Scheme(
            "liu2020",
            "Adaptive power (Liu 2020)",
            "Prior work: the budget of Liu & Simeone, spent late because noise of early rounds is forgotten.",
            True,
            _adaptive,
            keeps_budget=True,
            accountant="liu2020",
        ),
        Scheme(
            "koda2020",
            "Per-round budget (Koda 2020)",
            "Prior work: every round alone keeps the budget; all rounds together do not.",
            True,
            _every_round_alone,
            keeps_budget=True,
            accountant="koda2020",
        ),
    )
}
