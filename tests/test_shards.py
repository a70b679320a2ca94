"""One run's devices in shards: the same bits however many there are, and when one is lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import airfl
from airfl.errors import InputError
from airfl.shards import GROUPS, make_shards
from airfl.shards.share import cut, groups_of, slots_of, taken

#: What is different where devices are added up: participation, schemes with memory, blocks, symbols, no clip, energy.
KINDS = {
    "all": {"system.participation": 1.0},
    "some": {},
    "poisson": {"system.sampling": "poisson", "system.participation": 0.2},
    "memory": {"scheme.names": ["one-bit-memory"]},
    "truncated": {"scheme.names": ["tci-memory"], "scheme.truncation_power": "spread", "scheme.truncation_share": 0.6},
    "blocks": {"channel.coherence_hz": 5e6, "channel.rotation": True, "scheme.combiner": "auto"},
    "complex": {"channel.symbols": "complex", "channel.phase_error_rad": 0.2, "scheme.names": ["airfl-mimo"]},
    "no-clip": {"scheme.names": ["fedavg", "fedavg-clip"]},
    "energy": {"scheme.names": ["nc-airfl"]},
    "frozen": {"learning.model": "tests.test_models_and_engines:fine_tuned", "engine.backend": "batched"},
    "threads": {"learning.model": "mlp", "engine.backend": "threads", "system.trials": 1, "system.rounds": 2},
}


def config_of(tiny, kind):
    return tiny.replace({"scheme.names": ["airfl-mimo", "airfl-dp"], "system.rounds": 3, **KINDS[kind]})


def fingerprint(result):
    models = [scheme.models.numpy().tobytes() for scheme in result.schemes.values()]
    rows = [[tuple(map(str, row.__dict__.values())) for row in scheme.records] for scheme in result.schemes.values()]
    ledgers = [ledger.to_mapping()["sha256"] for scheme in result.schemes.values() for ledger in scheme.ledgers]
    return models, rows, ledgers


@pytest.mark.parametrize("kind", KINDS)
def test_any_number_of_shards_gives_the_same_bits(tiny, kind):
    """And what one process gives, to rounding, with the very same ledgers."""
    config = config_of(tiny, kind)
    plain = airfl.run(config)
    one, *more = (airfl.run(config, shards=make_shards("local", count)) for count in (1, 2, 4, GROUPS))
    for other in more:
        assert fingerprint(other) == fingerprint(one)
    for name, scheme in plain.schemes.items():
        assert torch.allclose(scheme.models, one.schemes[name].models, rtol=1e-3, atol=1e-5)
        for before, after in zip(scheme.ledgers, one.schemes[name].ledgers, strict=True):
            assert before.events == after.events


def test_every_device_is_in_one_group_and_every_place_in_one_share():
    for count in (1, 2, 63, 64, 65, 1000, 1_000_003):
        bounds = groups_of(count)
        assert bounds[0] == 0
        assert bounds[-1] == count
        assert bool((np.diff(bounds) >= 1).all())
        assert len(bounds) == min(GROUPS, count) + 1
    active = np.array([[1, 4, 7, -1], [0, 2, 3, 9]])
    slots = slots_of(active, 2, 8)
    assert taken(active, slots).tolist() == [[4, 7], [2, 3]]
    assert slots_of(active, 5, 7).tolist() == [[-1], [-1]]


def test_shards_take_no_more_than_their_part(tiny):
    """A share holds what its own devices are given: gains of nobody else, no channels, and no memories."""
    from airfl.rounds import Training
    from airfl.runs.execute import _open

    (simulation,) = _open(config_of(tiny, "memory"), torch.device("cpu"), None, None)["one-bit-memory"]
    state = simulation.init()
    member = simulation.member(simulation.schedule.setting(0), state.memory)
    active = simulation.schedule.active_in(0)
    training = Training(simulation.engine, simulation.task, 0, active, [], state.models, [member])
    shares = cut(training, 3)
    assert sum((share.active >= 0).sum() for share in shares) == (active >= 0).sum()
    for share in shares:
        assert share.members[0].memory is None
        assert share.members[0].setting.channels.shape[1] == 1
        assert share.members[0].setting.gains.shape == share.active.shape
        assert not share.members[0].setting.seen


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--shards", "0"], "from 1 to 64"),
        (["--shards", "65"], "from 1 to 64"),
        (["--executor", "ray"], "--shards N"),
        (["--executor", "dask", "--shards", "2"], "no executor named `dask`"),
        (["--address", "auto"], "--executor ray"),
        (["--shards", "2", "--address", "auto"], "--executor ray"),
        (["--executor", "ray", "--shards", "2", "--address", "127.0.0.1:1"], "no Ray cluster answers"),
        (["--shards", "2", "--set", "scheme.uplink=signal"], 'scheme.uplink = "equivalent"'),
    ],
)
def test_bad_shards_are_one_sentence(call, tmp_path, arguments, words):
    small = {
        "learning.dataset": "digits",
        "learning.model": "softmax",
        "learning.samples_per_device": 20,
        "learning.split": "standard",
        "system.num_devices": 20,
        "system.rounds": 1,
    }
    sets = [part for key, value in small.items() for part in ("--set", f"{key}={value}")]
    code, _, err = call("run", "demo", *sets, *arguments, "--out", str(tmp_path / "out"))
    assert code == 2, err
    assert words in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_interventions_are_not_sharded(tiny):
    from airfl.rounds import Training
    from airfl.runs.execute import _open

    (simulation,) = _open(config_of(tiny, "all"), torch.device("cpu"), None, None)["airfl-dp"]
    member = simulation.member(simulation.schedule.setting(0), None)
    training = Training(simulation.engine, simulation.task, 0, simulation.schedule.active_in(0), [], simulation.start,
                        [member], intervene=lambda block: block)  # fmt: skip
    with pytest.raises(InputError, match="shards"):
        cut(training, 2)


class FakeRay:
    """As much of Ray as rounds meet, in this process."""

    @staticmethod
    def put(value):
        return value

    @staticmethod
    def wait(handles, num_returns, timeout=None):
        return handles[:1], handles[1:]

    @staticmethod
    def get(handle, timeout=None):
        return handle() if callable(handle) else handle


class FakeMethod:
    """An actor's method: what goes in and what comes out travels, and the work is done when somebody looks."""

    def __init__(self, actor, name):
        self.actor, self.name = actor, name

    def remote(self, *arguments):
        from ray import cloudpickle

        sent = cloudpickle.dumps(arguments)
        return lambda: cloudpickle.loads(cloudpickle.dumps(self.actor.called(self.name, cloudpickle.loads(sent))))


