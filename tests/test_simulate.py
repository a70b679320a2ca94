from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import airfl
from airfl.devices import load_samples, open_task
from airfl.errors import DivergedError
from airfl.privacy import make_accountant
from airfl.rounds import update_factor
from airfl.rounds.lanes import Lane, shared_lanes
from airfl.schemes import SCHEMES
from airfl.schemes.policies import norms as policies
from airfl.simulate import Simulation, advance_together
from airfl.simulate import open_simulation as join

CPU = torch.device("cpu")


def open_simulation(config, scheme, trials) -> Simulation:
    return join(config, scheme, task_of(config, trials))


def task_of(config, trials):
    return open_task(config, trials, load_samples(config, CPU))


def final(result, scheme):
    return result.schemes[scheme].models


def test_same_seed_same_bits(tiny):
    first, second = airfl.run(tiny), airfl.run(tiny)
    for name in tiny.scheme.names:
        assert torch.equal(final(first, name), final(second, name))
        # As text, since NaN (a quantity that does not exist over an ideal channel) differs from itself.
        assert repr(first.schemes[name].records) == repr(second.schemes[name].records)
    assert not torch.equal(final(first, "airfl-dp"), final(airfl.run(tiny.replace({"system.seed": 2})), "airfl-dp"))


@pytest.mark.parametrize("backend", ["loop", "batched"])
@pytest.mark.parametrize("uplink", ["equivalent", "signal"])
def test_trials_one_by_one_or_batched(tiny, backend, uplink):
    config = tiny.replace({"engine.backend": backend, "scheme.uplink": uplink})
    together, apart = airfl.run(config), airfl.run(config, trials_per_batch=1)
    for name in config.scheme.names:
        assert torch.allclose(final(together, name), final(apart, name), atol=1e-4)
        assert together.schemes[name].ledgers == apart.schemes[name].ledgers


def test_backends_agree(tiny):
    loop = airfl.run(tiny.replace({"engine.backend": "loop"}))
    batched = airfl.run(tiny.replace({"engine.backend": "batched"}))
    for name in tiny.scheme.names:
        assert torch.allclose(final(loop, name), final(batched, name), atol=1e-4)


def test_one_round_by_hand(tiny):
    """θ − (η_g η/K)·Σ Δ̄, from the parts, for an ideal channel with clipping."""
    config = tiny.replace({"learning.server_step": 1.5, "system.trials": 1})
    simulation = open_simulation(config, "fedavg-clip", [0])
    state, _ = simulation.step(simulation.init())
    start = simulation.init().models
    batches = simulation.task.batches(0, simulation.schedule.active[:, 0])
    total = torch.zeros(1, simulation.schedule.dim)
    for block in simulation.engine.train(start, batches, simulation.task.inputs, simulation.task.labels, 0.1):
        for update in block.updates:
            total += update * min(1.0, 1.0 / float(update.norm()))
    assert torch.allclose(state.models, start - 1.5 * 0.1 / 9 * total, atol=1e-5)


