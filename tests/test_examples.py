"""Every example runs, passes the contract of its kind, and can be named by its import path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import airfl
from airfl.schemes import Clip, Plain
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
    config = tiny.replace({"scheme.names": ["sign_scheme:scheme"]})
    result = airfl.run(config)
    assert result.schemes["sign_scheme:scheme"].status == "done"
    assert json.loads(json.dumps(result.summary))["schemes"]["sign_scheme:scheme"]["observer"] == "model"


def test_a_combiner_in_a_study_beside_ours_takes_25_lines(tmp_path):
    assert len((EXAMPLES / "combiner.py").read_text().splitlines()) <= 25
    command = [sys.executable, str(EXAMPLES / "combiner.py"), "figure.png"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "MPLBACKEND": "Agg"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


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
