from __future__ import annotations

import math

import cvxpy
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from airfl.errors import InputError
from airfl.transceiver.allocation import allocate
from airfl.transceiver.finite_domain import allocate_finite_domain, last_round_factor

SETTING = {
    "learning_rate": 0.1,
    "smoothness": 2.0,
    "local_steps": 3,
    "participation": 0.9,
    "diameter": 4.0,
    "num_devices": 50,
    "clip_norm": 1.5,
}


def instance(seed: int) -> tuple[np.ndarray, float, float]:
    """π, A and B such that the budget binds about as often as not, and either branch can win."""
    rng = np.random.default_rng(seed)
    pi = np.exp(rng.uniform(0.1, 0.8) * rng.standard_normal(rng.integers(2, 15)))
    budget = float((1 / pi**2).sum() * rng.uniform(0.2, 1.3))
    return pi, budget, float(1.0 + len(pi) * rng.uniform(0.1, 1.5))


def by_convex_solver(pi: np.ndarray, budget: float, factor: float) -> float:
    """The smaller of P3a′ and P3b in r_t = 1/q_t², written with x_t = r_t π_t² in (0, 1]."""
    x = cvxpy.Variable(len(pi))
    r = cvxpy.multiply(1 / (pi**2 * budget), x)
    objective = cvxpy.Minimize((pi**2 / (pi**2).sum()) @ cvxpy.inv_pos(x))
    sums = [cvxpy.sum(r) <= 1, cvxpy.sum(r) <= factor * r[-1]]
    last = [factor * r[-1] <= 1, factor * r[-1] <= cvxpy.sum(r)]
    accuracy = {"tol_gap_abs": 1e-8, "tol_gap_rel": 1e-8, "tol_feas": 1e-8}
    values = [cvxpy.Problem(objective, [x <= 1, *case]).solve(solver="CLARABEL", **accuracy) for case in (sums, last)]
    return float(min(values) * (pi**2).sum())


@pytest.mark.parametrize("block", range(5))
def test_matches_a_general_convex_solver(block):
    wins = 0
    for seed in range(60 * block, 60 * block + 60):
        pi, budget, factor = instance(seed)
        q = allocate_finite_domain(torch.from_numpy(pi), budget, factor)
        assert float(q.square().sum()) == pytest.approx(by_convex_solver(pi, budget, factor), rel=1e-7)
        wins += int(float((1 / q.square()).sum()) > budget)
    assert 0 < wins < 60  # both branches were needed


norms = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20)


@given(norms, st.floats(1e-4, 1e4), st.floats(1.0, 1e6))
def test_feasible_and_never_worse_than_without_the_domain(pi, budget, factor):
    minimum = torch.tensor(pi, dtype=torch.float64)
    q = allocate_finite_domain(minimum, budget, factor)
    assert bool((q >= minimum).all())
    spent = [1.0 / value**2 for value in q.tolist()]
    totals = (sum(spent), sum(reversed(spent)), sum(sorted(spent)), math.fsum(spent))
    assert max(totals) <= budget or factor / float(q[-1]) ** 2 <= budget
    assert float(q.square().sum()) <= float(allocate(minimum, budget).square().sum())


@given(norms, st.floats(1e-4, 1e4))
def test_no_bound_on_the_domain_changes_nothing(pi, budget):
    minimum = torch.tensor(pi, dtype=torch.float64)
    assert torch.equal(allocate_finite_domain(minimum, budget, math.inf), allocate(minimum, budget))


@given(norms, st.floats(1e-4, 1e4), st.floats(1.0, 1e4), st.floats(1.0, 10.0))
def test_a_larger_factor_never_helps(pi, budget, factor, growth):
    minimum = torch.tensor(pi, dtype=torch.float64)
    small, large = (allocate_finite_domain(minimum, budget, b).square().sum() for b in (factor, factor * growth))
    assert float(small) <= float(large)


def test_batching_changes_nothing():
    minimum = torch.from_numpy(np.exp(np.random.default_rng(0).standard_normal((3, 4, 9))))
    whole = allocate_finite_domain(minimum, 2.0, 6.0)
    for i, j in np.ndindex(3, 4):
        assert torch.allclose(whole[i, j], allocate_finite_domain(minimum[i, j], 2.0, 6.0), rtol=1e-14)


def test_last_round_factor():
    """Against the formula as it is printed, and beyond the range of the floats."""
    printed = (1 + (1 + 0.1 * 2.0) ** 3 * math.sqrt(0.9) * 4.0 * 50 / (2 * 0.1 * 1.5)) ** 2
    assert last_round_factor(**SETTING) == pytest.approx(printed, rel=1e-12)
    assert last_round_factor(**SETTING | {"smoothness": 0.0, "diameter": 1e-30}) == pytest.approx(1.0)
    assert last_round_factor(**SETTING | {"local_steps": 10**9}) == math.inf
    steps = [last_round_factor(**SETTING | {"local_steps": q}) for q in range(1800, 2000)]
    assert steps == sorted(steps)
    assert steps[0] < math.inf == steps[-1]
    assert not any(math.isnan(value) for value in steps)


def test_bad_input():
    pi = torch.ones(3, dtype=torch.float64)
    for factor in (0.5, -1.0, math.nan):
        with pytest.raises(InputError, match="at least 1"):
            allocate_finite_domain(pi, 1.0, factor)
    for budget in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="budget"):
            allocate_finite_domain(pi, budget, 2.0)
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="positive and finite"):
            allocate_finite_domain(torch.tensor([1.0, bad]).double(), 1.0, 2.0)
    for shape in ((), (0,), (4, 0)):
        with pytest.raises(InputError, match="at least one round"):
            allocate_finite_domain(torch.ones(shape), 1.0, 2.0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("learning_rate", 0.0),
        ("diameter", math.inf),
        ("clip_norm", math.nan),
        ("smoothness", -1.0),
        ("participation", 0.0),
        ("participation", 1.5),
        ("local_steps", -1),
        ("num_devices", 0),
    ],
)
def test_bad_factor_input(name, value):
    with pytest.raises(InputError, match=name):
        last_round_factor(**SETTING | {name: value})