def test_who_stands_at_the_same_models_is_trained_once_and_gets_the_same_bits(tiny):
    """Two powers far above the threshold: the budget sets the noise of both, and airfl-dp is one run, not two."""
    config = tiny.replace({"system.rounds": 3, "privacy.epsilon": 5.0})
    task = task_of(config, [0, 1])
    loud = config.replace({"channel.power_w": 10.0 * config.channel.power_w})
    pairs = [(config, "airfl-dp"), (config, "airfl-mimo"), (loud, "airfl-dp"), (config, "fedavg-clip")]
    simulations = [join(some, scheme, task) for some, scheme in pairs]
    trained: list[int] = []

    class Counting:
        name = "counting"

        def train(self, models, *rest):
            trained.append(len(models))
            return simulations[0].engine.train(models, *rest)

    counted = replace(simulations[0], engine=Counting())
    together = alone = [simulation.init() for simulation in simulations]
    for _ in range(3):
        together = [step.after for step in advance_together([counted, *simulations[1:]], together)]
        alone = [simulation.advance(state).after for simulation, state in zip(simulations, alone, strict=True)]
    assert trained == [2, 6, 6]  # one row a trial at first; then three different models, not four
    assert torch.equal(together[0].models, together[2].models)
    for one, other in zip(together, alone, strict=True):
        assert torch.allclose(one.models, other.models, atol=1e-6)
        assert one.ledgers == other.ledgers


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 4))
def test_lanes_hold_every_row_of_everyone_once(seed, owners, rows):
    draws = np.random.default_rng(seed).integers(0, 3, (owners, rows, 2))
    models = [torch.from_numpy(draw).float() for draw in draws]
    lanes = shared_lanes(models)
    trained = [models[lane.owners[0]][row] for lane in lanes for row in range(lane.first, lane.last)]
    assert [lane.place for lane in lanes] == np.cumsum([0, *(lane.last - lane.first for lane in lanes)])[:-1].tolist()
    seen = set()
    for lane in lanes:
        for owner in lane.owners:
            for row in range(lane.first, lane.last):
                assert torch.equal(trained[lane.place + row - lane.first], models[owner][row])
                assert (owner, row) not in seen
                seen.add((owner, row))
    assert len(seen) == owners * rows
    assert len(trained) == sum(len({tuple(draws[owner, row]) for owner in range(owners)}) for row in range(rows))


def test_nan_is_like_nothing_else():
    broken = torch.full((1, 2), math.nan)
    assert shared_lanes([broken, broken]) == [Lane(0, 0, 1, (0,)), Lane(1, 0, 1, (1,))]


def test_batches_cover_each_epoch_once(tiny):
    config = tiny.replace({"learning.local_epochs": 2, "learning.batch_size": 7, "learning.partition": "dirichlet"})
    task = task_of(config, [0, 1])
    active = np.array([[0, 3, 7], [1, 2, 11]])
    batches = task.batches(5, active)
    for row in range(2):
        for slot, device in enumerate(active[row]):
            mine = task.partitions[row].of(int(device))
            used = batches[row, slot][batches[row, slot] >= 0].numpy()
            assert sorted(used) == sorted(np.repeat(mine, 2))
            steps = (batches[row, slot] >= 0).any(dim=1).sum()
            assert int(steps) == 2 * math.ceil(len(mine) / 7)
    assert task.max_local_steps(0) is None  # only the devices' sizes tell
    bounded = task_of(config.replace({"learning.max_samples_per_device": 40}), [0])
    assert bounded.max_local_steps(0) == 2 * math.ceil(40 / 7)
    assert bounded.partitions[0].sizes.max() == 40
    even = task_of(config.replace({"learning.partition": "iid"}), [0])
    assert even.max_local_steps(0) == 2 * math.ceil(even.partitions[0].sizes.max() / 7)
    # A device's order does not depend on who else is active, and changes from round to round.
    alone = task.batches(5, np.array([[3], [2]]))
    assert torch.equal(alone[0, 0], batches[0, 1][: alone.shape[2]])
    assert not torch.equal(task.batches(6, active), batches)


def test_drop_last_and_local_steps(tiny):
    config = tiny.replace({"learning.local_epochs": 1, "learning.batch_size": 10, "learning.drop_last": True})
    task = task_of(config, [0])
    batches = task.batches(0, np.array([[0, 1]]))
    counts = (batches >= 0).sum(dim=3)
    assert set(counts.flatten().tolist()) <= {0, 10}
    assert int(counts[0, 0].sum()) == len(task.partitions[0].of(0)) // 10 * 10
    many = task_of(tiny.replace({"learning.local_steps": 40, "learning.batch_size": 10}), [0])
    steps = many.batches(0, np.array([[0, 1]]))
    assert steps.shape == (1, 2, 40, 10)
    assert bool(((steps >= 0).sum(dim=3) > 0).all())  # more steps than an epoch has: it starts another one


