"""A scheme is an encoder at the devices, a policy for power and a decoder at the server.

In: updates, power, what was received. Out: what is sent, norms, model steps. May import ``engines`` and all before it.
"""

from airfl.schemes.decoders import Mean, Undithered, Vote
from airfl.schemes.encoders import Clip, ClipWithCover, ClipWithNoise, Dithered, Plain, Sign, SignWithMemory
from airfl.schemes.parts import Decoder, DesigningPolicy, Encoded, Encoder, Outlook, Policy, Scheme
from airfl.schemes.policies import Adaptive, EveryRoundAlone, Ideal, LeastNoise, Online, WithinBudget
from airfl.schemes.public import Public
from airfl.schemes.table import SCHEMES, scheme_named, scheme_shown
from airfl.schemes.transceivers import Detection, PowerRule, Scene, Transceiver

__all__ = [
    "SCHEMES",
    "Adaptive",
    "Clip",
    "ClipWithCover",
    "ClipWithNoise",
    "Decoder",
    "DesigningPolicy",
    "Detection",
    "Dithered",
    "Encoded",
    "Encoder",
    "EveryRoundAlone",
    "Ideal",
    "LeastNoise",
    "Mean",
    "Online",
    "Outlook",
    "Plain",
    "Policy",
    "PowerRule",
    "Public",
    "Scene",
    "Scheme",
    "Sign",
    "SignWithMemory",
    "Transceiver",
    "Undithered",
    "Vote",
    "WithinBudget",
    "scheme_named",
    "scheme_shown",
]
