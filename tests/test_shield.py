"""How visible devices are in cover, against brute force and against signals that are drawn."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

import airfl
from airfl.air import EquivalentUplink, SignalUplink
from airfl.air.setting import NO_EDGES
from airfl.devices import UpdateBlock
from airfl.rounds.observed import graph, leaks_of
from airfl.transceiver import (
    Cover,
    bare_sight,
    base_station_sight,
    degrees_of,
    eavesdropper_sight,
    mask_degree,
    mask_edges,
    open_radio,
)
from airfl.transceiver.sight import Sight
from tests.oracles.settings import setting_of
from tests.test_participation import plan_of

ONE = torch.ones((), dtype=torch.float64)
#: Own noise, noise in quadrature, masks: alone, together, and all of them at once.
COVERS = [
    (0.0, 0.0, 0.0),
    (0.3, 0.0, 0.0),
    (0.0, 5.0, 0.0),
    (0.0, 0.0, 7.0),
    (0.2, 4.0, 0.0),
    (0.2, 0.0, 9.0),
    (0.1, 3.0, 6.0),
]


def draw(rng, *shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def ring(count):
    return np.array([(i, (i + 1) % count) for i in range(count)])


def stacked(paths):
    """p̃_i as rows."""
    return np.concatenate([paths.real, paths.imag], axis=-1)


def laplacian(edges, honest):
    """Of the graph that is left when those who hand over what they know are taken out, with what they share."""
    found = np.zeros((len(honest), len(honest)))
    for i, j in edges:
        if honest[i] and honest[j]:
            found[i, i] += 1
            found[j, j] += 1
            found[i, j] -= 1
            found[j, i] -= 1
    return found


def covered(noise, along, turned, cover, edges, honest):
    """Σ, term by term: device i's update enters along row i of ``along``, its noise in quadrature along ``turned``."""
    own, quadrature, masks = cover
    found = np.diag(noise).astype(float)
    for i in np.flatnonzero(honest):
        found += own * np.outer(along[i], along[i]) + quadrature * np.outer(turned[i], turned[i])
    return found + masks * along.T @ laplacian(edges, honest) @ along


def quadratic(sigma, along, honest):
    """√(p̃ᵀ Σ⁻¹ p̃) of every device; nothing is to be found out about those who hand over everything."""
    return [math.sqrt(p @ np.linalg.solve(sigma, p)) if kept else 0.0 for p, kept in zip(along, honest, strict=True)]


@pytest.mark.parametrize("cover", COVERS)
@pytest.mark.parametrize("colluding", [(), (1,), (0, 3, 4)])
@pytest.mark.parametrize("edges", [NO_EDGES, ring(5), np.array([(0, 4), (0, 4), (1, 2)])])
def test_visibility_at_the_antennas_is_the_quadratic_form(cover, colluding, edges):
    rng = np.random.default_rng(3)
    paths, honest = draw(rng, 5, 3), ~np.isin(np.arange(5), colluding)
    sight = base_station_sight(torch.from_numpy(paths), 0.8, edges, honest)
    for q in (0.5, 1.0, 3.0):
        # With a combiner of norm q scalars, and so paths, are shorter by q.
        shorter = paths / q
        sigma = covered([0.4] * 6, stacked(shorter), stacked(1j * shorter), cover, edges, honest)
        found = sight.seen(ONE * q * q, Cover.of(*cover))
        assert np.allclose(found, quadratic(sigma, stacked(shorter), honest), rtol=1e-10)


@given(seed=st.integers(0, 10**6), k=st.integers(1, 6), m=st.integers(1, 5))
def test_without_cover_only_the_strength_counts(seed, k, m):
    paths = draw(np.random.default_rng(seed), k, m)
    honest = np.ones(k, dtype=bool)
    found = base_station_sight(torch.from_numpy(paths), 0.3, NO_EDGES, honest).seen(ONE, Cover.of())
    assert np.allclose(found, math.sqrt(2 / 0.3) * np.linalg.norm(paths, axis=1), rtol=1e-12)


