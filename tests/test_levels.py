"""Levels of blocks against cvxpy, against the closed form for one block, and never over budget."""

from __future__ import annotations

import math

import cvxpy
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from airfl.errors import InputError
from airfl.transceiver import allocate
from airfl.transceiver.levels import allocate_levels, raised


def instance(seed: int) -> tuple[torch.Tensor, float, torch.Tensor]:
    """Norms of blocks [T, B] over up to two decades, a budget between a perk and much too little, weights."""
    generator = np.random.Generator(np.random.Philox(key=seed))
    rounds, blocks = int(generator.integers(1, 7)), int(generator.integers(2, 9))
    spread = generator.uniform(0.01, 1.0)
    pi = torch.from_numpy(10.0 ** generator.uniform(-spread, spread, (rounds, blocks)))
    weights = torch.from_numpy(generator.uniform(0.5, 3.0, rounds) if seed % 2 else np.ones(rounds))
    free = float((weights / pi.amin(dim=1).square()).sum())
    return pi, free * 10.0 ** generator.uniform(-2.0, 0.3), weights


def cost(pi: torch.Tensor, level: torch.Tensor) -> float:
    return float(raised(pi, level).square().mean(dim=-1).sum())


@pytest.mark.parametrize("seed", range(200))
def test_levels_against_cvxpy(seed):
    pi, budget, weights = instance(seed)
    level = allocate_levels(pi, budget, weights)
    x = cvxpy.Variable(len(pi), pos=True)  # 1/ℓ²
    largest = 1.0 / pi.amin(dim=1).square().numpy()
    squares = [cvxpy.maximum(float(p) ** 2, cvxpy.inv_pos(x[t])) for t in range(len(pi)) for p in pi[t]]
    problem = cvxpy.Problem(cvxpy.Minimize(sum(squares) / pi.shape[1]), [weights.numpy() @ x <= budget, x <= largest])
    problem.solve(solver=cvxpy.CLARABEL)
    assert cost(pi, level) == pytest.approx(problem.value, rel=2e-6)
    assert math.fsum((weights / level.square()).tolist()) <= budget
    assert (level >= pi.amin(dim=1)).all()


def test_never_over_budget_in_ten_thousand_adversarial_draws():
    """Ties, huge spreads, tiny budgets and one block that is far off; the sum in any order, not by one ulp."""
    generator = np.random.Generator(np.random.Philox(key=7))
    for draw in range(100):
        rounds, blocks = int(generator.integers(1, 40)), int(generator.integers(1, 12))
        decades = generator.uniform(0.0, 12.0)
        pi = 10.0 ** generator.uniform(-decades, decades, (100, rounds, blocks))
        if draw % 3 == 0:
            pi = np.round(pi, 2) + 0.01  # many ties
        if draw % 4 == 1:
            pi[..., 0] *= 1e-6
        pi = torch.from_numpy(pi)
        weights = torch.from_numpy(10.0 ** generator.uniform(-2, 2, (100, rounds)))
        budget = float(10.0 ** generator.uniform(-decades, decades))
        level = allocate_levels(pi, budget, weights)
        terms = (weights / level.square()).numpy()
        assert np.isfinite(terms).all()
        for order in (terms, terms[:, ::-1], np.sort(terms, axis=1)):
            assert (np.cumsum(order, axis=1)[:, -1] <= budget).all()
        assert (level >= pi.amin(dim=-1)).all()


@given(st.integers(0, 10**6))
def test_conditions_of_the_optimum(seed):
    """ℓ⁴F(ℓ) = μa with one μ wherever ℓ is no block's own norm; between the two values of F where it is."""
    pi, budget, weights = instance(seed)
    level = allocate_levels(pi, budget, weights)
    if bool((level == pi.amin(dim=1)).all()):
        return  # a perk, or all at their first block
    at_or_below = (pi <= level[:, None] * (1 + 1e-12)).double().mean(dim=1)
    below = (pi < level[:, None] * (1 - 1e-12)).double().mean(dim=1)
    low, high = level**4 * below / weights, level**4 * at_or_below / weights
    assert float(low.max()) <= float(high.min()) * (1 + 1e-9)


@given(st.integers(0, 10**6))
def test_one_block_is_the_closed_form_and_equal_blocks_are_one(seed):
    pi, budget, weights = instance(seed)
    one = allocate(pi[:, 0], budget, weights)
    assert torch.equal(allocate_levels(pi[:, :1], budget, weights), one)
    again = allocate_levels(pi[:, :1].expand(-1, 4), budget, weights)
    assert torch.allclose(again, one, rtol=1e-12)


def test_more_budget_never_means_more_noise():
    pi, budget, weights = instance(3)
    costs = [cost(pi, allocate_levels(pi, budget * k, weights)) for k in (0.1, 0.3, 1.0, 3.0, 10.0)]
    assert costs == sorted(costs, reverse=True)


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="budget A must be positive"):
        allocate_levels(torch.ones(2, 3), math.inf)
    with pytest.raises(InputError, match="positive and finite"):
        allocate_levels(torch.zeros(2, 3), 1.0)
