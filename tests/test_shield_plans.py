"""What airfl-shielded plans: the promise is kept, what may be spent is spent, and less noise would not do."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import airfl
from airfl.errors import InputError
from airfl.privacy import BudgetError, Ledger, gaussian_mu, make_accountant
from airfl.rounds import book
from airfl.rounds.hiding import Problem
from airfl.rounds.shield import WORTH_OWN_NOISE
from airfl.transceiver import unknown_to_all
from tests.test_participation import plan_of, simulation_of

MASKS = {"scheme.cover": "masks", "scheme.mask_degree": 4}
HER = {"eavesdropper.distance_m": 50.0, "privacy.observer": "eavesdropper"}
#: Changes of the small cell, and whether what happens is what was planned with.
CASES = {
    "quadrature": ({}, True),
    "masks": (MASKS, True),
    "no cover": ({"scheme.cover": "none"}, True),
    "more antennas than devices": ({"system.num_antennas": 16}, True),
    "poisson": ({"system.sampling": "poisson", "system.participation": 0.5}, True),
    "poisson, seldom": ({"system.sampling": "poisson", "system.participation": 0.08, "system.rounds": 9}, True),
    "some of them": ({"system.participation": 0.6, "scheme.combiner_columns": "all"}, True),
    "replace": ({"privacy.neighbours": "replace"}, True),
    "colluding": ({"privacy.colluding": 0.25}, True),
    "colluding, masks": ({**MASKS, "privacy.colluding": 0.25}, True),
    "all but one collude": ({"privacy.colluding": 0.99, "scheme.cover_price_db": 1000.0}, True),
    "eavesdropper": (HER, True),
    "eavesdropper with noise": ({**HER, "eavesdropper.noise_density_dbm_hz": -170.0}, True),
    "eavesdropper with antennas": ({**HER, **MASKS, "eavesdropper.antennas": 20}, True),
    "everything": ({"privacy.observer": "everything"}, True),
    "models": ({"privacy.observer": "models"}, True),
    "thermal or not": ({"privacy.credited_noise": "receiver"}, True),
    "channels that fade alike": ({"channel.fading": "rician", "channel.antenna_correlation": 0.6}, True),
    "the strongest": ({"scheme.selection": "strongest", "scheme.selection_keep": 0.75}, True),
    "dropouts": ({"system.dropout": 0.1}, False),
    "dropouts, masks": ({**MASKS, "system.dropout": 0.1}, False),
    "erred channels": ({"channel.csi_error": 1e-4}, False),
    "erred channels, masks": ({**MASKS, "channel.csi_error": 1e-4}, False),
    "erred channels, credited": ({"channel.csi_error": 1e-4, "privacy.credit_leak": True}, False),
}


def booked(plan, row=0):
    """The ledger of a plan's rounds; nobody has to train for it."""
    ledger = Ledger()
    for t in range(plan.active.shape[1]):
        ledger = book(plan, plan.setting(t), lambda _: None)[row].on(ledger)
    return ledger


def mu_of(plan, ledger, observer):
    return make_accountant("gaussian", ledger, plan.promise.neighbours, observer).mu


@pytest.mark.parametrize("name", CASES)
def test_whoever_was_promised_something_is_kept_to_it_and_what_may_be_spent_is_spent(shielded, name):
    changes, exact = CASES[name]
    config = shielded.replace({"system.rounds": 3, **changes})
    plan = plan_of(config, "airfl-shielded")
    target = gaussian_mu(4.0, 1e-5)
    wanted = {"auto": "base-station"}.get(config.privacy.observer, config.privacy.observer)
    assert plan.promise.kept == ((wanted, "models") if wanted != "models" else ("models",))
    for row in (0, 1):
        ledger = booked(plan, row)
        plan.promise.check(ledger)
        spent = {observer: mu_of(plan, ledger, observer) for observer in plan.promise.kept}
        assert max(spent.values()) <= target, name
        nobody = (plan.active[row] < 0).all() or (name == "some of them" and wanted not in spent)
        assert nobody or max(spent.values()) >= (0.97 if exact else 0.85) * target, (name, spent)
    for t in range(3):
        assert float(plan.setting(t).power_w.max()) <= config.channel.power_w * (1 + 1e-9)