def heard_alike(k, m, seed=0):
    """Channels, a unit combiner for them, and paths with wᴴp = 1."""
    rng = np.random.default_rng(seed)
    channels, combiner = draw(rng, k, m), draw(rng, m)
    combiner /= np.linalg.norm(combiner)
    paths = channels / (channels @ combiner.conj())[:, None]
    return torch.from_numpy(paths), torch.from_numpy(combiner)


@pytest.mark.parametrize(("k", "m"), [(1, 1), (3, 2), (9, 5), (40, 5)])
def test_much_noise_in_quadrature_leaves_what_the_sum_tells(k, m):
    """K ≥ 2m − 1 devices cover every direction beside the sum's: r = 1/√(q²σ²/2), and never less."""
    paths, _ = heard_alike(k, m)
    sight = base_station_sight(paths, 0.8, NO_EDGES, np.ones(k, dtype=bool))
    trusted = 1 / math.sqrt(0.4 * 2.0)
    assert np.allclose(sight.seen(2.0 * ONE, Cover.of(quadrature=1e7)), trusted, rtol=1e-3)
    for level in 10.0 ** np.arange(0, 14):  # where much covers little, rounding is to the safe side
        assert bool((sight.seen(2.0 * ONE, Cover.of(quadrature=level)) >= trusted * (1 - 1e-14)).all())


def test_too_few_devices_cannot_cover_many_antennas_in_quadrature():
    paths, _ = heard_alike(45, 100)
    sight = base_station_sight(paths, 0.8, NO_EDGES, np.ones(45, dtype=bool))
    trusted = 1 / math.sqrt(0.4)
    bare = sight.seen(ONE, Cover.of())
    seen = sight.seen(ONE, Cover.of(quadrature=1e9))
    assert float(seen.min()) > 3 * trusted
    # 45 of 200 real directions are gone, and among them hardly any of a device's own.
    assert float((seen / bare).min()) > 0.5


def test_masks_hide_few_devices_from_many_antennas():
    """What is left is the best estimate of the sum, which no combiner beats: 1ᵀ(P̃ᵀP̃)⁻¹1 of variance σ²/2."""
    paths, _ = heard_alike(45, 100)
    edges = mask_edges(np.random.default_rng(1), 45, 6)
    sight = base_station_sight(paths, 0.8, edges, np.ones(45, dtype=bool))
    along = stacked(paths.numpy())
    best = 0.4 * np.linalg.inv(along @ along.T).sum()
    seen = sight.seen(ONE, Cover.of(masks=1e5))
    assert np.allclose(seen, 1 / math.sqrt(best), rtol=1e-3)
    assert bool((seen < 0.4 * sight.seen(ONE, Cover.of())).all())
    for level in 10.0 ** np.arange(0, 14):
        assert bool((sight.seen(ONE, Cover.of(masks=level)) >= 1 / math.sqrt(best) * (1 - 1e-12)).all())


@pytest.mark.parametrize("cover", COVERS)
@pytest.mark.parametrize("her_noise", [0.0, 0.5])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("credit", [True, False])
def test_visibility_to_an_eavesdropper_who_hears_the_sum_too(cover, her_noise, exact, credit):
    rng = np.random.default_rng(5)
    paths, edges, honest = draw(rng, 7, 2), ring(7), np.arange(7) != 3
    gains = np.ones(7) if exact else 1 + 0.1 * draw(rng, 7)
    along = np.concatenate([stacked(paths), gains.real[:, None]], axis=1)
    turned = np.concatenate([stacked(1j * paths), -gains.imag[:, None]], axis=1)
    sight = eavesdropper_sight(
        torch.from_numpy(paths), torch.from_numpy(gains + 0j), her_noise, 0.6, edges, honest, exact=exact, credit=credit
    )
    q2 = 1.7
    noise = [q2 * her_noise / 2] * 4 + [q2 * 0.3]
    found = sight.seen(q2 * ONE, Cover.of(*cover)).numpy()
    if her_noise == 0.0 and cover == (0.0, 0.0, 0.0):
        assert np.all(np.isinf(found[honest]))
        assert found[3] == 0.0
        return
    sigma = covered(noise, along, turned, cover, edges, honest)
    if not exact and not credit:
        # She is told what of the cover reaches the sum: the rest is what it is given that.
        hidden = covered([0.0] * 5, along, turned, (0.0, *cover[1:]), edges, honest)
        if hidden[-1, -1] > 0:
            sigma -= np.outer(hidden[-1], hidden[-1]) / hidden[-1, -1]
    assert np.allclose(found, quadratic(sigma, along, honest), rtol=1e-6)


