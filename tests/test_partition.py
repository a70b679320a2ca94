from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airfl
from airfl.devices import make_partition
from airfl.errors import InputError

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 700))
TRAIN = 6000


def partition(n, seed=0, labels=LABELS, num_train=TRAIN, **learning):
    keys = {f"learning.{key}": value for key, value in learning.items()}
    settings = airfl.preset("paper").replace({"learning.split": "standard", **keys}).learning
    return make_partition(labels, num_train, n, settings, np.random.default_rng(seed))


@given(
    st.integers(1, 300),
    st.integers(0, 1000),
    st.sampled_from([("iid", {}), ("dirichlet", {"dirichlet_alpha": 0.3}), ("dirichlet", {"dirichlet_alpha": 50.0})]),
    st.sampled_from(["standard", "pooled"]),
)
def test_every_sample_has_one_place(n, seed, kind, split):
    made = partition(n, seed, partition=kind[0], split=split, **kind[1])
    everything = np.concatenate([made.train, made.test])
    assert len(np.unique(everything)) == len(everything) == len(LABELS)
    assert made.sizes.min() >= 1
    assert len(made.sizes) == n
    assert sum(len(made.of(i)) for i in range(n)) == len(made.train)
    if split == "standard":
        assert (made.test == np.arange(TRAIN, len(LABELS))).all()


def test_iid_is_class_balanced():
    labels = np.repeat(np.arange(10), 7000)
    made = partition(50, labels=labels, num_train=60_000, split="pooled")
    assert (made.sizes == 1050).all()
    assert len(made.test) == 17_500
    made = partition(7)
    counts = np.array([np.bincount(LABELS[made.of(i)], minlength=10) for i in range(7)])
    assert (np.ptp(counts, axis=0) <= 1).all()
    assert np.ptp(made.sizes) <= 1


def test_n_devices_times_s_samples():
    made = partition(100, samples_per_device=20)
    assert (made.sizes == 20).all()
    counts = np.array([np.bincount(LABELS[made.of(i)], minlength=10) for i in range(100)])
    assert (counts == 2).all()
    assert (partition(6000, samples_per_device=1).sizes == 1).all()


def test_two_classes_per_device_as_published():
    labels = np.repeat(np.arange(10), 7000)
    made = partition(50, labels=labels, num_train=60_000, partition="classes", classes_per_device=2, split="pooled")
    kinds = [np.unique(labels[made.of(i)]) for i in range(50)]
    assert all(len(kind) == 2 for kind in kinds)
    holders = np.bincount(np.concatenate(kinds))
    assert (holders == 10).all()
    per_class = [np.array([np.sum(labels[made.of(i)] == c) for i in range(50) if c in kinds[i]]) for c in range(10)]
    for sizes in per_class:  # 75 % of a shard stays for training
        assert (sizes[:-1] >= 0.7 * 70).all()
        assert (sizes[:-1] <= 0.76 * 700).all()
    assert len(made.train) + len(made.test) == 70_000


@given(st.integers(4, 60), st.integers(1, 10), st.integers(0, 50))
def test_k_classes_for_any_number_of_devices(n, k, seed):
    if n * k < 10:
        with pytest.raises(InputError, match="cannot hold all"):
            partition(n, seed, partition="classes", classes_per_device=k)
        return
    made = partition(n, seed, partition="classes", classes_per_device=k)
    assert all(len(np.unique(LABELS[made.of(i)])) <= k for i in range(n))
    assert len(made.train) == TRAIN


def test_dirichlet_alpha_sets_the_skew():
    def skew(alpha):
        made = partition(20, partition="dirichlet", dirichlet_alpha=alpha)
        shares = [np.bincount(LABELS[made.of(i)], minlength=10) / len(made.of(i)) for i in range(20)]
        return np.mean([share.max() for share in shares])

    assert skew(0.1) > skew(1.0) > skew(100.0)


def test_refusals():
    with pytest.raises(InputError, match="more devices than samples"):
        partition(6001)
    with pytest.raises(InputError, match="more devices than samples"):
        partition(3501, split="pooled")
    with pytest.raises(InputError, match="more devices than samples"):
        partition(601, samples_per_device=10)
    with pytest.raises(InputError, match="exceeds the number of classes"):
        partition(50, partition="classes", classes_per_device=11)
    with pytest.raises(InputError, match="samples_per_device"):
        partition(5, partition="dirichlet", samples_per_device=3)
