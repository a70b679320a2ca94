"""The counting figure: what it says on unit Rayleigh channels, and what it must not depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import digamma, lambertw

from airfl.analysis.combiners import seeded_channels
from airfl.transceiver.counting import counting_figure, rayleigh_figure
from tests.test_certificates import rayleigh


@pytest.mark.parametrize(
    ("k", "m", "figure"), [(6000, 16, 89), (60_000, 16, 622), (3000, 64, 17), (6000, 4, 343), (17, 16, None)]
)
def test_unit_rayleigh(k, m, figure):
    """K x = (m−1) ln(1/x)."""
    inverse = rayleigh_figure(k, m)
    assert figure is None or round(inverse) == figure
    assert k / inverse == pytest.approx((m - 1) * np.log(inverse), rel=1e-12)


@pytest.mark.parametrize(("k", "m"), [(6000, 16), (3000, 64), (6000, 4), (20_000, 2)])
def test_channels_drawn_as_unit_rayleigh_give_it_back(k, m):
    assert float(counting_figure(rayleigh(0, k, m))) == pytest.approx(rayleigh_figure(k, m), rel=0.05)


def test_against_lambert():
    """x S = ln(s/x) is x = W(sS)/S."""
    h = seeded_channels(8, 500, 3, 2)
    power = (h.abs() ** 2).sum(-1).numpy()
    total = (1 / power).sum(-1)
    scale = np.exp((np.log(power) / power).sum(-1) / total - digamma(7))
    assert counting_figure(h).numpy() == pytest.approx(total / lambertw(scale * total).real, rel=1e-9)


def test_a_random_direction_fails_as_often_as_said():
    """The share of directions that reach all devices at a level, against exp(−(m−1) x Σ 1/‖h‖²)."""
    h, m = rayleigh(1, 200, 6).numpy(), 6
    directions = rayleigh(2, 40_000, m).numpy()
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    least = (np.abs(directions.conj() @ h.T) ** 2).min(axis=1)
    level = 0.01
    expected = np.exp(-(m - 1) * level * (1 / (np.abs(h) ** 2).sum(axis=1)).sum())
    assert np.mean(least >= level) == pytest.approx(expected, rel=0.1)


def test_what_it_does_not_depend_on():
    h = seeded_channels(6, 800, 1, 3)[0]
    figure = float(counting_figure(h))
    assert float(counting_figure(h * 1e-30)) == pytest.approx(figure * 1e60, rel=1e-9)
    strong = rayleigh(4, 5000, 6) * 1e6 * float(h.abs().max())
    assert float(counting_figure(torch.cat([h, strong]))) == pytest.approx(figure, rel=1e-3)
    assert torch.allclose(counting_figure(torch.stack([h, 2 * h])), torch.tensor([figure, figure / 4]).double())
    assert float(counting_figure(torch.cat([h, h]))) > 1.5 * figure


def test_where_counting_makes_no_sense():
    assert np.isnan(rayleigh_figure(16, 16))
    assert np.isnan(rayleigh_figure(100, 1))
    one_antenna = rayleigh(5, 50, 1)
    assert float(counting_figure(one_antenna)) == pytest.approx(1 / float(one_antenna.abs().square().min()))
    few = rayleigh(6, 3, 40, 4)
    few[0, 2] *= 1e-4  # one device is all that matters
    few[1, 2] = 0
    assert torch.isnan(counting_figure(few)).tolist() == [True, True, False]
    assert bool(torch.isnan(counting_figure(rayleigh(7, 4, 4))))