def test_what_nothing_covers_is_seen_without_bound():
    """Two devices and an eavesdropper with four antennas and no noise."""
    paths, honest, gains = draw(np.random.default_rng(2), 2, 4), np.ones(2, dtype=bool), torch.ones(2)
    edges = np.array([(0, 1)])
    sight = eavesdropper_sight(torch.from_numpy(paths), gains, 0.0, 1.0, edges, honest, exact=True, credit=False)
    for uncovered in (Cover.of(), Cover.of(quadrature=9.0), Cover.of(masks=9.0), Cover.of(quadrature=9.0, masks=9.0)):
        assert np.all(np.isinf(sight.seen(ONE, uncovered).numpy()))
    # She hears every device by itself; beside their own noise there is the sum's, which her own ears make up for.
    seen = sight.seen(ONE, Cover.of(own=0.25))
    assert np.allclose(seen, 2.0, rtol=1e-9)
    quiet = eavesdropper_sight(torch.from_numpy(paths), gains, 1e-9, 1.0, edges, honest, exact=True, credit=False)
    assert bool(torch.isfinite(quiet.seen(ONE, Cover.of())).all())


@pytest.mark.parametrize(("own", "masks"), [(0.5, 0.0), (0.5, 3.0), (1e-3, 1e3)])
@pytest.mark.parametrize("colluding", [(), (2, 5)])
def test_who_sees_every_device_by_itself_is_left_with_own_noise_and_masks(own, masks, colluding):
    edges, honest = mask_edges(np.random.default_rng(4), 9, 4), ~np.isin(np.arange(9), colluding)
    inverse = np.linalg.inv(own * np.eye(9) + masks * laplacian(edges, honest))
    for cover in (Cover.of(own, 0.0, masks), Cover.of(own, 1e6, masks)):
        seen = bare_sight(9, edges, honest).seen(ONE, cover)
        assert np.allclose(seen, np.where(honest, np.sqrt(np.diag(inverse)), 0.0), rtol=1e-8)
    for cover in (Cover.of(), Cover.of(masks=5.0), Cover.of(quadrature=5.0)):
        seen = bare_sight(9, edges, honest).seen(ONE, cover).numpy()
        assert np.all(np.isinf(seen[honest]))
        assert np.all(seen[~honest] == 0.0)
    alone = bare_sight(1, NO_EDGES, np.ones(1, dtype=bool)).seen(ONE, Cover.of(own=0.25, masks=9.0))
    assert float(alone) == pytest.approx(2.0)


def test_of_many_devices_masks_are_not_taken_apart_and_that_is_never_too_little(monkeypatch):
    edges, honest, cover = mask_edges(np.random.default_rng(4), 30, 4), np.ones(30, dtype=bool), Cover.of(0.5, 0.0, 3.0)
    whole = bare_sight(30, edges, honest).seen(ONE, cover)
    monkeypatch.setattr("airfl.transceiver.sight.TAKEN_APART", 20)
    coarse = bare_sight(30, edges, honest).seen(ONE, cover)
    assert np.allclose(coarse, math.sqrt(2.0))
    assert bool((whole < coarse).all())


