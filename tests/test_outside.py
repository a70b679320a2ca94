"""Parts from outside: no ε too small on their word, one sentence where they fail, no code but what was named."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import airfl
from airfl.devices import load_samples, open_task
from airfl.imports import BESIDE, look_beside
from airfl.report import headline
from airfl.rounds.booking import GAIN_ROUNDING
from airfl.schemes import (
    Clip,
    ClipWithNoise,
    ClipWithOwnNoise,
    ClipWithZeroSum,
    Decoder,
    LeastNoise,
    Mean,
    Policy,
    Scheme,
)
from airfl.shards.share import quantum
from airfl.simulate import open_simulation
from tests.test_examples import EXAMPLES

HERE = "tests.test_outside"
DOMAIN = {"learning.domain_diameter": 0.01, "privacy.smoothness": 0.5}


class Repeats(Clip):
    """Sends every update three times."""

    def encode(self, block, clip_norm, memory):
        encoded = super().encode(block, clip_norm, memory)
        again = torch.arange(len(block.trial)).repeat(3)
        made = encoded.block
        longer = dataclasses.replace(
            made,
            trial=made.trial[again],
            slot=made.slot[again],
            trained=made.updates[again],
            losses=made.losses[again],
            factors=None,
        )
        return dataclasses.replace(encoded, block=longer, norms=encoded.norms[again])


class Nothing(Clip):
    def encode(self, block, clip_norm, memory):
        return None


class Fails(Policy):
    def norms(self, outlook):
        raise KeyError("where")


class Flat(Policy):
    def norms(self, outlook):
        return outlook.minimum[:, :1]


class FloorAndMore(Policy):
    """Noise that follows who takes part."""

    def norms(self, outlook):
        return outlook.at_floor(outlook.require_budget().floor) + outlook.minimum


class Shape(Decoder):
    def decode(self, received, clip_norm, senders):
        return received[:, :1]


class Median(Mean):
    """Says by inheritance that it is linear."""

    def decode(self, received, clip_norm, senders):
        return torch.sign(received)


class Small:
    """An accountant that says ε = 0.01 and calls it a proof."""

    name, label, assumptions = "small", "small", "None."
    observers, valid = ("model", "models"), True

    def __init__(self, ledger, neighbours, observer="model"):
        pass

    def epsilon(self, delta):
        return 0.01

    def delta(self, epsilon):
        return 0.0

    @classmethod
    def budget(cls, epsilon, delta, template, neighbours, rounds=1):
        return airfl.privacy.GaussianAccountant.budget(epsilon, delta, template, neighbours, rounds)


class Negative(Small):
    def epsilon(self, delta):
        return -1.0


class TwiceEngine:
    """Hands on every block twice."""

    name = "twice"

    def __init__(self, spec):
        from airfl.engines.loop import LoopEngine

        self.loop = LoopEngine(spec)

    def train(self, *asked):
        for block in self.loop.train(*asked):
            yield block
            yield block


@pytest.mark.parametrize(
    ("key", "part", "sentence"),
    [
        ("scheme.encoder", "Repeats", "each once"),
        ("scheme.encoder", "Nothing", "failed"),
        ("scheme.policy", "Fails", "failed: KeyError"),
        ("scheme.policy", "Flat", "must return finite norms"),
        ("scheme.decoder", "Shape", "must return a tensor of shape"),
        ("engine.backend", "TwiceEngine", "twice in one round"),
        ("privacy.accountant", "Negative", "not negative"),
        ("scheme.encoder", "Missing", "cannot be imported"),
        ("scheme.encoder", "Mean", "must be an airfl Encoder"),
    ],
)
def test_a_part_that_is_wrong_is_one_sentence(tiny, key, part, sentence):
    config = tiny.replace({key: f"{HERE}:{part}", "scheme.names": ["airfl-dp"], "system.rounds": 2})
    with pytest.raises(airfl.InputError, match=sentence) as refused:
        airfl.run(config)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("key", "part"), [("scheme.encoder", "sign_encoder:SignWithMemory"), ("scheme.decoder", f"{HERE}:Median")]
)
def test_a_hidden_state_earns_nothing_with_parts_from_outside(tiny, key, part):
    """The bound counts on clipped plain SGD and on the mean: signs, memories and medians are something else."""
    config = tiny.replace({**DOMAIN, key: part, "scheme.names": ["airfl-dp"], "privacy.accountant": "auto"})
    config = config.replace({"system.rounds": 30, "privacy.epsilon": 5.0})
    result = airfl.run(config.replace({"system.participation": 1.0}))
    epsilon = result.summary["schemes"]["airfl-dp"]["epsilon"]
    assert epsilon["convergent"] >= epsilon["gaussian"] * (1 - 1e-12)
    with pytest.raises(airfl.InputError, match="has not been worked out with accountant `convergent`"):
        airfl.run(config.replace({"privacy.accountant": "convergent"}))
    ours = config.replace({key: None, "system.participation": 1.0})
    own = airfl.run(ours).summary["schemes"]["airfl-dp"]["epsilon"]
    assert own["convergent"] < own["gaussian"]  # so that the test above can fail


@pytest.mark.parametrize(
    ("key", "part"), [("scheme.encoder", "sign_encoder:SignWithMemory"), ("scheme.policy", f"{HERE}:FloorAndMore")]
)
@pytest.mark.parametrize("columns", ["active", "all"])
@pytest.mark.parametrize("blocks", [{}, {"channel.coherence_hz": 5e6}])
def test_sampling_earns_nothing_where_memories_or_noise_tell_who_took_part(tiny, key, part, columns, blocks):
    """A policy from outside can draw from the configuration who takes part, whomever combiners serve."""
    changes = {key: part, "scheme.names": ["airfl-dp"], "privacy.accountant": "sampled", **blocks}
    config = tiny.replace({**changes, "scheme.combiner_columns": columns, "scheme.combiner": "auto"})
    epsilon = airfl.run(config.replace({"system.rounds": 2})).summary["schemes"]["airfl-dp"]["epsilon"]
    assert epsilon["sampled"] == pytest.approx(epsilon["gaussian"], rel=1e-9)


def hidden_by(encoder):
    """A scheme from outside whose devices hide in what one of our encoders adds."""
    return Scheme("mine", "Mine", "Ours by another name.", encoder, LeastNoise(), Mean(), "base-station", "gaussian")


IN_NOISE, EACH, IN_PAIRS = hidden_by(ClipWithNoise()), hidden_by(ClipWithOwnNoise()), hidden_by(ClipWithZeroSum())


@pytest.mark.parametrize(
    ("scheme", "changes", "sentence"),
    [
        ("IN_NOISE", {"channel.csi_error": 1e-4}, "unit gain"),
        ("EACH", {"channel.csi_error": 1e-4}, "unit gain"),
        ("IN_PAIRS", {"channel.symbols": "complex"}, "perturbs both parts"),
        ("IN_NOISE", {"channel.phase_error_rad": 0.1}, "noise or masks"),
    ],
)
def test_what_is_refused_by_name_is_refused_by_another_name(shielded, scheme, changes, sentence):
    with pytest.raises(airfl.InputError, match=sentence):
        airfl.run(shielded.replace({"scheme.names": [f"{HERE}:{scheme}"], "system.rounds": 1, **changes}))


def test_an_accountant_from_outside_is_no_proof_of_ours(tiny):
    config = tiny.replace({"privacy.accountant": f"{HERE}:Small", "scheme.names": ["airfl-dp"], "system.rounds": 2})
    result = airfl.run(config)
    assert result.summary["schemes"]["airfl-dp"]["epsilon"][f"{HERE}:Small"] == 0.01
    words = " ".join(headline(result))
    assert "0.01" not in words
    assert "from outside" in words


def test_what_devices_remember_does_not_depend_on_the_batch(tiny):
    """Places where nobody sends belong to no device, and touch nobody's memory."""
    changes = {"system.sampling": "poisson", "system.participation": 0.3, "system.trials": 3, "system.rounds": 3}
    config = tiny.replace({**changes, "scheme.names": ["airfl-mimo"], "scheme.encoder": "sign_encoder:SignWithMemory"})
    together, apart = airfl.run(config), airfl.run(config, trials_per_batch=1)
    assert torch.equal(together.schemes["airfl-mimo"].models, apart.schemes["airfl-mimo"].models)


