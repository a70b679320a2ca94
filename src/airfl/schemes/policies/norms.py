"""How the combiner's norms follow from what the power allows and what the promise asks for."""

from __future__ import annotations

from typing import ClassVar

import torch

from airfl.errors import InputError
from airfl.privacy import smallest
from airfl.randomness import stream
from airfl.schemes.parts import Outlook, Policy
from airfl.transceiver import (
    KnownLaw,
    MovingEstimate,
    Predictions,
    allocate,
    allocate_finite_domain,
    allocate_online,
    noisy_predictions,
)
from airfl.transceiver.levels import allocate_levels
from airfl.transceiver.online import Knowledge

#: Draws of the fading law that the online policy plans with.
LAW_DRAWS = 64


class Ideal(Policy):
    """No radio link: everyone is heard as they are, and there is no noise."""

    over_air: ClassVar[bool] = False

    def norms(self, outlook: Outlook) -> torch.Tensor:
        """See ``Policy.norms``."""
        return torch.zeros_like(outlook.minimum)


class LeastNoise(Policy):
    """q_t = π_t: everyone is just heard, and there is as little noise as the link allows."""

    def norms(self, outlook: Outlook) -> torch.Tensor:
        """See ``Policy.norms``."""
        return outlook.minimum


class FillUp(LeastNoise):
    """q_t = π_t, and devices add what noise is missing, by an estimate of what updates add themselves: not a proof."""


class WithinBudget(Policy):
    """The least noise that keeps the promise, knowing all rounds."""

    def norms(self, outlook: Outlook) -> torch.Tensor:
        """See ``Policy.norms``."""
        budget = outlook.require_budget()
        if outlook.last_factors is not None and budget.total is not None:
            pairs = zip(outlook.minimum, outlook.last_factors, strict=True)
            return torch.stack([allocate_finite_domain(row, budget.total, factor) for row, factor in pairs])
        if budget.total is not None and outlook.blocks is not None:
            return allocate_levels(outlook.blocks, budget.total, outlook.weights, outlook.ratios)
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


class EveryRoundAlone(Policy):
    """q_t ≥ the floor that one round alone needs."""

    def norms(self, outlook: Outlook) -> torch.Tensor:
        """See ``Policy.norms``."""
        return outlook.at_floor(outlook.require_budget().floor)


class Adaptive(Policy):
    """Minimise Σ ω_t q_t² within the budget, ω_t = ρ^(T−1−t): noise of early rounds is forgotten, so it may be larger.

    With p = q√ω it is the plain allocation with weights ωa.
    """

    def norms(self, outlook: Outlook) -> torch.Tensor:
        """See ``Policy.norms``."""
        total = outlook.require_budget().total
        if total is None:
            raise InputError('this policy shares a budget out over rounds; set privacy.accountant = "gaussian"')
        rounds = outlook.minimum.shape[-1]
        age = torch.arange(rounds - 1, -1, -1, dtype=torch.float64)
        omega = (outlook.config.scheme.contraction**age).clamp(min=1e-100)
        scaled = allocate(outlook.minimum * omega.sqrt(), total, outlook.weights * omega) / omega.sqrt()
        return torch.maximum(scaled, outlook.minimum)  # rounding may leave it an ulp below


class Online(Policy):
    """Causal: in round t only π_0..π_t are known, and what ``scheme.online`` says about the future."""

    def norms(self, outlook: Outlook) -> torch.Tensor:
        """See ``Policy.norms``."""
        budget = outlook.require_budget().total
        if budget is None:  # the common floor needs no look ahead
            return outlook.at_floor(outlook.require_budget().floor)
        # With p = π/√a the weighted budget is the plain one.
        root = outlook.weights.sqrt()
        minimum = outlook.minimum / root
        # Rounding may leave √a·(π/√a) an ulp below π.
        return torch.maximum(allocate_online(minimum, budget, foreseen(outlook, minimum)) * root, outlook.minimum)


def foreseen(outlook: Outlook, minimum: torch.Tensor) -> Knowledge:
    """What ``scheme.online`` says is known of the channels to come, for π/√a [trials, T]."""
    scheme = outlook.config.scheme
    if scheme.online == "law":
        return KnownLaw(outlook.law(LAW_DRAWS))
    if scheme.online == "estimate":
        return MovingEstimate()
    rows = [
        noisy_predictions(row, scheme.prediction_correlation, stream(outlook.config.system.seed, "predictions", trial))
        for row, trial in zip(minimum, outlook.trials, strict=True)
    ]
    return Predictions.made_at_start(torch.stack(rows), scheme.prediction_correlation)
