"""Receive combiner, transmit scalars, and how the privacy budget is spent over rounds."""

from airfl.transceiver.allocation import Perk, allocate, perk
from airfl.transceiver.certificate import certificate
from airfl.transceiver.combiners import COMBINERS, Combiner
from airfl.transceiver.design import Design, Transmission, transmit
from airfl.transceiver.zero_forcing import zero_forcing

__all__ = [
    "COMBINERS",
    "Combiner",
    "Design",
    "Perk",
    "Transmission",
    "allocate",
    "certificate",
    "perk",
    "transmit",
    "zero_forcing",
]
