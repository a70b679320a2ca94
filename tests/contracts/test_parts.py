"""Our own parts pass the contracts that are exported for everyone's."""

from __future__ import annotations

import pytest

from airfl import catalogue
from airfl.privacy import ACCOUNTANTS
from airfl.schemes import (
    SCHEMES,
    Adaptive,
    Clip,
    ClipWithCover,
    ClipWithMemory,
    ClipWithNoise,
    ClipWithOwnNoise,
    ClipWithZeroSum,
    Dithered,
    EveryRoundAlone,
    LeastNoise,
    Mean,
    PerScheduled,
    PerSender,
    Plain,
    Sign,
    SignWithMemory,
    TruncatedInversion,
    Undithered,
    Vote,
    WithinBudget,
    WithReplacement,
)
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


def contracts(base, parts, **fields):
    """One class of tests for every part."""
    for part in parts:
        name = part if isinstance(part, str) else part.__name__
        yield type(f"Test_{base.__name__}_{name.replace('-', '_')}", (base,), {"part": part, **fields})


MADE = [
    *contracts(CombinerContract, [n for n in catalogue.COMBINERS if n not in (*catalogue.NEEDS_ANTENNAS, "sdr")]),
    *contracts(CombinerContract, catalogue.NEEDS_ANTENNAS, sizes=((1, 1), (1, 4), (3, 8), (6, 6))),
    *contracts(CombinerContract, ["sdr"], sizes=((2, 2), (3, 4))),
    *contracts(FadingContract, [name for name in catalogue.FADING_LAWS if name != "trace"]),
    *contracts(ParticipationContract, catalogue.PARTICIPATION),
    *contracts(
        EncoderContract,
        [
            Plain,
            Clip,
            ClipWithMemory,
            ClipWithNoise,
            ClipWithOwnNoise,
            ClipWithZeroSum,
            ClipWithCover,
            Sign,
            SignWithMemory,
            Dithered,
        ],
    ),
    *contracts(DecoderContract, [Mean, PerSender, PerScheduled, Vote, Undithered]),
    *contracts(PolicyContract, [WithinBudget, EveryRoundAlone, Adaptive, TruncatedInversion, WithReplacement]),
    *contracts(PolicyContract, [LeastNoise], promises=False),
    *contracts(SchemeContract, SCHEMES),
    *contracts(AccountantContract, ACCOUNTANTS),
    *contracts(EngineContract, ["loop", "threads", "batched"]),
]
globals().update({kind.__name__: kind for kind in MADE})


def test_a_part_that_breaks_its_contract_is_caught():
    """Each contract can fail: a combiner that forgets a device, an encoder that does not clip, an ε that is too low."""

    class Unclipped(Plain):
        def length(self, clip_norm):
            return clip_norm

    class Cheap(ACCOUNTANTS["gaussian"]):
        def epsilon(self, delta):
            return 0.5 * super().epsilon(delta)

    encoder = type("T", (EncoderContract,), {"part": Unclipped()})()
    with pytest.raises(AssertionError):
        encoder.test_what_is_sent_is_no_longer_than_stated()
    accountant = type("T", (AccountantContract,), {"part": Cheap})()
    with pytest.raises(AssertionError):
        accountant.test_a_valid_bound_never_undercuts_the_exact_one()
    fading = type("T", (FadingContract,), {"part": staticmethod(lambda g, n, m: 2.0 * g.standard_normal((n, m)))})()
    with pytest.raises(AssertionError):
        fading.test_mean_power_is_what_the_amplitude_says()
    combiner = type("T", (CombinerContract,), {"part": staticmethod(lambda h: h[:1, 0].expand(len(h), -1))})()
    with pytest.raises(AssertionError):
        combiner.test_instances_do_not_depend_on_each_other()
