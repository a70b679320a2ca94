"""The relaxation over all devices: a bracket that holds, closes, and does not depend on how the channels are told."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from airfl.analysis.combiners import seeded_channels
from airfl.transceiver import COMBINERS, certificate
from airfl.transceiver.certificates import FEW, prices
from airfl.transceiver.saddle import _to_simplex, bracket
from airfl.transceiver.selection import SELECTIONS
from tests.test_transceiver import channels

DEVICES = [torch.device("cpu"), *([torch.device("cuda")] if torch.cuda.is_available() else [])]


def rayleigh(seed, *shape):
    rng = np.random.default_rng(seed)
    return torch.from_numpy((rng.standard_normal(shape) + 1j * rng.standard_normal(shape)) / math.sqrt(2))


def with_path_loss(seed, k, m):
    return seeded_channels(m, k, 1, seed)[0]


def in_line_of_sight(seed, k, m):
    """A uniform array sees plane waves only: neighbours in angle are nearly parallel."""
    rng = np.random.default_rng(seed)
    sine = np.sin(rng.uniform(-np.pi / 2, np.pi / 2, (k, 1)))
    return torch.from_numpy(np.exp(1j * np.pi * np.arange(m) * sine) * rng.uniform(0.1, 1, (k, 1)) ** -1.7)


def eight_decades(seed, k, m):
    return channels(seed, k, m, spread_db=80.0)


def check_both_sides(h, found):
    """Recompute lower and upper from λ and W alone, with numpy."""
    h, weights, matrix = h.numpy(), found.prices.numpy(), found.matrix.numpy()
    assert weights.min() >= 0
    assert np.linalg.eigvalsh((h.T * weights) @ h.conj())[-1] <= 1.0
    assert weights.sum() == pytest.approx(float(found.lower), rel=1e-9)
    assert np.linalg.eigvalsh(matrix)[0] >= -1e-9
    reach = np.einsum("ka,ab,kb->k", h.conj(), matrix, h).real
    assert np.trace(matrix).real / reach.min() == pytest.approx(float(found.upper), rel=1e-6)


@pytest.mark.parametrize("family", [rayleigh, with_path_loss, in_line_of_sight, eight_decades])
@pytest.mark.parametrize(("k", "m"), [(6000, 16), (700, 40), (20_000, 3), (300, 1)])
def test_the_bracket_closes_over_all_devices(family, k, m):
    h = family(1, k, m)
    found = bracket(h, tolerance=0.01)
    check_both_sides(h, found)
    assert 1.0 - 1e-9 <= float(found.upper / found.lower) <= 1.01


def test_the_default_is_ten_times_finer_and_agrees():
    h = rayleigh(2, 3000, 12)
    coarse, fine = bracket(h, tolerance=0.01), bracket(h)
    assert float(fine.upper / fine.lower) <= 1.001
    assert float(coarse.lower) <= float(fine.upper) * (1 + 1e-9)
    assert float(fine.lower) <= float(coarse.upper) * (1 + 1e-9)


@pytest.mark.parametrize(("k", "m"), [(6, 10), (12, 6), (60, 4)])
def test_both_sides_enclose_the_value_from_cvxpy(k, m):
    pytest.importorskip("cvxpy")
    from airfl.transceiver.combiners.sdr import relaxation_value

    h = seeded_channels(m, k, 1, 5)[0]
    found = bracket(h, tolerance=1e-6)
    value = relaxation_value(h.numpy())
    assert float(found.lower) == pytest.approx(value, rel=2e-3)
    assert float(found.upper) == pytest.approx(value, rel=2e-3)
    assert float(found.upper / found.lower) <= 1 + 1e-6


@pytest.mark.parametrize("family", [rayleigh, with_path_loss, in_line_of_sight])
def test_newton_and_the_first_order_method_agree(family, monkeypatch):
    h = family(3, 120, 8)
    newton, cost = certificate(h, tolerance=1e-5), prices(h, tolerance=1e-5)
    monkeypatch.setattr(sys.modules["airfl.transceiver.certificates"], "FEW", 30)
    assert float(certificate(h, tolerance=1e-5)) == pytest.approx(float(newton), rel=3e-5)
    # Where one λ is best, both find it.
    if family is not in_line_of_sight:
        assert torch.allclose(prices(h, tolerance=1e-6), cost, atol=0.02 * float(cost.max()))


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6), steps=st.integers(1, 60), k=st.integers(1, 400), m=st.integers(1, 9))
def test_a_bound_that_is_stopped_early_still_holds(seed, steps, k, m):
    h = channels(seed, k, m)
    found = bracket(h, tolerance=1e-4, iterations=steps)
    check_both_sides(h, found)
    assert float(found.lower) >= 1 / float(h.abs().square().sum(-1).min()) * (1 - 1e-9)
    assert float(found.lower) <= float(COMBINERS["mrc"](h).norm) ** 2 * (1 + 1e-9)


def test_more_devices_never_lower_the_bound():
    for family in (rayleigh, with_path_loss):
        h = family(4, 4000, 10)
        bounds = [float(certificate(h[:k])) for k in (100, FEW, FEW + 1, 1000, 4000)]
        assert all(more >= 0.999 * less for less, more in itertools.pairwise(bounds))
        assert bounds[-1] > 1.1 * bounds[0]


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), scale=st.floats(1e-40, 1e40))
def test_scale_phase_rotation_and_order_change_nothing(seed, scale):
    rng = np.random.default_rng(seed)
    h = channels(seed, 400, 6)
    bound = float(certificate(h))
    phases = torch.from_numpy(np.exp(1j * rng.uniform(0, 6.3, (400, 1))))
    rotation = torch.linalg.qr(rayleigh(seed, 6, 6)).Q
    assert float(certificate(h * scale)) * scale**2 == pytest.approx(bound, rel=1.1e-3)
    assert float(certificate((h * phases) @ rotation)) == pytest.approx(bound, rel=1.1e-3)
    assert float(certificate(h[torch.from_numpy(rng.permutation(400))])) == pytest.approx(bound, rel=1.1e-3)


def test_one_antenna_one_device_and_identical_rows_are_exact():
    h = channels(0, 900, 1)
    assert float(certificate(h)) == pytest.approx(1 / float(h.abs().square().min()), rel=1e-9)
    row = channels(1, 1, 7)
    exact = 1 / float(row.abs().square().sum())
    for k in (1, 40, 900):
        assert float(certificate(row.expand(k, 7))) == pytest.approx(exact, rel=1e-3)
        assert float(certificate(row.expand(k, 7))) <= exact
    # Orthogonal devices, each many times over: λ of the weakest of each direction adds up.
    axes = torch.eye(5, dtype=torch.complex128).repeat(100, 1) * torch.linspace(1, 3, 500).sqrt().unsqueeze(1)
    weakest = [float(axes[i::5].abs().square().sum(-1).min()) for i in range(5)]
    assert float(certificate(axes)) == pytest.approx(sum(1 / power for power in weakest), rel=2e-3)


@pytest.mark.parametrize("device", DEVICES, ids=str)
def test_batches_of_many_devices_and_what_cannot_be_served(device):
    h = channels(5, 2, 2, FEW + 50, 4).to(device)
    h[0, 1, 3] = 0
    h[1, 0, 7, 2] = torch.nan
    bound = certificate(h)
    assert bound.shape == (2, 2)
    assert bound.device.type == device.type
    assert bound[0, 1] == bound[1, 0] == 0
    assert float(bound[1, 1]) == pytest.approx(float(certificate(h[1, 1])), rel=1e-9)
    assert prices(h).shape == (2, 2, FEW + 50)


def test_far_beyond_what_single_precision_holds():
    h = channels(6, 400, 5) * torch.logspace(-90, 90, 400, dtype=torch.float64).unsqueeze(1)
    found = bracket(h)
    assert float(found.upper / found.lower) <= 1.001
    assert bool(torch.isfinite(prices(h)).all())


def test_prices_of_many_devices_are_a_proof_and_put_all_in_order():
    h = with_path_loss(7, 2000, 8)
    cost = prices(h)
    assert float(cost.min()) > 0
    assert np.linalg.eigvalsh(((h.T * cost) @ h.conj()).numpy())[-1] <= 1.0
    assert float(cost.sum()) == pytest.approx(float(certificate(h)), rel=0.02)
    # Without the expensive ones the bound falls, without as many of the cheap ones it does not.
    order = cost.argsort()
    assert float(certificate(h[order[:-60]])) < 0.8 * float(certificate(h))
    assert float(certificate(h[order[60:]])) > 0.998 * float(certificate(h))


def test_prices_tell_more_than_strength():
    h = rayleigh(8, 600, 40)
    bounds = {name: float(certificate(h[select(lambda: [h], 480)])) for name, select in SELECTIONS.items()}
    assert bounds["greedy"] < 0.98 * bounds["strongest"]


@settings(max_examples=50)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 30))
def test_projection_onto_the_weighted_simplex(seed, k):
    """The nearest point p of a convex set: (x − p)·(q − p) ≤ 0 for every q in it."""
    rng = np.random.default_rng(seed)
    x, c = torch.from_numpy(rng.standard_normal(k)), torch.from_numpy(10 ** rng.uniform(-3, 0, k))
    nearest = _to_simplex(x, c)
    assert float(nearest.min()) >= 0
    assert float((c * nearest).sum()) == pytest.approx(1.0, rel=1e-9)
    corners = torch.diag(1 / c)
    inner = (corners - nearest) @ (x - nearest)
    assert float(inner.max()) <= 1e-9 * float(corners.max()) ** 2