@pytest.mark.parametrize("uplink", ["equivalent", "signal"])
@pytest.mark.parametrize("cover", ["quadrature", "masks", "none"])
def test_a_run_keeps_its_promise_and_learns(shielded, uplink, cover):
    config = shielded.replace({"scheme.uplink": uplink, "scheme.cover": cover, "privacy.epsilon": 20.0})
    result = airfl.run(config)
    entry = result.summary["schemes"]["airfl-shielded"]
    assert entry["status"] == "done"
    told = entry["epsilon_by_observer"]
    assert told["base-station"]["gaussian"] <= 20.0
    assert told["base-station"]["gaussian"] == pytest.approx(20.0, rel=1e-4)
    assert told["models"]["gaussian"] <= 20.0
    if cover != "none":
        assert told["everything"]["gaussian"] is None
        trusted = airfl.run(config.replace({"scheme.names": ["airfl-dp"], "scheme.cover": "auto"}))
        assert entry["noise_var_mean"] < 1.3 * trusted.summary["schemes"]["airfl-dp"]["noise_var_mean"]


def test_a_trusted_base_station_takes_what_airfl_dp_takes(shielded):
    plan, trusting = plan_of(shielded, "airfl-shielded"), plan_of(shielded, "airfl-dp")
    for shield, noise in zip(plan.shields, trusting.noise_var.mean(dim=1).tolist(), strict=True):
        assert shield.trusted == pytest.approx(noise, rel=1e-4)
        # Of the receiver's noise less is credited against the one who has the receiver: 0.975 dB.
        assert 0.9 < shield.price_db < 1.2
    weaker = shielded.replace({"privacy.credited_noise": "receiver"})
    assert all(shield.price_db < 0.2 for shield in plan_of(weaker, "airfl-shielded").shields)


def test_one_antenna_needs_no_cover(shielded):
    config = shielded.replace({"system.num_antennas": 1, "privacy.credited_noise": "receiver"})
    plan, trusting = plan_of(config, "airfl-shielded"), plan_of(config, "airfl-dp")
    assert plan.cover.is_nothing()
    assert torch.allclose(plan.noise_var, trusting.noise_var, rtol=3e-6)
    assert torch.allclose(plan.norm, trusting.norm, rtol=2e-6)


def test_who_looks_knows_its_own_noise_and_that_of_colluders(shielded):
    """Also an honest device is told what colluders know: beside three of twelve it knows four."""
    for colluding, known in ((0.0, 1), (0.05, 2), (0.25, 4), (0.9, 11)):
        config = shielded.replace({"scheme.names": ["airfl-an"], "privacy.colluding": colluding})
        plan = plan_of(config, "airfl-an", trials=(0,))
        own = float(plan.cover.own)
        assert own > 0
        assert torch.allclose(plan.noise_var - plan.unknown_var, torch.full((1, 4), known * own, dtype=torch.float64))
        assert np.allclose([event.noise_var for event in booked(plan).events], plan.unknown_var[0], rtol=1e-12)


@given(adds=st.lists(st.floats(0.0, 1e12), min_size=1, max_size=7), data=st.data())
def test_what_is_left_of_own_noise_is_what_the_worst_looker_does_not_know(adds, data):
    """A device that is silent, one that colludes, or an honest one, who is curious about another honest one."""
    honest = np.array(data.draw(st.lists(st.booleans(), min_size=len(adds), max_size=len(adds))))
    left = [[a for i, a in enumerate(adds) if honest[i] and i != looker] for looker in (None, *np.flatnonzero(honest))]
    worst = min((math.fsum(one) for one in left if one), default=0.0)
    found = float(unknown_to_all(torch.tensor(adds, dtype=torch.float64), torch.from_numpy(honest)))
    assert found == pytest.approx(worst, rel=1e-14)