@given(
    seed=st.integers(0, 10**6),
    k=st.integers(2, 8),
    m=st.integers(1, 4),
    own=st.sampled_from([0.0, 0.2]),
    quadrature=st.sampled_from([0.0, 10.0, 1e5]),
    masks=st.sampled_from([0.0, 10.0, 1e5]),
)
def test_what_leaks_into_the_sum_counts_for_nothing_unless_it_is_credited(seed, k, m, own, quadrature, masks):
    rng = np.random.default_rng(seed)
    paths, combiner = heard_alike(k, m, seed)
    paths = paths + 0.05 * torch.from_numpy(draw(rng, k, m))  # channels are not what they were taken for
    edges, honest = mask_edges(rng, k, 4), rng.random(k) < 0.8
    cover, q2 = Cover.of(own, quadrature, masks), 1.3
    credited = base_station_sight(paths, 0.8, edges, honest).seen(q2 * ONE, cover)
    told = base_station_sight(paths, 0.8, edges, honest, combiner).seen(q2 * ONE, cover)
    assert bool((told >= credited * (1 - 1e-7)).all())
    # Who sees all antennas sees the sum, with the noise that is credited in it.
    gains = (paths @ combiner.conj()).real * torch.from_numpy(honest)
    in_the_sum = gains.square() / (q2 * 0.4 + own * gains.square().sum())
    assert bool((told.square() >= in_the_sum * (1 - 1e-6)).all())
    # By brute force: given Re(wᴴ cover).
    along, w = stacked(paths.numpy()), stacked(combiner.numpy()[None])[0]
    turned = stacked(1j * paths.numpy())
    hidden = covered([0.0] * 2 * m, along, turned, (0.0, quadrature, masks), edges, honest)
    given_it = hidden.copy()
    if w @ hidden @ w > 0:
        given_it -= np.outer(hidden @ w, hidden @ w) / (w @ hidden @ w)
    sigma = given_it + covered([q2 * 0.4] * 2 * m, along, turned, (own, 0.0, 0.0), edges, honest)
    assert np.allclose(told, quadratic(sigma, along, honest), rtol=1e-5)


def test_rounds_are_stacked_and_devices_picked_without_changing_what_is_seen():
    """Also rounds with fewer directions, and with nobody in them."""
    rng, cover = np.random.default_rng(6), Cover.of(0.1, 2.0, 3.0)
    places = torch.tensor([2, -1, 0])
    rounds = [
        base_station_sight(torch.from_numpy(draw(rng, k, m)), 0.7, mask_edges(rng, k, 4), np.ones(k, dtype=bool), told)
        for k, m, told in ((4, 3, draw(rng, 3)), (3, 2, draw(rng, 2)))
        for told in (torch.from_numpy(told),)
    ]
    both = Sight.stacked([one.of(places) for one in rounds])
    seen = both.seen(torch.tensor([0.5, 2.0], dtype=torch.float64), cover)
    for row, one, q2 in zip(seen, rounds, (0.5, 2.0), strict=True):
        alone = one.seen(q2 * ONE, cover)
        assert np.allclose(row, [alone[2], 0.0, alone[0]], rtol=1e-10)
    nobody = base_station_sight(torch.zeros(0, 3, dtype=torch.complex128), 0.7, NO_EDGES, np.zeros(0, dtype=bool))
    assert nobody.of(torch.tensor([-1, -1])).seen(ONE, cover).tolist() == [0.0, 0.0]
    assert bare_sight(0, NO_EDGES, np.zeros(0, dtype=bool)).of(torch.tensor([-1])).seen(ONE, cover).tolist() == [0.0]


# Who shares masks.


@given(seed=st.integers(0, 10**6), senders=st.integers(0, 40), half=st.integers(1, 5))
@example(seed=0, senders=2, half=1)
@example(seed=0, senders=6, half=3)
@example(seed=0, senders=7, half=3)
def test_the_graph_of_masks_is_regular_and_connected(seed, senders, half):
    degree = 2 * half
    edges = mask_edges(np.random.default_rng(seed), senders, degree)
    assert np.all(edges[:, 0] != edges[:, 1])
    expected = max(0, mask_degree(senders, degree))
    assert np.all(degrees_of(edges, senders) == expected)
    if senders <= degree:  # everyone with everyone, once
        assert len({tuple(sorted(pair)) for pair in edges.tolist()}) == len(edges) == senders * (senders - 1) // 2
    if senders > 1:
        spectrum = np.linalg.eigvalsh(laplacian(edges, np.ones(senders, dtype=bool)))
        assert spectrum[1] > 1e-9 > abs(spectrum[0])  # one component


def test_a_new_graph_in_every_round_and_trial(shielded):
    link = open_radio(shielded, (0, 1)).link
    everyone = np.arange(12)
    drawn = [graph(link, index, t, everyone, everyone) for index in (0, 1) for t in range(6)]
    assert all(np.all(degrees_of(edges, 12) == 6) for edges in drawn)
    assert len({edges.tobytes() for edges in drawn}) == len(drawn)
    assert np.array_equal(drawn[0], graph(link, 0, 0, everyone, everyone))


