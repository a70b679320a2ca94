"""What devices have and do before they send: data, features, models, clipping.

In: a data set. Out: a ``Task`` of partitions, batches and models. May import ``transceiver`` and all before it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airfl.devices.clipping import clip, clip_factors, row_norms
    from airfl.devices.dataset import Dataset
    from airfl.devices.datasets import load_dataset
    from airfl.devices.models import ModelSpec, build_model
    from airfl.devices.partition import Partition, make_partition
    from airfl.devices.shelf import Shelf
    from airfl.devices.task import Samples, Task, load_samples, open_task, samples_of
    from airfl.devices.updates import UpdateBlock

#: Where each name lives. They are imported when first used, so that reading data need not wait for torch.
_HOME = {
    "clipping": ("clip", "clip_factors", "row_norms"),
    "dataset": ("Dataset",),
    "datasets": ("load_dataset",),
    "models": ("ModelSpec", "build_model"),
    "partition": ("Partition", "make_partition"),
    "shelf": ("Shelf",),
    "task": ("Samples", "Task", "load_samples", "open_task", "samples_of"),
    "updates": ("UpdateBlock",),
}

__all__ = [
    "Dataset",
    "ModelSpec",
    "Partition",
    "Samples",
    "Shelf",
    "Task",
    "UpdateBlock",
    "build_model",
    "clip",
    "clip_factors",
    "load_dataset",
    "load_samples",
    "make_partition",
    "open_task",
    "row_norms",
    "samples_of",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"airfl.devices.{module}"), name)
    raise AttributeError(f"module `airfl.devices` has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
