"""Memories stay with the shards that they belong to: never applied twice, never lost, fetched where somebody looks."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace

import numpy as np
import pytest
import torch

import airfl
from airfl import runs
from airfl.devices import load_samples, open_task
from airfl.errors import InputError, LostError
from airfl.shards import cluster, kept, make_shards
from airfl.shards.crew import _orders
from airfl.shards.desk import Desk
from airfl.shards.parcel import owned_by
from airfl.shards.share import cut
from airfl.simulate import open_simulation
from tests.test_shards import FakeActor, config_of, fake_cluster, fingerprint


def opened(tiny, crew=None, name="one-bit-memory", **overrides):
    config = config_of(tiny, "memory").replace({"scheme.names": [name], **overrides})
    task = open_task(config, (0, 1), load_samples(config, torch.device("cpu")))
    simulation = open_simulation(config, name, task)
    return simulation if crew is None else replace(simulation, crew=crew)


def training_of(simulation, state):
    from airfl.rounds import Training, shared_lanes

    setting = simulation.schedule.setting(state.round)
    lanes = shared_lanes([state.models])
    member = simulation.member(setting, state.memory)
    active = simulation.schedule.active_in(state.round)
    return Training(simulation.engine, simulation.task, state.round, active, lanes, state.models, [member])


def same(one, other):
    (mine,), (its,) = one, other
    return all(torch.equal(a, b) for x, y in zip(mine.sums, its.sums, strict=True) for a, b in zip(x, y, strict=True))


def test_a_share_is_never_worked_off_twice(tiny):
    """A desk asked again for what it has done does nothing, and says that it stands elsewhere."""
    simulation = opened(tiny)
    training = training_of(simulation, simulation.init())
    (first,) = _orders(training, cut(training, 1), None)
    (second,) = _orders(training, cut(training, 1), None)
    second = replace(second, follows=first.leaves, memories=())
    desk = Desk(simulation.engine, simulation.task)
    assert desk.work([second]) is None  # a fresh one
    assert desk.recall(first.leaves, []) is None
    desk.work([first])
    before = desk.recall(first.leaves, [])[0].clone()
    done = desk.work([second])
    after = desk.recall(second.leaves, [])[0].clone()
    assert not torch.equal(before, after)
    assert desk.work([second]) is None  # asked again, as by somebody who never got the answer
    assert torch.equal(desk.recall(second.leaves, [])[0], after)
    assert desk.recall(first.leaves, []) is None  # it went on
    again = desk.work([first, second])  # all that there was, from what everybody remembered before
    assert [torch.equal(a, b) for a, b in zip(again[0].sums[0], done[0].sums[0], strict=True)] == [True]
    assert torch.equal(desk.recall(second.leaves, [first, second])[0], after)
    assert torch.equal(desk.recall(first.leaves, [first])[0], before)


def test_a_share_that_fails_leaves_nothing_to_go_on_from(tiny, monkeypatch):
    simulation = opened(tiny)
    training = training_of(simulation, simulation.init())
    (first,) = _orders(training, cut(training, 1), None)
    desk = Desk(simulation.engine, simulation.task)
    desk.work([first])
    second = replace(first, follows=first.leaves, leaves="second", memories=())
    monkeypatch.setattr("airfl.shards.share._add", None)
    with pytest.raises(TypeError):
        desk.work([second])
    monkeypatch.undo()
    assert desk.work([second]) is None
    assert desk.recall(first.leaves, []) is None
    assert desk.work([first, second]) is not None


class Unlucky(FakeActor):
    """Loses something with its n-th call, as the test says."""

    calls = 0
    fate: dict[int, str] = {}  # noqa: RUF012

    def called(self, name, arguments):
        number = Unlucky.calls
        Unlucky.calls += 1
        fate = Unlucky.fate.get(number)
        if fate == "dies":  # before it has done anything; Ray calls its successor
            self.begin()
        elif fate == "dies late":  # after it has done all
            super().called(name, arguments)
            self.begin()
        elif fate == "twice":  # its answer is lost, and Ray asks again
            super().called(name, arguments)
        elif fate in ("unreachable", "unreachable late"):  # whether it does what it was asked to, nobody knows
            from ray.exceptions import ActorUnavailableError

            if fate == "unreachable late":
                super().called(name, arguments)
            raise ActorUnavailableError("the actor is unavailable", None)
        return super().called(name, arguments)


@pytest.mark.parametrize("fate", ["dies", "dies late", "twice", "unreachable", "unreachable late"])
@pytest.mark.parametrize("kind", ["memory", "truncated"])
def test_whatever_an_actor_loses_the_bits_are_the_same(tiny, monkeypatch, kind, fate):
    pytest.importorskip("ray")
    config = config_of(tiny, kind).replace({"system.rounds": 4})
    monkeypatch.setattr(kept, "ROUNDS", 3)
    monkeypatch.setattr(cluster.time, "sleep", lambda seconds: None)
    here = fingerprint(airfl.run(config, shards=make_shards("local", 3)))
    for count in (1, 2, 4):
        for moments in ([0], [3], [4, 5, 6], range(0, 40, 2)):
            Unlucky.calls, Unlucky.fate = 0, dict.fromkeys(moments, fate)
            crew, _ = fake_cluster(monkeypatch, Unlucky, count)
            assert fingerprint(airfl.run(config, shards=crew)) == here, (count, moments)
            assert Unlucky.calls >= 4 * count


def test_memories_stay_where_they_are(tiny, monkeypatch):
    """No order has any after the first round, which has zeros that are one number; no answer has any either."""
    pytest.importorskip("ray")
    seen, recalled = [], []

    class Seen(FakeActor):
        def called(self, name, arguments):
            if name == "recall":
                recalled.append(arguments[0])
            else:
                seen.append((arguments[0][-1].memories, len(arguments[0])))
            return super().called(name, arguments)

    crew, _ = fake_cluster(monkeypatch, Seen)
    airfl.run(config_of(tiny, "memory").replace({"system.rounds": 6, "learning.model": "mlp"}), shards=crew)
    assert len(seen) == 12
    assert [memories for memories, _ in seen[2:]] == [()] * 10
    assert all(one.untyped_storage().nbytes() == 4 for memories, _ in seen[:2] for one in memories)
    assert {length for _, length in seen} == {1}
    assert recalled == []


def test_what_is_held_for_those_that_begin_anew_is_bounded(tiny, monkeypatch):
    """Rounds and bytes; what is fetched lets go of the rest."""
    lengths = []
    before = kept.Left.is_long

    def is_long(self):
        lengths.append((len(self.held), sum(self.held)))
        return before(self)

    monkeypatch.setattr(kept.Left, "is_long", is_long)
    airfl.run(config_of(tiny, "memory").replace({"system.rounds": 80}), shards=make_shards("local", 2))
    memories = 4 * 2 * 12 * 650
    assert max(length for length, _ in lengths) <= kept.ROUNDS
    assert max(held for _, held in lengths) < 2 * memories
    assert len([length for length, _ in lengths if length == 1]) > 2
    monkeypatch.setattr(kept, "ROUNDS", 2)
    lengths.clear()
    few = airfl.run(config_of(tiny, "memory"), shards=make_shards("local", 2))
    assert max(length for length, _ in lengths) <= 2
    monkeypatch.undo()
    assert fingerprint(few) == fingerprint(airfl.run(config_of(tiny, "memory"), shards=make_shards("local", 2)))


@pytest.mark.parametrize("count", [1, 3])
def test_any_state_can_be_gone_on_from_more_than_once(tiny, count):
    """States are values: also those of rounds that desks have left behind, and by whoever trains here."""
    crew = make_shards("local", count)
    simulation = opened(tiny, crew, **{"system.rounds": 6})
    states = [simulation.init(), *(state for state, _ in simulation.rounds())]
    again = simulation.step(states[2])[0]
    assert torch.equal(again.models, states[3].models)
    assert torch.equal(again.memory.fetch(), states[3].memory.fetch())
    assert torch.equal(simulation.step(states[5])[0].models, states[6].models)
    other = replace(simulation, crew=make_shards("local", 4))
    assert torch.equal(other.step(states[4])[0].memory.fetch(), states[5].memory.fetch())
    here = replace(simulation, crew=opened(tiny).crew).step(states[4])[0]
    assert torch.allclose(here.models, states[5].models, rtol=1e-3, atol=1e-5)


def test_only_who_takes_part_changes_its_memory_in_shards(tiny):
    simulation = opened(tiny, make_shards("local", 3))
    before = simulation.init()
    old = before.memory
    for t in range(3):
        before, _ = simulation.step(before)
        new = before.memory.fetch()
        for row in range(2):
            away = sorted(set(range(12)) - set(simulation.schedule.active[row, t].tolist()))
            assert away
            assert torch.equal(new[row, away], old[row, away])
        assert not torch.equal(new, old)
        old = new


class Stops:
    """Interrupts a run after so many rounds, or within the next one."""

    def __init__(self, rounds, within=False):
        self.left, self.within = rounds, within

    def start(self, scheme, rounds):
        pass

    def round(self, scheme, records):
        self.left -= 1
        if self.left <= 0 and not self.within:
            raise KeyboardInterrupt

    def shards(self, done, total):
        if self.left <= 0 and self.within and done:
            raise KeyboardInterrupt


@pytest.mark.parametrize("executor", ["local", "ray"])
@pytest.mark.parametrize("within", [False, True])
def test_a_run_with_memory_is_resumed_to_the_same_bits(tiny, tmp_path, monkeypatch, executor, within):
    """Whatever N was before; interrupted between rounds, or when some shards are a round ahead of the others."""
    if executor == "ray":
        pytest.importorskip("ray")

    def crew(count):
        return make_shards("local", count) if executor == "local" else fake_cluster(monkeypatch, FakeActor, count)[0]

    names = ["one-bit-memory", "airfl-dp", "nc-airfl"]
    config = config_of(tiny, "memory").replace({"system.rounds": 6, "scheme.names": names})
    whole = fingerprint(airfl.run(config, shards=crew(4)))
    for at in (1, 2, 5):
        folder = tmp_path / f"{at}"
        with runs.claimed(folder) as held:
            keeper = runs.Keeper(held, 1e9)
            stopped = airfl.run(config, keeper=keeper, progress=Stops(at * len(names), within), shards=crew(3))
        assert {scheme.status for scheme in stopped.schemes.values()} == {"interrupted"}
        with runs.resumed(folder) as (held, begun):
            keeper = runs.Keeper(held, 0.0, begun)  # and a checkpoint after every round from here on
            assert fingerprint(airfl.run(begun.config, keeper=keeper, shards=crew(2))) == whole


def test_what_is_over_remembers_nothing(tiny):
    """Schemes that train one after the other: memories of the first are not held while the next is at work."""
    from airfl.runs.together import Log

    simulation = opened(tiny, make_shards("local", 2))
    log = Log([simulation])
    log.current = next(iter(simulation.rounds()))[0]
    assert log.state.memory is not None
    log.close()
    assert log.states[0].memory is None


def test_a_shard_has_the_samples_of_its_own_devices_and_no_others(tiny):
    simulation = opened(tiny)
    task, engine = simulation.task, simulation.engine
    training = training_of(simulation, simulation.init())
    shares = cut(training, 3)
    for share, order in zip(shares, _orders(training, shares, None), strict=True):
        own = owned_by(task, order.devices)
        numbers = {int(one) for part in task.partitions for device in range(*share.bounds[:: len(share.bounds) - 1])
                   for one in part.of(device)}  # fmt: skip
        assert len(own.inputs) == len(own.labels) == len(numbers) < len(task.inputs)
        assert torch.equal(own.inputs, task.inputs[sorted(numbers)])
        assert np.array_equal(own.partitions[0].sizes, task.partitions[0].sizes)
        assert own.batch_width == task.batch_width
        batches, all_of = own.batches(0, share.active), task.batches(0, share.active)
        assert torch.equal(batches < 0, all_of < 0)
        assert torch.equal(
            own.inputs[batches.clamp(min=0)][batches >= 0], task.inputs[all_of.clamp(min=0)][all_of >= 0]
        )
        assert same(Desk(engine, own).work([order]), Desk(engine, task).work([order]))


SCRIPT = """
import hashlib, json, os, signal, sys, time
from dataclasses import replace
import ray
import airfl
from airfl.config import from_toml
from airfl.shards import cluster, make_shards
from tests.test_shards import fingerprint
cluster.TRIES = 2  # over one share: that one actor is lost more often than that matters to nobody
def pid_of(actor):
    while True:
        try:
            return ray.get(actor.pid.remote())
        except ray.exceptions.ActorUnavailableError:  # it is beginning anew
            time.sleep(0.5)