class FakeActor:
    """Keeps the samples that it was begun with, as actors do."""

    def __init__(self, packed):
        self.packed = packed
        self.begin()
        self.work, self.recall, self.hello = (FakeMethod(self, name) for name in ("work", "recall", "hello"))

    def begin(self):
        from airfl.shards.cluster import Worker

        self.worker = Worker([self.packed], [])

    def called(self, name, arguments):
        return getattr(self.worker, name)(*arguments)


def fake_cluster(monkeypatch, actor=FakeActor, count=2):
    import ray

    from airfl.shards import cluster
    from airfl.shards.parcel import owned_by, packed_task

    begun = []

    def begin(_, site):
        begun.append(site.task)
        each = [actor(packed_task(owned_by(site.task, part))) for part in site.parts]
        return cluster.Actors(each, [one.worker.hello()[0] for one in each], [])

    monkeypatch.setattr(ray, "get", FakeRay.get)
    monkeypatch.setattr(cluster, "connect", lambda stack, address: FakeRay)
    monkeypatch.setattr(cluster, "_begin", begin)
    return make_shards("ray", count), begun


def test_actors_of_other_trials_and_of_other_runs_go(tiny, monkeypatch):
    """One crew for all trials of two runs: never another's data, and never more actors than shards."""
    pytest.importorskip("ray")
    crew, begun = fake_cluster(monkeypatch)
    for seed in (0, 1):
        config = config_of(tiny, "all").replace({"system.seed": seed, "system.rounds": 2})
        far = airfl.run(config, shards=crew, trials_per_batch=1)
        here = airfl.run(config, shards=make_shards("local", 2), trials_per_batch=1)
        assert fingerprint(far) == fingerprint(here)
        assert len(crew.workers._actors) == 1
        assert crew.workers._actors[0][0] is begun[-1]  # held, so that no other task takes its place in memory
    assert len(begun) == 4


def test_what_a_part_does_wrong_in_a_shard_is_its_own_sentence(tiny, monkeypatch):
    exceptions = pytest.importorskip("ray.exceptions")

    class Fails(FakeActor):
        def called(self, name, arguments):
            raise exceptions.RayTaskError("work", "a long way down", InputError("encoder `X` sends too much"))

    crew, _ = fake_cluster(monkeypatch, Fails)
    with pytest.raises(InputError, match=r"^encoder `X` sends too much$"):
        airfl.run(config_of(tiny, "all"), shards=crew)


class Shares(airfl.schemes.Clip):
    """Sends the less, the more devices do: everybody knows how many that are."""

    def encode_in(self, block, clip_norm, memory, public):
        encoded = self.encode(block, clip_norm, memory)
        parts = 1.0 / public.senders(block.trained.shape[1])[block.trial.cpu()]
        return replace(encoded, block=encoded.block.with_updates(encoded.block.updates * parts.float()))


def test_everybody_knows_as_much_in_shards(tiny):
    config = config_of(tiny, "poisson").replace({"scheme.names": ["airfl-mimo"], "scheme.encoder": Shares})
    plain, cut_up = airfl.run(config), airfl.run(config, shards=make_shards("local", 3))
    models = [found.schemes["airfl-mimo"].models for found in (plain, cut_up)]
    assert torch.allclose(*models, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("scheme", "gain"), [("airfl-mimo", 1.0), ("airfl-mimo", 1e-3), ("one-bit", 1.0), ("nc-airfl", 9.0)]
)
def test_sums_are_rounded_to_no_more_than_is_said(tiny, scheme, gain):
    """u ≤ n C 2⁻⁵¹, C the longest contribution to the sum: long signs and small gains are no reason for more."""
    from airfl.runs.execute import _open
    from airfl.shards.share import quantum

    (simulation,) = _open(config_of(tiny, "all").replace({"scheme.names": [scheme]}), torch.device("cpu"), None, None)[
        scheme
    ]
    setting = simulation.schedule.setting(0)
    setting = replace(setting, gain_bound=0.0 * setting.gain_bound + gain, gains=gain * setting.gains)
    length = setting.clip_norm
    most = 12 * (length**2 if scheme == "nc-airfl" else length * gain)
    member = simulation.member(setting, simulation.init().memory)
    assert most * 2.0**-52 <= quantum(member, 12) * (1.0 + 1e-9)
    assert quantum(member, 12) <= most * 2.0**-51 * (1.0 + 1e-9)
    silent = replace(setting, gain_bound=0.0 * setting.gain_bound, gains=0.0 * setting.gains)
    assert quantum(replace(member, setting=silent), 12) > 0.0
    few = replace(setting, active=setting.active[:, :1])
    assert quantum(replace(member, setting=few), 12) == quantum(member, 12)  # who was drawn does not show
    with pytest.raises(InputError, match="more than the privacy ledger has room for"):
        quantum(member, 10**10)
