"""Receive combiner, transmit scalars, and how the privacy budget is spent over rounds.

In: channels, budgets. Out: designs with certificates, norms. May import ``linkplan`` and all before it.
"""

from airfl.transceiver.allocation import Perk, allocate, perk, perk_at
from airfl.transceiver.certificates import certificate
from airfl.transceiver.combiners import COMBINERS, Combiner, combiner_named
from airfl.transceiver.combiners.zero_forcing import zero_forcing
from airfl.transceiver.counting import counting_figure
from airfl.transceiver.cover import Cover, degrees_of, laplacian_of, mask_degree, mask_edges, unknown_to_all
from airfl.transceiver.design import Design, Transmission, transmit, transmitted
from airfl.transceiver.few import FewRounds, few_rounds
from airfl.transceiver.finite_domain import allocate_finite_domain, last_round_factor
from airfl.transceiver.online import KnownLaw, MovingEstimate, Predictions, allocate_online, noisy_predictions
from airfl.transceiver.radio import Radio, open_radio, served_channels
from airfl.transceiver.selection import SELECTIONS
from airfl.transceiver.sight import BareSight, Sight, bare_sight, base_station_sight, eavesdropper_sight

__all__ = [
    "COMBINERS",
    "SELECTIONS",
    "BareSight",
    "Combiner",
    "Cover",
    "Design",
    "FewRounds",
    "KnownLaw",
    "MovingEstimate",
    "Perk",
    "Predictions",
    "Radio",
    "Sight",
    "Transmission",
    "allocate",
    "allocate_finite_domain",
    "allocate_online",
    "bare_sight",
    "base_station_sight",
    "certificate",
    "combiner_named",
    "counting_figure",
    "degrees_of",
    "eavesdropper_sight",
    "few_rounds",
    "laplacian_of",
    "last_round_factor",
    "mask_degree",
    "mask_edges",
    "noisy_predictions",
    "open_radio",
    "perk",
    "perk_at",
    "served_channels",
    "transmit",
    "transmitted",
    "unknown_to_all",
    "zero_forcing",
]
