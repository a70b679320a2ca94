"""Visibilities are never booked too low: against 180 digits, with links and cover many orders of magnitude apart."""

from __future__ import annotations

import math
from dataclasses import dataclass

import mpmath as mp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from airfl.air.setting import NO_EDGES
from airfl.transceiver import (
    Cover,
    Sight,
    bare_sight,
    base_station_sight,
    eavesdropper_sight,
    laplacian_of,
    mask_edges,
)
from tests.oracles.sight import Heard

ONE = torch.ones((), dtype=torch.float64)


def draw(rng, *shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


@dataclass(frozen=True)
class Scales:
    """Ranges of what is drawn: links in dB, the rest as powers of ten; a share of what may be nothing is."""

    links: float
    cover: float
    least_error: float
    her_least_noise: float
    nothing: float


#: What float64 holds with ease, and what is at its limits.
EASY = Scales(links=60.0, cover=5.0, least_error=-6.0, her_least_noise=-3.0, nothing=0.0)
WILD = Scales(links=160.0, cover=12.0, least_error=-15.0, her_least_noise=-6.0, nothing=0.4)


@dataclass(frozen=True)
class Case:
    """One round, as airfl sees it and as the oracle does."""

    sight: Sight
    heard: Heard
    squared_norm: float
    cover: Cover

    def seen(self) -> np.ndarray:
        return self.sight.seen(self.squared_norm * ONE, self.cover).numpy()


def case(seed: int, observer: str, scales: Scales) -> Case:
    """Any number of devices and antennas, kinds of symbols, of cover and of colluders, and errors of channels."""
    rng = np.random.default_rng(seed)
    k, m = int(rng.integers(1, 8)), int(rng.integers(1, 5))
    kind = rng.choice(["real", "real", "real", "complex", "circular", "share"])

    def level(lowest, highest, nothing=0.4):
        return 0.0 if rng.random() < nothing else 10.0 ** rng.uniform(lowest, highest)

    own = level(-6.0, 3.0, scales.nothing)
    quadrature = {"complex": 0.0, "share": own}.get(kind, level(-3.0, scales.cover))
    masks = 0.0 if kind == "share" else level(-3.0, scales.cover)
    share = 10.0 ** rng.uniform(-9.0, 0.0, k) if kind == "share" else np.ones(k)
    honest = rng.random(k) < 0.85
    edges = np.stack(np.triu_indices(k, k=1), axis=1) if kind == "circular" else mask_edges(rng, k, 4)
    known, combiner = draw(rng, k, m) * 10.0 ** (-rng.uniform(0.0, scales.links / 20.0, (k, 1))), draw(rng, m)
    combiner /= np.linalg.norm(combiner)
    scaling = 1.0 / (known @ combiner.conj())
    error = 0.0 if kind == "complex" else level(scales.least_error, -1.0)
    true = known + math.sqrt(error) * np.abs(known).max(axis=1, keepdims=True) * draw(rng, k, m)
    noise, q2, credit = 10.0 ** rng.uniform(-3.0, 1.0), 10.0 ** rng.uniform(-1.0, 2.0), bool(rng.random() < 0.2)
    told = error > 0.0 and not credit
    common = own, quadrature, masks, share.tolist(), bool(kind == "complex"), bool(kind == "circular")
    who = edges.tolist(), honest.tolist()
    options = {
        "per_symbol": 2 if kind == "complex" else 1,
        "circular": bool(kind == "circular"),
        "share": torch.from_numpy(share) if kind == "share" else None,
    }
    if observer == "base-station":
        paths = true * scaling[:, None]
        with mp.workdps(60):
            gains = [
                mp.fsum(mp.mpc(a) * mp.conj(mp.mpc(b)) for a, b in zip(row, combiner, strict=True)) for row in paths
            ]
        direction = torch.from_numpy(combiner) if told else None
        sight = base_station_sight(torch.from_numpy(paths), noise, edges, honest, direction, **options)
        heard = Heard(paths, gains, q2 * noise, None, told, *who, *common)
    else:
        hers = draw(rng, k, m) * 10.0 ** (-rng.uniform(0.0, scales.links / 20.0, (k, 1)))
        paths = hers * 10.0 ** rng.uniform(0.0, scales.links / 20.0)
        gains = (true @ combiner.conj()) * scaling if error > 0.0 else np.ones(k, dtype=complex)
        her_noise = level(scales.her_least_noise, 1.0, scales.nothing)
        here = torch.from_numpy(paths), torch.from_numpy(gains)
        sight = eavesdropper_sight(*here, her_noise, noise, edges, honest, exact=error == 0.0, credit=credit, **options)
        heard = Heard(paths, gains.tolist(), q2 * her_noise, q2 * noise / 2, told, *who, *common)
    return Case(sight, heard, q2, Cover.of(own, quadrature, masks, circular=options["circular"]))


@pytest.mark.parametrize("observer", ["base-station", "eavesdropper"])
@settings(max_examples=150)
@given(seed=st.integers(0, 10**9))
def test_what_is_booked_is_never_below_the_truth(observer, seed):
    drawn = case(seed, observer, WILD)
    found, true = drawn.seen(), drawn.heard.visibility()
    assert np.all(found >= true)
    # Infinity is for what nothing covers, and for matrices that float64 cannot hold.
    if np.any(np.isinf(found) & np.isfinite(true)):
        assert drawn.heard.condition() > 1e20
    if drawn.heard.sum_noise is not None and drawn.heard.told:
        # She hears the models too: never less than they tell someone who adds nothing.
        gains, honest = np.real(drawn.heard.gains), np.array(drawn.heard.honest)
        covering = drawn.heard.sum_noise + drawn.heard.own * (gains**2 * drawn.heard.share)[honest].sum()
        assert np.all(found[honest] >= np.abs(gains[honest]) / math.sqrt(covering) * (1.0 - 1e-15))


@pytest.mark.parametrize("observer", ["base-station", "eavesdropper"])
@settings(max_examples=150)
@given(seed=st.integers(0, 10**9))
def test_nor_above_it_where_digits_are_enough(observer, seed):
    drawn = case(seed, observer, EASY)
    found, true = drawn.seen(), drawn.heard.visibility()
    assert np.all(found >= true)
    assert np.all(found <= true * (1.0 + 1e-6))


def test_links_that_are_far_apart_do_not_hide_the_sum():
    """Two devices 140 dB above a third, hidden in quadrature, before one antenna without noise."""
    paths = np.array([[1e7 + 0j], [1e7j], [1.0 - 1j]])
    three, honest = np.ones(3, dtype=complex), np.ones(3, dtype=bool)
    here = torch.from_numpy(paths), torch.from_numpy(three)
    sight = eavesdropper_sight(*here, 0.0, 1.2, NO_EDGES, honest, exact=True, credit=False)
    found = sight.seen(ONE, Cover.of(quadrature=50.0)).numpy()
    heard = Heard(paths, three.tolist(), 0.0, 0.6, False, [], [True] * 3, 0.0, 50.0, 0.0, [1.0] * 3)
    assert np.all(found >= 1.0 / math.sqrt(0.6))
    assert np.all(found >= heard.visibility())
    assert np.allclose(found, heard.visibility(), rtol=1e-6)


@pytest.mark.parametrize("error", [1e-15, 8.7e-14, 1e-9, 1e-3])
@pytest.mark.parametrize("quadrature", [1e2, 1e6, 1e10])
def test_what_leaks_by_hardly_any_error_of_channels_is_told_all_the_same(error, quadrature):
    """With more antennas than devices what is told is a third of all that hides them."""
    rng = np.random.default_rng(1)
    known, combiner = draw(rng, 3, 4), draw(rng, 4)
    combiner /= np.linalg.norm(combiner)
    paths = (known + math.sqrt(error) * draw(rng, 3, 4)) / (known @ combiner.conj())[:, None]
    with mp.workdps(60):
        gains = [mp.fsum(mp.mpc(a) * mp.conj(mp.mpc(b)) for a, b in zip(row, combiner, strict=True)) for row in paths]
    honest = np.ones(3, dtype=bool)
    sight = base_station_sight(torch.from_numpy(paths), 0.4, NO_EDGES, honest, torch.from_numpy(combiner))
    found = sight.seen(ONE, Cover.of(quadrature=quadrature)).numpy()
    true = Heard(paths, gains, 0.4, None, True, [], [True] * 3, 0.0, quadrature, 0.0, [1.0] * 3).visibility()
    assert np.all(found >= true)
    assert np.allclose(found, true, rtol=0.1)


@pytest.mark.parametrize("masks", [1.0, 1e6, 1e12, 1e15])
@pytest.mark.parametrize("senders", [9, 25])
def test_masks_far_above_own_noise_hide_nothing_of_what_they_add_up_to(masks, senders):
    edges, honest = mask_edges(np.random.default_rng(1), senders, 4), np.arange(senders) != 3
    found = bare_sight(senders, edges, honest).seen(ONE, Cover.of(1e-3, 0.0, masks)).numpy()
    with mp.workdps(60):
        laplacian = mp.matrix(laplacian_of(edges[honest[edges].all(axis=1)], senders).tolist())
        inverse = mp.inverse(mp.mpf(masks) * laplacian + mp.mpf(1e-3) * mp.eye(senders))
        true = np.array([float(mp.sqrt(inverse[i, i])) for i in range(senders)]) * honest
    assert np.all(found >= true)
    assert np.all(found <= true * (1.0 + 1e-8))
