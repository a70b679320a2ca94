"""Interference disturbs the sum and is never credited to privacy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

import airfl
from airfl import analysis
from airfl.air import EquivalentUplink, SignalUplink
from airfl.analysis.audit import planted, worlds
from airfl.analysis.audit.contributions import check_contributions
from airfl.analysis.audit.hearing import hear
from airfl.channel.budget import link_budget
from airfl.devices import load_samples, open_task
from airfl.paper import studies
from airfl.privacy import BudgetError
from airfl.report.sentences import headline
from airfl.rounds import arrange, check_views
from airfl.schemes import SCHEMES
from airfl.simulate import open_simulation
from airfl.transceiver import open_radio

LOUD = {"channel.interference_dbm": -95.0}  # 5 dB over the noise of −100 dBm


def schedule_of(config, name="airfl-dp"):
    return arrange(config, SCHEMES[name], open_radio(config, [0, 1]), 650)


def test_what_is_booked_does_not_move(tiny):
    quiet, loud = (schedule_of(config) for config in (tiny, tiny.replace(LOUD)))
    budget = link_budget(tiny.replace(LOUD))
    ratio = 1.0 + budget.interference_w / budget.noise_w
    for t in range(4):
        calm, storm = quiet.setting(t), loud.setting(t)
        assert torch.equal(calm.unknown_var, storm.unknown_var)
        assert torch.allclose(storm.noise_var, ratio * calm.noise_var, rtol=1e-12)
        assert torch.equal(calm.gains, storm.gains)
        for name, seen in calm.seen.items():
            assert torch.equal(seen, storm.seen[name])
    assert quiet.perks() == loud.perks()


@pytest.mark.parametrize("uplink", [EquivalentUplink, SignalUplink])
def test_both_uplinks_add_it(tiny, uplink):
    config = tiny.replace(LOUD)
    setting = schedule_of(config).setting(0)
    heard = uplink(0, (0, 1)).open(20_000, setting)
    silent = torch.zeros(2, 9, 20_000)
    from airfl.devices import UpdateBlock

    trial, slot = np.divmod(np.arange(18), 9)
    heard.add(UpdateBlock(torch.from_numpy(trial), torch.from_numpy(slot), silent.reshape(18, -1), torch.zeros(18)))
    noise = heard.finish().double()
    assert (noise.var(dim=1) / setting.noise_var).numpy() == pytest.approx(np.ones(2), abs=0.04)


@pytest.mark.parametrize("scheme", ["airfl-dp", "airfl-mimo", "airfl-an", "airfl-shielded"])
def test_no_epsilon_of_a_run_moves(tiny, scheme):
    config = tiny.replace(
        {
            "scheme.names": [scheme],
            "scheme.cover_price_db": 100.0,
            "channel.power_w": 1.0,
            "system.num_antennas": 3,
            "scheme.combiner": "auto",
        }
    )
    quiet, loud = (airfl.run(one).schemes[scheme] for one in (config, config.replace(LOUD)))
    assert quiet.ledgers == loud.ledgers
    assert loud.records[-1].noise_var > 1.5 * quiet.records[-1].noise_var or scheme in ("airfl-an", "airfl-shielded")


def test_it_is_said(tiny):
    page = "\n".join(headline(airfl.run(tiny.replace(LOUD))))
    assert "Interference of -95 dBm at every antenna makes the noise in the sum 6.2 dB larger" in page
    assert "none of it counts as privacy" in page


def audited(scheme, **more):
    """A small run for audits, with ten times more interference than noise."""
    cover = "masks" if scheme == "airfl-shielded" else None
    config = planted.little_config(0, sampled=False, cover=cover, disturbed=True)
    small = {"scheme.names": [scheme], "system.rounds": 2, "scheme.cover_price_db": 100.0, "scheme.combiner": "auto"}
    return config.replace({**small, "eavesdropper.distance_m": 40.0, "eavesdropper.antennas": 2, **more})


def opened(config):
    samples = load_samples(config, torch.device("cpu"))
    return open_simulation(config, config.scheme.names[0], open_task(config, (0,), samples)), samples


@pytest.mark.parametrize("observer", ["base-station", "eavesdropper"])
@pytest.mark.parametrize("scheme", ["airfl-dp", "airfl-mimo", "airfl-an", "airfl-shielded"])
def test_an_audit_finds_nothing_wrong_with_it(scheme, observer):
    """What antennas hear was divided by σ alone: 17 of 41 checks of a correct run failed."""
    audit = analysis.audit_run(audited(scheme), scheme, 100, observer=observer)
    assert audit.findings == []


def what_is_booked(config, opener):
    single, samples = opened(config)
    checks, _, _ = check_contributions(single, samples, 0, opener, [0, 1])
    return next(check for check in checks if check.name == "what is booked").p_value > 0


@pytest.mark.parametrize("scheme", ["airfl-dp", "airfl-an", "airfl-shielded"])
@pytest.mark.parametrize("dbm", [-120.0, -90.0, -30.0, 60.0, 150.0])
def test_an_audit_sees_it_credited_however_loud(scheme, dbm):
    config = audited(scheme, **{"channel.interference_dbm": dbm})
    assert what_is_booked(config, worlds.repeated)
    assert not what_is_booked(config, planted.DEFECTS[-1].open)


@pytest.mark.parametrize(
    "more",
    [
        {"privacy.colluding": 0.3},
        {"system.dropout": 0.3},
        {"channel.csi_error": 0.01},
        {"channel.csi_error": 0.01, "privacy.credit_leak": True},
    ],
)
def test_what_others_know_leaves_no_room_for_it(more):
    """Own noise of whoever looks or colludes and what leaks is not booked either, and may not make up for it."""
    scheme = "airfl-shielded" if "channel.csi_error" in more else "airfl-an"
    config = audited(scheme, **more, **{"channel.interference_dbm": -95.0})
    assert what_is_booked(config, worlds.repeated)
    assert not what_is_booked(config, planted.DEFECTS[-1].open)


def test_an_audit_sees_a_receiver_that_takes_it_for_its_own_noise(monkeypatch):
    """σ² + I as σ²: the sum has no more noise than before, and the ledger books all of it."""
    single, samples = opened(audited("airfl-dp"))
    link = single.schedule.link
    more = dataclasses.replace(link, noise_power=link.noise_power + link.interference_power)

    def opener(*arguments):
        batch = worlds.repeated(*arguments)
        return dataclasses.replace(batch, schedule=dataclasses.replace(batch.schedule, link=more))

    checks, _, _ = check_contributions(single, samples, 0, opener, [0, 1])
    assert [check.name for check in checks if check.p_value == 0] == ["what is booked"]


def test_attacks_refute_what_it_is_credited_with():
    """Whoever knows what others send takes it off: trained models were as noisy as the false ledger said."""
    defect = planted.DEFECTS[-1]
    config = audited("airfl-dp", **{"channel.interference_dbm": -70.0})
    audit = analysis.audit_run(config, "airfl-dp", 500, opener=defect.open)
    assert audit.epsilon_upper["gaussian"] < 0.2
    assert audit.gaussian.epsilon_lower > 1.0
    assert "gaussian" in audit.refuted
    honest = analysis.audit_run(config, "airfl-dp", 500)
    assert honest.epsilon_upper["gaussian"] == pytest.approx(4.0, rel=1e-3)
    assert honest.gaussian.epsilon_lower == pytest.approx(audit.gaussian.epsilon_lower, rel=1e-6)
    assert honest.findings == []


@pytest.mark.parametrize("observer", ["base-station", "eavesdropper", "everything"])
def test_who_listens_has_none(observer):
    single, _ = opened(audited("airfl-shielded"))
    setting = single.schedule.setting(0)
    assert setting.interference_power > 0.0
    assert hear(single.schedule, setting, observer, np.array([0])).setting.interference_power == 0.0


def test_a_setting_without_it(tiny):
    for scheme in ("airfl-dp", "airfl-an"):
        quiet, loud = (schedule_of(config, scheme).setting(1) for config in (tiny, tiny.replace(LOUD)))
        left = loud.undisturbed()
        assert left.interference_power == 0.0
        assert torch.allclose(left.noise_var, quiet.noise_var, rtol=1e-12)
        assert torch.equal(left.unknown_var, quiet.unknown_var)
        deafening = schedule_of(tiny.replace({"channel.interference_dbm": 150.0}), scheme).setting(1).undisturbed()
        squared = deafening.combiner.abs().square().sum(dim=1)
        assert bool((deafening.noise_var >= squared * deafening.noise_power / 2.0).all())


def test_models_and_antennas_are_compared_without_it(tiny):
    """A ledger whose antennas see a tenth less than its models tell was let pass, beside enough interference."""
    config = tiny.replace({**LOUD, "system.participation": 1.0, "scheme.names": ["airfl-an"]})
    single, _ = opened(config)
    plan = single.schedule
    *_, (state, _) = single.rounds()
    single.release(state)
    (ledger,) = state.ledgers
    told = [
        event.sensitivity("zero-out") / float(plan.undisturbed_var[0, event.round]) ** 0.5 for event in ledger.events
    ]
    rows = [
        dataclasses.replace(event, base_station=0.99 * each / event.clip_norm)
        for event, each in zip(ledger.events, told, strict=True)
    ]
    with pytest.raises(BudgetError, match="contradicts itself"):
        check_views(plan, 0, dataclasses.replace(ledger, events=tuple(rows)))


def test_a_study_without_ledgers_does_not_count_it(tiny):
    quiet, loud = (schedule_of(config) for config in (tiny, tiny.replace(LOUD)))
    found = [studies._from_noise(plan.link.config, 650, plan.noise_var.numpy()) for plan in (quiet, loud)]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
