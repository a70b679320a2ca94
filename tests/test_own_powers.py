"""Noise of each device's own power, found together with combiners."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from airfl.air import EquivalentUplink, SignalUplink
from airfl.air.setting import NO_EDGES
from airfl.analysis import audit_run
from airfl.analysis.audit.planted import DEFECTS, little_config
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.privacy import make_accountant
from airfl.rounds import each
from airfl.simulate import open_simulation
from airfl.testing.small import small_config, small_task
from airfl.transceiver import Cover, base_station_sight

ONE = torch.ones((), dtype=torch.float64)
CELL = {"system.num_antennas": 3, "channel.power_w": 1e-3}


def opened(overrides=None, scheme="liu2024"):
    config = small_config({"scheme.names": [scheme], **CELL, **(overrides or {})})
    return open_simulation(config, scheme, small_task(config))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 7), m=st.integers(1, 6), colluding=st.integers(0, 3))
def test_visibility_counts_every_power_for_itself(seed, k, m, colluding):
    """√(2 pᴴC⁻¹p) with C = σ²I + Σ_k a_k p_k p_kᴴ over honest devices."""
    rng = np.random.default_rng(seed)
    paths = rng.standard_normal((k, m)) + 1j * rng.standard_normal((k, m))
    share, own, sigma2 = rng.uniform(0.0, 4.0, k), 0.6, 0.7
    honest = np.arange(k) >= min(colluding, k - 1)
    covered = sigma2 * np.eye(m) + sum(
        2 * own * share[i] * np.outer(paths[i], paths[i].conj()) for i in np.flatnonzero(honest)
    )
    brute = np.where(honest, [math.sqrt(2 * (p.conj() @ np.linalg.solve(covered, p)).real) for p in paths], 0.0)
    sight = base_station_sight(torch.from_numpy(paths), sigma2, NO_EDGES, honest, share=torch.from_numpy(share))
    assert np.allclose(sight.seen(ONE, Cover.of(own=own, quadrature=own)).numpy(), brute, rtol=1e-9)


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"channel.distance": "common", "system.num_antennas": 2},
        {"privacy.epsilon": 0.5, "channel.power_w": 1.0},
        {"privacy.colluding": 0.2},
        {"system.dropout": 0.2},
        {"system.participation": 0.5},
        {"system.num_devices": 3, "system.sampling": "poisson", "system.participation": 0.2},  # rounds of nobody
        {"channel.power_w": 1e-12},
    ],
)
def test_it_never_takes_more_noise_than_equal_powers_and_keeps_the_promise(overrides):
    simulation, equal = opened(overrides), opened(overrides, "airfl-an")
    schedule, power = simulation.schedule, simulation.config.channel.power_w
    ours, theirs = (one.noise_var.mean(dim=1) for one in (schedule, equal.schedule))
    assert bool((ours <= theirs * (1 + 1e-6)).all())
    if overrides == {}:
        assert float(ours.mean()) < 0.9 * float(theirs.mean())
    *_, (state, _) = simulation.rounds()
    simulation.release(state)
    for t in range(3):
        assert float(schedule.setting(t).power_w.max()) <= power * (1 + 1e-9)
    allowed = overrides.get("privacy.epsilon", 5.0)
    for ledger in state.ledgers:
        for who in ("base-station", "models"):
            assert make_accountant("gaussian", ledger, simulation.config.neighbours, who).epsilon(1e-5) <= allowed


def test_who_adds_most_is_left_out_of_what_is_booked():
    for colluding in (0.0, 0.2):
        simulation = opened({"privacy.colluding": colluding, "channel.distance": "common"})
        schedule = simulation.schedule
        setting, share = schedule.setting(0), schedule.cover.share
        assert share is not None
        step = simulation.advance(simulation.init())
        for row, ledger in enumerate(step.after.ledgers):
            own, shares = float(schedule.cover.own[row]), share[row].numpy()
            honest = ~schedule.link.colluding[row]
            counted = shares[honest].sum() - shares[honest].max()
            q = float(schedule.norm[row, 0])
            receiver = q * q * schedule.link.noise_power / 2
            assert ledger.events[0].noise_var == pytest.approx(receiver + own * counted, rel=1e-12)
            assert float(setting.noise_var[row]) == pytest.approx(receiver + own * shares.sum(), rel=1e-12)


def test_the_noise_that_is_planned_is_the_noise_that_both_uplinks_add():
    schedule, dim = opened({"channel.distance": "common"}).schedule, 20_000
    setting = schedule.setting(0)
    trials, places = setting.active.shape
    block = UpdateBlock(
        torch.arange(trials).repeat_interleave(places), torch.arange(places).repeat(trials),
        torch.zeros(trials * places, dim), torch.zeros(trials * places),
    )  # fmt: skip
    for uplink in (EquivalentUplink, SignalUplink):
        heard = uplink(5, (0, 1)).receive([block], dim, setting).double()
        assert (heard.square().mean(dim=1) / setting.noise_var).tolist() == pytest.approx([1.0, 1.0], rel=0.05)


def test_powers_are_those_of_a_general_solver(monkeypatch):
    """With a combiner given: logarithms of three devices' shares, by Nelder and Mead, against the steps taken here."""
    kept = {}
    steps = each._powers

    def noted(problem, shield):
        kept.setdefault("start", (problem, shield))
        return steps(problem, shield)

    monkeypatch.setattr(each, "_powers", noted)
    changes = {"system.num_devices": 3, "system.num_antennas": 2, "system.rounds": 1, "system.trials": 1}
    opened({**changes, "channel.distance": "common", "system.seed": 4})
    problem, shield = kept["start"]
    _, found = steps(problem, shield)

    def noise(logs):
        share = torch.tensor([0.0, *logs], dtype=torch.float64).exp()
        other = each._kept(each._changed(problem, share=share / share.mean()))
        return math.inf if other is None else other.noise / shield.noise

    best = minimize(noise, [0.0, 0.0], method="Nelder-Mead", options={"maxfev": 60, "xatol": 1e-3, "fatol": 1e-5})
    assert found.noise / shield.noise <= best.fun * 1.03
    assert found.noise <= shield.noise


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"channel.csi_error": 0.01}, "exact channel knowledge"),
        ({"channel.coherence_hz": 5e6}, "finds the noise of every device"),
        ({"channel.symbols": "complex"}, "finds the noise of every device"),
        ({"channel.phase_error_rad": 0.1}, "phase_error_rad"),
    ],
)
def test_what_is_not_worked_out_is_refused(changes, word):
    with pytest.raises(InputError, match=word):
        opened(changes)


def test_audits_pass_and_a_bound_of_half_is_caught():
    changes = {"scheme.names": ["liu2024"], "system.num_antennas": 3, "system.rounds": 2, "scheme.combiner": "auto"}
    config = little_config(3, False).replace({**changes, "scheme.combiner_columns": "active"})
    found = audit_run(config, "liu2024", 30)
    assert not found.findings
    assert any("antennas hear of the cover" in said for said in found.tested)
    twice = next(defect for defect in DEFECTS if defect.name == "clip × 2")
    assert audit_run(config, "liu2024", 30, opener=twice.open).failed
