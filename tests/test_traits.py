"""What parts say they work with: as their classes do; new axes are refused; what a refusal suggests runs."""

from __future__ import annotations

import json

import pytest

from airfl import traits
from airfl.schemes import SCHEMES, Clip, Encoder, LeastNoise, Mean, Scheme
from airfl.testing.small import small_config
from airfl.traits import PARTS, Axis, Refusal, Traits, conflicts
from tests.conflicts import AXES, BASE, TABLE, outcome


def parts_of(scheme):
    return scheme.encoder, scheme.policy, scheme.decoder


@pytest.mark.parametrize("name", SCHEMES)
def test_the_table_says_what_classes_are(name):
    scheme = SCHEMES[name]
    assert tuple(type(part).__name__ for part in parts_of(scheme)) == traits.SCHEMES[name]
    said = traits.scheme_traits(name)
    assert said == scheme.traits
    assert said.remembers == scheme.encoder.remembers
    assert said.over_air == scheme.policy.over_air
    assert bool(said.protects_from) == (scheme.encoder.cover != "nothing")
    assert said.chooses_cover == (scheme.encoder.cover == "chosen")


def test_the_table_has_no_part_that_no_scheme_has():
    assert PARTS.keys() == {name for parts in traits.SCHEMES.values() for name in parts}
    assert list(traits.SCHEMES) == list(SCHEMES)


@pytest.mark.parametrize("name", SCHEMES)
def test_an_axis_that_nobody_has_heard_of_is_refused_by_all(name):
    on = {**small_config({"scheme.names": [name]}).axes(), "burst": "`channel.burst_every`"}
    (sentence,) = conflicts([(f"scheme `{name}`", traits.scheme_traits(name))], on)
    assert sentence == f"scheme `{name}` has not been worked out with `channel.burst_every`; leave one of them out"


def test_all_conflicts_are_said_at_once_and_each_reason_once():
    said = Traits(
        frozenset({Axis.DROPOUT}),
        (Refusal(frozenset({Axis.BLOCKS}), "minds"), Refusal(frozenset({Axis.COMPLEX}), "minds", "do not"),
         Refusal(frozenset({Axis.ROTATION}), "minds"), Refusal(frozenset({Axis.DROPOUT, Axis.BLOCKS}), "minds both")),
    )  # fmt: skip
    on = {Axis.BLOCKS: "blocks", Axis.COMPLEX: "complex", Axis.ROTATION: "rotation", Axis.DROPOUT: "dropout"}
    assert conflicts([("x", said)], on) == [
        "x minds blocks, or rotation; leave one of them out",
        "x minds complex; do not",
        "x minds both blocks and dropout; leave one of them out",
    ]


class Mine(Clip):
    """Inherits all that ours says of itself."""


class Covered(Encoder):
    """Says nothing but what it hides devices in."""

    cover = "circular"

    def length(self, clip_norm):
        return clip_norm

    def encode(self, block, clip_norm, memory):
        raise NotImplementedError


def test_a_part_from_outside_is_believed_less():
    mine = Scheme("mine", "Mine", "Ours but for the encoder.", Mine(), LeastNoise(), Mean())
    assert Axis.CONVERGENT in SCHEMES["airfl-mimo"].traits.works_with
    assert not {Axis.CONVERGENT, Axis.STANDARDISED} & mine.traits.works_with
    covered = Scheme("covered", "Covered", "Noise of devices.", Covered(), LeastNoise(), Mean())
    assert set(PARTS["ClipWithNoise"].refuses) <= set(covered.traits.refuses)
    assert covered.traits.budget


THEN = json.loads(TABLE.read_text(encoding="utf-8"))
#: What the sentences say to do, where that is more than to leave out one of the two.
INSTEAD = {
    'set scheme.uplink = "signal"': {"scheme.uplink": "signal"},
    "use `gaussian`": {"privacy.accountant": "gaussian"},
    'set system.sampling = "fixed"': {"system.sampling": "fixed"},
    "take masks of `airfl-shielded`": {"scheme": "airfl-shielded", "scheme.cover": "masks"},
    'take "strongest"': {"scheme.selection": "strongest"},
    "set scheme.fresh_fading = false": {"scheme.fresh_fading": False, "scheme.uplink": "signal"},
    "use `airfl-shielded`": {"scheme": "airfl-shielded"},
}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_a_refusal_suggests_runs(scheme):
    """Of every axis that a scheme refuses: without it, or with what the sentence says instead."""
    looked_at = 0
    for axis, cell in THEN[scheme].items():
        if " + " in axis or not isinstance(cell, str):
            continue
        (instead,) = [way for words, way in INSTEAD.items() if words in cell] or [None]
        assert instead is not None or traits.LEAVE_OUT in cell, cell
        changes = {} if instead is None else {**AXES[axis], **instead}
        made = outcome(changes.pop("scheme", scheme), changes)
        assert not isinstance(made, str), (axis, cell, made)
        looked_at += 1
    assert looked_at or scheme in ("airfl-shielded",)


def test_the_plainest_run_of_every_scheme_is_in_the_table():
    assert BASE["system.trials"] == 1
    assert all(isinstance(row[""], list) for row in THEN.values())
