"""Power, a file per way: how large combiners are, or what combiners and transmit scalars there are."""

from airfl.schemes.policies.energy import Energies
from airfl.schemes.policies.least_error import LeastError
from airfl.schemes.policies.most import MostDevices
from airfl.schemes.policies.norms import Adaptive, EveryRoundAlone, FillUp, Ideal, LeastNoise, Online, WithinBudget
from airfl.schemes.policies.orthogonal import RandomOrthogonal
from airfl.schemes.policies.over_rounds import OverRounds
from airfl.schemes.policies.replacement import WithReplacement
from airfl.schemes.policies.scaled import LeastTold
from airfl.schemes.policies.truncated import TruncatedInversion

__all__ = [
    "Adaptive",
    "Energies",
    "EveryRoundAlone",
    "FillUp",
    "Ideal",
    "LeastError",
    "LeastNoise",
    "LeastTold",
    "MostDevices",
    "Online",
    "OverRounds",
    "RandomOrthogonal",
    "TruncatedInversion",
    "WithReplacement",
    "WithinBudget",
]
