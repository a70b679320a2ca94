"""A scheme is an encoder at the devices, a policy for power and a decoder at the server.

In: updates, power, what was received. Out: what is sent, norms, model steps. May import ``engines`` and all before it.
"""

from airfl.schemes.decoders import Mean, PerScheduled, PerSender, Undithered, Vote
from airfl.schemes.encoders import (
    Clip,
    ClipWithCover,
    ClipWithMemory,
    ClipWithNoise,
    ClipWithOwnNoise,
    ClipWithZeroSum,
    Dithered,
    Plain,
    Sign,
    SignWithMemory,
)
from airfl.schemes.parts import Decoder, DesigningPolicy, Encoded, Encoder, Outlook, Policy, Scheme
from airfl.schemes.policies import (
    Adaptive,
    EveryRoundAlone,
    FillUp,
    Ideal,
    LeastError,
    LeastNoise,
    LeastTold,
    MostDevices,
    Online,
    OverRounds,
    RandomOrthogonal,
    TruncatedInversion,
    WithinBudget,
    WithReplacement,
)
from airfl.schemes.public import Public
from airfl.schemes.table import SCHEMES, scheme_named, scheme_shown
from airfl.schemes.transceivers import Detection, PowerRule, Scene, Transceiver

__all__ = [
    "SCHEMES",
    "Adaptive",
    "Clip",
    "ClipWithCover",
    "ClipWithMemory",
    "ClipWithNoise",
    "ClipWithOwnNoise",
    "ClipWithZeroSum",
    "Decoder",
    "DesigningPolicy",
    "Detection",
    "Dithered",
    "Encoded",
    "Encoder",
    "EveryRoundAlone",
    "FillUp",
    "Ideal",
    "LeastError",
    "LeastNoise",
    "LeastTold",
    "Mean",
    "MostDevices",
    "Online",
    "Outlook",
    "OverRounds",
    "PerScheduled",
    "PerSender",
    "Plain",
    "Policy",
    "PowerRule",
    "Public",
    "RandomOrthogonal",
    "Scene",
    "Scheme",
    "Sign",
    "SignWithMemory",
    "Transceiver",
    "TruncatedInversion",
    "Undithered",
    "Vote",
    "WithReplacement",
    "WithinBudget",
    "scheme_named",
    "scheme_shown",
]
