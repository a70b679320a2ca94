"""Imperfect channel knowledge, silent devices, and the online scheme, from channel to ledger."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import airfl
from airfl.analysis.combiners import seeded_channels
from airfl.channel import open_link
from airfl.privacy import make_accountant
from airfl.rounds import arrange
from airfl.schemes import SCHEMES
from airfl.transceiver import SELECTIONS, allocate, open_radio
from airfl.transceiver.certificates import certificate, prices


def plan_of(config, scheme="airfl-dp", trials=(0, 1), dim=650):
    return arrange(config, SCHEMES[scheme], open_radio(config, trials), dim)


def test_estimates_have_the_stated_error_and_it_is_independent(tiny):
    config = tiny.replace({"channel.csi_error": 0.2, "system.rounds": 2000})
    link = open_link(config, [0])
    true, known = link.channels(range(2000))[0], link.estimates(range(2000))[0]
    scale = link.law.amplitude[0][None, :, None]
    error, known = (true - known) / scale, known / scale
    assert np.mean(np.abs(error) ** 2) == pytest.approx(0.2, rel=0.02)
    assert np.mean(np.abs(known) ** 2) == pytest.approx(0.8, rel=0.02)
    assert abs(np.mean(error * known.conj())) < 0.005
    assert (open_link(tiny, [0]).estimates([0]) == open_link(tiny, [0]).channels([0])).all()


@pytest.mark.parametrize("combiner", ["auto", "zero-forcing"])
def test_imperfect_knowledge_is_booked_and_the_budget_still_kept(tiny, combiner):
    config = tiny.replace(
        {"channel.csi_error": 0.01, "scheme.combiner": combiner, "scheme.names": ["airfl-dp", "airfl-dp-online"]}
    )
    result = airfl.run(config)
    for scheme in result.schemes.values():
        assert scheme.status == "done"
        assert (scheme.column("misalignment") > 0).all()
        for ledger in scheme.ledgers:
            assert all(event.gain_bound > 1.0 for event in ledger.events)
            assert make_accountant("gaussian", ledger, "replace").epsilon(1e-5) <= 50.0
    spent = make_accountant("gaussian", result.schemes["airfl-dp"].ledgers[0], "replace").epsilon(1e-5)
    assert spent == pytest.approx(50.0, rel=1e-9)


def test_gain_bound_holds_for_the_realised_gains(tiny):
    config = tiny.replace({"channel.csi_error": 0.05, "system.rounds": 50})
    plan = plan_of(config)
    for t in range(50):
        setting = plan.setting(t)
        assert bool((setting.gains.abs().amax(dim=1) <= plan.gain_bound[:, t]).all())
    # With a generous outage the bound is tight enough to be broken now and then, so it is not merely huge.
    loose = plan_of(config.replace({"channel.csi_outage": 0.99}))
    broken = sum(
        bool((loose.setting(t).gains.abs().amax(dim=1) > 1 + 0.3 * (loose.gain_bound[:, t] - 1)).any())
        for t in range(50)
    )
    assert broken > 0


def test_a_broken_gain_bound_is_booked_and_refused(tiny, monkeypatch):
    """If the outage happens, the ledger takes the true gain and the model is not released."""

    monkeypatch.setattr("airfl.transceiver.radio.gain_bound", lambda *a: torch.ones(2, 4, dtype=torch.float64))
    result = airfl.run(tiny.replace({"channel.csi_error": 0.05, "scheme.names": ["airfl-dp"]}))
    assert result.schemes["airfl-dp"].status == "refused"
    assert result.schemes["airfl-dp"].models is None


def test_a_gain_bound_that_is_not_proven_is_not_offered(tiny):
    for change in ({"channel.fading": "rician"}, {"channel.antenna_correlation": 0.5}):
        with pytest.raises(airfl.InputError, match="uncorrelated Rayleigh"):
            tiny.replace({"channel.csi_error": 0.1, **change})


def test_exact_knowledge_has_unit_gains(tiny):
    plan = plan_of(tiny)
    setting = plan.setting(0)
    assert torch.allclose(setting.gains, torch.ones((), dtype=torch.complex128))
    assert bool((plan.gain_bound == 1.0).all())


@pytest.mark.parametrize("selection", ["strongest", "greedy"])
def test_silent_devices(tiny, selection):
    config = tiny.replace({"scheme.combiner": "auto", "system.rounds": 3, "system.num_antennas": 4})
    config = config.replace({"scheme.selection": selection, "scheme.selection_keep": 0.67})
    everyone, fewer = plan_of(config.replace({"scheme.selection": "all"})), plan_of(config)
    assert fewer.active.shape[2] == 6
    assert bool((fewer.minimum < everyone.minimum * (1 + 1e-9)).all())  # fewer constraints, less noise
    for row in range(2):
        for t in range(3):
            assert set(fewer.active[row, t]) <= set(everyone.active[row, t])
    result = airfl.run(config)
    assert result.schemes["airfl-dp"].status == "done"
    assert result.schemes["airfl-dp"].ledgers[0].events[0].update_factor == pytest.approx(0.1 / 6)
    for row in range(2):
        heard = len(np.unique(fewer.active[row]))
        assert result.summary["schemes"]["airfl-dp"]["never_heard"][row] == 12 - heard
    assert result.schemes["fedavg"].ledgers[0].events[0].update_factor == pytest.approx(0.1 / 9)


def test_selections_keep_what_they_say():
    h = seeded_channels(8, 30, 3, 1)
    power = h.abs().square().sum(-1)
    chosen = SELECTIONS["strongest"](lambda: [h], 20)
    assert chosen.shape == (3, 20)
    for i in range(3):
        left_out = sorted(set(range(30)) - set(chosen[i].tolist()))
        assert float(power[i, left_out].max()) <= float(power[i, chosen[i]].min())
    # Prices beat plain strength, in the median over many instances.
    h = seeded_channels(8, 30, 40, 1)
    bounds = {}
    for name, select in SELECTIONS.items():
        picked = select(lambda: [h], 20)
        bounds[name] = certificate(h.gather(1, picked.unsqueeze(-1).expand(-1, -1, 8)))
    assert float((bounds["greedy"] / bounds["strongest"]).median()) < 0.97


def test_prices_add_up_to_the_bound():
    h = seeded_channels(10, 7, 4, 2)
    assert torch.allclose(prices(h, tolerance=1e-6).sum(-1), certificate(h, tolerance=1e-6), rtol=1e-3)


@pytest.mark.parametrize("csi_error", [0.0, 0.05])
@pytest.mark.parametrize("knowledge", ["law", "estimate", "predictions"])
def test_online_scheme_keeps_the_budget_and_comes_close(tiny, knowledge, csi_error):
    """Just above the perk threshold, where some rounds are lifted and some are not: there the split matters."""
    base = tiny.replace({"scheme.online": knowledge, "system.rounds": 40, "scheme.combiner": "auto"})
    base = base.replace({"channel.csi_error": csi_error, "privacy.epsilon": 30.0})
    threshold = plan_of(base, trials=(0,)).perks()[0].power_threshold_w
    config = base.replace({"channel.power_w": 1.1 * threshold})
    offline, online = plan_of(config, trials=(0,)), plan_of(config, "airfl-dp-online", trials=(0,))
    lifted = float((offline.norm > offline.minimum).double().mean())
    assert 0.2 < lifted < 0.8
    assert bool((online.norm >= online.minimum).all())
    assert math.fsum((online.gain_bound[0] / online.norm[0]).square().tolist()) <= online.budget.total
    excess = float(online.norm.square().sum() / offline.norm.square().sum()) - 1
    assert -1e-12 <= excess < 0.03


def test_online_scheme_does_not_look_ahead(tiny, tmp_path):
    """Two traces that agree in the first half: so do the norms."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal((20, 12, 16)) + 1j * rng.standard_normal((20, 12, 16))
    norms, power = [], None
    for name, scale in (("a", 1.0), ("b", 0.2)):
        np.savez(tmp_path / f"{name}.npz", channels=np.concatenate([first * 1e-5, first * 1e-5 * scale]))
        config = tiny.replace({"channel.fading": "trace", "channel.trace_file": str(tmp_path / f"{name}.npz")})
        config = config.replace({"system.rounds": 40, "scheme.online": "estimate", "scheme.combiner": "auto"})
        power = power or 1.1 * plan_of(config, trials=(0,)).perks()[0].power_threshold_w
        config = config.replace({"channel.power_w": power})
        norms.append(plan_of(config, "airfl-dp-online", trials=(0,)).norm[0])
    assert torch.equal(norms[0][:20], norms[1][:20])
    assert not torch.equal(norms[0][20:], norms[1][20:])


