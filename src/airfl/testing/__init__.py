"""Contract tests for parts of your own: inherit one in a pytest file, name the part, and its tests run.

    from airfl.testing import CombinerContract

    class TestMine(CombinerContract):
        part = "mine:strongest"

Ours pass the same tests. In: a part, by name, import path, or the object itself. Out: tests. May import everything but
the command line.
"""

from airfl.testing.accountant import AccountantContract
from airfl.testing.engine import EngineContract
from airfl.testing.radio import CombinerContract, FadingContract, ParticipationContract
from airfl.testing.scheme import DecoderContract, EncoderContract, PolicyContract, SchemeContract

__all__ = [
    "AccountantContract",
    "CombinerContract",
    "DecoderContract",
    "EncoderContract",
    "EngineContract",
    "FadingContract",
    "ParticipationContract",
    "PolicyContract",
    "SchemeContract",
]
