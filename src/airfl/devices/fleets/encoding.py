"""Columns as numbers that a model takes: by constants that are public, so that no sample depends on another."""

from __future__ import annotations

import numpy as np


def one_hot(codes: np.ndarray, count: int) -> np.ndarray:
    """[N] of 0..count−1 -> [N, count], float32."""
    made = np.zeros((len(codes), count), dtype=np.float32)
    made[np.arange(len(codes)), codes.astype(np.int64)] = 1.0
    return made
