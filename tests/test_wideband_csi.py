"""Blocks and complex symbols with estimated channels, with a choice of who sends, and with numbers that are drawn."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import cvxpy
import numpy as np
import pytest
import torch
from scipy import stats

import airfl
from airfl import analysis
from airfl.air import EquivalentUplink, SignalUplink
from airfl.channel import open_link
from airfl.channel.blocks import Place
from airfl.errors import InputError
from airfl.privacy import Ledger
from airfl.rounds import arrange, book
from airfl.schemes import SCHEMES
from airfl.transceiver import SELECTIONS, certificate, open_radio
from airfl.transceiver.levels import allocate_levels, raised
from tests.test_audit_runs import config_of
from tests.test_impairments import random_updates, received

DIM = 61
BANDS = {"channel.coherence_hz": 4e6}
LINE = {"channel.delay_spread_s": 5e-8}
COMPLEX = {"channel.symbols": "complex"}
WRONG = {"channel.csi_error": 0.02}
#: Three spans of time, because devices move.
AGED = {"channel.csi_age_s": 2e-3, "channel.speed_m_s": 5.0, "channel.bandwidth_hz": 2e3}
#: What can go with several blocks or complex symbols.
CASES = {
    "wrong": {**WRONG, **BANDS},
    "wrong-complex": {**WRONG, **COMPLEX},
    "aged-line": {**AGED, **WRONG, "channel.bandwidth_hz": 20e6, **LINE, **COMPLEX},
    "aged-spans": {**AGED, "system.num_devices": 7},
    "strongest": {**BANDS, **WRONG, "scheme.selection": "strongest", "scheme.selection_keep": 0.5},
    "greedy": {**LINE, **WRONG, **COMPLEX, "scheme.selection": "greedy", "scheme.selection_keep": 0.7},
    "greedy-complex": {**COMPLEX, "scheme.selection": "greedy", "scheme.selection_keep": 0.7},
    "aligned-complex": {**COMPLEX, **WRONG, "scheme.selection": "aligned", "scheme.selection_keep": 0.7},
    "poisson": {**BANDS, **COMPLEX, "system.sampling": "poisson", "system.participation": 0.4},
    "poisson-wrong": {**BANDS, **WRONG, "system.sampling": "poisson", "system.participation": 0.4},
    "all": {**BANDS, "scheme.combiner_columns": "all", "system.participation": 0.5},
    "all-wrong": {**BANDS, **COMPLEX, **WRONG, "scheme.combiner_columns": "all", "system.participation": 0.5},
    "all-complex": {**COMPLEX, **WRONG, "scheme.combiner_columns": "all", "system.participation": 0.5},
    "phases": {**BANDS, **WRONG, "scheme.combiner": "zero-forcing", "scheme.phases": "random"},
}


@pytest.fixture
def small(tiny):
    """Six devices, eight antennas, two rounds."""
    return tiny.replace(
        {
            "system.num_devices": 6,
            "system.participation": 1.0,
            "system.num_antennas": 8,
            "system.rounds": 2,
            "scheme.combiner": "auto",
            "channel.power_w": 1e-9,
        }
    )


def schedule_of(config, trials=(0,), name="airfl-dp", dim=DIM):
    return arrange(config, SCHEMES[name], open_radio(config, trials), dim)


# ---------------------------------------------------------------- what happens


@pytest.mark.parametrize("name", CASES)
def test_both_uplinks_hear_the_same_sum(small, name):
    schedule = schedule_of(small.replace(CASES[name]), (0, 3))
    setting = schedule.setting(1)
    updates = random_updates((2, setting.gains.shape[1], DIM), 4) * setting.heard.unsqueeze(-1)
    silent = setting.silenced()
    exact, fast = (received(silent, updates, kind) for kind in (SignalUplink, EquivalentUplink))
    assert float((exact - fast).norm() / exact.norm().clamp(min=1e-9)) < 1e-5
    off = float((exact - updates.sum(dim=1)).norm())
    assert (off > 1e-2) == (schedule.link.config.channel.estimation_error > 0)


@pytest.mark.parametrize("name", CASES)
def test_power_and_gains_are_kept_in_every_round(small, name):
    schedule = schedule_of(small.replace(CASES[name]), (0, 1))
    for t in range(2):
        setting = schedule.setting(t)
        assert float(setting.power_w.max()) <= schedule.link.power_limit * (1 + 1e-9)
        assert bool((setting.loudest <= setting.gain_bound * (1 + 1e-9)).all())
        if setting.blocks is not None:  # block by block, and the scenes say the same
            for number in range(setting.blocks.grid.count):
                scene = setting.blocks.scene(number)
                assert bool((scene.gains.abs().amax(dim=1) <= scene.gain_bound * (1 + 1e-9)).all())
                assert torch.allclose(scene.gain_bound, setting.gain_bound * setting.blocks.ratios[:, number])
                assert bool((scene.tx_scaling == 0).eq(~setting.heard).all())


def test_one_block_is_todays_bits(small):
    keys = {"scheme.names": ["airfl-dp"], "channel.csi_error": 0.02, "scheme.selection": "strongest"}
    wide = {"channel.coherence_hz": 20e6, "channel.speed_m_s": 1.0}
    plain, one = (airfl.run(small.replace({**keys, **more})).schemes["airfl-dp"] for more in ({}, wide))
    assert all(torch.equal(a, b) for a, b in zip(plain.models, one.models, strict=True))
    assert plain.ledgers == one.ledgers
    link = open_link(small.replace({**keys, **BANDS}), (0, 1))
    true = link.drawn_in(1, Place(0, 0, -8e6))
    assert np.array_equal(link.estimated_in(true, 1, Place(0, 0, -8e6)), link.estimates([1])[:, 0])


@pytest.mark.parametrize("more", [BANDS, LINE])
def test_errors_are_independent_of_all_estimates_of_the_round(tiny, more):
    """Also of those of other bands, which hear the same echoes: else choices on them would make errors larger."""
    config = tiny.replace(
        {**more, "channel.csi_error": 0.3, "system.num_devices": 3000, "system.participation": 1.0,
         "scheme.combiner": "auto"}
    )  # fmt: skip
    link = open_link(config, (0,))
    scale = link.law.amplitude[0][:, None]
    places = [Place(band, 0, (band - 2) * 4e6) for band in range(3)]
    true = [link.drawn_in(0, place) for place in places]
    known = [link.estimated_in(one, 0, place)[0] / scale for one, place in zip(true, places, strict=True)]
    errors = [one[0] / scale - other for one, other in zip(true, known, strict=True)]
    count = known[0].size
    for one, other in itertools.product(errors, known):
        assert abs(np.mean(one * other.conj())) < 5 * math.sqrt(0.3 * 0.7 / count)
    for one in errors:
        assert np.mean(np.abs(one) ** 2) == pytest.approx(0.3, abs=5 * 0.3 / math.sqrt(count))
    along = abs(np.mean(errors[0] * errors[1].conj())) / 0.3
    assert along > 0.3 if more is LINE else along < 5 / math.sqrt(count)


# ---------------------------------------------------------------- the gain bound


@pytest.mark.parametrize("more", [BANDS, {**LINE, "scheme.selection": "strongest", "scheme.selection_keep": 0.5}])
def test_the_chance_of_a_larger_gain_against_draws(small, more):
    """Trials in which some |wᴴe|² is beyond log(K·T·B/p) of its mean: p at most, 1 − e^{−p} if all are independent."""
    outage, trials = 0.6, 120
    config = small.replace(
        {**more, "channel.csi_error": 0.1, "channel.csi_outage": outage, "scheme.combiner": "zero-forcing"}
    )
    schedule = schedule_of(config, range(trials))
    seen, beyond, louder = [], np.zeros(trials, dtype=bool), np.zeros(trials, dtype=bool)
    senders = schedule.active.shape[2]
    limit = math.log(senders * 2 * 5 / outage)
    for t in range(2):
        setting = schedule.setting(t)
        louder |= (setting.loudest > setting.gain_bound).numpy()
        active = schedule.active_in(t)
        std = math.sqrt(0.1) * np.take_along_axis(schedule.link.law.amplitude, active, axis=1)
        for number in range(5):
            scene = setting.blocks.scene(number)
            error = (scene.gains - 1.0) / scene.tx_scaling / torch.from_numpy(std)  # wᴴ(h − ĥ)/√(τΛ)
            z = (error.abs() / scene.combiner.norm(dim=1, keepdim=True)).square().numpy()
            seen.append(z.ravel())
            beyond |= (z > limit).any(axis=1)
    assert stats.kstest(np.concatenate(seen), "expon").pvalue > 1e-4
    slack = 5 * math.sqrt(0.25 / trials)
    assert beyond.mean() <= outage + slack
    if more is BANDS:
        assert beyond.mean() == pytest.approx(-math.expm1(-outage), abs=slack)
    assert not (louder & ~beyond).any()  # no gain is beyond its bound unless its error is


def test_a_gain_beyond_its_bound_is_booked_and_refused(small, monkeypatch):
    monkeypatch.setattr("airfl.transceiver.wideband.gain_bound", lambda *a: torch.ones_like(a[2].norm))
    keys = {"channel.csi_error": 0.05, "channel.power_w": 1e-3, "scheme.names": ["airfl-dp"]}
    result = airfl.run(small.replace({**BANDS, **keys}))
    assert result.schemes["airfl-dp"].status == "refused"


# ---------------------------------------------------------------- what is booked


def worst_ratio(schedule, t):
    """max_b G_tb²/v_tb from channels and combiners of each block by themselves, [trials]."""
    setting, channel = schedule.setting(t), schedule.link.config.channel
    tau, width = channel.estimation_error, schedule.blocks.design.active.shape[2]
    events = width * schedule.active.shape[1] * setting.blocks.grid.count
    found = []
    for number in range(setting.blocks.grid.count):
        scene = setting.blocks.scene(number)
        norm = scene.combiner.norm(dim=1)
        std = np.take_along_axis(schedule.link.law.amplitude, np.maximum(scene.active, 0), axis=1)
        spread = math.sqrt(tau * math.log(events / channel.csi_outage)) * torch.from_numpy(std) * norm.unsqueeze(-1)
        # 1/|s_i| is |wᴴ ĥ_i|.
        bound = 1.0 + torch.where(scene.heard, spread * scene.tx_scaling.abs(), 0.0).amax(dim=1)
        found.append(bound.square() / (norm.square() * schedule.link.noise_power / 2))
    return torch.stack(found).amax(dim=0)


@pytest.mark.parametrize("name", [name for name, keys in CASES.items() if {*BANDS, *LINE, *AGED} & set(keys)])
def test_what_is_booked_is_the_worst_block_exactly(small, name):
    """No less, or the promise were void; no more, or noise were wasted."""
    for seed in range(3):
        config = small.replace({**CASES[name], "system.seed": seed, "privacy.epsilon": (0.5, 20.0, 1e5)[seed]})
        schedule = schedule_of(config, (0, 1))
        everyone = bool((schedule.active >= 0).any(axis=2).all())
        for t in range(2):
            setting = schedule.setting(t)
            booked = [entry.event for entry in book(schedule, setting, lambda _: None)]
            ratio = torch.tensor([event.gain_bound**2 / event.noise_var for event in booked])
            worst = worst_ratio(schedule, t)
            assert bool((ratio >= worst * (1 - 1e-6)).all())
            if everyone and "all" not in name:  # with combiners for all n the least power allows may be more than asked
                assert torch.allclose(ratio, worst.float(), rtol=1e-5)


@pytest.mark.parametrize("name", ["wrong", "aged-line", "all-wrong"])
def test_a_neighbour_in_one_block_moves_the_sum_as_far_as_its_gain_there(small, name):
    """Each device in each block alone, through all antennas; the farthest, beside the noise there, is ``loudest``."""
    setting = schedule_of(small.replace(CASES[name])).setting(1)
    where, places = setting.blocks.grid.block_of(DIM), setting.gains.shape[1]
    silent, found = setting.silenced(), []
    for device, number in itertools.product(range(places), range(setting.blocks.grid.count)):
        update = torch.zeros(1, places, DIM, dtype=torch.float64)
        update[0, device, where == number] = random_updates((int((where == number).sum()),), device)
        for kind in (SignalUplink, EquivalentUplink):
            moved = received(silent, update, kind).norm()
            gain = setting.blocks.gains[0, device, number]
            gain = gain.abs() if setting.per_symbol > 1 and number != int(where[-1]) else moved  # half a symbol is left
            assert float(moved) == pytest.approx(float(gain), rel=1e-5)
            found.append(float(moved / setting.blocks.ratios[0, number]))
    assert max(found) <= float(setting.loudest[0]) * (1 + 1e-6)
    if setting.per_symbol > 1:
        assert max(found) > 0.9 * float(setting.loudest[0])


@pytest.mark.parametrize("seed", range(6))
def test_the_budget_is_kept_whatever_is_drawn(tiny, seed):
    generator = np.random.Generator(np.random.Philox(key=seed))
    for _ in range(4):
        config = tiny.replace(
            {
                **(BANDS, LINE, AGED)[int(generator.integers(3))],
                "channel.csi_error": float(10.0 ** generator.uniform(-4, -0.5)),
                "channel.csi_outage": float(10.0 ** generator.uniform(-12, -1)),
                "channel.power_w": float(10.0 ** generator.uniform(-11, -3)),
                "channel.symbols": ("real", "complex")[int(generator.integers(2))],
                "privacy.epsilon": float(10.0 ** generator.uniform(-1, 2)),
                "scheme.selection": ("all", "strongest")[int(generator.integers(2))],
                "system.seed": int(generator.integers(1000)),
                "system.num_devices": int(generator.integers(2, 13)),
            }
        )
        schedule = schedule_of(config, (0, 1))
        total = schedule.budget.total
        spent = torch.stack([worst_ratio(schedule, t) for t in range(4)]).sum(dim=0) * schedule.link.noise_power / 2
        assert bool((spent <= total * (1 + 1e-9)).all())
        for row in range(2):
            ledger = Ledger()
            for t in range(4):
                ledger = book(schedule, schedule.setting(t), lambda _: None)[row].on(ledger)
            if all(bool((schedule.setting(t).loudest <= schedule.gain_bound[:, t]).all()) for t in range(4)):
                assert schedule.promise.check(ledger) is None


def instance(seed):
    generator = np.random.Generator(np.random.Philox(key=seed))
    rounds, blocks = int(generator.integers(1, 6)), int(generator.integers(2, 8))
    spread = generator.uniform(0.01, 1.0)
    pi = torch.from_numpy(10.0 ** generator.uniform(-spread, spread, (rounds, blocks)))
    bound = torch.from_numpy(1.0 + generator.exponential(1.0, (rounds, blocks)))
    free = float((bound / pi).square().amax(dim=1).sum())
    return pi, bound, free * 10.0 ** generator.uniform(-2.0, 0.3)


@pytest.mark.parametrize("seed", range(60))
def test_levels_with_gain_bounds_of_blocks_against_cvxpy(seed):
    """minimise Σ_t mean_b q_tb² subject to q ≥ π and Σ_t max_b G_tb²/q_tb² ≤ A, as stated and not as it is solved."""
    pi, bound, budget = instance(seed)
    largest = bound.amax(dim=1)
    ratios = bound / largest.unsqueeze(1)
    level = allocate_levels(pi / ratios, budget, largest.square(), ratios)
    norm = raised(pi, level, ratios)
    assert float((bound / norm).square().amax(dim=1).sum()) <= budget * (1 + 1e-12)
    square = cvxpy.Variable(pi.shape, pos=True)
    spent = sum(cvxpy.max(cvxpy.multiply(bound[t].square().numpy(), cvxpy.inv_pos(square[t]))) for t in range(len(pi)))
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum(square) / pi.shape[1]), [spent <= budget, square >= pi.square().numpy()]
    )
    problem.solve(solver=cvxpy.CLARABEL)
    assert float(norm.square().mean(dim=1).sum()) == pytest.approx(problem.value, rel=1e-5)
    one = allocate_levels(pi, budget, largest.square())  # one bound for all blocks: valid, and never less noise
    assert float(raised(pi, one).square().mean(dim=1).sum()) >= problem.value * (1 - 1e-6)


def test_one_ratio_for_all_blocks_changes_no_bit():
    pi, _, budget = instance(5)
    assert torch.equal(allocate_levels(pi, budget), allocate_levels(pi, budget, None, torch.ones_like(pi)))


# ---------------------------------------------------------------- who sends


@pytest.mark.parametrize("name", ["strongest", "greedy"])
def test_who_sends_is_chosen_on_all_blocks(small, name):
    keys = {"system.num_devices": 9, "scheme.selection": name, "scheme.selection_keep": 5 / 9}
    schedule = schedule_of(small.replace({**BANDS, **keys}))
    link, places = schedule.link, [Place(0, 0, 0.0)] + [Place(band, 0, 0.0) for band in range(1, 5)]
    blocks = torch.from_numpy(np.stack([link.drawn_in(0, place)[0] for place in places]))
    assert np.array_equal(np.sort(schedule.active[0, 0]), SELECTIONS[name](lambda: list(blocks), 5).numpy())
    if name == "strongest":
        assert set(schedule.active[0, 0]) == set(blocks.abs().square().sum(dim=(0, 2)).topk(5).indices.tolist())
        return
    bounds = {who: float(certificate(blocks[:, list(who)]).sum()) for who in itertools.combinations(range(9), 5)}
    ranks = sorted(bounds, key=bounds.get)
    assert ranks.index(tuple(schedule.active[0, 0].tolist())) < 0.1 * len(ranks)


def test_one_block_of_a_selection_is_the_selection_of_one_block(small):
    h = torch.randn(3, 20, 4, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    for select in SELECTIONS.values():
        assert torch.equal(select(lambda: [h], 12), select(lambda: [h, h], 12))
        assert torch.equal(select(lambda: [h], 12)[1], select(lambda: [h[1]], 12))


def test_aligned_takes_one_block(small):
    with pytest.raises(InputError, match="together with one combiner") as refused:
        schedule_of(small.replace({**BANDS, "scheme.selection": "aligned"}))
    assert "\n" not in str(refused.value)


# ---------------------------------------------------------------- numbers that are drawn


@pytest.mark.parametrize("combiner", ["auto", "zero-forcing"])
@pytest.mark.parametrize("columns", ["active", "all"])
def test_rounds_without_anybody(small, columns, combiner):
    config = small.replace(
        {**BANDS, **WRONG, "system.sampling": "poisson", "system.participation": 0.25, "system.rounds": 8,
         "scheme.combiner_columns": columns, "scheme.combiner": combiner, "scheme.names": ["airfl-dp"]}
    )  # fmt: skip
    schedule = schedule_of(config, (0, 1))
    numbers = (schedule.active >= 0).sum(axis=2)
    assert numbers.min() == 0
    assert numbers.max() > 1
    t = int(np.argmin(numbers[0]))
    setting = schedule.setting(t)
    assert not setting.heard[0].any()
    assert bool(torch.isfinite(setting.noise_var).all())
    assert float(setting.blocks.spent[0].max()) == 0.0
    result = airfl.run(config).schemes["airfl-dp"]
    assert result.status == "done"
    assert result.epsilon() <= config.privacy.epsilon * (1 + 1e-9)


@pytest.mark.parametrize("law", ["poisson", "fixed"])
def test_combiners_for_all_hide_who_takes_part_and_earn_credit(small, law):
    keys = {
        **BANDS, "system.num_devices": 12, "system.num_antennas": 16, "system.participation": 0.25,
        "system.sampling": law, "privacy.accountant": "sampled", "privacy.epsilon": 2.0, "channel.power_w": 1e-3,
        "scheme.combiner": "zero-forcing",
    }  # fmt: skip
    everyone, served = (
        schedule_of(small.replace({**keys, "scheme.combiner_columns": columns})) for columns in ("all", "active")
    )
    assert everyone.hides_participation == (True,)
    assert served.hides_participation == (False,)
    assert float(everyone.noise_var.mean()) < 0.5 * float(served.noise_var.mean())
    # Whoever is drawn: the same noise in every block.
    config = small.replace({**keys, "scheme.combiner_columns": "all"})
    radio = open_radio(config, (0,))
    for key in range(1, 4):
        other = arrange(
            config, SCHEMES["airfl-dp"], replace(radio, link=replace(radio.link, participation_keys=(key,)), blocks={}),
            DIM,
        )  # fmt: skip
        assert not np.array_equal(other.active, everyone.active)
        assert torch.equal(other.blocks.norm, everyone.blocks.norm)
        assert torch.equal(other.setting(1).blocks.noise_var, everyone.setting(1).blocks.noise_var)
    # Where gains, or noise, tell, none is given.
    assert schedule_of(config.replace({"channel.csi_error": 0.01})).hides_participation == (False,)


def test_what_a_device_sends_does_not_depend_on_who_else_does(small):
    """A device that scales down for its power does so by its own update: this is what credit rests on."""
    config = small.replace(
        {**BANDS, "scheme.combiner_columns": "all", "system.participation": 0.5, "privacy.epsilon": 1e5}
    )
    radio, heard = open_radio(config, (0,)), {}
    for key in range(12):
        keyed = replace(radio, link=replace(radio.link, participation_keys=(key,)), blocks={})
        schedule = arrange(config, SCHEMES["airfl-dp"], keyed, DIM)
        setting = schedule.setting(0)
        for slot, device in enumerate(setting.active[0]):
            heard.setdefault(int(device), []).append(setting.blocks.spent[0, slot])
    assert all(torch.equal(one, rows[0]) for rows in heard.values() for one in rows)
    assert max(len(rows) for rows in heard.values()) > 3


def test_an_audit_of_sampled_blocks_refutes_nothing(tiny):
    keys = {**BANDS, "scheme.combiner_columns": "all", "privacy.accountant": "sampled"}
    audit = analysis.audit_run(config_of(tiny, "poisson", "airfl-dp", "zero-out", **keys), "airfl-dp", 60)
    assert not audit.findings
    assert not audit.failed


def test_an_audit_finds_a_bound_that_is_too_small(tiny, monkeypatch):
    """Devices that are heard louder than is booked, where nobody looks at gains."""
    keys = {**BANDS, **WRONG, "scheme.combiner_columns": "active"}
    config = config_of(tiny, "all", "airfl-dp", "zero-out", **keys)
    monkeypatch.setattr("airfl.transceiver.wideband.gain_bound", lambda *a: torch.full_like(a[2].norm, 0.9))
    monkeypatch.setattr("airfl.air.Setting.loudest", property(lambda setting: torch.zeros(len(setting.active))))
    failed = analysis.audit_run(config, "airfl-dp", 20).failed
    assert "contribution of each device" in [check.name for check in failed]
