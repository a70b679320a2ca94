"""Section [learning]: what is learnt, from what, and how."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from airfl.config.section import Section
from airfl.config.table import Column, Value, text_of
from airfl.traits import Axis

MetricName = Literal["auc", "calibration", "devices", "personal"]
#: Keys that say what a table is; each must be given with dataset = "table" and none without.
TABLE_KEYS = ("table_file", "device_column", "label_column", "label_classes", "columns")


class Learning(Section):
    """What is learnt, from what, and how."""

    parts: ClassVar = ("dataset", "features", "model")

    dataset: str = Field(
        "fashion-mnist",
        description="fashion-mnist, fashion-mnist-standard, idx, digits; flights, insteval, shakespeare, table, which "
        "come in devices; or package.module:callable",
    )
    num_classes: int | None = Field(
        None, ge=1, le=10**6, description="How many classes there are; for data sets that do not declare it."
    )
    data_dir: str | None = Field(None, description="Folder with the data set's files; default: cache, then system.")
    table_file: str | None = Field(None, description="CSV or Parquet; for dataset = table")
    device_column: str | None = Field(None, description="whose row it is")
    label_column: str | None = Field(None, description="what is predicted")
    label_classes: tuple[Value, ...] = Field((), description="all labels; the first is class 0")
    order_column: str | None = Field(None, description="rows of a device in their order; left out: no order")
    columns: dict[str, Column] = Field({}, description="inputs: name = categories, {mean, scale} or {low, high}")
    standardise_epsilon: Annotated[float | None, Axis.STANDARDISED] = Field(
        None,
        ge=1e-6,
        le=1e6,
        description="ε, at the run's δ, of the mean and variance of {low, high} columns that the devices release first",
    )
    features: str = Field("none", description="none, scattering, or package.module:callable; fixed, nothing is learnt")
    split: Literal["pooled", "standard", "validation"] = Field(
        "standard",
        description="pooled: all images, split on each device; standard: the data set's own test part; validation: "
        "a sixth of its training part is tested on in place of that, to tune with",
    )
    test_fraction: float = Field(0.25, gt=0, lt=1, description="Held-out part on each device when split = pooled.")
    partition: Literal["iid", "classes", "dirichlet", "devices"] = Field(
        "iid", description="devices: the data set's own, for data that come in devices"
    )
    held_out_devices: float = Field(
        0.2, ge=0, lt=1, description="Share of the devices that is tested on only; for partition = devices"
    )
    device_sizes: Literal["private", "public"] = Field(
        "private", description="public: how many samples each device has is declared to be known"
    )
    samples_per_device: int | None = Field(None, ge=1, description="s of `n devices × s samples`; iid only.")
    max_samples_per_device: int | None = Field(
        None, ge=1, description="No device trains on more; of one that has more, so many are drawn. A public bound."
    )
    classes_per_device: int = Field(2, ge=1, description="k, for partition = classes")
    dirichlet_alpha: float = Field(0.5, gt=0, description="α, for partition = dirichlet")
    model: str = Field(
        "paper-cnn", description="paper-cnn, small-cnn, mlp, softmax, logistic, or package.module:callable"
    )
    metrics: tuple[MetricName, ...] = Field(
        (), description="what is recorded beside accuracy and loss: auc, calibration, devices, personal"
    )
    personal_steps: int = Field(30, ge=1, description="steps of a device's own last layer, after the release")
    personal_rate: float | None = Field(None, gt=0, le=1e100, description="η of those; default: the learning rate")
    local_epochs: int | None = Field(None, ge=1)
    local_steps: int | None = Field(None, ge=1)
    batch_size: int = Field(10, ge=1)
    drop_last: bool = Field(False, description="Leave out the last, smaller batch of an epoch.")
    learning_rate: float = Field(0.005, gt=0, le=1e100, description="η, of the local steps")
    server_step: float = Field(1.0, gt=0, le=1e100, description="η_g")
    server_schedule: Literal["constant", "linear"] = Field(
        "constant", description="linear: η_g falls from round to round, to η_g/T in the last"
    )
    server_momentum: float = Field(0.0, ge=0, lt=1, description="β of the server's heavy ball; free post-processing")
    model_average: float = Field(
        0.0, ge=0, lt=1, description="a of the running mean of models that is tested and released; 0: the last model"
    )
    clip_norm: float | None = Field(None, ge=1e-12, le=1e12, description="c")
    clip_factor: float | None = Field(None, ge=1e-18, le=1e18, description="c² / d")
    domain_diameter: Annotated[float | None, Axis.DOMAIN] = Field(
        None, gt=0, le=1e12, description="D; the model is projected on this ball if given."
    )

    pairs: ClassVar = (("local_epochs", "local_steps"), ("clip_norm", "clip_factor"))

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.local_epochs is None and self.local_steps is None:
            yield "give `local_epochs` or `local_steps`"
        if self.clip_norm is None and self.clip_factor is None:
            yield "give `clip_norm` or `clip_factor`"
        if self.samples_per_device is not None and self.partition != "iid":
            yield '`samples_per_device` goes with partition = "iid"'
        yield from self._fleet_problems()
        moved = self.learning_rate * self.server_step
        if not _is_float32(self.learning_rate):
            yield (
                f"`learning_rate` = {self.learning_rate:g} is zero or infinite in float32, in which models are "
                "trained; give one between 1e-45 and 3e38"
            )
        elif moved < 1.0 and not _is_float32(moved):  # one that is too large diverges, and is reported as that
            yield (
                f"`learning_rate` × `server_step` = {moved:g}, by which models move, is zero in float32; "
                "give a product of at least 1e-45"
            )

    def _fleet_problems(self) -> Iterator[str]:
        """What data that come in devices cannot do without."""
        table = self.dataset == "table"
        for key in TABLE_KEYS:
            if table and not getattr(self, key):
                yield f'dataset = "table" needs `{key}`'
            if not table and getattr(self, key):
                yield f'`{key}` goes with dataset = "table"'
        if len({text_of(value) for value in self.label_classes}) < len(self.label_classes):
            yield "`label_classes` lists a class twice"
        if len(self.label_classes) == 1:
            yield "`label_classes` must list at least two classes"
        for name in (self.device_column, self.label_column):
            if name is not None and name in self.columns:
                yield (
                    f"column `{name}` is no input, for it says whose row it is or what is predicted; leave it out of "
                    "`columns`"
                )
        if self.standardise_epsilon is not None and not any(column.is_range for column in self.columns.values()):
            yield "`standardise_epsilon` is for columns with `low` and `high`; there is none"
        own = sorted({"devices", "personal"} & set(self.metrics))
        if own and self.partition != "devices":
            yield f'metric `{own[0]}` goes with partition = "devices"'

    @property
    def declared(self) -> str:
        """What is said of a table, as text: the same text, the same samples."""
        keys = (*TABLE_KEYS, "order_column", "test_fraction")
        return json.dumps(self.model_dump(mode="json", include=set(keys)))

    @property
    def public_sizes(self) -> bool:
        """Whether the size of the largest device follows from public numbers, and not from who has how many."""
        return self.partition == "iid" or self.device_sizes == "public" or self.max_samples_per_device is not None

    @property
    def plain_server(self) -> bool:
        """Whether the server only steps, and releases the last model: what bounds with a hidden state count on."""
        return self.server_momentum == self.model_average == 0.0 and self.server_schedule == "constant"

    def clip_norm_for(self, dim: int) -> float:
        """Return c for a model with ``dim`` parameters."""
        return self.clip_norm if self.clip_norm is not None else math.sqrt((self.clip_factor or 0.0) * dim)


def _is_float32(value: float) -> bool:
    """Whether a positive number is neither zero nor infinite in float32."""
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] != 0.0)
    except OverflowError:
        return False
