"""What the server does with what it received: momentum, averages, and what they cost (nothing)."""

from __future__ import annotations

import pytest
import torch

from airfl import preset
from airfl.config import Config
from airfl.devices import load_samples, open_task
from airfl.errors import InputError
from airfl.rounds.promise import make_promise
from airfl.schemes import SCHEMES
from airfl.simulate import open_simulation
from airfl.study import make_plan, make_study
from airfl.sweeps.batch import Folder, Stopped, run_batch
from airfl.transceiver import open_radio
from tests.test_sweep import STUDY

BASE = preset("paper").replace({**STUDY["set"], "scheme.names": ["airfl-dp"], "privacy.epsilon": 5.0})


def states(config: Config):
    task = open_task(config, (0, 1), load_samples(config, torch.device("cpu")))
    simulation = open_simulation(config, "airfl-dp", task, open_radio(config, (0, 1)))
    return [simulation.init(), *(state for state, _ in simulation.rounds())]


def test_momentum_is_a_heavy_ball():
    """Without training's feedback the estimates of the first round agree, and the second step carries the first."""
    plain, heavy = states(BASE), states(BASE.replace({"learning.server_momentum": 0.5}))
    torch.testing.assert_close(plain[1].models, heavy[1].models)
    first = plain[1].models - plain[0].models
    # θ² − θ¹ = −factor·(β·Δ̂¹ + Δ̂²): the second estimates agree because θ¹ and all draws do.
    torch.testing.assert_close(heavy[2].models - plain[2].models, 0.5 * first, atol=1e-5, rtol=1e-4)


def test_the_average_is_even_at_first_and_exponential_later():
    found = states(BASE.replace({"learning.model_average": 0.75}))
    models = [state.models for state in found[1:]]
    torch.testing.assert_close(found[1].released, models[0])
    torch.testing.assert_close(found[3].released, (models[0] + models[1] + models[2]) / 3, atol=1e-6, rtol=1e-5)
    expected = 0.75 * found[4].released + 0.25 * models[4]
    torch.testing.assert_close(found[5].released, expected, atol=1e-6, rtol=1e-5)
    for plain, averaged in zip(states(BASE), found, strict=True):  # training goes on from the models themselves
        torch.testing.assert_close(plain.models, averaged.models)


def test_post_processing_changes_no_epsilon():
    plain = states(BASE)[-1]
    dressed = states(BASE.replace({"learning.server_momentum": 0.9, "learning.model_average": 0.9}))[-1]
    assert [ledger.events for ledger in plain.ledgers] == [ledger.events for ledger in dressed.ledgers]


def test_a_linear_schedule_falls_to_the_last_step():
    plain, falling = states(BASE), states(BASE.replace({"learning.server_schedule": "linear"}))
    torch.testing.assert_close(plain[1].models, falling[1].models)
    first, second = plain[2].models - plain[1].models, falling[2].models - falling[1].models
    torch.testing.assert_close(second, first * (1 - 1 / 6), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    ("key", "value"),
    [("learning.server_momentum", 0.5), ("learning.model_average", 0.5), ("learning.server_schedule", "linear")],
)
def test_bounds_with_a_hidden_state_need_a_plain_server(key, value):
    domain = {"learning.domain_diameter": 5.0, "privacy.smoothness": 1.0}
    with pytest.raises(InputError, match="plain server"):
        BASE.replace({**domain, "privacy.accountant": "convergent", key: value})
    free = BASE.replace({**domain, "privacy.accountant": "auto", key: value})
    promise = make_promise(free, 650, 1e-13, [2], SCHEMES["airfl-dp"])
    assert promise.template.domain is None
    assert promise.accountant == "gaussian"
    ledger = states(free)[-1].ledgers[0]
    assert all(event.domain is None for event in ledger.events)


def test_checkpoints_keep_velocity_and_average(tmp_path):
    study = {**STUDY, "set": {**STUDY["set"], "learning.server_momentum": 0.7, "learning.model_average": 0.8}}
    plan = make_plan(make_study(study), 1)
    whole, hurt, batch, left = Folder(tmp_path / "a"), Folder(tmp_path / "b"), plan.batches[0], [3]

    def stop():
        left[0] -= 1
        return left[0] == 0

    run_batch(plan, batch, whole)
    with pytest.raises(Stopped):
        run_batch(plan, batch, hurt, should_stop=stop)
    run_batch(plan, batch, hurt)
    assert whole.part(batch).read_bytes() == hurt.part(batch).read_bytes()


def test_tuning_never_sees_the_test_part():
    standard = BASE.replace({"learning.split": "standard"})
    tuned = BASE.replace({"learning.split": "validation"})
    samples = load_samples(tuned, torch.device("cpu"))
    one, two = (open_task(c, (0,), samples).partitions[0] for c in (standard, tuned))
    assert not set(two.test) & set(one.test)
    assert not set(two.train) & set(one.test)
    assert not set(two.train) & set(two.test)
    assert len(two.test) == samples.dataset.num_train // 6


@pytest.mark.parametrize(("key", "value"), [("learning.server_momentum", 0.5), ("learning.server_schedule", "linear")])
def test_the_published_bound_with_a_domain_is_not_planned_with_either(key, value):
    """P3 spends less noise where its bound holds; with another server it must not."""
    domain = {"learning.domain_diameter": 0.05, "privacy.smoothness": 1.0, "privacy.accountant": "paper"}
    plain = BASE.replace({**domain, "system.participation": 1.0})
    noise = []
    for config in (plain, plain.replace({key: value})):
        task = open_task(config, (0,), load_samples(config, torch.device("cpu")))
        simulation = open_simulation(config, "airfl-dp", task, open_radio(config, (0,)))
        *_, last = simulation.rounds()
        simulation.release(last[0])  # the promise is kept either way
        noise.append(float(simulation.schedule.noise_var.sum()))
    assert noise[1] > noise[0]
