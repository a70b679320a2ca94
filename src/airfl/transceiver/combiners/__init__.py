"""Combiner methods, a file each: channels [..., K, m] in, a ``Design`` out."""

from airfl.transceiver.combiners.table import COMBINERS, Combiner, combiner_named, outside

__all__ = ["COMBINERS", "Combiner", "combiner_named", "outside"]
