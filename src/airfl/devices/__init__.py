"""What devices have and do before they send: data, features, models, clipping.

In: a data set. Out: a ``Task`` of partitions, batches and models. May import ``transceiver`` and all before it.
"""

from airfl.devices.clipping import clip, clip_factors, row_norms
from airfl.devices.dataset import Dataset
from airfl.devices.datasets import load_dataset
from airfl.devices.models import ModelSpec, build_model
from airfl.devices.partition import Partition, make_partition
from airfl.devices.task import Samples, Task, load_samples, open_task, samples_of
from airfl.devices.updates import UpdateBlock

__all__ = [
    "Dataset",
    "ModelSpec",
    "Partition",
    "Samples",
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
