"""Who trains and who is tested on, where the data say themselves whose sample it is."""

from __future__ import annotations

import numpy as np

from airfl.config import Learning
from airfl.devices.dataset import Dataset
from airfl.devices.partition import Partition
from airfl.errors import InputError

#: Share of the devices that are left which ``split = "validation"`` tests on.
VALIDATION = 6
NO_OWNERS = (
    '`learning.partition` = "devices" needs data that come in devices, and data set `{}` does not say whose sample it '
    'is; use "iid", "classes" or "dirichlet"'
)


def partition_owned(
    dataset: Dataset, num_devices: int, learning: Learning, generator: np.random.Generator
) -> Partition:
    """Choose devices to train and devices to test on, and keep each training device's later samples for itself.

    ``held_out_devices`` of those that have samples to train on are drawn and tested on; their later samples are not.
    With ``split = "validation"`` a sixth of the others stands in for them, and the last of the earlier samples for the
    later ones; nothing that is held out is touched. Samples without an order are drawn. With ``split = "pooled"`` no
    device is held out, and the later samples of all are the test part.
    """
    if dataset.owners is None:
        raise InputError(NO_OWNERS.format(learning.dataset))
    later = dataset.later if dataset.later is not None else np.zeros(len(dataset.labels), dtype=bool)
    early = _by_owner(dataset.owners, np.flatnonzero(~later))
    order = generator.permutation(len(early))
    held = 0 if learning.split == "pooled" else round(learning.held_out_devices * len(order))
    tested, left = order[:held], order[held:]
    if learning.split == "validation":
        tested, left = left[: len(left) // VALIDATION], left[len(left) // VALIDATION :]
    _require_enough(num_devices, len(left), len(order), learning.held_out_devices)
    # A key for every device: what it draws does not depend on how many samples others have.
    keys = generator.integers(2**63, size=len(early))
    draws = _generators(keys[left[:num_devices]])
    owners = [int(dataset.owners[early[device][0]]) for device in left[:num_devices]]
    shards = [early[device] for device in left[:num_devices]]
    parts = [early[device] for device in tested]
    if dataset.later is None:
        shards, own = _apart(_mixed(shards, draws), learning.test_fraction)
        if learning.split == "validation":  # devices that train in the run itself
            parts, _ = _apart(_mixed(parts, _generators(keys[tested])), learning.test_fraction)
    else:
        kept = {int(dataset.owners[some[0]]): some for some in _by_owner(dataset.owners, np.flatnonzero(later))}
        own = [kept.get(owner, np.empty(0, dtype=np.int64)) for owner in owners]
    if learning.split == "validation":  # again, so that the run's own test samples are not touched
        shards, own = _apart(shards, learning.test_fraction)
    if learning.max_samples_per_device is not None:
        shards = [shard[: learning.max_samples_per_device] for shard in _mixed(shards, draws)]
    test = np.concatenate([np.empty(0, dtype=np.int64), *(own if learning.split == "pooled" else parts)])
    if len(test) == 0:
        raise InputError("no test sample is left; raise `learning.held_out_devices` or `learning.test_fraction`")
    return Partition(
        np.concatenate(shards), _offsets(shards), test, np.concatenate(own), _offsets(own), np.array(owners)
    )


def _require_enough(wanted: int, left: int, total: int, held_out: float) -> None:
    if wanted > left:
        raise InputError(
            f"`system.num_devices` = {wanted:,} is more than the data have: {left:,} devices are left to train of "
            f"{total:,}, with `learning.held_out_devices` = {held_out:g}"
        )


def _by_owner(owners: np.ndarray, samples: np.ndarray) -> list[np.ndarray]:
    """Samples of every owner that has some, in the order of the data set; owners in the order of their numbers."""
    order = samples[np.argsort(owners[samples], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(owners[order])) + 1) if len(order) else []


def _generators(keys: np.ndarray) -> list[np.random.Generator]:
    return [np.random.Generator(np.random.Philox(key=int(key))) for key in keys]


def _mixed(shards: list[np.ndarray], draws: list[np.random.Generator]) -> list[np.ndarray]:
    return [draw.permutation(shard) for draw, shard in zip(draws, shards, strict=True)]


def _apart(shards: list[np.ndarray], fraction: float) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Set the last ``fraction`` of every device's samples aside; at least one stays."""
    kept = [len(shard) - min(round(len(shard) * fraction), len(shard) - 1) for shard in shards]
    pairs = list(zip(shards, kept, strict=True))
    return [shard[:count] for shard, count in pairs], [shard[count:] for shard, count in pairs]


def _offsets(parts: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum([len(part) for part in parts])])
