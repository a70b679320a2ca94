"""Every example runs, passes the contract of its kind, and can be named by its import path."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import airfl
from airfl.devices import load_samples, open_task
from airfl.runs.checkpoint import Checkpoints
from airfl.runs.together import Log
from airfl.schemes import Clip, Plain
from airfl.simulate import open_simulation
from airfl.testing import (
    AccountantContract,
    CombinerContract,
    DecoderContract,
    EncoderContract,
    EngineContract,
    FadingContract,
    ParticipationContract,
    PolicyContract,
    SchemeContract,
)

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))


class TestCombiner(CombinerContract):
    part = "combiner:strongest"


class TestFading(FadingContract):
    part = "fading:nakagami"


class TestParticipation(ParticipationContract):
    part = "participation:in_turns"


class TestPolicy(PolicyContract):
    part = "policy:Even"


class TestEncoder(EncoderContract):
    part = "sign_encoder:SignWithMemory"


class TestDecoder(DecoderContract):
    part = "sign_scheme:Vote"


class TestScheme(SchemeContract):
    part = "sign_scheme:scheme"


class TestEngine(EngineContract):
    part = "engine:Plain"


class TestAccountant(AccountantContract):
    part = "accountant:Concentrated"


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("channel.fading", "fading:nakagami"),
        ("system.sampling", "participation:in_turns"),
        ("scheme.policy", "policy:Even"),
        ("scheme.encoder", "sign_encoder:SignWithMemory"),
        ("scheme.decoder", "sign_scheme:Vote"),
        ("engine.backend", "engine:Plain"),
        ("privacy.accountant", "accountant:Concentrated"),
    ],
)
def test_a_part_from_outside_runs_by_its_import_path(tiny, key, part):
    result = airfl.run(tiny.replace({key: part, "scheme.names": ["airfl-dp"], "system.rounds": 2}))
    summary = result.summary["schemes"]["airfl-dp"]
    assert summary["status"] == "done"
    assert summary["epsilon"]["gaussian"] <= 50.0
    if key == "privacy.accountant":
        assert summary["accountant"] == part
        assert summary["epsilon"]["gaussian"] <= summary["epsilon"][part] <= 50.0


def test_a_scheme_from_outside_remembers_over_checkpoints(tiny, tmp_path):
    """Stopped after two rounds, kept, brought back and gone on with: the same bits as without a stop."""
    config = tiny.replace({"scheme.names": ["sign_scheme:scheme"]})
    task = open_task(config, (0, 1), load_samples(config, torch.device("cpu")))
    simulation = open_simulation(config, "sign_scheme:scheme", task)
    whole = list(simulation.rounds())[-1][0]
    log = Log([simulation])
    for log.current, _ in simulation.rounds():
        if log.current.round == 2:
            break
    Checkpoints(tmp_path).save(2, {"it": log})
    found = Checkpoints(tmp_path).restore({"it": simulation})["it"].current
    assert torch.equal(found.memory, log.current.memory)
    assert float(found.memory.abs().max()) > 0
    resumed = list(simulation.rounds(found))[-1][0]
    assert torch.equal(resumed.models, whole.models)
    assert torch.equal(resumed.memory, whole.memory)
    forgetful = list(simulation.rounds(replace(found, memory=torch.zeros_like(found.memory))))[-1][0]
    assert not torch.equal(forgetful.models, whole.models)  # it matters what they remember


class Liar(Plain):
    """Says that it clips, and does not."""

    def length(self, clip_norm):
        return clip_norm


class Twice(Clip):
    """Clips, and sends it twice as long."""

    def encode(self, block, clip_norm, memory):
        return super().encode(block, 2.0 * clip_norm, memory)


@pytest.mark.parametrize("part", ["Liar", "Twice"])
def test_an_encoder_that_sends_more_than_it_says_is_refused(tiny, part):
    """Booked is what `length` says; an encoder from outside is held to it in every round."""
    config = tiny.replace({"scheme.names": ["airfl-dp"], "scheme.encoder": f"tests.test_examples:{part}"})
    with pytest.raises(airfl.InputError, match="would be too small"):
        airfl.run(config.replace({"learning.clip_norm": 1e-3, "privacy.epsilon": 50.0}))