def test_masks_of_who_drops_out_leave_with_it(shielded):
    link = open_radio(shielded, (0,)).link
    everyone = np.arange(12)
    whole = {tuple(sorted(pair)) for pair in graph(link, 0, 2, everyone, everyone).tolist()}
    left = np.array([0, 2, 3, 7, 8, 9, 11])
    kept = {tuple(sorted(left[pair].tolist())) for pair in graph(link, 0, 2, everyone, left)}
    assert kept == {pair for pair in whole if set(pair) <= set(left.tolist())}


# Signals that are drawn.


def cases(shielded):
    """Settings of rounds as a plan makes them, with what a cover may meet."""
    masks = {"scheme.cover": "masks", "scheme.mask_degree": 4}
    yield "quadrature", shielded, {}
    yield "masks", shielded, masks
    yield "own noise", shielded, {"scheme.cover": "none"}
    yield "dropouts", shielded, {**masks, "system.dropout": 0.3}
    yield "erred channels", shielded, {"channel.csi_error": 0.01}
    yield "erred channels and masks", shielded, {**masks, "channel.csi_error": 0.01, "system.dropout": 0.2}


NAMES = [name for name, _, _ in cases(None)]


@pytest.fixture
def case(request, shielded):
    changes = next(changes for name, _, changes in cases(shielded) if name == request.param)
    plan = plan_of(shielded.replace(changes), "airfl-shielded", trials=(0,))
    return plan, plan.setting(1)


def sent_covariance(setting, noise_power):
    """Σ of what antennas hear, from the setting alone."""
    here = setting.heard[0].numpy()
    paths = (setting.channels[0] * setting.tx_scaling[0].unsqueeze(1)).numpy()[here]
    cover = tuple(float(part[0]) for part in (setting.cover.own, setting.cover.quadrature, setting.cover.masks))
    noise, honest = [noise_power / 2] * 2 * paths.shape[1], np.ones(len(paths), dtype=bool)
    return covered(noise, stacked(paths), stacked(1j * paths), cover, setting.edges[0], honest)


def block_of(sent):
    k = len(sent)
    return UpdateBlock(torch.zeros(k, dtype=torch.int64), torch.arange(k), sent, torch.zeros(k))


@pytest.mark.parametrize("case", NAMES, indirect=True)
def test_antennas_hear_cover_with_the_covariance_that_is_counted_on(case):
    """Whitened by Σ, 60,000 symbols have the unit covariance within six standard errors."""
    _, setting = case
    symbols = 60_000
    silence = torch.zeros(setting.active.shape[1], symbols)
    heard = torch.cat(list(SignalUplink(11, (0,)).antennas(0, silence, setting)), dim=1)
    sigma = sent_covariance(setting, setting.noise_power)
    white = np.linalg.solve(np.linalg.cholesky(sigma), torch.cat([heard.real, heard.imag]).numpy())
    empirical = white @ white.T / symbols
    assert np.abs(empirical - np.eye(len(sigma))).max() < 6 * math.sqrt(2 / symbols)
    assert np.abs(white.mean(axis=1)).max() < 6 / math.sqrt(symbols)


@pytest.mark.parametrize("case", NAMES, indirect=True)
def test_both_uplinks_add_the_noise_that_is_in_the_sum(case):
    """Mean and variance, leaks of imperfect channel knowledge included."""
    plan, setting = case
    k, dim = setting.active.shape[1], 100_000
    rng = np.random.default_rng(8)
    sent = torch.from_numpy(rng.standard_normal((k, 1)).astype(np.float32)).expand(k, dim).contiguous()
    expected = float((setting.gains.real[0] * sent[:, 0]).sum())
    booked = float(setting.noise_var[0])
    for kind in (EquivalentUplink, SignalUplink):
        received = kind(3, (0,)).receive([block_of(sent)], dim, setting)[0].double()
        assert float(received.var()) == pytest.approx(booked, rel=6 * math.sqrt(2 / dim))
        assert float(received.mean()) == pytest.approx(expected, abs=6 * math.sqrt(booked / dim))
    # From the combiner and the covariance at the antennas.
    sigma = sent_covariance(setting, setting.noise_power)
    w = stacked(setting.combiner[0].numpy()[None])[0]
    assert booked == pytest.approx(w @ sigma @ w, rel=1e-9)
    erred = plan.link.config.channel.csi_error > 0
    leak = float(torch.cat(leaks_of(setting.gains[0][setting.heard[0]], setting.edges[0], setting.cover[0])).sum())
    assert (leak > 1e-9 * booked) == erred
    assert float(setting.unknown_var[0]) <= booked * (1 + 1e-12)
    if erred:  # nobody is promised anything for what leaks
        assert float(setting.unknown_var[0]) <= booked - leak * (1 - 1e-9)


