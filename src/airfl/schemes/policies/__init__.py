"""Power, a file per way: how large combiners are, or what combiners and transmit scalars there are."""

from airfl.schemes.policies.energy import Energies
from airfl.schemes.policies.norms import Adaptive, EveryRoundAlone, Ideal, LeastNoise, Online, WithinBudget

__all__ = ["Adaptive", "Energies", "EveryRoundAlone", "Ideal", "LeastNoise", "Online", "WithinBudget"]
