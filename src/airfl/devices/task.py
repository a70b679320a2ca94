"""The learning task of some trials: samples on the compute device, shards, batch order, evaluation."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch.func import functional_call

from airfl.config import Config
from airfl.devices.dataset import Dataset
from airfl.devices.datasets import load_dataset
from airfl.devices.features import make_features
from airfl.devices.measures import auc, calibration_error, spread
from airfl.devices.models import ModelSpec, build_model
from airfl.devices.owned import partition_owned
from airfl.devices.partition import Partition, make_partition
from airfl.devices.personal import personal_scores
from airfl.devices.precision import resolve_precision, tf32_allowed
from airfl.devices.standardise import standardise_event, standardised
from airfl.errors import InputError
from airfl.memory import Need, fewest_active, memories_of, require_memory
from airfl.parallel import in_threads
from airfl.privacy import RoundEvent
from airfl.randomness import stream, torch_seed
from airfl.traits import SCHEMES, scheme_traits

#: Samples tested at a time.
EVAL_BATCH = {"cpu": 2000, "cuda": 20_000}
#: Batches larger than any device are as wide as the largest, up to a multiple of this: sums then have the same bits.
#: Tested on a CPU; on a GPU it is so large that only batches are cut that would hardly fit.
WIDTH = {"cpu": 64, "cuda": 4096}


@dataclass(frozen=True)
class Task:
    """Everything about learning that does not change from round to round.

    Attributes:
        released: what devices told before the first round, so that columns could be standardised; every ledger has it.
    """

    config: Config
    trials: tuple[int, ...]
    spec: ModelSpec
    inputs: torch.Tensor = field(repr=False)
    labels: torch.Tensor = field(repr=False)
    partitions: tuple[Partition, ...] = field(repr=False)
    released: tuple[RoundEvent, ...] = ()
    _parts: dict[tuple[int, str], torch.Tensor] = field(default_factory=dict, repr=False, compare=False)

    def max_local_steps(self, index: int) -> int | None:
        """Q, no device of a trial takes more local SGD steps in a round; None where only the devices' sizes tell.

        Noise and ε may follow from Q, so it follows from what is public: the configuration, or, with an i.i.d.
        partition, the number of devices and of all samples, which fix every size.
        """
        learning = self.config.learning
        if learning.local_steps is not None:
            return learning.local_steps
        if not learning.public_sizes:
            return None
        largest = learning.max_samples_per_device or int(self.partitions[index].sizes.max())
        return self._steps_per_epoch(largest) * (learning.local_epochs or 0)

    @property
    def batch_width(self) -> int:
        """Places in a local step; a batch that is larger than the largest device is all of its samples."""
        largest = max(int(partition.sizes.max()) for partition in self.partitions)
        step = WIDTH[self.inputs.device.type]
        return min(self.config.learning.batch_size, -(-largest // step) * step)

    def initial_models(self) -> torch.Tensor:
        """θ⁰, [trials, d]."""
        seed = self.config.system.seed
        first = {trial: self.spec.initial(torch_seed(seed, "model-init", trial)) for trial in set(self.trials)}
        return torch.stack([first[trial] for trial in self.trials]).to(self.inputs.device)

    def batches(self, round_index: int, active: np.ndarray) -> torch.Tensor:
        """Sample numbers of every local step, [trials, K, steps, batch]; −1 where a device has fewer.

        Each epoch goes once through a device's samples in a fresh random order. Orders are drawn for all devices at
        once, so a device's order does not depend on who else is active.
        """
        keys = [(trial, row.tobytes()) for trial, row in zip(self.trials, active, strict=True)]
        first = {key: i for i, key in reversed(list(enumerate(keys)))}  # rows may repeat a trial, as audits do
        parts = in_threads(lambda i: self._trial_batches(i, round_index, active[i]), first.values())
        done = dict(zip(first, parts, strict=True))
        steps = max(part.shape[1] for part in parts)
        padded = {
            key: np.pad(part, ((0, 0), (0, steps - part.shape[1]), (0, 0)), constant_values=-1)
            for key, part in done.items()
        }
        return torch.from_numpy(np.stack([padded[key] for key in keys])).to(self.inputs.device)

    @property
    def chance(self) -> float:
        """Test accuracy of always naming the most frequent class, the largest of the trials: nothing learnt."""
        labels = [self.labels[self._samples(index, "test")] for index in range(len(self.trials))]
        return max((float(torch.bincount(own).max()) / len(own) for own in labels if len(own)), default=0.0)

    def evaluate(self, models: torch.Tensor, part: Literal["test", "train"] = "test") -> tuple[np.ndarray, np.ndarray]:
        """Accuracy and mean loss on the test or training samples of each trial, for models [trials, d]."""
        device = self.inputs.device
        rough = resolve_precision(self.config.engine.precision, device) != "float32"
        found = torch.zeros(len(models), 2, device=device, dtype=torch.float64)
        with torch.no_grad(), tf32_allowed(rough):
            for i, model in enumerate(models):
                parameters = self.spec.unflatten(model)
                for samples in self._samples(i, part).split(EVAL_BATCH[device.type]):
                    scores = functional_call(self.spec.module, parameters, (self.inputs[samples],))
                    found[i, 0] += (scores.argmax(dim=1) == self.labels[samples]).sum()
                    found[i, 1] += F.cross_entropy(scores, self.labels[samples], reduction="sum")
        sizes = [len(getattr(partition, part)) for partition in self.partitions]
        accuracy, loss = found.cpu().numpy().T / np.array(sizes)  # one transfer for all trials
        return accuracy, loss

    def measure(self, models: torch.Tensor, released: bool) -> list[dict[str, float]]:
        """What ``learning.metrics`` asks for, of models [trials, d], by the name of the record's field.

        Args:
            released: whether this is the model that is handed on; devices train layers of their own from no other.
        """
        return [self._measured(row, model, released) for row, model in enumerate(models)]

    def scores(self, model: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """Scores of some samples by one model [d], [N, C], float32."""
        parameters, batch = self.spec.unflatten(model), EVAL_BATCH[self.inputs.device.type]
        with torch.no_grad():
            parts = [
                functional_call(self.spec.module, parameters, (self.inputs[some],)) for some in samples.split(batch)
            ]
        return torch.cat(parts) if parts else self.inputs.new_zeros(0, 1)

    def _measured(self, row: int, model: torch.Tensor, released: bool) -> dict[str, float]:
        learning, partition, found = self.config.learning, self.partitions[row], dict[str, float]()
        if {"auc", "calibration"} & set(learning.metrics):
            tested = self._samples(row, "test")
            probabilities, labels = self.scores(model, tested).softmax(dim=1), self.labels[tested]
            if "auc" in learning.metrics:
                found["auc"] = auc(probabilities, labels)
            if "calibration" in learning.metrics:
                found["calibration_error"] = calibration_error(probabilities, labels)
        if "devices" in learning.metrics:
            own = self._samples(row, "own")
            right = (self.scores(model, own).argmax(dim=1) == self.labels[own]).cpu().numpy()
            names = ("own_accuracy", "device_accuracy_mean", "device_accuracy_p10")
            found |= dict(zip(names, spread(right, partition.own_offsets), strict=True))
        if "personal" in learning.metrics and released:
            parts = (partition.train, partition.offsets, partition.own, partition.own_offsets)
            rate = learning.personal_rate or learning.learning_rate
            said = personal_scores(self.spec, model, self.inputs, self.labels, parts, learning.personal_steps, rate)
            right = (said.argmax(dim=1) == self.labels[self._samples(row, "own")]).cpu().numpy()
            names = ("personal_accuracy", "personal_accuracy_mean", "personal_accuracy_p10")
            found |= dict(zip(names, spread(right, partition.own_offsets), strict=True))
        return found

    def _samples(self, index: int, part: str) -> torch.Tensor:
        """Numbers of a trial's samples of one kind, kept on the compute device."""
        key = (self.trials[index], part)
        if key not in self._parts:
            numbers: np.ndarray = getattr(self.partitions[index], part)
            self._parts[key] = torch.from_numpy(numbers).to(self.inputs.device)
        return self._parts[key]

    def _steps_per_epoch(self, size: int) -> int:
        learning = self.config.learning
        return size // learning.batch_size if learning.drop_last else math.ceil(size / learning.batch_size)

    def _trial_batches(self, index: int, round_index: int, active: np.ndarray) -> np.ndarray:
        learning, partition = self.config.learning, self.partitions[index]
        generator = stream(self.config.system.seed, "batches", self.trials[index], round_index)
        if (active < 0).any():  # places where nobody takes part train nothing
            present = self._trial_batches(index, round_index, active[active >= 0])
            steps = np.full((len(active), *present.shape[1:]), -1, dtype=present.dtype)
            steps[active >= 0] = present
            return steps
        sizes, longest = partition.sizes[active], int(partition.sizes.max())
        batch = self.batch_width
        per_epoch = self._steps_per_epoch(longest)
        fewest = max(1, self._steps_per_epoch(int(partition.sizes.min())))
        epochs = learning.local_epochs or math.ceil((learning.local_steps or 0) / fewest)
        # One row of keys per device and epoch; places beyond a device's samples sort to the end.
        keys = generator.random((len(partition.sizes), epochs, longest), dtype=np.float32)[active]
        keys[np.broadcast_to(np.arange(longest) >= sizes[:, None, None], keys.shape)] = 2.0
        order = keys.argsort(axis=2, kind="stable")
        beyond = np.arange(longest) >= sizes[:, None, None]
        samples = partition.train[np.where(beyond, 0, partition.offsets[active][:, None, None] + order)]
        samples = np.where(beyond, -1, samples)
        if learning.drop_last:
            kept = sizes // batch * batch
            samples = np.where(np.arange(longest) >= kept[:, None, None], -1, samples)
        padded = np.pad(
            samples[:, :, : per_epoch * batch],
            ((0, 0), (0, 0), (0, max(0, per_epoch * batch - longest))),
            constant_values=-1,
        )
        steps = padded.reshape(len(active), epochs * per_epoch, batch)
        return steps if learning.local_steps is None else _first_steps(steps, learning.local_steps)


