"""Who holds which samples."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from airfl.config import Learning
from airfl.errors import InputError


@dataclass(frozen=True)
class Partition:
    """Training samples of every device, in one array with offsets, and the common test set.

    Device i trains on ``train[offsets[i]:offsets[i + 1]]``.

    Attributes:
        own: where data come in devices, samples that device i keeps for itself to test on,
            ``own[own_offsets[i]:own_offsets[i + 1]]``.
        owners: by what number the data call device i, [n].
    """

    train: np.ndarray
    offsets: np.ndarray
    test: np.ndarray
    own: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    own_offsets: np.ndarray = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    owners: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @property
    def sizes(self) -> np.ndarray:
        """Number of training samples of each device."""
        return np.diff(self.offsets)

    def moved(self, places: int) -> Partition:
        """The same where all samples lie so many places further on."""
        return replace(self, train=self.train + places, test=self.test + places, own=self.own + places)

    def of(self, device: int) -> np.ndarray:
        """Training samples of one device."""
        return self.train[self.offsets[device] : self.offsets[device + 1]]


def make_partition(
    labels: np.ndarray, num_train: int, num_devices: int, learning: Learning, generator: np.random.Generator
) -> Partition:
    """Deal the samples to the devices and set the test samples aside.

    With ``split = "pooled"`` all samples are dealt and every device keeps ``test_fraction`` of its own for testing;
    accuracy is over all devices' test parts. With ``split = "standard"`` the training part is dealt and the test part
    is the data set's own. With ``split = "validation"`` the last sixth of the training part is tested on, and the test
    part is not touched.
    """
    pooled = learning.split == "pooled"
    kept = num_train - num_train // 6 if learning.split == "validation" else num_train
    pool = np.arange(len(labels) if pooled else kept)
    needed = num_devices * (learning.samples_per_device or 1) * (2 if pooled and not learning.samples_per_device else 1)
    if needed > len(pool):
        raise InputError(
            f"more devices than samples: {num_devices} devices need at least {needed} samples, the data set has "
            f"{len(pool)}; lower `system.num_devices` or `learning.samples_per_device`"
        )
    if learning.partition == "iid":
        shards = _iid(labels, pool, num_devices, learning.samples_per_device, generator)
    elif learning.partition == "classes":
        shards = _classes(labels, pool, num_devices, learning.classes_per_device, generator)
    else:
        shards = _dirichlet(labels, pool, num_devices, learning.dirichlet_alpha, generator)
    test = np.arange(kept, num_train if learning.split == "validation" else len(labels))
    if pooled:
        shards, test = _hold_out(shards, learning.test_fraction, generator)
    if learning.max_samples_per_device is not None:
        shards = [generator.permutation(shard)[: learning.max_samples_per_device] for shard in shards]
    if min(len(shard) for shard in shards) == 0:
        raise InputError(
            "a device was left without training samples; use fewer devices, more samples per device or a larger "
            "`learning.dirichlet_alpha`"
        )
    offsets = np.concatenate([[0], np.cumsum([len(shard) for shard in shards])])
    return Partition(np.concatenate(shards), offsets, test)


def _iid(
    labels: np.ndarray, pool: np.ndarray, n: int, samples_per_device: int | None, generator: np.random.Generator
) -> list[np.ndarray]:
    """Class-balanced: class counts differ by at most one between devices, and so do totals.

    Samples are sorted by class (shuffled within) and dealt like cards.
    """
    shuffled = generator.permutation(pool)
    if samples_per_device is not None:
        shuffled = _balanced_subset(labels, shuffled, n * samples_per_device)
    deck = shuffled[np.argsort(labels[shuffled], kind="stable")]
    return [deck[device::n] for device in range(n)]


def _balanced_subset(labels: np.ndarray, shuffled: np.ndarray, count: int) -> np.ndarray:
    """The first ``count`` samples of an order that takes one of each class in turn."""
    rank = np.empty(len(shuffled), dtype=np.int64)
    for label in np.unique(labels[shuffled]):
        mine = np.flatnonzero(labels[shuffled] == label)
        rank[mine] = np.arange(len(mine))
    return shuffled[np.argsort(rank, kind="stable")[:count]]


def _classes(labels: np.ndarray, pool: np.ndarray, n: int, k: int, generator: np.random.Generator) -> list[np.ndarray]:
    """k classes per device, shards of unequal size (as the published experiments).

    Classes are dealt in label order to the first devices that still lack some, so a class has n·k/C holders. Every
    holder but the last draws its shard size uniformly between n̄/10 and n̄ = class size / holders; the last one takes
    the rest.
    """
    classes = np.unique(labels[pool])
    if k > len(classes):
        raise InputError(f"`learning.classes_per_device` = {k} exceeds the number of classes, {len(classes)}")
    if n * k < len(classes):
        raise InputError(
            f"{n} devices with {k} classes each cannot hold all {len(classes)} classes; raise `classes_per_device`"
        )
    edges = np.linspace(0, n * k, len(classes) + 1).round().astype(int)
    parts: list[list[np.ndarray]] = [[] for _ in range(n)]
    slots = _class_slots(n, k, len(classes), edges)
    for position, label in enumerate(classes):
        samples = generator.permutation(pool[labels[pool] == label])
        holders = slots[position]
        mean = len(samples) // len(holders)
        sizes = generator.integers(max(1, mean // 10), max(2, mean), size=len(holders) - 1)
        for device, shard in zip(holders, np.split(samples, np.cumsum(sizes)), strict=True):
            parts[device].append(shard)
    return [np.concatenate(part) for part in parts]


def _class_slots(n: int, k: int, num_classes: int, edges: np.ndarray) -> list[np.ndarray]:
    """Holders of each class: a device never gets the same class twice, and every device gets k of them."""
    remaining = np.full(n, k)
    slots = []
    for position in range(num_classes):
        wanted = edges[position + 1] - edges[position]
        later = num_classes - position - 1
        # A device that still needs as many classes as are left must take this one.
        order = np.lexsort((np.arange(n), remaining <= later))
        holders = np.sort(order[remaining[order] > 0][: max(wanted, int((remaining > later).sum()))])
        remaining[holders] -= 1
        slots.append(holders)
    return slots


def _dirichlet(
    labels: np.ndarray, pool: np.ndarray, n: int, alpha: float, generator: np.random.Generator
) -> list[np.ndarray]:
    """Each class is split over the devices with proportions ~ Dirichlet(α); every device gets at least one sample."""
    parts: list[list[np.ndarray]] = [[] for _ in range(n)]
    for label in np.unique(labels[pool]):
        samples = generator.permutation(pool[labels[pool] == label])
        edges = (np.cumsum(generator.dirichlet(np.full(n, alpha)))[:-1] * len(samples)).round().astype(int)
        for device, shard in enumerate(np.split(samples, edges)):
            parts[device].append(shard)
    shards = [np.concatenate(part) for part in parts]
    sizes = np.array([len(shard) for shard in shards])
    least = 2
    for device in np.flatnonzero(sizes < least).tolist():
        while sizes[device] < least and sizes.max() > least:
            donor = int(sizes.argmax())
            shards[device], shards[donor] = np.append(shards[device], shards[donor][-1]), shards[donor][:-1]
            sizes[device], sizes[donor] = sizes[device] + 1, sizes[donor] - 1
    return shards


def _hold_out(
    shards: list[np.ndarray], fraction: float, generator: np.random.Generator
) -> tuple[list[np.ndarray], np.ndarray]:
    train, test = [], []
    for shard in shards:
        shuffled = generator.permutation(shard)
        # At least one sample stays for training, whatever the fraction.
        cut = min(round(len(shard) * fraction), len(shard) - 1)
        test.append(shuffled[:cut])
        train.append(shuffled[cut:])
    held_out = np.concatenate(test)
    if len(held_out) == 0:
        raise InputError("no test sample is left; raise `learning.test_fraction` or the samples per device")
    return train, held_out
