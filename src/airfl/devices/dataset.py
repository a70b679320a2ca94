"""What a data set is: inputs, labels, and who owns which sample where somebody does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from airfl.errors import InputError


@dataclass(frozen=True)
class Dataset:
    """Samples with class labels; the first ``num_train`` are the training part, the rest the test part.

    Attributes:
        inputs: [N, ...], float32; images are [N, 1, height, width] in [−1, 1] unless the name says otherwise.
        labels: [N], int64 in 0..num_classes−1.
        num_classes: how many classes there are, whichever of them occur; None: not declared. Counted from the labels, a
            single sample would decide the shape of the model.
        owners: [N], int64, the device that each sample belongs to, by any numbers; None: samples belong to nobody.
        later: [N], bool, samples of a device that come after those it trains on; None: they are drawn.
        measured: columns of inputs in [−1, 1] whose mean and variance are to be released with privacy, as configured.
    """

    inputs: np.ndarray
    labels: np.ndarray
    num_train: int
    num_classes: int | None = None
    owners: np.ndarray | None = None
    later: np.ndarray | None = None
    measured: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        try:
            inputs, labels = np.asarray(self.inputs, dtype=np.float32), np.asarray(self.labels)
        except (TypeError, ValueError) as error:
            raise InputError(f"a data set needs numeric arrays: {error}") from None
        if not np.issubdtype(labels.dtype, np.number) or (labels != np.floor(labels)).any():
            raise InputError(f"labels must be whole numbers 0, 1, 2, …; got {labels.dtype} values that are not")
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "labels", labels.astype(np.int64))
        if self.inputs.ndim < 2 or self.labels.ndim != 1 or len(self.inputs) != len(self.labels):
            raise InputError(
                f"a data set needs inputs [N, ...] and labels [N]; got shapes {self.inputs.shape}, {self.labels.shape}"
            )
        if not 0 < self.num_train < len(self.labels):
            raise InputError("a data set needs at least one training sample and one test sample")
        if not np.isfinite(self.inputs).all():
            raise InputError("the data set's inputs hold NaN or infinity")
        if self.labels.min() < 0:
            raise InputError("labels must be whole numbers 0, 1, 2, …; got a negative one")
        if self.num_classes is not None:
            self.check_classes(self.num_classes)
        self._check_owners()

    @classmethod
    def of_devices(
        cls,
        inputs: np.ndarray,
        labels: np.ndarray,
        *,
        owners: np.ndarray,
        later: np.ndarray | None,
        num_classes: int,
        measured: tuple[int, ...] = (),
    ) -> Dataset:
        """Samples that have owners; who trains and who is tested on is not settled here but by the partition."""
        return cls(inputs, labels, len(labels) - 1, num_classes, owners, later, measured)

    def _check_owners(self) -> None:
        for name, kind in (("owners", np.int64), ("later", np.bool_)):
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, np.asarray(values).astype(kind))
                if getattr(self, name).shape != self.labels.shape:
                    raise InputError(f"a data set's `{name}` must be [N], one for each of {len(self.labels):,} samples")
        if self.owners is None:
            return
        self.check_devices(len(np.unique(self.owners)))

    @staticmethod
    def check_devices(count: int) -> None:
        """Refuse a fleet of one."""
        if count < 2:
            raise InputError("the data have one device only; federated learning takes at least two")

    def check_classes(self, num_classes: int) -> None:
        """Refuse labels beyond so many classes."""
        if self.labels.max() >= num_classes:
            raise InputError(
                f"a label is {self.labels.max()}, and {num_classes} classes have labels 0 to {num_classes - 1}; "
                "correct the label, or declare more classes (`learning.num_classes`)"
            )

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        return self.inputs.shape[1:]