@pytest.mark.parametrize("cover", ["quadrature", "masks"])
def test_of_what_leaks_a_device_is_credited_with_what_it_does_not_know(shielded, cover):
    """Neither its own noise and masks, nor those of devices that collude."""
    changes = {"channel.csi_error": 1e-2, "privacy.credit_leak": True, "privacy.colluding": 0.25}
    changes |= {"scheme.cover": cover, "scheme.mask_degree": 4, "scheme.cover_price_db": 1000.0}
    plan = plan_of(shielded.replace(changes), "airfl-shielded", trials=(0,))
    setting = plan.setting(1)
    gains, honest = setting.gains[0].numpy(), plan.link.honest(setting.active)[0]
    own, quadrature, masks = (float(getattr(setting.cover, name)) for name in ("own", "quadrature", "masks"))
    assert max(quadrature, masks) > 0.0
    receiver = float(plan.norm[0, 1]) ** 2 * plan.link.noise_power / 2
    for looker in (None, *np.flatnonzero(honest)):
        others = honest & (np.arange(len(gains)) != looker)
        left = receiver + (own * gains.real**2 + quadrature * gains.imag**2)[others].sum()
        for i, k in setting.edges[0]:
            left += masks * (gains[i].real - gains[k].real) ** 2 * (others[i] and others[k])
        assert float(setting.unknown_var[0]) <= left * (1.0 + 1e-12)
    assert float(setting.unknown_var[0]) > receiver * (1.0 + 1e-9)


def test_rounds_without_anyone_take_no_more_noise_than_they_must(shielded):
    changes, _ = CASES["poisson, seldom"]
    plan = plan_of(shielded.replace(changes), "airfl-shielded", trials=(0,))
    empty = plan.sending[0] == 0
    assert 0 < int(empty.sum()) < 9
    assert torch.allclose(plan.norm[0][empty], plan.minimum[0][empty])
    assert bool((plan.norm[0][~empty] > 10 * plan.minimum[0][~empty]).all())
    assert [event.gain_bound for event in booked(plan).events] == (~empty).double().tolist()


def problem_of(plan, row, kind):
    """The question that a plan answers, asked again."""
    direction = plan.combiner[row] / plan.norm[row].unsqueeze(-1)
    rows = plan.minimum[row], plan.gain_bound[row], plan.planned[row], direction
    problem = Problem(plan.link.config, plan.link, row, plan.promise, *rows, plan.dim)
    problem.follow([kind])
    return problem


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("quadrature", {}),
        ("quadrature", {"privacy.epsilon": 0.3}),
        ("quadrature", {"channel.power_w": 3e-6}),
        ("masks", MASKS),
        ("masks", {"system.num_antennas": 16}),
        ("masks", {"privacy.observer": "everything"}),
        ("none", {"scheme.cover": "none"}),
        ("quadrature", HER),
    ],
)
def test_no_other_cover_takes_much_less_noise(shielded, kind, changes):
    """Twice and half the level, and the other way to more noise at many levels.

    Own noise is hard to do without once it is there, so it has to save a decibel to be taken.
    """
    plan = plan_of(shielded.replace({"scheme.cover_price_db": 1000.0, **changes}), "airfl-shielded", trials=(0,))
    (shield,), problem = plan.shields, problem_of(plan, 0, kind)
    level = max(shield.used.quadrature, shield.used.masks)
    owned = shield.used.own > 0
    same, other = problem.held_back, problem.with_own_noise
    if owned:
        same, other = other, same
    again = same(kind, level, 1e-7)
    assert again.noise == pytest.approx(shield.noise, rel=1e-5)
    assert problem.check(again)
    for factor in (0.5, 2.0) if kind != "none" else ():
        found = same(kind, factor * level or 0.01)
        assert found is None or found.noise >= 0.97 * shield.noise
    for tried in (0.0, *(0.01 * 4.0**step for step in range(0, 13, 2))) if kind != "none" else (0.0,):
        found = other(kind, tried)
        assert found is None or found.noise >= (0.97 if owned else 0.99 / WORTH_OWN_NOISE) * shield.noise
    # And the promise is spent: with a little less noise it would not be kept.
    less = problem.spent(0.999 * shield.norms, problem.cover(kind, level, 0.998 * float(shield.cover.own)))
    assert less > problem.target or torch.allclose(shield.norms, problem.least_norms(shield.cover))


