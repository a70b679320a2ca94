"""Perturbations that add up to zero: what covers a device, what the sum hears, what is paid and booked."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from airfl.air import EquivalentUplink, SignalUplink
from airfl.analysis import audit_run
from airfl.analysis.audit.planted import DEFECTS, little_config
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.privacy import make_accountant
from airfl.rounds.observed import leaks_of
from airfl.simulate import open_simulation
from airfl.testing.small import small_config, small_task
from airfl.transceiver import Cover, base_station_sight, eavesdropper_sight

ONE = torch.ones((), dtype=torch.float64)
CELL = {"system.num_antennas": 3, "channel.power_w": 1e-2}


def pairs(count):
    return np.stack(np.triu_indices(count, k=1), axis=1)


def drawn(rng, *shape):
    return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)


def opened(overrides=None, scheme="zero-sum"):
    config = small_config({"scheme.names": [scheme], **CELL, **(overrides or {})})
    return open_simulation(config, scheme, small_task(config))


def finished(simulation):
    *_, (state, _) = simulation.rounds()
    simulation.release(state)
    return state


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(2, 7), m=st.integers(1, 6), nu=st.sampled_from([0.01, 1.0, 300.0]))
def test_visibility_is_the_coloured_quadratic_form(seed, k, m, nu):
    """√(2 pᴴC⁻¹p) with C = σ²I + H_p R H_pᴴ and R = ν(I − 11ᵀ/K); colluders take their pairs with them."""
    rng = np.random.default_rng(seed)
    paths, sigma2, colluding = drawn(rng, k, m), 0.7, int(rng.integers(0, k - 1))
    honest = np.arange(k) >= colluding
    columns = paths[honest].T
    there = honest.sum()
    spread = nu / k * (there * np.eye(there) - np.ones((there, there)))
    covered = sigma2 * np.eye(m) + columns @ spread @ columns.conj().T
    brute = np.zeros(k)
    brute[honest] = [math.sqrt(2 * (p.conj() @ np.linalg.solve(covered, p)).real) for p in paths[honest]]
    sight = base_station_sight(torch.from_numpy(paths), sigma2, pairs(k), honest, circular=True)
    found = sight.seen(ONE, Cover.of(masks=nu / (2 * k), circular=True))
    assert np.allclose(found.numpy(), brute, rtol=1e-8)


def test_an_eavesdropper_has_the_sum_as_one_more_receiver():
    """The sum is real and hears nothing of it; what she hears is both parts of her antennas."""
    rng = np.random.default_rng(3)
    k, b = 5, 2.0
    paths = drawn(rng, k, 2)
    rows = np.concatenate([paths.real, paths.imag], axis=1).T
    turned = np.concatenate([-paths.imag, paths.real], axis=1).T
    laplacian = k * np.eye(k) - np.ones((k, k))
    signal = np.vstack([rows, np.ones((1, k))])
    other = np.vstack([turned, np.zeros((1, k))])
    noise = np.diag([0.1] * 4 + [0.4])
    covered = noise + b * signal @ laplacian @ signal.T + b * other @ laplacian @ other.T
    brute = np.sqrt(np.einsum("ri,rs,si->i", signal, np.linalg.inv(covered), signal))
    sight = eavesdropper_sight(
        torch.from_numpy(paths), torch.ones(k, dtype=torch.complex128), 0.2, 0.8, pairs(k), np.ones(k, dtype=bool),
        exact=True, credit=False, circular=True,
    )  # fmt: skip
    assert np.allclose(sight.seen(ONE, Cover.of(masks=b, circular=True)).numpy(), brute, rtol=1e-9)


def test_little_noise_leaves_the_sum_and_one_update_under_the_perturbation():
    """μ² → S²/v + 2S²(K − 1)/(Kν) for σ² → 0, unit gains and w of least norm: exact where paths are orthogonal.

    With few antennas and more noise it is another number, so what is booked is the exact form and never this one.
    """
    nu, cover = 0.3, lambda k: Cover.of(masks=0.3 / (2 * k), circular=True)
    for k, m, sigma2, orthogonal in (
        (2, 5, 1e-6, True),
        (6, 9, 1e-6, True),
        (10, 12, 1e-6, False),
        (10, 12, 0.1, False),
    ):
        rng = np.random.default_rng(k)
        channels = drawn(rng, k, m)
        channels = np.linalg.qr(channels.T)[0].T if orthogonal else channels
        combiner = np.linalg.pinv(channels.conj()) @ np.ones(k)  # ‖w‖ least with wᴴh_i = 1
        assert np.allclose(channels.conj() @ combiner, 1)
        v = 0.5 * sigma2 * float(np.linalg.norm(combiner)) ** 2
        sight = base_station_sight(torch.from_numpy(channels), sigma2, pairs(k), np.ones(k, dtype=bool), circular=True)
        seen, more = sight.seen(ONE, cover(k)).square().numpy(), 2 * (k - 1) / (k * nu)
        if orthogonal:
            assert np.allclose(seen - 1.0 / v, more, rtol=1e-3)
        assert np.allclose(seen / (1.0 / v + more), 1.0, atol=1e-3 if sigma2 == 1e-6 else 0.5)


@pytest.mark.parametrize("overrides", [{}, {"channel.coherence_hz": 5e6}])
def test_the_sum_hears_nothing_and_antennas_do(overrides):
    simulation = opened(overrides)
    setting, schedule = simulation.schedule.setting(1), simulation.schedule
    trials, places = setting.active.shape
    assert float(setting.cover.masks.min()) > 0.1
    sent = torch.randn(trials, places, schedule.dim, generator=torch.Generator().manual_seed(1))
    block = UpdateBlock(
        torch.arange(trials).repeat_interleave(places), torch.arange(places).repeat(trials), sent.flatten(0, 1),
        torch.zeros(trials * places),
    )  # fmt: skip
    one = setting if setting.blocks is None else setting.blocks.scene(1)
    quiet = replace(one, noise_power=0.0, interference_power=0.0)
    uplink = SignalUplink(5, (0, 1))
    heard = uplink.received(0, sent[0], quiet)
    assert torch.allclose(heard, sent[0].sum(dim=0), atol=1e-5)  # cancels to rounding
    antennas = torch.cat(list(uplink.antennas(0, torch.zeros(places, 4096), quiet)), dim=1)
    paths = one.channels[0] * one.tx_scaling[0].unsqueeze(-1)
    centred = paths - paths.mean(dim=0)
    nu = 2 * places * float(one.cover.masks[0])
    expected = nu * centred.mT @ centred.conj()
    found = antennas @ antennas.mH / antennas.shape[1]
    assert float((found - expected).abs().max() / expected.abs().max()) < 0.1
    assert float((antennas @ antennas.mT / antennas.shape[1]).abs().max() / expected.abs().max()) < 0.1  # circular
    other = EquivalentUplink(5, (0, 1)).receive([block], schedule.dim, setting.silenced())
    assert torch.allclose(other, sent.sum(dim=1), atol=1e-4)


def test_it_is_paid_for_in_power_and_earns_nothing_in_the_sum():
    simulation = opened({"scheme.zero_sum_power": 50.0})
    schedule = simulation.schedule
    least = schedule.minimum * math.sqrt(51.0)
    assert bool((schedule.norm >= least * (1 - 1e-12)).all())
    setting = schedule.setting(0)
    assert float(setting.power_w.max()) <= 1e-2 * (1 + 1e-9)
    state = finished(simulation)
    for row, ledger in enumerate(state.ledgers):
        for event in ledger.events:
            q = float(schedule.norm[row, event.round])
            assert event.noise_var == pytest.approx(q * q * event.noise_power / 2, rel=1e-12)  # no credit
            assert event.noise_source == "channel"
            assert event.gain_bound == pytest.approx(1.0)
    (low,) = {used.own for used in (shield.used for shield in schedule.shields)}
    assert low == 0.0


def test_it_costs_less_noise_than_noise_of_ones_own():
    """`airfl-an` pays νK/2 in the sum for its cover, perturbations that cancel pay power alone."""
    for overrides in ({}, {"system.num_antennas": 8}):
        cancels, stays = (opened(overrides, scheme).schedule for scheme in ("zero-sum", "airfl-an"))
        assert float(cancels.noise_var.mean()) < 0.6 * float(stays.noise_var.mean())


def test_for_who_sees_models_it_is_the_usual_scheme():
    usual = opened({"privacy.observer": "auto"}, "airfl-dp")
    hidden = opened({"privacy.observer": "model"})
    assert torch.allclose(hidden.schedule.noise_var, usual.schedule.noise_var, rtol=1e-5)
    spent = [
        [make_accountant("gaussian", ledger, "zero-out").epsilon(1e-5) for ledger in finished(one).ledgers]
        for one in (usual, hidden)
    ]
    assert spent[1] == pytest.approx(spent[0], rel=1e-4)


EAVESDROPPER = {
    "privacy.observer": "eavesdropper",
    "eavesdropper.position": [30.0, 40.0],
    "eavesdropper.noise_density_dbm_hz": -174.0,
    "eavesdropper.antennas": 2,
}


@pytest.mark.parametrize(
    "overrides",
    [
        {"channel.power_w": 1e-9},
        {"channel.power_w": 10.0, "privacy.epsilon": 0.3},
        {"system.num_antennas": 9, "privacy.colluding": 0.3},
        {"system.dropout": 0.1},
        {"channel.csi_error": 1e-5, "scheme.uplink": "signal"},
        {"system.participation": 0.4, "scheme.zero_sum_power": 1e6},
        EAVESDROPPER,
        {**EAVESDROPPER, "eavesdropper.position": [0.0, 0.5], "channel.coherence_hz": 5e6},
    ],
)
def test_a_budget_is_kept(overrides):
    simulation = opened(overrides)
    state, observer = finished(simulation), simulation.schedule.promise.observer
    assert observer == overrides.get("privacy.observer", "base-station")
    allowed = overrides.get("privacy.epsilon", 5.0)
    for ledger in state.ledgers:
        for who in (observer, "models"):
            assert make_accountant("gaussian", ledger, simulation.config.neighbours, who).epsilon(1e-5) <= allowed


def test_what_gains_that_err_let_through_is_noise_in_the_sum():
    """Σ (gain_i − mean) ζ_i, in both parts."""
    rng = np.random.default_rng(8)
    gains = 1.0 + 0.1 * drawn(rng, 6)
    b = 3.0
    away = gains - gains.mean()
    expected = 6 * b * float((np.abs(away) ** 2).sum())
    turned, masks = leaks_of(torch.from_numpy(gains), pairs(6), Cover.of(masks=b, circular=True))
    assert float(turned.sum() + masks.sum()) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"channel.symbols": "complex"}, "airfl-shielded"),
        ({"privacy.observer": "everything"}, "everything"),
        ({"channel.phase_error_rad": 0.1}, "phase_error_rad"),
    ],
)
def test_what_is_not_worked_out_is_refused(changes, word):
    with pytest.raises(InputError, match=word):
        opened(changes)


def test_too_many_pairs_are_refused(monkeypatch):
    monkeypatch.setattr("airfl.rounds.shield.MOST_PAIRED", 5)
    with pytest.raises(InputError, match="a seed for every pair"):
        opened()


def test_audits_pass_and_planted_defects_are_caught():
    changes = {"scheme.names": ["zero-sum"], "system.num_antennas": 3, "system.rounds": 2, "scheme.combiner": "auto"}
    config = little_config(3, False).replace(changes)
    found = audit_run(config, "zero-sum", 30)
    assert not found.findings
    assert any("antennas hear of the cover" in said for said in found.tested)
    for name in ("clip × 2", "masks of half the variance"):
        defect = next(defect for defect in DEFECTS if defect.name == name)
        assert audit_run(config, "zero-sum", 30, opener=defect.open).failed
