"""Power, a file per way: how large combiners are, or what combiners and transmit scalars there are."""

from airfl.schemes.policies.energy import Energies
from airfl.schemes.policies.norms import Adaptive, EveryRoundAlone, FillUp, Ideal, LeastNoise, Online, WithinBudget
from airfl.schemes.policies.replacement import WithReplacement

__all__ = [
    "Adaptive",
    "Energies",
    "EveryRoundAlone",
    "FillUp",
    "Ideal",
    "LeastNoise",
    "Online",
    "WithReplacement",
    "WithinBudget",
]