def test_a_ledger_that_exceeds_the_budget_releases_no_model(shielded):
    simulation = simulation_of(shielded, "airfl-shielded", trials=(0,))
    *_, (state, _) = simulation.rounds()
    assert torch.equal(simulation.release(state), state.released)
    (ledger,) = state.ledgers
    louder = [replace(event, base_station=1.01 * event.base_station) for event in ledger.events]
    sums = {"base-station": 1.01**2 * ledger.devices["base-station"]}
    with pytest.raises(BudgetError, match="observer base-station"):
        simulation.release(replace(state, ledgers=(Ledger(tuple(louder), sums),)))
    quieter = [replace(event, noise_var=0.5 * event.noise_var) for event in ledger.events]
    with pytest.raises(BudgetError, match="observer models"):
        simulation.release(replace(state, ledgers=(Ledger(tuple(quieter), dict(ledger.devices)),)))


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    devices=st.integers(1, 14),
    antennas=st.integers(1, 5),
    cover=st.sampled_from(["auto", "quadrature", "masks", "none"]),
    degree=st.sampled_from([2, 4, 6]),
    epsilon=st.floats(0.05, 60),
    power=st.floats(-12, 2).map(lambda exponent: 10.0**exponent),
    rate=st.sampled_from([0.3, 1.0]),
    sampling=st.sampled_from(["fixed", "poisson"]),
    colluding=st.sampled_from([0.0, 0.3]),
    observer=st.sampled_from(["auto", "eavesdropper", "everything"]),
)
def test_no_plan_exceeds_its_budget(
    seed, devices, antennas, cover, degree, epsilon, power, rate, sampling, colluding, observer
):
    changes = {
        "system.seed": seed,
        "system.num_devices": devices,
        "system.num_antennas": antennas,
        "system.participation": rate,
        "system.sampling": sampling,
        "system.rounds": 2,
        "channel.power_w": power,
        "privacy.epsilon": epsilon,
        "privacy.accountant": "gaussian",
        "privacy.colluding": colluding,
        "privacy.observer": observer,
        "eavesdropper.distance_m": 30.0,
        "scheme.names": ["airfl-shielded"],
        "scheme.cover": cover,
        "scheme.mask_degree": degree,
        "scheme.combiner": "auto",
    }
    refused = ""
    try:
        plan = plan_of(airfl.preset("paper").replace(changes), "airfl-shielded", trials=(0,))
    except InputError as error:
        refused = str(error)
    if refused:
        assert re.search(r"quadrature|mask_degree|power|no cover|no amount", refused)
        return
    ledger = booked(plan)
    plan.promise.check(ledger)
    assert float(plan.setting(1).power_w.max()) <= power * (1 + 1e-9)
    assert ledger.events[0].noise_var <= float(plan.noise_var[0, 0]) * (1 + 1e-12)