@pytest.mark.parametrize("cover", [{"quadrature": 1.0}, {"masks": 1.0}, {"quadrature": 1.0, "masks": 1.0}])
def test_cover_leaves_the_sum_to_rounding_even_60_db_above_the_update(cover):
    """In double precision it costs seven digits of sixteen: what is received is rounded to float32 and differs by no
    more than that. In single precision at the receiver it would have cost all but one."""
    k, m, dim = 9, 4, 5_000
    rng = np.random.default_rng(0)
    channels = torch.from_numpy(draw(rng, k, m))
    combiner = torch.from_numpy(draw(rng, m))
    scaling = 1.0 / (channels @ combiner.conj())
    gains = torch.ones(1, k, dtype=torch.complex128)
    nothing = torch.zeros(1, dtype=torch.float64)
    plain = setting_of(2, gains, nothing, 1e-12, channels[None], scaling[None], combiner[None])
    updates = torch.from_numpy(rng.standard_normal((k, dim)).astype(np.float32))
    edges = (mask_edges(rng, k, 4),)
    louder = 1e6  # times the power of an update's entries, which is 1
    hidden = replace(plain, cover=Cover.of(**{name: louder * part for name, part in cover.items()}), edges=edges)
    uplink = SignalUplink(5, (0,))
    for silent in (True, False):
        settings = [replace(one, noise_power=0.0 if silent else 1e-12) for one in (plain, hidden)]
        bare, shielded = (uplink.receive([block_of(updates)], dim, one)[0].double() for one in settings)
        assert float((shielded - bare).norm() / bare.norm()) < 1e-6
        exact = updates.double().sum(dim=0)
        assert float((shielded - exact).norm() / exact.norm()) < 1e-5
    # And yet the antennas hear mostly cover.
    quiet, loud = (next(uplink.antennas(0, updates, one)) for one in (plain, hidden))
    assert float(loud.abs().square().mean() / quiet.abs().square().mean()) > 1e5


def test_of_devices_that_drop_out_no_mask_is_left_in_the_sum(shielded):
    config = shielded.replace({"system.dropout": 0.4, "scheme.cover": "masks", "scheme.mask_degree": 4})
    plan = plan_of(config, "airfl-shielded", trials=(0,))
    dropped = [int((plan.planned[0, t] >= 0).sum() - (plan.active[0, t] >= 0).sum()) for t in range(4)]
    assert max(dropped) > 0
    for t in range(4):
        setting = replace(plan.setting(t), noise_power=0.0, cover=Cover.of(masks=1.0))
        assert setting.heard[0].sum() == 12 - dropped[t]
        assert all(place < 12 - dropped[t] for place in setting.edges[0].ravel())
        k = setting.active.shape[1]
        left = SignalUplink(3, (0,)).receive([block_of(torch.zeros(k, 1000))], 1000, setting)[0]
        assert float(left.abs().max()) < 1e-12