def test_ledger_books_the_noise_that_is_added(tiny):
    """v in the ledger equals the variance of (received − sum of clipped updates), for both uplinks."""
    for uplink in ("equivalent", "signal"):
        config = tiny.replace({"scheme.uplink": uplink, "learning.model": "mlp", "system.trials": 1})
        noisy = open_simulation(config, "airfl-dp", [0])
        silent = open_simulation(config, "fedavg-clip", [0])
        after, _ = noisy.step(noisy.init())
        clean, _ = silent.step(silent.init())
        factor = 0.1 / 9
        noise = ((clean.models - after.models) / factor).double().numpy().ravel()
        booked = after.ledgers[0].events[0].noise_var
        assert noise.var() == pytest.approx(booked, rel=5 * math.sqrt(2 / len(noise)))


@pytest.mark.parametrize("accountant", ["gaussian", "paper"])
@pytest.mark.parametrize("participation", [0.75, 1.0])
def test_budget_is_spent_and_never_exceeded(tiny, accountant, participation):
    for epsilon in (0.3, 3.0, 300.0):
        config = tiny.replace(
            {
                "privacy.epsilon": epsilon,
                "privacy.accountant": accountant,
                "system.participation": participation,
                "scheme.names": ["airfl-dp"],
            }
        )
        result = airfl.run(config)
        for ledger in result.schemes["airfl-dp"].ledgers:
            spent = make_accountant(accountant, ledger, config.neighbours).epsilon(1e-5)
            assert spent <= epsilon
            assert spent == pytest.approx(epsilon, rel=1e-9)


def test_perk_case_leaves_the_channel_alone(tiny):
    """Little power: the channel pays, AirFL-DP is AirFL-MIMO bit for bit, and ε is below the budget."""
    config = tiny.replace({"channel.power_w": 1e-13, "privacy.epsilon": 50.0})
    result = airfl.run(config)
    assert all(item.is_perk and item.margin_db > 0 for item in result.schemes["airfl-dp"].perks)
    assert torch.equal(final(result, "airfl-dp"), final(result, "airfl-mimo"))
    assert result.summary["schemes"]["airfl-dp"]["epsilon"]["gaussian"] < 50.0
    strong = airfl.run(tiny)
    assert not any(item.is_perk for item in strong.schemes["airfl-dp"].perks)


def test_power_is_kept_to(tiny):
    result = airfl.run(tiny.replace({"scheme.names": ["airfl-mimo", "airfl-dp"]}))
    assert result.schemes["airfl-mimo"].column("max_power_w") == pytest.approx(2e-3)
    assert (result.schemes["airfl-dp"].column("max_power_w") <= 2e-3 * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    "change",
    [
        {"scheme.phases": "random", "scheme.combiner": "zero-forcing"},
        {"scheme.combiner": "auto", "system.num_antennas": 5},
        {"scheme.combiner": "auto", "scheme.effort": 0.5},
        {"scheme.combiner": "mrc"},
        {"scheme.combiner": "auto", "scheme.selection": "aligned", "scheme.selection_keep": 0.7},
        {"scheme.combiner_columns": "all"},
        {"channel.distance": "common"},
        {"channel.fading": "rician", "channel.antenna_correlation": 0.5},
        {"learning.partition": "classes"},
        {"learning.partition": "dirichlet", "learning.drop_last": True},
        {"learning.split": "pooled"},
        {"learning.local_epochs": 1},
        {"engine.eval_every": 3},
        {"learning.samples_per_device": 20},
    ],
)
def test_every_variant_runs(tiny, change):
    result = airfl.run(tiny.replace({"system.rounds": 2, **change}))
    for scheme in result.schemes.values():
        assert scheme.status == "done"
        assert 0.0 <= scheme.final()[0].accuracy <= 1.0


def test_combiner_for_all_costs_more_noise(tiny):
    few = airfl.run(tiny.replace({"scheme.names": ["airfl-mimo"]}))
    many = airfl.run(tiny.replace({"scheme.names": ["airfl-mimo"], "scheme.combiner_columns": "all"}))
    assert (many.schemes["airfl-mimo"].column("noise_var") > few.schemes["airfl-mimo"].column("noise_var")).all()


