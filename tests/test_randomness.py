from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from airfl.randomness import complex_normal, stream


@given(st.integers(0, 2**40), st.integers(0, 10**6), st.integers(0, 10**6))
def test_a_stream_depends_on_its_key_alone(seed, trial, round_index):
    first = stream(seed, "fading", trial, round_index).random(4)
    stream(seed, "batches", trial, round_index).random(7)
    assert (first == stream(seed, "fading", trial, round_index).random(4)).all()


def test_different_keys_give_different_streams():
    keys = [(0, "fading", 0, 0), (1, "fading", 0, 0), (0, "batches", 0, 0), (0, "fading", 1, 0), (0, "fading", 0, 1)]
    keys += [(0, "fading", 0), (0, "fading", 1, 11), (0, "fading", 11, 1)]
    draws = {tuple(stream(*key).random(2)) for key in keys}
    assert len(draws) == len(keys)


def test_streams_of_neighbouring_keys_are_uncorrelated():
    a = np.concatenate([stream(3, "fading", 0, t).standard_normal(100) for t in range(200)])
    b = np.concatenate([stream(3, "fading", 1, t).standard_normal(100) for t in range(200)])
    assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(len(a))
    assert stats.kstest(a, "norm").pvalue > 1e-3


def test_complex_normal_has_unit_power_split_evenly():
    z = complex_normal(stream(1, "fading"), (200, 500))
    assert z.shape == (200, 500)
    assert stats.kstest(z.real.ravel() * np.sqrt(2), "norm").pvalue > 1e-3
    assert stats.kstest(z.imag.ravel() * np.sqrt(2), "norm").pvalue > 1e-3
    assert abs(np.mean(z * z)) < 0.02  # circular: no pseudo-variance
