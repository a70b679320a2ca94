"""The air under Flower: one job in both runtimes, budgets that stop training, and nodes that do as they like."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import airfl
from airfl.participation import participants

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import FedAvg

from airfl.flower import OverTheAir
from airfl.flower.layout import Layout
from airfl.privacy import epsilon_of
from tests.oracles.flower import FIRST_NODE, FakeGrid, Trainers, failure, moved, reply, softmax_arrays

DIM = 8


def small(**changes):
    """A link for models of eight parameters; nothing is trained."""
    base = airfl.preset("paper").replace(
        {
            "name": "small",
            "system.trials": 1,
            "system.num_devices": 6,
            "system.num_antennas": 8,
            "system.participation": 1.0,
            "system.rounds": 3,
            "learning.learning_rate": 0.5,
            "learning.clip_norm": 1.0,
            "privacy.epsilon": 20.0,
            "privacy.accountant": "gaussian",
            "scheme.names": ["airfl-dp"],
        }
    )
    return base.replace({key.replace("__", "."): value for key, value in changes.items()})


def vector(arrays):
    return Layout.of(arrays).vector(arrays)


def start(config, answer, rounds=None, **how):
    """Run on a grid of such nodes; the strategy, the grid and what stopped it."""
    grid = FakeGrid(config.system.num_devices, answer)
    strategy, stop = OverTheAir(config, wait_s=0.0, **how), None
    try:
        strategy.start(grid, softmax_arrays(), rounds)
    except PrivacyBudgetExhausted as error:
        stop = error
    return strategy, grid, stop


# --- one job, two runtimes -------------------------------------------------------------------------------------------

SAME = {
    "planned": {},
    "poisson": {"system.sampling": "poisson", "scheme.combiner_columns": "all", "system.num_antennas": 24},
    "server": {"learning.server_momentum": 0.5, "learning.model_average": 0.5, "learning.server_schedule": "linear"},
    "dropout": {"system.dropout": 0.3},
    "signal": {"scheme.uplink": "signal"},
    "unplanned": {"scheme.names": ["airfl-mimo"]},
    "ideal": {"scheme.names": ["fedavg"]},
    "signs": {"scheme.names": ["one-bit-memory"]},
    "energies": {"scheme.names": ["nc-airfl"]},
    "imperfect": {"channel.csi_error": 0.05},
    "own noise": {"scheme.names": ["airfl-an"], "privacy.neighbours": "zero-out"},
}


@pytest.mark.parametrize("changes", SAME.values(), ids=SAME)
def test_both_runtimes_book_the_same_and_train_alike(tiny, changes):
    config = tiny.replace({"system.trials": 1, "scheme.names": ["airfl-dp"], "engine.backend": "loop", **changes})
    name = config.scheme.names[0]
    alone = airfl.run(config, progress=None).schemes[name]
    nodes = Trainers(config)
    strategy = OverTheAir(config, max_epsilon=None if name in ("airfl-dp", "airfl-an") else float("inf"))
    result = strategy.start(FakeGrid(config.system.num_devices, nodes), nodes.arrays())
    assert strategy.course.ledger == alone.ledgers[0]
    metrics = [result.train_metrics_clientapp[t] for t in range(1, config.system.rounds + 1)]
    told = [record.epsilon for record in alone.records]
    assert all(m["privacy/epsilon"] == e or np.isnan(e) for m, e in zip(metrics, told, strict=True))
    assert metrics[-1]["air/noise_std"] == np.sqrt(alone.records[-1].noise_var)
    assert metrics[-1]["privacy/delta"] == config.privacy.delta
    against = epsilon_of(alone.ledgers, "gaussian", config.neighbours, "base-station", config.privacy.delta)
    assert metrics[-1]["privacy/epsilon_base_station"] == against
    margin = metrics[-1]["air/perk_margin_db"]
    assert margin == alone.perks[0].margin_db if alone.perks else np.isnan(margin)
    # Nodes return θ − ηΔ in float32, and Δ is got back from that.
    assert torch.allclose(vector(result.arrays), alone.models[0], atol=1e-6)
    for name in ("noise_var", "combiner_norm", "minimum_norm", "max_power_w", "misalignment"):
        both = [[getattr(record, name) for record in records] for records in (strategy.course.records, alone.records)]
        assert np.array_equal(*both, equal_nan=True)


def test_draws_that_flower_has_no_word_for_have_no_accountant_of_its_own():
    strategy, _, _ = start(small(scheme__names=["replacement"], system__participation=0.5), moved(0.1))
    assert strategy.course.epsilon() <= 20.0
    with pytest.raises(airfl.InputError, match="no word for how scheme `replacement` draws"):
        strategy.accountant  # noqa: B018


def test_who_is_asked_is_airfls_own_draw():
    config = small(system__sampling="poisson", system__participation=0.5, system__rounds=6, system__num_antennas=16)
    strategy, grid, _ = start(config, moved(0.01))
    drawn = [participants(strategy.config, 0, t) for t in range(6)]
    assert grid.trained == [[FIRST_NODE + int(device) for device in row if device >= 0] for row in drawn]
    assert len({len(row) for row in grid.trained}) > 1


# --- the budget ------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(
    st.floats(0.3, 300.0),
    st.integers(1, 6),
    st.integers(1, 8),
    st.sampled_from(["airfl-dp", "airfl-mimo", "airfl-dp-online"]),
    st.sampled_from([1.0, 0.5]),
    st.integers(0, 3),
)
def test_training_stops_in_the_right_round(epsilon, planned, asked, scheme, participation, seed):
    config = small(
        system__rounds=planned,
        system__participation=participation,
        system__seed=seed,
        privacy__epsilon=epsilon,
        scheme__names=[scheme],
        channel__power_w=2e-9,  # so that the link's own noise is worth something
    )
    strategy, grid, stop = start(config, moved(3.0), asked)
    ledger, promise = strategy.course.ledger, strategy.course.schedule.promise
    assert promise.spent(ledger) <= epsilon
    if scheme == "airfl-mimo":
        free, _, _ = start(config, moved(3.0), asked, max_epsilon=float("inf"))
        spent = [free.result.train_metrics_clientapp[t + 1]["privacy/epsilon"] for t in range(asked)]
        affordable = next((t for t, value in enumerate(spent) if value > epsilon), asked)
    else:
        affordable = min(planned, asked)
    assert len(ledger.events) == affordable == len(grid.trained)
    assert (stop is not None) == (affordable < asked)
    assert sorted(strategy.result.train_metrics_clientapp) == list(range(1, affordable + 1))
    assert torch.equal(vector(strategy.result.arrays), strategy.course.state.models[0])


def test_a_stop_can_be_an_ending():
    strategy, _, stop = start(small(), moved(1.0), 5, when_exhausted="return")
    assert stop is None
    assert sorted(strategy.result.train_metrics_clientapp) == [1, 2, 3]
    assert "before round 4" in strategy.course.message


def test_a_smaller_limit_stops_a_plan_early():
    full, _, _ = start(small(), moved(1.0))
    spent = full.result.train_metrics_clientapp
    limit = 0.5 * (spent[1]["privacy/epsilon"] + spent[2]["privacy/epsilon"])
    strategy, _, stop = start(small(), moved(1.0), max_epsilon=limit)
    assert stop is not None
    assert strategy.course.epsilon() == spent[1]["privacy/epsilon"]
    assert strategy.accountant.config.max_epsilon == limit


def test_going_on_from_a_ledger_counts_what_was_spent():
    config = small()
    first, _, _ = start(config, moved(1.0), 2)
    later = OverTheAir(config, ledger=first.course.ledger)
    with pytest.raises(PrivacyBudgetExhausted):
        later.start(FakeGrid(6, moved(1.0)), first.result.arrays, 3)
    whole, _, _ = start(config, moved(1.0))
    assert later.course.ledger == whole.course.ledger
    assert torch.equal(vector(later.result.arrays), vector(whole.result.arrays))  # other noise than in rounds 1 and 2
    assert later.accountant.num_releases == 3


# --- nodes that do as they like --------------------------------------------------------------------------------------


def with_one(bad):
    """Six nodes, the third of which answers as it likes."""
    good = moved(0.02)

    def answer(node, message):
        return bad(node, message) if node == FIRST_NODE + 2 else good(node, message)

    return answer


def unchanged(node, message):
    return reply(message, vector(message.content["arrays"]))


def holding(arrays):
    def bad(node, message):
        return Message(RecordDict({"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"n": 1})}), reply_to=message)

    return bad


def late(node, message):
    made = reply(message, vector(message.content["arrays"]) + 5.0)
    made.metadata.__dict__["_group_id"] = "airfl-17"
    return made


def empty(node, message):
    return Message(RecordDict({"metrics": MetricRecord({"n": 1})}), reply_to=message)


def two_records(node, message):
    made = unchanged(node, message)
    made.content["more"] = softmax_arrays(seed=3)
    return made


W, B = np.zeros((2, 3), np.float32), np.zeros(2, np.float32)
AS_ZERO = {
    "no answer": lambda node, message: None,
    "an error": lambda node, message: failure(message),
    "NaN": holding({"w": Array(np.full_like(W, np.nan)), "b": Array(B)}),
    "infinity": holding({"w": Array(W), "b": Array(np.full_like(B, np.inf))}),
    "float64 beyond float32": holding({"w": Array(np.full((2, 3), 1e300)), "b": Array(B)}),
    "another shape": holding({"w": Array(W.T.copy()), "b": Array(B)}),
    "another name": holding({"w": Array(W), "c": Array(B)}),
    "one array": holding({"w": Array(W)}),
    "whole numbers": holding({"w": Array(W.astype(np.int64)), "b": Array(B)}),
    "complex numbers": holding({"w": Array(W.astype(np.complex64)), "b": Array(B)}),
    "no array at all": holding({"w": Array("float32", (2, 3), "numpy.ndarray", b"junk"), "b": Array(B)}),
    "another format": holding({"w": Array("float32", (2, 3), "pickle", b"junk"), "b": Array(B)}),
    "a lie about the shape": holding({"w": Array("float32", (2, 3), "numpy.ndarray", Array(B).data), "b": Array(B)}),
    "no records": empty,
    "two records": two_records,
    "too late": late,
}


@pytest.mark.parametrize("bad", AS_ZERO.values(), ids=AS_ZERO)
@pytest.mark.parametrize("scheme", ["airfl-dp", "fedavg"])
def test_what_cannot_be_used_counts_as_zero(bad, scheme):
    config = small(scheme__names=[scheme])
    strategy, _, _ = start(config, with_one(bad))
    oracle, _, _ = start(config, with_one(unchanged))
    assert strategy.course.ledger == oracle.course.ledger
    assert len(strategy.course.ledger.events) == 3
    assert torch.equal(vector(strategy.result.arrays), vector(oracle.result.arrays))


def test_the_first_answer_counts_and_strangers_do_not():
    def twice(node, message):
        first, second = moved(0.02)(node, message), reply(message, vector(message.content["arrays"]) - 9.0)
        stranger = reply(message, vector(message.content["arrays"]) + 9.0)
        stranger.metadata.__dict__["_src_node_id"] = 77
        return [first, second, stranger]

    strategy, _, _ = start(small(), with_one(twice))
    oracle, _, _ = start(small(), moved(0.02))
    assert strategy.course.ledger == oracle.course.ledger
    assert torch.equal(vector(strategy.result.arrays), vector(oracle.result.arrays))


@pytest.mark.parametrize("shift", [1e-3, 1.0, 1e6, 1e30])
def test_a_node_that_does_not_clip_moves_the_model_no_further(shift):
    """By c η_g η/K at most, and the noise is the same; whatever it says about how many examples it has."""
    config = small(system__rounds=1, system__num_antennas=8)

    def greedy(node, message):
        made = reply(message, vector(message.content["arrays"]) + shift)
        made.content["metrics"] = MetricRecord({"num-examples": 10**9, "clipped": 1})
        return made

    strategy, _, _ = start(config, with_one(greedy))
    oracle, _, _ = start(config, with_one(unchanged))
    distance = (vector(strategy.result.arrays).double() - vector(oracle.result.arrays).double()).norm()
    reach = config.learning.learning_rate * 1.0 / 6
    assert distance <= reach + 1e-6
    if shift == 1e30:
        assert distance == 0.0  # too long for float32
    elif shift >= 1.0:
        assert distance == pytest.approx(reach, rel=1e-3)
    assert strategy.course.ledger == oracle.course.ledger


def test_nodes_may_clip_themselves():
    from flwr.app import Context
    from flwr.clientapp.mod import fixedclipping_mod

    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})

    def clipping(node, message):
        return fixedclipping_mod(message, context, lambda inner, _: moved(4.0)(node, inner))

    own, grid, _ = start(small(), clipping)
    ours, _, _ = start(small(), moved(4.0))
    assert grid.told[0]["clipping_norm"] == 0.5  # η c
    assert own.course.ledger == ours.course.ledger
    assert torch.allclose(vector(own.result.arrays), vector(ours.result.arrays), atol=1e-4)


def test_history_and_messages_tell_nothing_of_single_updates():
    quiet, grid, _ = start(small(), moved(0.0))
    loud, _, _ = start(small(), with_one(lambda node, message: None))
    assert quiet.result.train_metrics_clientapp == loud.result.train_metrics_clientapp
    allowed = {"lr", "batch-size", "local-steps", "local-epochs", "server-round", "clipping_norm", "device"}
    assert set().union(*grid.told) <= allowed
    record = loud.course.records[-1]
    assert np.isnan([record.train_loss, record.update_norm, record.clipped_fraction]).all()


@pytest.mark.parametrize("scheme", ["airfl-shielded", "airfl-an"])
@pytest.mark.parametrize("missing", [1, 3])
def test_nodes_that_hide_others_are_missed(shielded, scheme, missing):
    """The noise that is booked is that of the nodes that are there; where it is too little, nothing is released."""
    config = shielded.replace(
        {"system.trials": 1, "system.rounds": 2, "system.num_devices": 6, "scheme.names": [scheme]}
    )

    def answer(node, message):
        return None if node < FIRST_NODE + missing else moved(1.0)(node, message)

    full, _, _ = start(config, moved(1.0))
    strategy, _, stop = start(config, answer)
    ledger, promise = strategy.course.ledger, strategy.course.schedule.promise
    assert stop is not None, "the promise is just held with all of them"
    assert ledger.events[0].base_station > full.course.ledger.events[0].base_station
    if "missing in round 1" in str(stop):
        assert promise.spent(ledger) > config.privacy.epsilon  # what was sent was heard
        assert len(strategy.result.arrays) == 0
    else:
        assert promise.spent(ledger) <= config.privacy.epsilon
        assert len(ledger.events) == 1
        assert torch.equal(vector(strategy.result.arrays), strategy.course.state.models[0])


def test_zero_is_sent_under_cover(shielded):
    """A node that answers nonsense is there, and hides the others as before."""
    config = shielded.replace({"system.rounds": 2, "system.num_devices": 6})
    full, _, _ = start(config, moved(1.0))
    strategy, _, stop = start(config, with_one(AS_ZERO["NaN"]))
    assert stop is None
    assert strategy.course.ledger == full.course.ledger


# --- what is kept ----------------------------------------------------------------------------------------------------


def test_the_folder_is_that_of_a_run(tmp_path, call):
    def evaluate(server_round, arrays):
        return MetricRecord({"accuracy": 0.1 * server_round, "loss": 1.0})

    folder = tmp_path / "run"
    strategy = OverTheAir(small(), save_to=folder)
    result = strategy.start(FakeGrid(6, moved(1.0)), softmax_arrays(), evaluate_fn=evaluate)
    code, out, err = call("epsilon", "--ledger", str(folder), "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["scheme"], told["epsilon"]) == ("airfl-dp", strategy.course.epsilon())
    loaded = airfl.load(folder)
    assert loaded.epsilon() == strategy.course.epsilon() == result.train_metrics_clientapp[3]["privacy/epsilon"]
    assert torch.equal(loaded.schemes["airfl-dp"].models[0], vector(result.arrays))
    assert [record.accuracy for record in loaded.schemes["airfl-dp"].records] == pytest.approx([0.1, 0.2, 0.3])
    assert loaded.provenance["runtime"].startswith("flwr ")
    assert result.evaluate_metrics_serverapp[2]["accuracy"] == pytest.approx(0.2)
    code, _, err = call("report", str(folder))
    assert code == 0, err


def test_an_interrupted_run_leaves_its_ledger_and_no_model(tmp_path):
    seen = []

    def answer(node, message):
        seen.append(node)
        if len(seen) > 13:
            kept = airfl.runs.read_ledgers(tmp_path / "run").of(None)[1][0]
            assert len(kept.events) == 2  # before the model of round 2 went anywhere
            raise KeyboardInterrupt
        return moved(1.0)(node, message)

    strategy = OverTheAir(small(), save_to=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        strategy.start(FakeGrid(6, answer), softmax_arrays())
    loaded = airfl.load(tmp_path / "run").schemes["airfl-dp"]
    assert loaded.ledgers[0] == strategy.course.ledger
    assert (loaded.status, loaded.models, len(loaded.ledgers[0].events)) == ("interrupted", None, 2)
    with pytest.raises(airfl.InputError, match="has run already"):
        strategy.start(FakeGrid(6, answer), softmax_arrays())


def test_a_model_that_diverges_is_booked_and_not_released(tmp_path):
    config = small(scheme__names=["fedavg"], learning__learning_rate=1.0)
    strategy = OverTheAir(config, save_to=tmp_path / "run")
    with pytest.raises(airfl.DivergedError):
        strategy.start(FakeGrid(6, moved(2e38)), softmax_arrays())
    loaded = airfl.load(tmp_path / "run").schemes["fedavg"]
    assert (loaded.status, loaded.models, len(loaded.ledgers[0].events)) == ("diverged", None, 1)


def test_a_formula_that_is_no_proof_has_the_exact_figure_beside_it():
    strategy, _, _ = start(small(privacy__accountant="paper", privacy__epsilon=50.0), moved(1.0))
    last = strategy.result.train_metrics_clientapp[3]
    exact = epsilon_of(strategy.course.ledger, "gaussian", strategy.config.neighbours, "model", 1e-5)
    assert last["privacy/epsilon"] <= 50.0
    assert last["privacy/epsilon_proven"] == exact != last["privacy/epsilon"]


def test_a_running_mean_is_what_is_tested_and_released():
    tested = []

    def evaluate(server_round, arrays):
        tested.append(vector(arrays))

    config = small(learning__model_average=0.5, privacy__epsilon=500.0)
    strategy = OverTheAir(config)
    result = strategy.start(FakeGrid(6, moved(1.0)), softmax_arrays(), evaluate_fn=evaluate)
    assert torch.equal(tested[-1], strategy.course.state.average[0])
    assert torch.equal(vector(result.arrays), strategy.course.state.average[0])
    assert not torch.equal(tested[-1], strategy.course.state.models[0])


def test_evaluation_on_nodes_is_somebody_elses():
    def answer(node, message):
        if message.metadata.message_type == "evaluate":
            return Message(RecordDict({"m": MetricRecord({"score": 1.0, "num-examples": 1})}), reply_to=message)
        return moved(1.0)(node, message)

    strategy = OverTheAir(small(), evaluation=FedAvg(fraction_evaluate=1.0))
    result = strategy.start(FakeGrid(6, answer), softmax_arrays())
    assert result.evaluate_metrics_clientapp[3]["score"] == pytest.approx(1.0)
    assert strategy.result.evaluate_metrics_clientapp == result.evaluate_metrics_clientapp


# --- what is refused -------------------------------------------------------------------------------------------------


def test_too_few_nodes_are_a_sentence():
    strategy = OverTheAir(small(), wait_s=0.0)
    with pytest.raises(airfl.InputError, match="6 nodes are needed"):
        strategy.start(FakeGrid(4, moved(1.0)), softmax_arrays())


def test_all_nodes_that_are_there_are_the_fleet():
    strategy = OverTheAir(small(scheme__combiner="auto", system__num_devices=50), nodes="all", wait_s=3.0)
    strategy.start(FakeGrid(5, moved(1.0)), softmax_arrays(), 1)
    assert strategy.config.system.num_devices == 5


def test_devices_are_the_nodes_that_were_named():
    order = [FIRST_NODE + i for i in (5, 4, 3, 2, 1, 0)]
    _, grid, _ = start(small(), moved(1.0), nodes=order)
    assert grid.trained[0] == order
    assert [told["device"] for told in grid.told[:6]] == list(range(6))


@pytest.mark.parametrize(
    ("name", "values"),
    [("bn.running_mean", np.zeros(2, np.float32)), ("bn.num_batches_tracked", np.array(3))],
)
def test_running_statistics_are_no_parameters(name, values):
    arrays = ArrayRecord({"w": Array(W), name: Array(values)})
    with pytest.raises(airfl.InputError, match="running statistics"):
        OverTheAir(small()).start(FakeGrid(6, moved(1.0)), arrays)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"privacy.accountant": "convergent", "learning.domain_diameter": 5.0, "privacy.smoothness": 1.0}
            | {"learning.local_steps": 2},
            "convergent",
        ),
        ({"privacy.estimate_gradient_noise": True}, "depends on the data"),
    ],
)
def test_what_counts_on_local_training_is_refused(changes, words):
    with pytest.raises(airfl.InputError, match=words):
        OverTheAir(small().replace(changes)).start(FakeGrid(6, moved(1.0)), softmax_arrays())


def test_no_credit_for_local_steps_that_nobody_sees(tiny):
    """With `auto` the bound for a hidden state, which counts on plain local steps, is never chosen."""
    config = small(privacy__accountant="auto", privacy__smoothness=1.0).replace(
        {"learning.domain_diameter": 5.0, "learning.local_steps": 2, "privacy.neighbours": "zero-out"}
    )
    strategy, _, _ = start(config, moved(1.0))
    assert strategy.accountant.accountant == "gaussian"
    assert all(event.domain is None for event in strategy.course.ledger.events)


@pytest.mark.parametrize(
    "how",
    [{"max_epsilon": 0.0}, {"when_exhausted": "stop"}, {"nodes": [1, 1]}, {"trial": -1}, {"scheme": "nobody"}],
)
def test_bad_arguments_are_refused_at_once(how):
    with pytest.raises(airfl.InputError):
        OverTheAir(small(), **how)


def test_without_flower_one_sentence_and_a_light_package():
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "import airfl\n"
        "assert not any(name.startswith('flwr') for name in sys.modules if name != 'flwr')\n"
        "import airfl.flower"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert (
        "ImportError: airfl.flower needs Flower, which is not installed; install the extra `airfl[flower]`"
        in done.stderr
    )
    light = "import sys, airfl; airfl.preset('demo'); assert 'flwr' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", light]).returncode == 0