config, marks, crews = from_toml(open(sys.argv[1]).read()), {}, []
for count, moments in ((2, [(0, 1), (1, 2), (2, 1)]), (1, []), (4, [])):  # within a round, between two, and again
    crew, heard_of = make_shards("ray", count), [0, 0]
    crews.append(crew)
    def heard(done, total):
        if moments and (heard_of[0], done) == moments[0]:
            moments.pop(0)
            actor = crew.workers._actors[0][1].each[0]
            if heard_of[0] == 1:
                ray.kill(actor, no_restart=False)
            else:
                os.kill(pid_of(actor), signal.SIGKILL)
            heard_of[1] += 1
        heard_of[0] += done == total
    result = airfl.run(config, progress=False, shards=replace(crew, heard=heard))
    crew.workers._actors.clear()
    marks[count] = [hashlib.sha256(repr(fingerprint(result)).encode()).hexdigest(), heard_of[1]]
for crew in reversed(crews):
    crew.close()
print("marks", json.dumps(marks))
"""


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_lost_actors_cost_nothing(tiny, tmp_path):
    """On Ray itself: one, two and four actors, and of the two one is killed within a round and between rounds."""
    pytest.importorskip("ray")
    config = config_of(tiny, "memory").replace({"system.rounds": 5})
    here = airfl.run(config, shards=make_shards("local", 3))
    (tmp_path / "config.toml").write_text(config.to_toml())
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    environment["PYTHONPATH"] = os.pathsep.join([os.getcwd(), environment.get("PYTHONPATH", "")])
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "config.toml")]
    with tempfile.TemporaryDirectory(prefix="r", dir="/tmp") as short:  # where no other test leaves anything
        environment["TMPDIR"] = short
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
        left = os.listdir(short)
    assert done.returncode == 0, done.stderr[-3000:]
    (marks,) = (json.loads(line[6:]) for line in done.stdout.splitlines() if line.startswith("marks "))
    mark = hashlib.sha256(repr(fingerprint(here)).encode()).hexdigest()
    assert marks == {"1": [mark, 0], "2": [mark, 3], "4": [mark, 0]}
    assert not [name for name in left if name.startswith("airfl-ray-")]


def test_an_actor_that_is_lost_over_one_share_again_and_again_ends_the_run(tiny, tmp_path, monkeypatch):
    """In one sentence, and what was done before can be gone on with."""
    exceptions = pytest.importorskip("ray.exceptions")
    left = [6]

    class Doomed(FakeActor):
        def called(self, name, arguments):
            if name == "work":
                left[0] -= 1
                if left[0] < 0:
                    self.begin()
                    raise exceptions.ActorUnavailableError("it ran out of memory", None)
            return super().called(name, arguments)

    monkeypatch.setattr(cluster.time, "sleep", lambda seconds: None)
    crew, _ = fake_cluster(monkeypatch, Doomed, 2)
    config = config_of(tiny, "truncated").replace({"system.rounds": 5})
    with runs.claimed(tmp_path / "o") as held:
        keeper = runs.Keeper(held, 1e9)
        with pytest.raises(LostError, match=r"^shard [12] of 2 failed 4 times: .*it ran out of memory"):
            airfl.run(config, keeper=keeper, shards=crew)
        assert keeper.has_checkpoints
    with runs.resumed(tmp_path / "o") as (held, begun):
        found = airfl.run(begun.config, keeper=runs.Keeper(held, 1e9, begun), shards=make_shards("local", 3))
    assert fingerprint(found) == fingerprint(airfl.run(config, shards=make_shards("local", 1)))
    assert found.provenance["sums"] == "in shards"


def test_memories_out_of_reach_cost_a_checkpoint_and_a_warning(tiny, tmp_path, monkeypatch, caplog):
    """Of a run that ends here, say; what was recorded is not lost."""
    crew = make_shards("local", 2)
    config = config_of(tiny, "memory")
    whole = fingerprint(airfl.run(config, shards=crew))

    def lost(self, *arguments):
        raise InputError("no Ray cluster answers at `far`: it is gone")

    monkeypatch.setattr(type(crew.workers), "recall", lost)
    with runs.claimed(tmp_path / "o") as held:
        found = airfl.run(config, keeper=runs.Keeper(held, 0.0), shards=crew)
        assert fingerprint(found) == whole
    assert "no checkpoint of the run" in caplog.text
    assert "it is gone" in caplog.text