def test_a_scheme_with_memory_can_be_audited(tiny):
    from airfl import analysis

    found = analysis.audit_run(tiny.replace({"system.rounds": 2}), "sign_scheme:scheme", 20)
    assert found.summary["failed_checks"] == []


def test_a_longer_encoder_gets_the_noise_and_the_power_it_needs(tiny):
    config = tiny.replace({"scheme.names": ["airfl-dp"], "scheme.encoder": f"{HERE}:Longer", "system.rounds": 2})
    result = airfl.run(config)
    assert result.schemes["airfl-dp"].status == "done"
    assert {event.clip_norm for ledger in result.schemes["airfl-dp"].ledgers for event in ledger.events} == {3.0}
    assert max(record.max_power_w for record in result.schemes["airfl-dp"].records) <= config.channel.power_w * 1.000001


class Longer(Clip):
    def length(self, clip_norm):
        return 3.0 * clip_norm


class Close(Clip):
    """Sends something nearly as long as it says, whatever its update is."""

    below = 5e-7

    def encode(self, block, clip_norm, memory):
        sent = torch.zeros_like(block.updates)
        sent[:, 0] = clip_norm * (1.0 - self.below)
        return dataclasses.replace(super().encode(block, clip_norm, memory), block=block.with_updates(sent))


class LessClose(Close):
    below = 1.1e-6


class LittleRoom(Close):
    room, below = 1e-7, 2e-7