def test_domain_is_enforced_and_booked(tiny):
    config = tiny.replace({"learning.domain_diameter": 0.02, "privacy.smoothness": 2.0})
    simulation = open_simulation(config, "airfl-dp", [0, 1])
    start = simulation.init().models
    for state, _ in simulation.rounds():
        assert float(torch.linalg.vector_norm((state.models - start).double(), dim=1).max()) <= 0.01
    domain = state.ledgers[0].events[-1].domain
    assert (domain.diameter, domain.smoothness, domain.local_steps) == (0.02, 2.0, 3)
    assert open_simulation(tiny, "airfl-dp", [0]).step(simulation_state(tiny))[0].ledgers[0].events[0].domain is None


def simulation_state(config):
    return open_simulation(config, "airfl-dp", [0]).init()


def test_steps_can_be_resumed_to_the_same_bits(tiny):
    simulation = open_simulation(tiny, "airfl-dp", [0, 1])
    states = [state for state, _ in simulation.rounds()]
    again = [state for state, _ in open_simulation(tiny, "airfl-dp", [0, 1]).rounds(states[1])]
    assert torch.equal(states[-1].models, again[-1].models)
    assert states[-1].ledgers == again[-1].ledgers


@pytest.mark.filterwarnings("ignore:overflow", "ignore:scheme `airfl-dp`")
def test_divergence_stops_with_a_clear_word_and_keeps_the_records(tiny):
    config = tiny.replace({"learning.learning_rate": 1e38, "scheme.names": ["fedavg", "airfl-dp"]})
    result = airfl.run(config)
    vanilla = result.schemes["fedavg"]
    assert vanilla.status == "diverged"
    assert "NaN or infinity in round" in vanilla.message
    assert vanilla.models is None


def test_a_round_that_diverged_was_sent_and_is_booked(tiny):
    """Every device's update went over the air before the model blew up: ε counts it."""
    result = airfl.run(tiny.replace({"learning.server_step": 1e60, "scheme.names": ["airfl-dp"]}))
    scheme = result.schemes["airfl-dp"]
    assert scheme.status == "diverged"
    assert [len(ledger.events) for ledger in scheme.ledgers] == [1, 1]
    assert result.summary["schemes"]["airfl-dp"]["epsilon"]["gaussian"] > 1.0


def test_overspending_design_is_refused(tiny, monkeypatch):
    """A planted bug in the allocation: the release step catches it and no model comes out."""
    honest = policies.allocate
    monkeypatch.setattr(policies, "allocate", lambda minimum, budget, weights: honest(minimum, budget * 1.01, weights))
    result = airfl.run(tiny.replace({"scheme.names": ["airfl-dp"], "system.trials": 1}))
    assert result.schemes["airfl-dp"].status == "refused"
    assert result.schemes["airfl-dp"].models is None
    assert "budget is exceeded" in result.schemes["airfl-dp"].message
    assert [len(ledger.events) for ledger in result.schemes["airfl-dp"].ledgers] == [4]  # the first trial that exceeds
    assert result.summary["schemes"]["airfl-dp"]["epsilon"]["gaussian"] > 50.0


def test_bad_combinations_are_refused_before_training(tiny):
    with pytest.raises(airfl.InputError, match="would train nothing"):
        airfl.run(tiny.replace({"learning.drop_last": True, "learning.batch_size": 500}))
    with pytest.raises(airfl.InputError, match="too small to be enforced"):
        airfl.run(tiny.replace({"learning.domain_diameter": 1e-6}))
    with pytest.raises(airfl.InputError, match="trials_per_batch"):
        airfl.run(tiny, trials_per_batch=-1)


