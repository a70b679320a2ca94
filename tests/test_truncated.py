"""Truncated channel inversion: thresholds, power, who is heard, what is booked, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from airfl import analysis
from airfl.air import EquivalentUplink, SignalUplink
from airfl.analysis.audit.planted import Defect, _clipping, little_config
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.schemes import PerSender, Public, scheme_named
from airfl.schemes.policies.directions import strongest
from airfl.schemes.policies.threshold import balanced_threshold, bound_of, power_cost, stated_threshold
from airfl.simulate import open_simulation
from airfl.testing.small import small_config, small_task

WIDE = {"channel.coherence_hz": 5e6}
ONE = {"system.num_antennas": 1}
FREE = {"privacy.epsilon": None, "scheme.names": ["tci"]}


def opened(name="tci", **overrides):
    config = small_config({"scheme.names": [name], **overrides})
    return open_simulation(config, scheme_named(name, config), small_task(config))


def finished(simulation):
    *_, (state, _) = simulation.rounds()
    return state


@pytest.mark.parametrize(
    ("share", "threshold", "mean", "filled", "most"),
    [
        (0.95, 0.0513, 2.4436, 2.5722, 19.50),
        (0.9, 0.1054, 1.7758, 1.9731, 9.49),
        (0.8, 0.2231, 1.1340, 1.4175, 4.48),
        (0.6, 0.5108, 0.5469, 0.9114, 1.96),
        (0.4, 0.9163, 0.2529, 0.6324, 1.09),
        (0.2, 1.6094, 0.0851, 0.4256, 0.62),
    ],
)
def test_what_a_share_costs(share, threshold, mean, filled, most):
    found = stated_threshold(small_config({**FREE, "scheme.truncation_share": share}))
    assert found == pytest.approx(threshold, abs=6e-5)
    assert power_cost(found, "mean") == pytest.approx(mean, abs=6e-5)
    assert power_cost(found, "mean") == pytest.approx(float(mpmath.e1(found)), rel=1e-12)
    assert power_cost(found, "filled") == pytest.approx(filled, abs=6e-5)
    assert power_cost(found, "most") == pytest.approx(most, abs=6e-3)


@pytest.mark.parametrize(
    ("error", "noise", "law", "threshold"),
    [
        (1.0, 1.0, "mean", 0.241954),
        (1.0, 1.0, "most", 0.450601),
        (1.0, 1.0, "filled", 0.220540),
        (0.2, 3.0, "mean", 0.762165),
        (0.2, 3.0, "most", 1.003729),
        (0.2, 3.0, "filled", 0.756482),
    ],
)
def test_the_threshold_that_a_bound_asks_for(error, noise, law, threshold):
    assert balanced_threshold(error, noise, law) == pytest.approx(threshold, abs=6e-7)


@settings(max_examples=15, deadline=None)
@given(ratio=st.floats(-6, 6), law=st.sampled_from(["mean", "most", "filled"]))
def test_no_other_threshold_is_better(ratio, law):
    noise = 10.0**ratio

    def bound(log):
        threshold = math.exp(log)
        return math.expm1(2 * threshold) + noise * power_cost(threshold, law)

    found = math.log(balanced_threshold(1.0, noise, law))
    least = minimize_scalar(bound, bounds=(found - 1.0, found + 1.0), method="bounded", options={"xatol": 1e-12})
    assert bound(found) <= least.fun * (1.0 + 1e-9)


def test_a_threshold_follows_from_stated_constants():
    more = {"scheme.gradient_bound": 2.0, "privacy.smoothness": 0.5}
    simulation = opened(**FREE, **ONE, **more)
    schedule, law = simulation.schedule, simulation.schedule.link.law
    for row, weakest in enumerate((law.amplitude**2).min(axis=1)):
        bound = bound_of(simulation.config, 1.0, schedule.link.noise_power, 1e-9, weakest, 6)
        assert bound.error == pytest.approx(48 * (0.1 * 2 * 0.5 * 2.0) ** 2)
        assert bound.noise == pytest.approx(2 * 0.1 * 0.5 * schedule.link.noise_power / (2 * 36 * 1e-9 * weakest))
        threshold = balanced_threshold(bound.error, bound.noise, "most")
        expected = 1.0 / math.sqrt(schedule.dim * 1e-9 * weakest * threshold)
        assert schedule.norm[row].tolist() == pytest.approx([expected] * 3)
    with pytest.raises(InputError, match="needs the smoothness"):
        opened(**FREE, **{"scheme.gradient_bound": 2.0})


def test_share_and_mean_power_over_the_fading():
    """λ = e^−γ, and at q of `average` the mean power is P for whoever has the weakest path."""
    wide = {
        "channel.coherence_hz": 0.5e6,
        "channel.bandwidth_hz": 9e6,
        "system.rounds": 40,
        "channel.distance": "common",
    }
    simulation = opened(**FREE, **ONE, **wide, **{"scheme.truncation_power": "average", "scheme.truncation_share": 0.6})
    schedule = simulation.schedule
    spent = schedule.blocks.scaling.abs().square()
    assert spent.numel() > 8000
    assert float((spent > 0).double().mean()) == pytest.approx(0.6, abs=0.025)
    mean = float(spent.mean()) * 1.0 / schedule.dim
    assert mean == pytest.approx(1e-9, rel=0.06)
    assert float(spent.max()) / schedule.dim > 1.2e-9  # single rounds exceed it, and nobody refuses


@pytest.mark.parametrize(("rule", "cost"), [("peak", 4.4814), ("average", 1.1340), ("spread", 1.1340)])
def test_the_noise_is_that_of_the_law(rule, cost):
    schedule = opened(**FREE, **ONE, **{"scheme.truncation_power": rule}).schedule
    weakest = torch.from_numpy((schedule.link.law.amplitude**2).min(axis=1))
    expected = cost * schedule.link.noise_power / (2 * schedule.dim * 1e-9 * weakest)
    assert torch.allclose(schedule.noise_var, expected.unsqueeze(1).expand(2, 3), rtol=1e-4)


def test_memory_that_fills_what_is_sent_costs_more_on_average():
    law = {**FREE, **WIDE, "scheme.truncation_combiner": "one", "scheme.truncation_power": "average"}
    plain, filled = (opened(name, **{**law, "scheme.names": [name]}).schedule for name in ("tci", "tci-memory"))
    assert torch.allclose(filled.norm, plain.norm * math.sqrt(1.4175 / 1.1340), rtol=1e-4)


@pytest.mark.parametrize(("devices", "antennas"), [(3, 7), (7, 3), (1, 4), (5, 5)])
def test_the_strongest_direction_is_that(devices, antennas):
    generator = np.random.Generator(np.random.Philox(key=2))
    draw = generator.standard_normal((2, 3, devices, antennas, 2)) @ np.array([1.0, 1j])
    there = np.ones(draw.shape[:3], dtype=bool)
    there[1, 2, devices // 2 :] = False
    unit, mean = strongest(draw, there)
    assert torch.allclose(unit.abs().square().sum(dim=-1), torch.ones(2, 3).double())
    for i, j in np.ndindex(2, 3):
        rows = draw[i, j][there[i, j]]
        if len(rows):
            assert float(mean[i, j]) * len(rows) == pytest.approx(np.linalg.norm(rows, 2) ** 2)
    along = np.einsum("ijm,ijm->ij", unit.numpy().conj(), draw[:, :, 0])[there[:, :, 0]]
    assert np.allclose(along, np.abs(along), rtol=1e-9)  # rounding does not choose the phase
    alone = strongest(draw[1:], there[1:])
    assert torch.equal(alone[0][0], unit[1])
    assert torch.equal(alone[1][0], mean[1])


def test_shares_hold_along_the_strongest_direction_and_its_gain_saves_noise():
    crowd = {
        **FREE, "system.num_devices": 24, "system.num_antennas": 8, "system.rounds": 12, "system.trials": 2,
        "learning.samples_per_device": 2, "scheme.truncation_share": 0.5,
    }  # fmt: skip
    found = {way: opened(**crowd, **{"scheme.truncation_combiner": way}).schedule for way in ("strongest", "one")}
    sent = float((found["strongest"].scaling.abs() > 0).double().mean())
    assert sent == pytest.approx(0.5, abs=0.05)
    assert float(found["strongest"].noise_var.mean()) < 0.5 * float(found["one"].noise_var.mean())


KINDS = [
    ONE,
    {},
    {**ONE, **WIDE},
    WIDE,
    {**WIDE, "scheme.truncation_combiner": "one", "scheme.truncation_power": "spread"},
    {"scheme.truncation_power": "average", "system.sampling": "poisson", "system.participation": 0.5},
    {"scheme.interior_radius_m": 700.0, "scheme.combiner_columns": "all"},
    {**WIDE, "scheme.truncation_combiner": "served"},
    {"scheme.truncation_combiner": "served", "system.sampling": "poisson", "system.participation": 0.5},
]


@pytest.mark.parametrize("kind", range(len(KINDS)))
@pytest.mark.parametrize("name", ["tci", "tci-memory"])
def test_gains_are_one_or_nothing_and_both_uplinks_hear_them(name, kind):
    simulation = opened(name, **{**FREE, "scheme.names": [name]}, **KINDS[kind], **{"scheme.truncation_share": 0.4})
    schedule, silent = simulation.schedule, 0
    for t in range(3):
        setting = schedule.setting(t)
        public = schedule.public(setting)
        gains, sent = public.gains, public.gains.abs() > 0
        assert torch.allclose(gains, sent.to(gains.dtype), atol=1e-9)
        silent += int((~sent).sum())
        trials, places = setting.active.shape
        updates = torch.randn(trials, places, schedule.dim, generator=torch.Generator().manual_seed(1)) * 0.1
        index = torch.arange(trials).repeat_interleave(places), torch.arange(places).repeat(trials)
        blocks = UpdateBlock(*index, updates.flatten(0, 1), torch.zeros(trials * places))
        mask = sent[:, :, public.block_of(schedule.dim)]
        for uplink in (EquivalentUplink, SignalUplink):
            heard = uplink(5, (0, 1)).receive([blocks], schedule.dim, setting.silenced())
            assert torch.allclose(heard, (mask * updates).sum(dim=1), atol=1e-5)
    assert silent > 0


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_nobody_exceeds_the_power_at_peak(kind):
    """Whatever entries an update of full length lies on."""
    schedule = opened(**FREE, **{"scheme.truncation_power": "peak"}, **{
        key: value for key, value in KINDS[kind].items() if key != "scheme.truncation_power"
    }).schedule  # fmt: skip
    spent = schedule.scaling if schedule.blocks is None else schedule.blocks.scaling
    assert float(spent.abs().square().max()) / schedule.dim <= 1e-9 * (1 + 1e-9)


@pytest.mark.parametrize("more", [{}, WIDE])
def test_spread_power_scales_updates_down(more):
    """No round of a device takes more than P, and what it contributes only gets shorter."""
    simulation = opened(**FREE, **ONE, **more, **{"scheme.truncation_power": "spread", "scheme.truncation_share": 0.95})
    schedule, kept = simulation.schedule, []
    state = simulation.init()
    for t in range(3):
        step = simulation.advance(state, lambda block: replace(block, trained=100.0 * block.trained))
        state = step.after
        setting = schedule.setting(t)
        spent = setting.tx_scaling.abs().square() if setting.blocks is None else (setting.blocks.spent.amax(dim=-1))
        assert float(setting.power_w.max()) <= 1e-9
        kept.append(step.watch.kept)
        if setting.blocks is None:  # at full length, which the clip's margin is below
            assert float((step.watch.kept * (1.0 - 4e-5)).square().mul(spent).max()) / schedule.dim <= 1e-9
    left = torch.stack(kept)
    assert float(left.min()) < 0.999
    assert float(left.max()) == 1.0


def test_each_coordinate_is_divided_by_who_sent_it():
    gains = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]])
    from airfl.channel.blocks import Grid

    grid = Grid(2, 1, 5, 1)
    public = Public(0, (0, 1), 0, np.arange(6).reshape(2, 3), gains.to(torch.complex128), grid, torch.ones(2))
    found = PerSender().decode_in(torch.ones(2, 5), 1.0, 3.0, public)
    assert torch.allclose(found[0], torch.tensor([1.5, 0.0, 1.5, 0.0, 1.5]))
    assert torch.allclose(found[1], torch.tensor([1.0, 1.5, 1.0, 1.5, 1.0]))


@settings(max_examples=12, deadline=None)
@given(
    power=st.floats(-12, 3),
    epsilon=st.floats(-2, 2),
    share=st.floats(0.05, 0.99),
    wide=st.booleans(),
    combiner=st.sampled_from(["one", "strongest", "served"]),
    rule=st.sampled_from(["peak", "average", "spread"]),
    seed=st.integers(0, 10**6),
)
def test_a_budget_is_kept_whatever_the_channels(power, epsilon, share, wide, combiner, rule, seed):
    """Noise is raised, and only noise: who sends stays the same."""
    more = {
        "channel.power_w": 10.0**power, "scheme.truncation_share": share, "scheme.truncation_combiner": combiner,
        "scheme.truncation_power": rule, "system.seed": seed, **(WIDE if wide else {}),
    }  # fmt: skip
    tight, free = (opened(**more, **{"privacy.epsilon": eps, "scheme.names": ["tci"]}) for eps in (10.0**epsilon, None))
    state = finished(tight)
    assert torch.isfinite(tight.release(state)).all()
    for row, ledger in enumerate(state.ledgers):
        assert tight.schedule.promise.spent(ledger) <= 10.0**epsilon * (1 + 1e-9)
        if bool((tight.schedule.norm[row] > free.schedule.norm[row] * (1 + 1e-9)).any()):
            assert tight.schedule.promise.spent(ledger) >= 0.999 * 10.0**epsilon  # no more than it takes
    for t in range(3):
        one, other = (s.schedule.public(s.schedule.setting(t)).gains != 0 for s in (tight, free))
        assert torch.equal(one, other)


def test_epsilon_is_that_of_airfl_where_sensitivity_and_noise_are():
    simulation = opened(**ONE, **{"privacy.credited_noise": "receiver"})
    state = finished(simulation)
    events = state.ledgers[0].events
    assert {event.clip_norm for event in events} == {1.0}
    assert all(event.domain is None for event in events)
    usual = open_simulation(small_config(), "airfl-mimo", small_task(small_config()))
    norm = simulation.schedule.norm[0] / usual.schedule.norm[0]
    same = replace(usual.schedule, norm=usual.schedule.norm * norm, combiner=usual.schedule.combiner * norm[:, None])
    twin = finished(replace(usual, schedule=same))
    promise = simulation.schedule.promise
    assert promise.spent(twin.ledgers[0]) == pytest.approx(promise.spent(state.ledgers[0]), rel=1e-9)
    # At the antennas too: μ² = 2c²ρ/σ², the same as in the sum.
    for event in events:
        assert event.base_station == pytest.approx(event.gain_bound / math.sqrt(event.noise_var), rel=1e-9)


def test_far_devices_never_take_part():
    near = opened(**FREE, **{"scheme.interior_radius_m": 700.0})
    everyone = opened(**FREE)
    distances = near.schedule.link.law.distances_m
    for row in range(2):
        inside = set(np.flatnonzero(distances[row] <= 700.0).tolist())
        assert set(np.unique(near.schedule.active[row][near.schedule.active[row] >= 0]).tolist()) == inside
        assert near.schedule.never_heard()[row] == 6 - len(inside)
    assert bool((near.schedule.norm < everyone.schedule.norm).any())
    law = {**FREE, **ONE, "scheme.interior_radius_m": 700.0}
    gains = near.schedule.link.law.amplitude**2
    for row in range(2):
        weakest = gains[row][distances[row] <= 700.0].min()
        ratio = opened(**FREE, **ONE).schedule.norm[row] / opened(**law).schedule.norm[row]
        assert ratio.tolist() == pytest.approx([math.sqrt(weakest / gains[row].min())] * 3)


def test_a_trial_alone_is_the_trial_in_a_batch():
    """Designs are found in batches, and do not depend on them."""
    both = opened(**WIDE, **FREE)
    task = small_task(both.config)
    alone = open_simulation(both.config, "tci", replace(task, trials=(1,), partitions=task.partitions[1:]))
    assert torch.equal(alone.schedule.norm[0], both.schedule.norm[1])
    assert torch.equal(alone.schedule.blocks.scaling[0], both.schedule.blocks.scaling[1])


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({**WIDE, "channel.rotation": True}, "mixed by `channel.rotation`"),
        ({"scheme.interior_radius_m": 2.0}, "no device of a trial is within"),
        ({"scheme.truncation_share": 0.5, "scheme.truncation_threshold": 0.5}, "say the same thing"),
        ({"scheme.truncation_share": 0.5, "scheme.gradient_bound": 0.5}, "give one of them"),
        ({"scheme.truncation_share": 1.0}, "truncation_share"),
        ({"channel.csi_error": 0.01}, "transmit scalars of its own"),
        ({"scheme.selection": "strongest"}, "chooses itself who sends"),
        (
            {"privacy.accountant": "convergent", "learning.domain_diameter": 5.0, "privacy.smoothness": 1.0},
            "has not been worked out with accountant `convergent`",
        ),
    ],
)
def test_what_does_not_hold_is_refused(overrides, words):
    with pytest.raises(InputError, match=words):
        opened(**overrides)


@pytest.mark.parametrize("more", [{}, {"system.num_antennas": 1, "channel.coherence_hz": 1e7}])
def test_an_audit_refutes_nothing_and_sees_twice_what_is_booked(more):
    config = little_config(3, False).replace(
        {
            "scheme.names": ["tci"],
            "scheme.combiner": "auto",
            "scheme.combiner_columns": "active",
            "system.rounds": 3,
            **more,
        }
    )
    found = analysis.audit_run(config, "tci", 40).summary
    assert found["failed_checks"] == []
    assert found["findings"] == []
    caught = analysis.audit_run(config, "tci", 40, opener=Defect("clip × 2", _clipping(2.0)).open).summary
    assert caught["failed_checks"] != []
