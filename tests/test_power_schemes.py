"""Schemes of power control and selection as whole runs: what is sent, added, booked, promised, refused."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from airfl import analysis
from airfl.air import EquivalentUplink, SignalUplink
from airfl.analysis.audit.planted import Defect, little_config, loud
from airfl.analysis.audit.worlds import repeated, took_part
from airfl.devices import UpdateBlock, load_samples, open_task
from airfl.errors import InputError
from airfl.privacy import gaussian_epsilon
from airfl.simulate import open_simulation
from airfl.testing.small import small_config, small_task

pytestmark = pytest.mark.filterwarnings("ignore:scheme `adascale`:RuntimeWarning")

KEEPING = ("power-mse", "power-gap", "select-mse", "random-orth")
ALL = (*KEEPING, "adascale")
WIDE = {"channel.coherence_hz": 5e6}
#: The promise binds in some rounds, and power in others.
BINDING = {"channel.power_w": 3e-5, "scheme.sum_noise_db": 12.0}
#: Where gains differ: not everybody can invert the channel.
FAINT = {"channel.power_w": 1e-6, "scheme.sum_noise_db": 25.0}
SETTINGS = [("plain", FAINT), ("loud", BINDING), ("wide", {**FAINT, **WIDE}), ("wide-loud", {**BINDING, **WIDE}),
            ("poisson", {**FAINT, "system.sampling": "poisson", "system.participation": 0.5}),
            ("fixed", {**BINDING, "system.participation": 0.5})]  # fmt: skip
CASES = [(name, what) for name in ALL for what in SETTINGS if not (name == "adascale" and "wide" in what[0])]


def opened(name, overrides=None):
    config = small_config({"scheme.names": [name], **(overrides or {})})
    return open_simulation(config, name, small_task(config))


def finished(simulation):
    *_, (state, records) = simulation.rounds()
    return state, records


def mu_of(ledger, relation):
    """√Σ S²/v of what was booked, S = C·G, and twice that for a replacement."""
    return math.sqrt(sum((relation * e.clip_norm * e.gain_bound) ** 2 / e.noise_var for e in ledger.events))


@pytest.mark.parametrize(("name", "what"), CASES, ids=lambda item: item if isinstance(item, str) else item[0])
def test_a_round_is_booked_as_it_is_sent(name, what):
    """Both uplinks hear the same; the loudest gain and the noise are booked; ε is that of the plain composition."""
    simulation = opened(name, what[1])
    setting, dim = simulation.schedule.setting(1), simulation.schedule.dim
    trials, places = setting.active.shape
    sent = torch.randn(trials, places, dim, generator=torch.Generator().manual_seed(1)) * 0.1
    sent[torch.from_numpy(setting.active < 0)] = 0.0
    blocks = UpdateBlock(
        torch.arange(trials).repeat_interleave(places),
        torch.arange(places).repeat(trials),
        sent.flatten(0, 1),
        torch.zeros(trials * places),
    )
    heard = [kind(5, (0, 1)).receive([blocks], dim, setting.silenced()) for kind in (EquivalentUplink, SignalUplink)]
    assert torch.allclose(*heard, atol=1e-5)
    public = simulation.schedule.public(setting)
    gains = public.gains.real[:, :, public.block_of(dim)]
    assert torch.allclose(heard[0].double(), (gains * sent.double()).sum(dim=1), atol=1e-5)
    step = simulation.advance(simulation.init())
    booked, added = simulation.schedule.setting(0), step.setting
    assert torch.equal(booked.unknown_var, added.unknown_var)
    for row, ledger in enumerate(step.after.ledgers):
        event, public = ledger.events[0], simulation.schedule.public(added)
        v = added.noise_var[row] if added.blocks is None else added.blocks.noise_var[row]
        worst = (public.gains[row].real.abs().amax(dim=0).square() / v).max()
        assert event.gain_bound**2 / event.noise_var == pytest.approx(float(worst), rel=1e-9)
    state, records = finished(simulation)
    for ledger, record in zip(state.ledgers, records, strict=True):
        relation = 2.0 if simulation.config.neighbours == "replace" else 1.0
        assert record.epsilon == pytest.approx(gaussian_epsilon(1e-5, mu_of(ledger, relation)), rel=1e-9)
    simulation.release(state)


def test_the_settings_bind_where_they_should():
    """Else the tests above look at nothing."""
    for name in ("power-mse", "power-gap"):
        gains = opened(name, FAINT).schedule.setting(0).gains.abs()
        assert float(gains.min()) < 0.9 < float(gains.max())
        assert finished(opened(name, BINDING))[1][0].epsilon == pytest.approx(5.0, rel=1e-6)
    heard = opened("select-mse", FAINT).schedule.active
    assert (heard < 0).any()
    assert (heard >= 0).any()
    gains = opened("random-orth", FAINT).schedule.setting(0).gains.real
    assert float(gains.max()) > 1.2
    assert finished(opened("random-orth", BINDING))[1][0].epsilon == pytest.approx(5.0, rel=1e-6)


def test_where_sensitivity_and_noise_are_equal_so_is_epsilon():
    """adascale whose limit no channel keeps to, and airfl-mimo: the same rounds."""
    with pytest.warns(RuntimeWarning, match="above `scheme.sum_noise_db`"):
        own = finished(opened("adascale", {"scheme.sum_noise_db": -50.0}))[0]
    usual = finished(opened("airfl-mimo"))[0]
    assert torch.equal(own.models, usual.models)
    assert [ledger.events for ledger in own.ledgers] == [ledger.events for ledger in usual.ledgers]


class Adversarial:
    """Channels over eight decades, near and far by turns, and now and then a device that is hardly there."""

    def __call__(self, generator, devices, antennas):
        """Coefficients [devices, antennas]."""
        draws = generator.standard_normal((devices, antennas, 2)).view(np.complex128)[..., 0]
        return draws * 10.0 ** generator.uniform(-4.0, 4.0, (devices, 1))


@pytest.mark.parametrize("name", KEEPING)
@pytest.mark.parametrize("seed", range(3))
def test_a_budget_is_kept_whatever_the_channels(name, seed, monkeypatch):
    import tests.test_power_schemes as here

    monkeypatch.setattr(here, "adversarial", Adversarial(), raising=False)
    power = (1e-9, 1e-3, 1e3)[seed]
    overrides = {"system.seed": seed, "channel.fading": "tests.test_power_schemes:adversarial"}
    more = {"channel.power_w": power, "scheme.sum_noise_db": (30.0, -30.0, 0.0)[seed], "privacy.epsilon": 0.7}
    for wide in ({}, {"system.sampling": "poisson", "system.participation": 0.4}):
        simulation = opened(name, {**overrides, **more, **wide})
        state, records = finished(simulation)
        simulation.release(state)
        assert max(record.epsilon for record in records) <= 0.7
        assert bool((simulation.schedule.norm >= simulation.schedule.minimum * (1.0 - 1e-12)).all())


@pytest.mark.parametrize("name", ALL)
def test_a_stopped_run_goes_on_to_the_same_bits(name):
    simulation = opened(name, BINDING)
    whole = finished(simulation)[0]
    state = simulation.step(simulation.init())[0]
    again = opened(name, BINDING)
    *_, (resumed, _) = again.rounds(state)
    assert torch.equal(whole.models, resumed.models)
    assert whole.ledgers == resumed.ledgers


@pytest.mark.parametrize("name", ALL)
def test_a_trial_does_not_depend_on_its_batch(name):
    config = small_config({"scheme.names": [name], **BINDING})
    task = small_task(config)
    both = open_simulation(config, name, task).schedule
    alone = open_simulation(
        config.replace({"system.trials": 1}), name, small_task(config.replace({"system.trials": 1}))
    )
    assert torch.allclose(alone.schedule.norm[0], both.norm[0], rtol=1e-12)
    assert np.array_equal(
        alone.schedule.active[0][:, : both.active.shape[2]], both.active[0][:, : alone.schedule.active.shape[2]]
    )


# audits


def audited(name, **more):
    base = little_config(3, False).replace({"system.rounds": 2, "scheme.combiner": "auto", **more})
    return base.replace({"scheme.names": [name], "scheme.combiner_columns": "active", "privacy.delta": 1e-2})


QUIET = {"channel.power_w": 1e-7, "scheme.sum_noise_db": 20.0}


@pytest.mark.parametrize("name", ALL)
def test_an_audit_stays_below_and_notices_what_is_twice_as_long(name):
    config = audited(name, **QUIET)
    audit = analysis.audit_run(config, name, 200)
    assert audit.bound.epsilon_lower <= audit.epsilon_upper["gaussian"]
    if name in ("power-mse", "power-gap", "select-mse"):  # the canary is whoever is heard best, or this would be 0
        assert audit.gaussian.epsilon_lower > 1.0
    assert not audit.summary["refuted_proofs"]
    assert not audit.failed
    planted = Defect("C half of what is sent", loud(2.0))
    assert analysis.audit_run(config, name, 200, opener=planted.open).failed


def test_an_audit_looks_at_who_was_drawn_and_not_at_who_was_reached():
    """The law of participation is about those; and transmit scalars are found anew for every draw."""
    config = audited("select-mse", **QUIET, **{"system.participation": 0.5})
    samples = load_samples(config, torch.device("cpu"))
    single = open_simulation(config, "select-mse", open_task(config, (0,), samples))
    for columns in ("active", "all"):
        changed = config.replace({"scheme.combiner_columns": columns})
        batch = repeated(replace(single, config=changed), samples, (5, 6, 7))
        drawn = batch.schedule.link.active(range(2))
        assert np.array_equal(took_part(batch.schedule), drawn)
        assert set(batch.schedule.active[0, 0]) - {-1} <= set(drawn[0, 0])
        setting = batch.schedule.setting(0)
        assert torch.allclose(setting.gains[setting.heard].abs(), torch.ones(1, dtype=torch.float64))
    assert (batch.schedule.active < 0).any()


# what is refused

REFUSED = [
    {"channel.csi_error": 0.01},
    {"channel.phase_error_rad": 0.1},
    {"channel.clipping_db": 3.0, "scheme.uplink": "signal"},
    {"channel.adc_bits": 8, "scheme.uplink": "signal"},
]


@pytest.mark.parametrize("overrides", REFUSED, ids=lambda item: next(iter(item)))
@pytest.mark.parametrize("name", KEEPING)
def test_what_is_not_worked_out_is_refused_by_the_configuration(name, overrides):
    with pytest.raises(InputError, match=f"scheme `{name}` has transmit scalars of its own"):
        small_config({"scheme.names": [name], **overrides})


def test_more_refusals():
    with pytest.raises(InputError, match=r"mixed by `channel.rotation`"):
        small_config({"scheme.names": ["select-mse"], **WIDE, "channel.rotation": True})
    with pytest.raises(InputError, match="exact channel knowledge"):
        small_config({"scheme.names": ["adascale"], "channel.csi_error": 0.01})
    with pytest.raises(InputError, match="looks at rounds of one block"):
        opened("adascale", WIDE)


def test_no_hidden_state_is_credited_to_gains_that_differ():
    """A domain goes with one gain for everybody."""
    domain = {"learning.domain_diameter": 5.0, "privacy.smoothness": 1.0, "scheme.names": ["power-mse"]}
    assert finished(opened("power-mse", domain))[0].ledgers[0].events[0].domain is None


@pytest.mark.parametrize("name", KEEPING)
def test_without_a_budget_there_is_none_to_keep(name):
    config = small_config({"scheme.names": [name], **BINDING})
    mapping = config.to_mapping()
    del mapping["privacy"]["epsilon"]
    free = type(config).model_validate(mapping)
    epsilon = finished(open_simulation(free, name, small_task(free)))[1][0].epsilon
    assert epsilon > (5.0 if name != "select-mse" else 0.0)


# what was published


def error_of(schedule, t=0):
    """Σ (1 − gain)² + d·v/c² of a round, in the units of J, for each trial."""
    setting = schedule.setting(t)
    missing = ((1.0 - setting.gains.real).square() * setting.heard).sum(dim=1)
    return missing + schedule.dim * setting.noise_var / setting.clip_norm**2


@pytest.mark.parametrize("power", [1e-9, 1e-7, 1e-5, 1e-2])
def test_optimised_power_errs_less_than_inversion_in_every_round(power):
    """`power-mse` beside full inversion along the same directions: the published ordering, and its limit."""
    free = {"channel.power_w": power, "privacy.epsilon": 1e6}
    own, usual = (opened(name, {**free, "system.trials": 2}).schedule for name in ("power-mse", "airfl-mimo"))
    for t in range(3):
        assert bool((error_of(own, t) <= error_of(usual, t) * (1.0 + 1e-9)).all())
    ratio = float((error_of(own) / error_of(usual)).max())
    assert ratio < 1e-3 if power == 1e-9 else ratio <= 1.0
    assert ratio > 0.99 or power < 1e-2


def test_the_sum_errs_by_what_is_said():
    """Uncorrelated updates as long as the clip norm: the squared error of what is heard, over the air."""
    simulation = opened("power-mse", FAINT)
    setting, dim = simulation.schedule.setting(0), simulation.schedule.dim
    trials, places = setting.active.shape
    generator, found = torch.Generator().manual_seed(4), []
    for number in range(300):
        rows = torch.randn(trials * places, dim, generator=generator)
        rows = rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
        where = torch.arange(trials).repeat_interleave(places), torch.arange(places).repeat(trials)
        one = replace(setting, round_index=number)
        heard = EquivalentUplink(1, (0, 1)).receive([UpdateBlock(*where, rows, torch.zeros(len(rows)))], dim, one)
        found.append((heard - rows.reshape(trials, places, dim).sum(dim=1)).square().sum(dim=1))
    measured = torch.stack(found).mean(dim=0).double()
    assert torch.allclose(measured, error_of(simulation.schedule), rtol=0.1)


def test_mean_power_is_kept_and_single_rounds_may_have_more():
    simulation = opened("power-gap", {"channel.power_w": 3e-7, "system.rounds": 8, "privacy.epsilon": None})
    power = torch.stack([simulation.schedule.setting(t).power_w for t in range(8)])
    assert float(power.mean(dim=0).max()) <= 3e-7 * (1.0 + 1e-9)
    assert 3e-7 < float(power.max()) <= 4 * 3e-7 * (1.0 + 1e-9)


def test_more_noise_reaches_more_devices_and_the_rest_are_named():
    """The mirror of a share that is kept; nobody within reach books nothing and leaves the model."""
    loose, heard, far = {"channel.power_w": 1e-7, "privacy.epsilon": 1e6}, [], []
    for level in (-60.0, 25.0, 35.0, 60.0):
        simulation = opened("select-mse", {**loose, "scheme.sum_noise_db": level})
        state, _ = finished(simulation)
        heard.append(int((simulation.schedule.active >= 0).sum()))
        far.append(sum(simulation.schedule.never_heard()))
        if level == -60.0:
            assert torch.equal(state.models, simulation.start)
            assert all(event.gain_bound == 0.0 for event in state.ledgers[0].events)
    assert heard == sorted(heard)
    assert far == sorted(far, reverse=True)
    assert heard[0] == 0
    assert heard[-1] == 2 * 3 * 6


def test_whoever_sends_has_unit_gain_within_its_power():
    simulation = opened("select-mse", FAINT)
    for t in range(3):
        setting = simulation.schedule.setting(t)
        assert torch.allclose(setting.gains[setting.heard].real, torch.ones(1, dtype=torch.float64), rtol=1e-9)
        assert float(setting.power_w.max()) <= 1e-6 * (1.0 + 1e-9)


def test_a_mean_is_over_those_who_send():
    """Two of six send c each: the model moves as if they were all."""
    simulation = opened("select-mse", FAINT)
    setting = simulation.schedule.setting(0)
    received = torch.full((2, simulation.schedule.dim), 3.0)
    made = simulation.scheme.decoder.decode_in(received, 1.0, 6.0, simulation.schedule.public(setting))
    count = setting.heard.sum(dim=1)
    for row in range(2):
        assert torch.allclose(made[row], received[row] * (6.0 / max(1, int(count[row]))) * (count[row] > 0))


@pytest.mark.parametrize("name", ["power-mse", "power-gap"])
def test_gains_are_corrected_by_their_mean_where_that_is_asked_for(name):
    """Of every round, or of all together: combiners get longer, so no more is told, and nobody sends otherwise."""
    faint = {**FAINT, **WIDE, "channel.power_w": 1e-7}
    usual, own = (opened(name, {**faint, "scheme.gain_correction": asked}).schedule for asked in (False, True))
    before, after = ([one.public(one.setting(t)).gains.real for t in range(3)] for one in (usual, own))
    assert float(torch.stack(before).mean()) < 0.9
    means = torch.stack(after).mean(dim=2) if name == "power-mse" else torch.stack(after).mean(dim=(0, 2, 3))
    assert torch.allclose(means, torch.ones(1, dtype=torch.float64), rtol=1e-9)
    assert torch.equal(usual.scaling, own.scaling)
    plain, corrected = (
        finished(opened(name, {**faint, "scheme.gain_correction": asked}))[1] for asked in (False, True)
    )
    assert plain[0].epsilon == pytest.approx(corrected[0].epsilon, rel=1e-9)


def test_random_orthogonalisation_approaches_the_clipped_mean_as_antennas_grow():
    """At fixed K: Σ (1 − gain)² falls like K²/(2m), and the noise is that of σ²K/(2 m s²)."""
    missing = []
    for antennas in (16, 256):
        simulation = opened("random-orth", {"system.num_antennas": antennas, "privacy.epsilon": 1e6})
        settings = [simulation.schedule.setting(t) for t in range(3)]
        missing.append(float(torch.stack([(1.0 - one.gains.real).square().sum(dim=1) for one in settings]).mean()))
        link, reach = simulation.schedule.link, 1.0 / math.sqrt(simulation.schedule.dim * 1e-9)
        s = torch.from_numpy(link.law.amplitude.min(axis=1)) / reach
        noise = torch.stack([one.noise_var for one in settings]).mean(dim=0)
        assert torch.allclose(noise, link.noise_power * 6 / (2 * antennas * s.square()), rtol=0.6)
    assert missing[0] == pytest.approx(6 * 7 / 32, rel=0.6)
    assert missing[1] == pytest.approx(6 * 7 / 512, rel=0.6)


def test_one_pilot_and_no_phase():
    """All devices send with the same power and phase, but for their path loss; told their scalar, with unit gains."""
    setting = opened("random-orth", FAINT).schedule.setting(0)
    assert float(setting.tx_scaling.imag.abs().max()) == 0.0
    told = opened("random-orth", {**FAINT, "scheme.gain_feedback": True}).schedule.setting(0)
    assert torch.allclose(told.gains, torch.ones_like(told.gains))
    assert float(told.power_w.max()) == pytest.approx(1e-6, rel=1e-9)


def test_less_is_told_than_with_the_least_noise_and_no_more_noise_than_allowed():
    """adascale beside airfl-mimo, and beside norms that spread the same noise evenly."""
    overrides = {"channel.power_w": 1e-6, "system.rounds": 20, "scheme.sum_noise_db": 40.0}
    simulation = opened("adascale", overrides)
    norm, least = simulation.schedule.norm, simulation.schedule.minimum
    assert bool((norm.reciprocal().square().sum(dim=1) < least.reciprocal().square().sum(dim=1)).all())
    used = simulation.schedule.noise_var.mean(dim=1) * simulation.schedule.dim
    assert bool((10.0 * used.log10() <= 40.0 + 0.5).all())
    scaled = least * (norm.square().sum(dim=1) / least.square().sum(dim=1)).sqrt().unsqueeze(1)
    assert bool((norm.reciprocal().square().sum(dim=1) < scaled.reciprocal().square().sum(dim=1)).all())