def test_booked_local_steps_depend_neither_on_batching_nor_on_sizes(tiny):
    config = tiny.replace(
        {
            "learning.partition": "dirichlet",
            "learning.local_epochs": 1,
            "learning.domain_diameter": 5.0,
            "system.trials": 3,
        }
    )
    for bound, booked in ((None, {None}), (95, {10})):
        bounded = config.replace({"learning.max_samples_per_device": bound})
        together, apart = airfl.run(bounded), airfl.run(bounded, trials_per_batch=1)
        ledgers = together.schemes["airfl-dp"].ledgers
        assert ledgers == apart.schemes["airfl-dp"].ledgers
        assert {event.domain and event.domain.local_steps for ledger in ledgers for event in ledger.events} == booked


def test_interruption_keeps_what_was_recorded(tiny):
    class Stop:
        def start(self, scheme, rounds):
            pass

        def round(self, scheme, records):
            if scheme == "fedavg-clip" and records[0].round == 2:
                raise KeyboardInterrupt

    result = airfl.run(tiny, progress=Stop())
    assert {scheme.status for scheme in result.schemes.values()} == {"interrupted"}
    assert len(result.schemes["fedavg-clip"].records) == 4  # two rounds of two trials
    assert len(result.schemes["airfl-dp"].records) == 2  # its second round was trained, but not tested
    assert all(len(ledger.events) == 2 for ledger in result.schemes["airfl-dp"].ledgers)  # and it was heard


def test_training_learns_something(tiny):
    config = tiny.replace({"system.rounds": 15, "learning.local_epochs": 2, "learning.clip_norm": 20.0})
    summary = airfl.run(config.replace({"privacy.epsilon": 2000.0})).summary["schemes"]
    assert summary["fedavg"]["accuracy_mean"] > 0.85
    assert summary["airfl-mimo"]["accuracy_mean"] > 0.8


def test_perk_threshold_of_the_paper_is_near_minus_66_db():
    """Zero forcing, the authors' setting, at ε̃ = 0.1: the published figure's threshold."""
    from airfl.rounds import arrange
    from airfl.schemes import SCHEMES
    from airfl.transceiver import open_radio

    config = airfl.preset("authors").replace({"scheme.names": ["airfl-dp"]})
    plan = arrange(config, SCHEMES["airfl-dp"], open_radio(config, range(10)), 582_026)
    thresholds = [item.snr_threshold_db for item in plan.perks()]
    assert -72 < float(np.median(thresholds)) < -60


@pytest.mark.parametrize("estimate", [False, True])
@pytest.mark.parametrize("value", [math.inf, math.nan, 1e30])
def test_an_update_that_is_not_finite_counts_as_none(tiny, value, estimate):
    """Whether a run stops must not tell of a single device: with clipping it goes on, with the same ledger."""

    def sabotage(block):
        if int(block.slot[0]) != 0:
            return block
        trained = block.updates.clone()
        trained[0] = value
        return replace(block, trained=trained, losses=torch.full_like(block.losses, value))

    tiny = tiny.replace({"privacy.estimate_gradient_noise": estimate})
    simulation = open_simulation(tiny, "airfl-dp", [0])
    (odd,) = advance_together([simulation], [simulation.init()], sabotage)
    (even,) = advance_together([simulation], [simulation.init()])
    if math.isfinite(value):
        assert odd.checked(simulation.scheme) is odd
    else:
        with pytest.warns(RuntimeWarning, match="counts as zero"):
            assert odd.checked(simulation.scheme) is odd
        with pytest.warns(RuntimeWarning, match="counts as zero"):  # the link may be the reason
            assert odd.checked(SCHEMES["airfl-mimo"]) is odd
        for ideal in ("fedavg", "fedavg-clip"):  # without a link and a promise it stops
            with pytest.raises(DivergedError):
                odd.checked(SCHEMES[ideal])
    assert torch.isfinite(odd.after.models).all()
    if not estimate:  # the estimate is from updates: it is not to be published
        assert odd.after.ledgers == even.after.ledgers
    moved = (odd.after.models - even.after.models).double() / update_factor(tiny, simulation.schedule, 0)
    assert float(torch.linalg.vector_norm(moved)) <= 2 * simulation.schedule.clip_norm