def test_a_plan_books_what_brute_force_sees(shielded):
    """Dropouts, colluders, masks, an eavesdropper and erred channels at once."""
    config = shielded.replace(
        {
            "system.dropout": 0.2,
            "system.num_devices": 16,
            "channel.csi_error": 1e-4,
            "privacy.colluding": 0.2,
            "privacy.observer": "everything",
            "scheme.cover": "masks",
            "scheme.mask_degree": 4,
            "eavesdropper.position": [30.0, 40.0],
            "eavesdropper.noise_density_dbm_hz": -174.0,
            "scheme.cover_price_db": 100.0,
        }
    )
    plan = plan_of(config, "airfl-shielded", trials=(0, 1))
    link = plan.link
    thermal, hers = link.credited_power, link.listener.noise_power
    assert thermal == pytest.approx(1.380649e-23 * 290 * 20e6)
    assert link.colluding.sum(axis=1).tolist() == [4, 4]
    for index, t in ((0, 0), (1, 3)):
        setting = plan.setting(t)
        here = setting.heard[index].numpy()
        who, edges = setting.active[index][here], setting.edges[index]
        honest = ~link.colluding[index][who]
        assert 0 < honest.sum() < len(who) < 16
        own, quadrature, masks = (float(getattr(setting.cover, name)[index]) for name in ("own", "quadrature", "masks"))
        assert min(own, masks) > 0 == quadrature
        scaling, gains = setting.tx_scaling[index].numpy()[here], setting.gains[index].numpy()[here]
        paths = setting.channels[index].numpy()[here] * scaling[:, None]
        along, turned = stacked(paths), stacked(1j * paths)
        w = stacked(setting.combiner[index].numpy()[None])[0]
        assert np.allclose(along @ w, gains.real)
        hidden = covered([0.0] * 6, along, turned, (0.0, 0.0, masks), edges, honest)
        sigma = hidden - np.outer(hidden @ w, hidden @ w) / (w @ hidden @ w)
        sigma += covered([thermal / 2] * 6, along, turned, (own, 0.0, 0.0), edges, honest)
        found = {name: values[index].numpy() for name, values in setting.seen.items()}
        assert np.allclose(found["base-station"][here], quadratic(sigma, along, honest), rtol=1e-6)
        inverse = np.linalg.inv(own * np.eye(len(who)) + masks * laplacian(edges, honest))
        assert np.allclose(found["everything"][here], np.sqrt(np.diag(inverse)) * honest, rtol=1e-6)
        to_her = link.listener.draw(index, t)[who] * scaling[:, None]
        along = np.concatenate([stacked(to_her), gains.real[:, None]], axis=1)
        hidden = covered([0.0] * 3, along, along, (0.0, 0.0, masks), edges, honest)
        sigma = hidden - np.outer(hidden[-1], hidden[-1]) / hidden[-1, -1]
        q2 = float(plan.norm[index, t]) ** 2
        noise = [hers / 2, hers / 2, q2 * link.noise_power / 2]
        sigma += covered(noise, along, along, (own, 0.0, 0.0), edges, honest)
        assert np.allclose(found["eavesdropper"][here], quadratic(sigma, along, honest), rtol=1e-6)
        for values in found.values():
            assert np.all(values[~here] == 0.0)
            assert np.all(values[here][~honest] == 0.0)
            assert np.all(values[here][honest] > 0.0)
        # The noise that someone who sees models does not know: that of honest devices but one, and not what leaks.
        heard = np.sort(gains.real[honest] ** 2)
        assert float(setting.unknown_var[index]) == pytest.approx(
            q2 * link.noise_power / 2 + own * float(heard[:-1].sum()), rel=1e-9
        )


def test_schemes_without_cover_are_seen_in_white_noise_alone(shielded):
    config = shielded.replace({"scheme.names": ["airfl-dp"], "eavesdropper.distance_m": 20.0})
    plan = plan_of(config, "airfl-dp", trials=(0,))
    setting = plan.setting(0)
    norms = (setting.channels[0].abs().square().sum(dim=1)).sqrt() * setting.tx_scaling[0].abs()
    expected = math.sqrt(2 / plan.link.credited_power) * norms
    assert torch.allclose(setting.seen["base-station"][0], expected, rtol=1e-12, atol=0.0)
    assert bool(torch.isinf(setting.seen["everything"]).all())
    assert bool(torch.isinf(setting.seen["eavesdropper"]).all())  # no noise of her own, and no cover
    entry = airfl.run(config.replace({"system.rounds": 1})).summary["schemes"]["airfl-dp"]["epsilon_by_observer"]
    assert entry["everything"]["gaussian"] is None
    assert entry["eavesdropper"]["gaussian"] is None
    assert entry["base-station"]["gaussian"] > 4.0