def _first_steps(steps: np.ndarray, count: int) -> np.ndarray:
    """The first ``count`` steps of each device that hold samples, [K, count, batch]."""
    empty = (steps < 0).all(axis=2)
    first = np.argsort(empty, axis=1, kind="stable")[:, :count]
    taken = np.take_along_axis(steps, first[:, :, None], axis=1)
    return np.pad(taken, ((0, 0), (0, count - taken.shape[1]), (0, 0)), constant_values=-1)


@dataclass(frozen=True)
class Samples:
    """A data set, and what models see of it on the compute device; trials share it."""

    dataset: Dataset = field(repr=False)
    inputs: torch.Tensor = field(repr=False)
    labels: torch.Tensor = field(repr=False)


def load_samples(config: Config, device: torch.device) -> Samples:
    """Load the configured data set and move it to the compute device once, as the features that models see."""
    learning = config.learning
    return samples_of(learning.dataset, learning.data_dir, learning.features, device, learning.declared)


def samples_of(name: str, data_dir: str | None, features: str, device: torch.device, declared: str = "") -> Samples:
    """Load a data set by name, a table as it is declared; see ``load_samples``."""
    return seen_as(features, load_dataset(name, data_dir, declared), device)


def seen_as(features: str, dataset: Dataset, device: torch.device) -> Samples:
    """The samples of a data set that is loaded; see ``load_samples``."""
    inputs = make_features(features, torch.from_numpy(dataset.inputs).to(device))
    return Samples(dataset, inputs, torch.from_numpy(dataset.labels).to(device))