# What cannot be is refused in one sentence.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scheme.mask_degree": 5}, "the degree is even; got 5, give 6"),
        ({"scheme.cover": "masks", "scheme.mask_degree": 12}, "must be below the number of devices that send, 12"),
        ({"scheme.cover": "quadrature", "system.num_antennas": 7}, "leaves 1 of the 13 directions beside the sum"),
        ({"scheme.cover": "masks", "scheme.names": ["fedavg"]}, "scheme `fedavg` sends no cover"),
        ({"scheme.cover": "none", "scheme.names": ["airfl-dp"]}, "scheme `airfl-dp` sends no cover"),
        ({"privacy.observer": "base-station", "scheme.names": ["airfl-dp"]}, "use `airfl-shielded`"),
        ({"privacy.observer": "everything", "scheme.names": ["airfl-an"]}, "use `airfl-shielded`"),
        ({"privacy.observer": "eavesdropper"}, r"needs a section \[eavesdropper\]"),
        ({"privacy.epsilon": None}, "needs a budget"),
        ({"privacy.colluding": 1.0}, "less than 1"),
        ({"system.dropout": 1.0}, "less than 1"),
        ({"scheme.cover": "fog"}, "scheme.cover"),
        ({"eavesdropper.antennas": 2}, "where is she"),
        ({"eavesdropper.distance_m": 0.0}, "greater than 0"),
        ({"eavesdropper.position": [1.0]}, "eavesdropper.position"),
        (
            {"eavesdropper.distance_m": 9.0, "channel.fading": "trace", "channel.trace_file": "t.npz"},
            "has channels by positions",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_sentence(shielded, changes, message):
    with pytest.raises(InputError, match=message) as refusal:
        shielded.replace(changes)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("changes", [{}, MASKS])
def test_too_little_power_is_named_and_with_so_much_it_works(shielded, changes):
    weak = shielded.replace({"channel.power_w": 3e-7, **changes})
    with pytest.raises(InputError, match="the power does not reach to hide the devices") as refusal:
        plan_of(weak, "airfl-shielded", trials=(0,))
    words = str(refusal.value)
    assert "\n" not in words
    missing = int(re.search(r"(\d+) dB are missing", words).group(1))
    power = float(re.search(r"`channel\.power_w` = ([\d.e+-]+)", words).group(1))
    assert 10 * math.log10(power / 3e-7) == pytest.approx(missing, abs=1.0)
    plan = plan_of(weak.replace({"channel.power_w": power}), "airfl-shielded", trials=(0,))
    assert plan.shields[0].price_db <= 3.0
    with pytest.raises(InputError, match="the power does not reach"):  # and it is not much more than it takes
        plan_of(weak.replace({"channel.power_w": power / 10**0.4}), "airfl-shielded", trials=(0,))
    price = float(re.search(r"`scheme\.cover_price_db` above ([\d.]+)", words).group(1))
    dear = plan_of(weak.replace({"scheme.cover_price_db": price + 0.1}), "airfl-shielded", trials=(0,))
    assert dear.shields[0].price_db == pytest.approx(price, abs=0.1)


def test_what_no_power_hides_is_said_to_be_so(shielded):
    """All but one collude: nobody is left to hide among."""
    with pytest.raises(InputError, match="at any power") as refusal:
        plan_of(shielded.replace({"privacy.colluding": 0.99}), "airfl-shielded", trials=(0,))
    assert "\n" not in str(refusal.value)


def test_what_is_foreseen_has_the_law_of_what_happens(shielded):
    """Errors of channel knowledge and dropouts: the same law, other draws."""
    changes = {"system.num_devices": 60, "system.rounds": 6, "channel.csi_error": 0.01, "system.dropout": 0.3}
    plan = plan_of(shielded.replace({**changes, "scheme.cover_price_db": 1000.0}), "airfl-shielded", trials=(0,))
    problem, link = problem_of(plan, 0, "quadrature"), plan.link
    spread = 0.1 * link.law.amplitude[0][:, None]
    happened = [(link.drawn(0, t) - link.known(0, t)) / spread for t in range(6)]
    foreseen, heard = [], []
    for world, t in ((world, t) for world in (0, 1) for t in range(6)):
        who, known, true, edges = problem._drawn(world, t)
        foreseen.append((true - known).numpy() / spread[who])
        heard.append(who)
        assert np.array_equal(known.numpy(), link.known(0, t)[who])
        assert edges.max(initial=0) < len(who)
    for errors in (np.concatenate(happened), np.concatenate(foreseen)):
        assert np.mean(np.abs(errors) ** 2) == pytest.approx(1.0, abs=5 / math.sqrt(errors.size))
    assert sum(map(len, heard)) == pytest.approx(0.7 * 720, abs=5 * math.sqrt(0.21 * 720))
    assert int((plan.active >= 0).sum()) == pytest.approx(0.7 * 360, abs=5 * math.sqrt(0.21 * 360))
    assert not any(np.array_equal(who, plan.active[0, t][plan.active[0, t] >= 0]) for t, who in enumerate(heard[:6]))


def test_a_share_is_chosen_for_devices_that_drop_out_too(shielded):
    changes = {"scheme.names": ["airfl-dp"], "scheme.selection": "aligned", "scheme.effort": 0.1, "system.dropout": 0.5}
    plan = plan_of(shielded.replace(changes), "airfl-dp", trials=(0,))
    assert plan.normaliser == plan.planned.shape[2] >= plan.sending.max()
    assert int(plan.sending.sum()) < plan.planned.size


def test_repetitions_that_draw_who_takes_part_anew_have_dropouts_too(shielded):
    changes = {"system.participation": 0.7, "scheme.combiner_columns": "all", "system.dropout": 0.4}
    plan = plan_of(shielded.replace(changes).replace({"scheme.names": ["airfl-dp"]}), "airfl-dp", trials=(0,))
    link = replace(plan.link, trials=(0, 0, 0), participation_keys=(5, 6, 7))
    again = plan.repeated(3, link)
    planned, sent = ((again.planned >= 0).sum(), (again.active >= 0).sum())
    assert planned == 3 * 4 * 8
    assert 0.3 * planned < sent < 0.9 * planned
    for row in range(3):
        for t in range(4):
            assert set(again.active[row, t].tolist()) <= {-1, *again.planned[row, t].tolist()}
