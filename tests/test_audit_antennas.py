"""Attacks on signals: the best linear test reaches what is booked and no more, for everyone who sees them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from scipy import stats

from airfl import analysis
from airfl.air import SignalUplink
from airfl.analysis.audit import antennas, covered, mechanism, planted, run, selftest, worlds
from airfl.analysis.audit.hearing import hear
from airfl.devices import load_samples, open_task
from airfl.errors import InputError
from airfl.privacy import gaussian_epsilon
from airfl.simulate import open_simulation
from airfl.transceiver import Cover

EAR = {"eavesdropper.distance_m": 40.0, "eavesdropper.antennas": 2}


def config_of(cover, devices=5, num_antennas=3, rounds=1, **more):
    return planted.little_config(0, sampled=False, cover=cover).replace(
        {
            "system.num_devices": devices,
            "system.num_antennas": num_antennas,
            "system.rounds": rounds,
            "privacy.epsilon": 8.0,
            "scheme.cover_price_db": 100.0,
            **more,
        }
    )


@pytest.fixture
def brief(monkeypatch):
    """Checks of the mechanism with few draws: other tests are about them."""
    monkeypatch.setattr(mechanism, "NOISE_ROWS", 50)
    monkeypatch.setattr(covered, "RECEPTIONS", 100)


def opened(config, scheme="airfl-shielded"):
    samples = load_samples(config, torch.device("cpu"))
    return open_simulation(config, scheme, open_task(config, (0,), samples)), samples


@pytest.mark.parametrize("cover", ["masks", "quadrature"])
@pytest.mark.parametrize(("devices", "num_antennas", "rounds"), [(5, 3, 1), (12, 4, 1), (6, 3, 3)])
def test_the_attack_reaches_most_of_the_exact_epsilon_and_no_more(cover, devices, num_antennas, rounds):
    single, samples = opened(config_of(cover, devices, num_antennas, rounds))
    count = 1500 if rounds == 1 else 250
    found = [
        antennas.listen(single, samples, "base-station", range(first, 2 * count, 2), sign, worlds.repeated, None)
        for first, sign in ((1, 1.0), (0, 0.0))
    ]
    view = run.read_heard("base-station", *found, "zero-out", 1e-5)
    exact = view.epsilon_upper["gaussian"]
    assert exact == pytest.approx(8.0, rel=1e-3)
    assert (0.75 if rounds == 1 else 0.5) * exact <= view.gaussian.epsilon_lower <= exact
    assert view.bound.epsilon_lower <= exact
    assert not view.refuted


def sources(setting, told):
    """Every Gaussian number that reaches the antennas in one symbol, written out: what it adds to them, and variance.

    Of devices that collude the base station is told all.
    """
    path = (setting.channels[0] * setting.tx_scaling[0][:, None]).numpy()
    own, quadrature, masks = (
        float(part) for part in (setting.cover.own, setting.cover.quadrature, setting.cover.masks)
    )
    honest = [i for i in range(len(path)) if i not in told]
    found = [(path[i], own) for i in honest] + [(1j * path[i], quadrature) for i in honest]
    for i, j in setting.edges[0]:
        if i not in told and j not in told:
            found.append((path[i] - path[j], masks))
    return path, found


@pytest.mark.parametrize("parts", [(0.0, 0.0, 0.7), (0.0, 3.0, 0.0), (0.05, 3.0, 0.7)])
@pytest.mark.parametrize("colluding", [0.0, 0.2])
def test_likelihood_ratios_of_what_antennas_hear_by_brute_force(parts, colluding):
    """y drawn from scratch for K = 5 and m = 3: every threshold has the error rates of N(μ, 1) against N(0, 1)."""
    single, _ = opened(config_of("masks", **{"privacy.colluding": colluding, "channel.power_w": 100.0}))
    plan = dataclasses.replace(single.schedule, cover=Cover.of(*parts))
    setting, link = plan.setting(0), plan.link
    told = np.flatnonzero(link.colluding[0])
    assert len(told) == (1 if colluding else 0)
    path, found = sources(setting, told)
    device = next(i for i in range(5) if i not in told)
    mu = plan.clip_norm * float(setting.seen["base-station"][0, device])
    rng, number, sigma = np.random.default_rng(3), 100_000, link.credited_power
    unit = np.sqrt(sigma)
    noise = rng.standard_normal((number, 3)) + 1j * rng.standard_normal((number, 3))
    y = noise * np.sqrt(sigma / 2.0)
    for along, variance in found:
        y = y + np.sqrt(variance) * rng.standard_normal((number, 1)) * along

    def real(values):
        return np.concatenate([values.real, values.imag], axis=-1) / unit

    spread = 0.5 * np.eye(6) + sum(variance * np.outer(real(along), real(along)) for along, variance in found)
    shift = plan.clip_norm * real(path[device])
    law = stats.multivariate_normal
    for sign, world in ((-1.0, real(y)), (1.0, real(y) + shift)):
        ratio = law.logpdf(world, shift, spread) - law.logpdf(world, np.zeros(6), spread)
        assert stats.kstest((ratio - 0.5 * sign * mu**2) / mu, "norm").pvalue > 1e-3
        for threshold in (-1.0, 0.0, 1.0):
            expected = stats.norm.sf((threshold - 0.5 * sign * mu**2) / mu)
            assert np.mean(ratio > threshold) == pytest.approx(expected, abs=4.5 * np.sqrt(0.25 / number))
    # The attack's own test is that likelihood ratio.
    hearing = hear(plan, setting, "base-station", np.array([device]))
    assert plan.clip_norm * np.sqrt(hearing.energy[0]) == pytest.approx(mu, rel=1e-6)
    weights = np.linalg.solve(spread, real(path[device])) / unit
    own = hearing.setting.combiner[0].numpy()
    assert np.allclose(np.concatenate([own.real, own.imag]), weights, rtol=1e-5, atol=1e-8 * np.abs(weights).max())


VARIANTS = {
    "plain": {},
    "colluding": {"privacy.colluding": 0.3},
    "dropout": {"system.dropout": 0.3},
    "all noise credited": {"privacy.credited_noise": "receiver"},
    "leak credited": {"channel.csi_error": 0.01, "privacy.credit_leak": True},
    "leak not credited": {"channel.csi_error": 0.01},
    "she has noise": {"eavesdropper.noise_density_dbm_hz": -170.0},
}


@pytest.mark.parametrize("cover", ["masks", "quadrature"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_what_is_heard_has_the_variance_that_is_booked(cover, variant):
    """While all send zeros, the test's outcome is noise of variance r², symbol by symbol, through the run's uplink."""
    config = config_of(cover, 7, 3, 2, **EAR, **VARIANTS[variant])
    single, samples = opened(config)
    number, symbols = 30, 512
    batch = worlds.repeated(single, samples, range(number))
    part = batch.schedule.cover
    mixed = Cover(part.own + 0.01, 0.5 * part.quadrature + 0.005, 0.5 * part.masks)
    plan = dataclasses.replace(batch.schedule, cover=mixed)
    setting = plan.setting(1)
    uplink = SignalUplink(0, tuple(range(number)), noise_block=symbols)
    silence = torch.zeros(setting.gains.shape[1], symbols)
    for observer in ("base-station", "eavesdropper", "everything"):
        seen = setting.seen[observer][0]
        device = int(setting.active[0][int(seen.argmax())])
        hearing = hear(plan, setting, observer, np.full(number, device))
        booked = float(seen.max()) ** 2
        energy = float(hearing.energy[0])
        if variant == "leak not credited" and observer != "everything":
            assert energy <= booked * (1.0 + 1e-9)  # she would have to be told what leaks
        else:
            assert energy == pytest.approx(booked, rel=1e-6)
        heard = [uplink.received(row, silence, hearing.setting).numpy() for row in range(number)]
        assert np.mean(np.square(heard)) == pytest.approx(energy, rel=5.0 * np.sqrt(2.0 / (number * symbols)))
        sent = silence.clone()
        sent[int(seen.argmax())] = 1.0
        moved = uplink.received(0, sent, hearing.setting).numpy() - heard[0]
        assert np.allclose(moved, energy, rtol=1e-3)


def test_the_receiver_has_no_more_noise_than_is_credited():
    for credited, share in (("thermal", 0.798), ("receiver", 1.0)):
        single, _ = opened(config_of("masks", **{"privacy.credited_noise": credited}))
        setting = single.schedule.setting(0)
        heard = hear(single.schedule, setting, "base-station", np.array([0])).setting
        assert heard.noise_power / setting.noise_power == pytest.approx(share, abs=1e-2)


def test_who_hears_what_nothing_covers_is_never_wrong():
    """Masks alone hide nobody from someone who hears every device by itself: all of them add up to nothing."""
    for cover in ("masks", "quadrature"):
        single, samples = opened(config_of(cover, rounds=2))
        assert float(single.schedule.cover.own) == 0.0
        world = [
            antennas.listen(single, samples, "everything", range(20), sign, worlds.repeated, None).scores
            for sign in (1.0, 0.0)
        ]
        assert np.allclose(world[0], 2.0 * single.schedule.clip_norm, rtol=1e-4)
        assert np.allclose(world[1], 0.0, atol=1e-4)


def test_any_scheme_over_the_air_can_be_asked_about(brief):
    config = planted.little_config(0, sampled=False).replace({"privacy.delta": 1e-2, "system.rounds": 2, **EAR})
    for observer in ("base-station", "eavesdropper", "everything"):
        steps = []
        count = 300 if observer == "base-station" else 30
        audit = analysis.audit_run(config, "airfl-dp", count, observer=observer, advance=steps.append)
        assert audit.view.observer == observer
        assert not audit.findings
        assert sum(steps) == analysis.audit_steps(config, "airfl-dp", count, observer) == 4 * count
        assert audit.summary["looks"] == []
        assert any(line.startswith("someone who sees the final model") for line in audit.not_tested)
        if observer == "base-station":
            # What the models tell is kept to 4; what the antennas hear is not, and the attack shows it.
            assert audit.gaussian.epsilon_lower > 4.0
            assert audit.summary["base_station"] == audit.summary["views"][0]
    trusting = analysis.audit_run(config, "airfl-dp", 20, observer="model")
    assert trusting.view.observer == "model"
    assert trusting.summary["base_station"] is None
    assert trusting.epsilon_upper["gaussian"] <= 4.0


def test_whom_a_shielded_run_promises_to_is_audited_too(brief):
    steps = []
    config = config_of("masks", **{"privacy.delta": 1e-2, "privacy.observer": "everything"})
    audit = analysis.audit_run(config, "airfl-shielded", 60, advance=steps.append)
    assert [view.observer for view in (audit.view, *audit.others)] == ["model", "models", "everything"]
    assert audit.promised_to == "everything"
    assert sum(steps) == analysis.audit_steps(config, "airfl-shielded", 60) == 240
    assert not audit.findings
    # A device that takes part knows its own noise, and so the models, of four others' noise, use up the budget first.
    upper = {view["observer"]: view["epsilon_upper"]["gaussian"] for view in audit.summary["views"]}
    assert upper["models"] == pytest.approx(8.0, rel=1e-2)
    assert 7.0 < upper["everything"] <= 8.0
    assert any("what the antennas hear of the cover" in line for line in audit.tested)


@pytest.mark.parametrize("law", ["fixed", "poisson"])
def test_repetitions_of_a_cover_share_who_takes_part(brief, law):
    """It is found for those who were drawn; other draws would be booked at more than was promised."""
    more = {"system.participation": 0.6, "system.sampling": law, "privacy.neighbours": "zero-out"}
    config = config_of("masks", 12, 3, 2, **more, **{"scheme.mask_degree": 4, "system.dropout": 0.2})
    audit = analysis.audit_run(config, "airfl-shielded", 60, observer="base-station")
    single, samples = opened(config)
    heard = antennas.listen(single, samples, "base-station", [0], 1.0, worlds.repeated, None)
    mu = float(np.sqrt(heard.ledgers[0].devices["base-station"].max()))
    assert audit.epsilon_upper["gaussian"] == pytest.approx(gaussian_epsilon(1e-5, mu), rel=1e-9)
    assert not audit.findings
    assert "participation of each device" in [check.name for check in audit.checks]


def test_dropouts_are_drawn_anew_where_participation_is(tiny):
    config = tiny.replace({"system.dropout": 0.4, "scheme.combiner_columns": "all", "scheme.names": ["airfl-dp"]})
    single, samples = opened(config, "airfl-dp")
    plan = worlds.repeated(single, samples, range(30)).schedule
    share = (plan.active >= 0).sum() / (plan.planned >= 0).sum()
    assert 0.5 < share < 0.7
    pairs = zip(plan.active.reshape(120, -1), plan.planned.reshape(120, -1), strict=True)
    assert all(set(sent[sent >= 0]) <= set(drawn) for sent, drawn in pairs)


@pytest.mark.parametrize(
    ("observer", "scheme", "word"),
    [
        ("base-station", "fedavg", "ideal channel"),
        ("eavesdropper", "airfl-dp", "section"),
        ("spy", "airfl-dp", "known:"),
    ],
)
def test_observers_who_have_nothing_to_look_at(tiny, observer, scheme, word):
    for asked in (analysis.audit_run, analysis.audit_steps):
        with pytest.raises(InputError, match=word):
            asked(tiny, scheme, 10, observer=observer)


@pytest.mark.parametrize("parts", [(0.02, 0.0, 0.0), (0.0, 5.0, 0.0), (0.0, 0.0, 5.0), (0.02, 5.0, 5.0)])
def test_a_cover_that_is_not_booked_is_found_and_one_that_is_passes(monkeypatch, parts):
    """Whatever it is made of."""
    monkeypatch.setattr(covered, "RECEPTIONS", 400)
    single, samples = opened(config_of("masks", 6, 3, 2))
    single = dataclasses.replace(single, schedule=dataclasses.replace(single.schedule, cover=Cover.of(*parts)))

    def louder(*arguments):
        batch = worlds.repeated(*arguments)
        return dataclasses.replace(batch, uplink=Louder(0, batch.uplink.trials, noise_block=64))

    for opener, sound in ((worlds.repeated, True), (louder, False)):
        checks, tested, left_out = covered.check_covered(single, samples, 0, opener)
        assert (min(check.p_value for check in checks) > 1e-5) == sound
        assert tested == ["what the antennas hear of the cover: 200 draws of 2 rounds, 64 symbols each"]
        assert not left_out


class Louder(SignalUplink):
    """An uplink with a quarter more cover than it is asked for."""

    def antennas(self, row, sent, setting):
        cover = setting.cover
        more = Cover(*(1.25 * part for part in (cover.own, cover.quadrature, cover.masks)))
        return super().antennas(row, sent, dataclasses.replace(setting, cover=more))


def test_clean_shielded_runs_are_among_those_of_the_self_test():
    kinds = [selftest._kind(seed) for seed in range(20)]
    assert {cover for _, cover in kinds} == {None, "masks", "quadrature"}
    assert [cover for _, cover in kinds[:10]].count(None) == 8