class NoRoom(Clip):
    room = 1e-9


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("Close", "leave 1e-06 of it for rounding"),
        ("NoRoom", "`room`, of at least 1e-08"),
        ("LittleRoom", None),
        ("LessClose", None),
    ],
)
def test_what_an_encoder_may_send_and_what_rounding_adds_is_booked(tiny, part, words):
    """Shards and gains round within what an encoder is held to leave: one number, whatever else is configured."""
    config = tiny.replace({"scheme.names": ["airfl-mimo"], "scheme.encoder": f"{HERE}:{part}", "system.trials": 1})
    if words is not None:
        with pytest.raises(airfl.InputError, match=words):
            airfl.run(config)
        return
    task = open_task(config, (0,), load_samples(config, torch.device("cpu")))
    simulation = open_simulation(config, "airfl-mimo", task)
    step = simulation.advance(simulation.init())
    member = simulation.member(step.setting, None)
    most = 1
    while True:  # as many devices as shards take
        try:
            unit = quantum(member, 2 * most)
        except airfl.InputError:
            break
        most *= 2
    booked = step.after.ledgers[0].events[0].clip_norm
    sent = booked * (1.0 - simulation.scheme.encoder.below) + unit * member.dim**0.5
    assert most > 2**10
    assert sent * (1.0 + GAIN_ROUNDING) <= booked


def airfl_in(folder, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(Path(airfl.__file__).parents[1])}
    environment.pop(BESIDE, None)
    command = [sys.executable, "-m", "airfl.cli", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def test_only_what_is_named_is_executed(tiny, tmp_path):
    """Files beside a configuration stand in for nobody's modules, and --no-imports runs none of them."""
    received, elsewhere = tmp_path / "received", tmp_path / "elsewhere"
    received.mkdir()
    elsewhere.mkdir()
    mark = tmp_path / "executed"
    for name in ("matplotlib", "sklearn", "random", "airfl", "evil"):
        (received / f"{name}.py").write_text(f"open({str(mark)!r}, 'a').write({name!r})\npart = None\n")
    small = tiny.replace({"system.rounds": 1, "system.trials": 1, "scheme.names": ["airfl-mimo"]})
    (received / "c.toml").write_text(small.to_toml())
    done = airfl_in(elsewhere, "run", str(received / "c.toml"), "--no-imports", "--out", "o", "--json")
    assert done.returncode == 0, done.stderr
    for named in ("evil", "evil:part"):
        refused = airfl_in(
            elsewhere, "run", str(received / "c.toml"), "--no-imports", "--set", f"scheme.encoder={named}"
        )
        assert refused.returncode == 2
    assert not mark.exists()
    taken = airfl_in(elsewhere, "run", str(received / "c.toml"), "--set", "scheme.combiner=random:part", "--out", "r")
    assert taken.returncode == 2
    assert "`random` is Python's own, and no file stands in for it: rename yours" in taken.stderr
    assert not mark.exists()
    (received / "mine.py").write_text("def first(channels):\n    return channels[..., 0, :]\n")
    named = airfl_in(
        elsewhere, "run", str(received / "c.toml"), "--set", "scheme.combiner=mine:first", "--out", "p", "--json"
    )
    assert named.returncode == 0, named.stderr
    assert "mine:first" in named.stderr
    assert json.loads(named.stdout.splitlines()[-1])["schemes"]["airfl-mimo"]["status"] == "done"


def test_a_report_executes_nothing(tiny, tmp_path, monkeypatch, call):
    config = tiny.replace(
        {"privacy.accountant": f"{HERE}:Small", "scheme.names": ["sign_scheme:scheme"], "system.rounds": 1}
    )
    airfl.save(airfl.run(config), tmp_path / "o")
    monkeypatch.setattr("airfl.imports.import_object", lambda path, what: pytest.fail(f"{path} was imported"))
    monkeypatch.setattr("airfl.accounting.import_object", lambda path, what: pytest.fail(f"{path} was imported"))
    monkeypatch.setattr("airfl.schemes.table.import_object", lambda path, what: pytest.fail(f"{path} was imported"))
    code, out, error = call("report", "o")
    assert code == 0, error
    assert "sign_scheme:scheme" in out.replace("\n", "")


def test_a_run_goes_on_with_the_same_parts_only(tiny, tmp_path):
    from airfl.runs.sameness import code_of

    (tmp_path / "mine_too.py").write_text("a = 1\n")
    look_beside(tmp_path / "c.toml")
    before = code_of(["mine_too:a"])
    (tmp_path / "mine_too.py").write_text("a = 2\n")
    assert code_of(["mine_too:a"]) != before
    assert EXAMPLES.is_dir()


@pytest.mark.parametrize("name", ["power-mse", "tci", "park2023"])
def test_no_cover_is_left_out_where_a_policy_has_no_room_for_it(tiny, name):
    config = tiny.replace({"scheme.names": [name], "scheme.encoder": "tests.test_outside:Hides", "system.rounds": 1})
    with pytest.raises(airfl.InputError, match="leaves no room for them"):
        airfl.run(config)


class Hides(ClipWithNoise):
    """Ours by another name."""
