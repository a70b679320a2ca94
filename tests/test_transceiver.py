from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from airfl.errors import InputError
from airfl.transceiver import allocate, perk, transmit, zero_forcing
from airfl.transceiver.design import least_gain, received_gains


def channels(seed: int, *shape: int, spread_db: float = 60.0) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    h = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return torch.from_numpy(h * 10 ** (rng.uniform(-spread_db, 0, (*shape[:-1], 1)) / 20))


def unit_phases(seed: int, *shape: int) -> torch.Tensor:
    return torch.from_numpy(np.exp(1j * np.random.default_rng(seed).uniform(0, 2 * np.pi, shape)))


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(0, 6))
def test_zero_forcing_hears_everyone_equally(seed, k, extra):
    h, u = channels(seed, 3, k, k + extra), unit_phases(seed, 3, k)
    design = zero_forcing(h, u)
    if set(design.status) != {"ok"}:  # a square random matrix may be as good as singular
        assert extra == 0
        return
    gains = received_gains(design.combiner, h)
    assert torch.allclose(gains.abs(), torch.ones(()).double(), atol=1e-6)
    assert bool((gains.abs() >= 1 - 1e-12).all())
    assert torch.allclose(gains, u.conj(), atol=1e-6)
    assert torch.allclose(design.norm, torch.linalg.vector_norm(design.combiner, dim=-1))


@given(st.integers(0, 10**6))
def test_zero_forcing_is_the_least_norm_solution(seed):
    """Against numpy's pseudo-inverse, one instance at a time."""
    h, u = channels(seed, 2, 5, 9), unit_phases(seed, 2, 5)
    design = zero_forcing(h, u)
    for i in range(2):
        w = np.linalg.pinv(h[i].numpy().conj()) @ u[i].numpy()
        assert np.allclose(design.combiner[i].numpy(), w, rtol=1e-6)


@given(st.integers(0, 10**6), st.floats(1e-6, 1e6), st.floats(0, 6.3))
def test_scale_phase_and_permutation(seed, scale, angle):
    h = channels(seed, 6, 9)
    norm = zero_forcing(h).norm
    turned = h * (scale * np.exp(1j * angle))
    assert float(zero_forcing(turned).norm) == pytest.approx(float(norm) / scale, rel=1e-9)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(6))
    assert float(zero_forcing(h[order]).norm) == pytest.approx(float(norm), rel=1e-9)
    rotation = torch.linalg.qr(channels(seed + 1, 9, 9, spread_db=0))[0]
    assert float(zero_forcing(h @ rotation).norm) == pytest.approx(float(norm), rel=1e-9)


def test_batching_changes_nothing():
    h = channels(0, 4, 3, 7, 10)
    whole = zero_forcing(h)
    assert whole.norm.shape == (4, 3)
    assert torch.allclose(whole.norm[2, 1], zero_forcing(h[2, 1]).norm, rtol=1e-12)


def test_what_cannot_be_served_says_so():
    h = channels(0, 2, 4, 6)
    h[1, 3] = h[1, 0] * 2j
    assert zero_forcing(h).status == ("ok", "singular")
    with pytest.raises(InputError, match="failed on 1 of 2"):
        zero_forcing(h).require_ok()
    h[1, 3] = 0
    assert zero_forcing(h).status == ("ok", "singular")
    for shape in ((5, 4), (0, 4)):
        with pytest.raises(InputError, match="1 <= K <= m"):
            zero_forcing(torch.ones(shape, dtype=torch.complex128))
    with pytest.raises(InputError, match="modulus 1"):
        zero_forcing(channels(0, 3, 4), torch.tensor([1, 1j, 2]))


@given(st.integers(0, 10**6), st.floats(1e-12, 1e3))
def test_transmit_scalars_meet_the_power_limit(seed, power_w):
    h, clip_norm, dim = channels(seed, 2, 4, 8), 3.0, 1000
    design = zero_forcing(h)
    w = design.combiner * least_gain(clip_norm, dim, power_w)
    sent = transmit(w, h, clip_norm, dim, power_w)
    assert torch.allclose(sent.gains, torch.ones((), dtype=torch.complex128))
    assert float(sent.power_w.max()) <= power_w * (1 + 1e-9)
    assert float(sent.power_w.max()) == pytest.approx(power_w, rel=1e-6)  # the limit is used
    brute = max(float(torch.linalg.vector_norm(h[1, i] * sent.tx_scaling[1, i])) for i in range(4))
    assert float(sent.received_norms[1].max()) == pytest.approx(brute)
    with pytest.raises(InputError, match="limit"):
        transmit(w * 0.99, h, clip_norm, dim, power_w)


