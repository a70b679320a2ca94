"""Receive combiner, transmit scalars, and how the privacy budget is spent over rounds.

In: channels, budgets. Out: designs with certificates, norms. May import ``linkplan`` and all before it.
"""

from airfl.transceiver.allocation import Perk, allocate, perk, perk_at
from airfl.transceiver.artificial import Visibility, norm_growth, visibility
from airfl.transceiver.certificates import certificate
from airfl.transceiver.combiners import COMBINERS, Combiner, combiner_named
from airfl.transceiver.combiners.zero_forcing import zero_forcing
from airfl.transceiver.counting import counting_figure
from airfl.transceiver.design import Design, Transmission, transmit
from airfl.transceiver.few import FewRounds, few_rounds
from airfl.transceiver.finite_domain import allocate_finite_domain, last_round_factor
from airfl.transceiver.online import KnownLaw, MovingEstimate, Predictions, allocate_online, noisy_predictions
from airfl.transceiver.radio import Radio, open_radio, served_channels
from airfl.transceiver.selection import SELECTIONS

__all__ = [
    "COMBINERS",
    "SELECTIONS",
    "Combiner",
    "Design",
    "FewRounds",
    "KnownLaw",
    "MovingEstimate",
    "Perk",
    "Predictions",
    "Radio",
    "Transmission",
    "Visibility",
    "allocate",
    "allocate_finite_domain",
    "allocate_online",
    "certificate",
    "combiner_named",
    "counting_figure",
    "few_rounds",
    "last_round_factor",
    "noisy_predictions",
    "norm_growth",
    "open_radio",
    "perk",
    "perk_at",
    "served_channels",
    "transmit",
    "visibility",
    "zero_forcing",
]