def classes_of(config: Config, dataset: Dataset) -> int:
    """How many classes the model tells apart: as declared. Counted only where the run promises nothing to anybody."""
    declared = config.learning.num_classes or dataset.num_classes
    if declared is not None:
        dataset.check_classes(declared)
        return declared
    word = (
        f"data set `{config.learning.dataset}` does not declare its classes, and counted from the labels one sample "
        "could change the shape of the model; give `learning.num_classes`, or `num_classes` of an airfl Dataset"
    )
    names = config.scheme.names
    if any(name not in SCHEMES or scheme_traits(name).budget or scheme_traits(name).keeps for name in names):
        raise InputError(word)
    warnings.warn(word, stacklevel=3)
    return int(dataset.labels.max()) + 1


def open_task(config: Config, trials: Sequence[int], samples: Samples) -> Task:
    """Deal the samples to the devices of each trial, and build the model."""
    learning, dataset = config.learning, samples.dataset
    shape, classes = tuple(samples.inputs.shape[1:]), classes_of(config, dataset)
    spec = build_model(learning.model, shape, classes, samples.inputs)
    dealt = {trial: _deal(config, dataset, trial) for trial in set(trials)}
    partitions = tuple(dealt[trial] for trial in trials)
    smallest = min(int(partition.sizes.min()) for partition in partitions)
    if learning.drop_last and smallest < learning.batch_size:
        raise InputError(
            f"with `learning.drop_last` a device of {smallest} samples has no whole batch of {learning.batch_size} and "
            "would train nothing; lower `learning.batch_size` or keep the last batch"
        )
    event = standardise_event(config, len(dataset.measured))
    inputs, labels = samples.inputs, samples.labels
    if event is not None:
        inputs, labels, partitions = _standardised(config, samples, trials, partitions, event)
    task = Task(config, tuple(trials), spec, inputs, labels, partitions, () if event is None else (event,))
    require_memory(_needs(task))
    return task