def test_online_needs_a_law_to_draw_from(tiny, tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "t.npz", channels=rng.standard_normal((4, 12, 16)) + 1j * rng.standard_normal((4, 12, 16)))
    config = tiny.replace({"channel.fading": "trace", "channel.trace_file": str(tmp_path / "t.npz")})
    with pytest.raises(airfl.InputError, match="no law to draw from"):
        plan_of(config, "airfl-dp-online")
    plan_of(config.replace({"scheme.online": "estimate"}), "airfl-dp-online")


def test_better_combiner_moves_noise_and_threshold_together(tiny):
    """Less noise at the power limit, and so a lower perk threshold: both effects of one number."""
    old, new = (
        plan_of(tiny.replace({"scheme.combiner": "zero-forcing"})),
        plan_of(tiny.replace({"scheme.combiner": "auto"})),
    )
    gain_db = 10 * math.log10(float((old.minimum[0] ** -2).sum() ** -1 / (new.minimum[0] ** -2).sum() ** -1))
    assert gain_db > 1.0
    assert old.perks()[0].snr_threshold_db - new.perks()[0].snr_threshold_db == pytest.approx(gain_db, abs=1e-6)
    assert torch.allclose(allocate(new.minimum, new.budget.total), new.norm)


def test_an_enforced_domain_lets_the_published_bound_spend_on_the_last_round_alone(tiny):
    """P3: with a small D the noise of all rounds but the last stays at its minimum, and the ledger still agrees."""
    config = tiny.replace(
        {
            "privacy.accountant": "paper",
            "privacy.smoothness": 0.5,
            "learning.domain_diameter": 0.02,
            "learning.local_steps": 1,
            "privacy.epsilon": 5.0,
            "system.rounds": 30,
            "scheme.names": ["airfl-dp"],
        }
    )
    bounded = airfl.run(config)
    free = airfl.run(config.replace({"learning.domain_diameter": None}))
    q = bounded.schemes["airfl-dp"].column("combiner_norm")
    pi = bounded.schemes["airfl-dp"].column("minimum_norm")
    assert (q[:, :-1] == pi[:, :-1]).all()
    assert (q[:, -1] > pi[:, -1]).all()
    assert bounded.summary["schemes"]["airfl-dp"]["epsilon"]["paper"] == pytest.approx(5.0, rel=1e-6)
    noise = "noise_var_mean"
    assert bounded.summary["schemes"]["airfl-dp"][noise] < free.summary["schemes"]["airfl-dp"][noise]
    # The exact accountant does not share the published bound's belief in D: it says what was really released.
    assert bounded.summary["schemes"]["airfl-dp"]["epsilon"]["gaussian"] > 50
