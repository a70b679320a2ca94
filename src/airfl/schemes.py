"""Which parts each scheme joins. To add one: an entry in ``SCHEMES`` and its name in ``config.SchemeName``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from airfl.config import Config
from airfl.errors import InputError
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
        budget: A; None without a privacy budget.
        law: count -> draws of π/√a from the fading law that are not the run's own, [trials, count].
        last_factors: B of P3 for each trial, where a domain is enforced and the accountant's bound uses it; else None.
        config: the run.
        trials: trial numbers, for keyed draws.
    """

    minimum: torch.Tensor
    weights: torch.Tensor
    budget: float | None
    law: Callable[[int], torch.Tensor]
    last_factors: tuple[float, ...] | None
    config: Config
    trials: tuple[int, ...]

    def require_budget(self) -> float:
        """A, or a clear word that there is none."""
        if self.budget is None:
            raise InputError("this scheme keeps a privacy budget; give `privacy.epsilon` or `privacy.epsilon_tilde`")
        return self.budget


#: Chooses q_t ≥ π_t, [trials, T].
NormPolicy = Callable[[Outlook], torch.Tensor]


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


def _least_noise(outlook: Outlook) -> torch.Tensor:
    return outlook.minimum


def _within_budget(outlook: Outlook) -> torch.Tensor:
    budget = outlook.require_budget()
    if outlook.last_factors is None:
        return allocate(outlook.minimum, budget, outlook.weights)
    pairs = zip(outlook.minimum, outlook.last_factors, strict=True)
    return torch.stack([allocate_finite_domain(row, budget, factor) for row, factor in pairs])


def _online(outlook: Outlook) -> torch.Tensor:
    """Causal: in round t only π_0..π_t are known, and what ``scheme.online`` says about the future."""
    scheme, budget = outlook.config.scheme, outlook.require_budget()
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
    )
}