def _standardised(
    config: Config, samples: Samples, trials: Sequence[int], partitions: tuple[Partition, ...], event: RoundEvent
) -> tuple[torch.Tensor, torch.Tensor, tuple[Partition, ...]]:
    """Inputs of every trial as its own devices released them, one after the other, and who holds which."""
    if config.learning.features != "none":
        raise InputError("`learning.standardise_epsilon` is for a table's own columns; leave out `learning.features`")
    firsts = dict(zip(trials, partitions, strict=True))
    columns, count = samples.dataset.measured, len(samples.labels)
    made = [standardised(config, samples.inputs, columns, part, trial, event) for trial, part in firsts.items()]
    places = {trial: count * place for place, trial in enumerate(firsts)}
    moved = tuple(part.moved(places[trial]) for trial, part in zip(trials, partitions, strict=True))
    return torch.cat(made), samples.labels.repeat(len(made)), moved


def _deal(config: Config, dataset: Dataset, trial: int) -> Partition:
    """Who holds which samples in one trial."""
    learning, generator = config.learning, stream(config.system.seed, "partition", trial)
    if learning.partition == "devices":
        return partition_owned(dataset, config.system.num_devices, learning, generator)
    if dataset.owners is not None:
        raise InputError(
            f"data set `{learning.dataset}` comes in devices, which are not dealt anew; set "
            '`learning.partition` = "devices"'
        )
    return make_partition(dataset.labels, dataset.num_train, config.system.num_devices, learning, generator)


def _needs(task: Task) -> list[Need]:
    """Models [schemes, trials, d], and what a round of local training holds.

    That is the orders [n, epochs, samples] of one trial, and sample numbers [trials, K, steps, batch].
    """
    learning, rows, partitions = task.config.learning, len(task.trials), task.partitions
    longest = max(int(partition.sizes.max()) for partition in partitions)
    shortest = min(int(partition.sizes.min()) for partition in partitions)
    steps = learning.local_steps or task._steps_per_epoch(longest) * (learning.local_epochs or 0)
    epochs = learning.local_epochs or math.ceil(steps / max(1, task._steps_per_epoch(shortest)))
    taken = 8 * rows * fewest_active(task.config) * steps * task.batch_width
    on_cpu = task.inputs.device.type == "cpu"
    models = 4 * len(task.config.scheme.names) * rows * task.spec.dim if on_cpu else 0
    few = "`learning.local_steps` or `learning.local_epochs`"
    return [
        Need("models", models, "`system.trials`, or take a smaller `learning.model`"),
        memories_of(task.config, rows, task.spec.dim),
        Need("the order of samples", 4 * len(partitions[0].sizes) * epochs * longest, few),
        Need("the samples of local steps", taken, few),
    ]