instances = st.integers(1, 40).flatmap(
    lambda t: st.tuples(
        st.lists(st.floats(1e-3, 1e3), min_size=t, max_size=t),
        st.lists(st.floats(1e-2, 1e2), min_size=t, max_size=t),
        st.floats(1e-3, 1.5),
    )
)


@given(instances, st.booleans())
def test_allocation_is_feasible_and_stationary(instance, weighted):
    """q ≥ π, Σ a/q² ≤ A to the last bit in any order, and the optimality conditions hold."""
    pi, weights, share = (np.array(part) for part in instance)
    a = weights if weighted else np.ones_like(pi)
    budget = float(share * np.sum(a / pi**2))
    q = allocate(torch.tensor(pi), budget, torch.tensor(a) if weighted else None).numpy()
    assert (q >= pi).all()
    for order in (slice(None), slice(None, None, -1)):
        assert sum((a / q**2)[order]) <= budget
    assert math.fsum(a / q**2) <= budget
    if share >= 1.001:
        assert (q == pi).all()
    elif share <= 0.999:
        assert math.fsum(a / q**2) == pytest.approx(budget, rel=1e-12)
        level = q**4 / a  # equals μ where lifted, exceeds it where the power limit binds
        lifted = q > pi * (1 + 1e-9)
        mu = level[lifted]
        assert mu.max() == pytest.approx(mu.min(), rel=1e-6)
        assert (level[~lifted] >= mu.min() * (1 - 1e-6)).all()


def test_allocation_against_a_convex_solver():
    cvxpy = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(0)
    for _ in range(300):
        rounds = int(rng.integers(1, 12))
        pi, a = rng.uniform(0.5, 3.0, rounds), rng.uniform(0.3, 3.0, rounds)
        budget = float(rng.uniform(0.2, 1.1) * np.sum(a / pi**2))
        spend = cvxpy.Variable(rounds)  # r_t = 1/q_t²
        problem = cvxpy.Problem(
            cvxpy.Minimize(cvxpy.sum(cvxpy.inv_pos(spend))), [spend <= 1 / pi**2, a @ spend <= budget]
        )
        problem.solve(solver=cvxpy.CLARABEL, tol_gap_abs=3e-9, tol_gap_rel=3e-9, tol_feas=3e-9)
        q = allocate(torch.tensor(pi), budget, torch.tensor(a)).numpy()
        assert np.sum(q**2) == pytest.approx(problem.value, rel=1e-7)


def test_allocation_batches_and_takes_many_rounds():
    pi = torch.from_numpy(np.random.default_rng(0).uniform(0.1, 1, (3, 100_000)))
    q = allocate(pi, 1000.0)
    assert torch.allclose(q[1], allocate(pi[1], 1000.0), rtol=1e-14)
    assert bool(((1 / q.square()).sum(-1) <= 1000.0).all())


def test_allocation_refuses_nonsense():
    for pi, budget in ([[1.0, 0.0], 1.0], [[1.0, math.nan], 1.0], [[1.0], 0.0], [[1.0], math.inf], [[1.0], -1.0]):
        with pytest.raises(InputError):
            allocate(torch.tensor(pi), budget)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=20), st.floats(0.01, 100))
def test_perk_threshold_is_where_the_test_flips(pi, budget):
    minimum, power = torch.tensor(pi, dtype=torch.float64), 0.5
    found = perk(minimum, budget, power, path_gain=1e-3, noise_power=1e-6)
    assert found.is_perk == (found.margin_db >= 0) or abs(found.margin_db) < 1e-9
    # π² scales with 1/P: just below the threshold power it is a perk, just above it is not.
    for factor, expected in ((0.999, True), (1.001, False)):
        scaled = minimum * math.sqrt(power / (found.power_threshold_w * factor))
        assert perk(scaled, budget, found.power_threshold_w * factor, 1e-3, 1e-6).is_perk is expected
    assert found.snr_threshold_db == pytest.approx(10 * math.log10(found.power_threshold_w * 1e3), abs=1e-9)
