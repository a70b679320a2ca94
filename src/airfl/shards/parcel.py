"""What travels to an actor: the part of a task that is its own, once, and an order a round."""

from __future__ import annotations

import warnings
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch

from airfl.devices import Task
from airfl.devices.partition import Partition
from airfl.shards.desk import Order


def owned_by(task: Task, devices: slice) -> Task:
    """What trains some devices: their samples under numbers of their own, in the same order, and nobody else's."""
    bounds = [(part.offsets[devices.start], part.offsets[devices.stop]) for part in task.partitions]
    held = [part.train[first:beyond] for part, (first, beyond) in zip(task.partitions, bounds, strict=True)]
    numbers = np.unique(np.concatenate(held))
    nobody, rows = np.empty(0, dtype=np.int64), torch.from_numpy(numbers).to(task.inputs.device)
    partitions = tuple(  # sizes are those of all devices: draws depend on them
        Partition(np.searchsorted(numbers, own), part.offsets - first, nobody)
        for part, own, (first, _) in zip(task.partitions, held, bounds, strict=True)
    )
    return replace(task, inputs=task.inputs[rows], labels=task.labels[rows], partitions=partitions, _parts={})


def packed_task(task: Task) -> dict[str, Any]:
    """A task as it travels: arrays, which actors of one node share, in place of tensors."""
    found: dict[str, Any] = {}
    for item in fields(task):
        value = getattr(task, item.name)
        if isinstance(value, torch.Tensor):
            value = value.cpu().numpy()
        found[item.name] = {} if item.name.startswith("_") else value
    return {**found, "device": task.inputs.device.type}


def unpacked_task(packed: dict[str, Any]) -> Task:
    """The task on this machine's device."""
    device = torch.device(packed["device"])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable.*")  # nobody writes into samples
        values: dict[str, Any] = {
            name: torch.from_numpy(value).to(device) if isinstance(value, np.ndarray) else value
            for name, value in packed.items()
            if name != "device"
        }
    return Task(**values)


def light(order: Order) -> Order:
    """An order as it travels: models go by themselves, once for all actors, and memories as arrays."""
    share = replace(order.share, models=order.share.models[:0].clone())
    return replace(order, share=share, memories=tuple(_as_array(memory) for memory in order.memories))


def _as_array(memory: torch.Tensor | np.ndarray | None) -> torch.Tensor | np.ndarray | None:
    """What is written out as it is; zeros before the first round are one number, and stay that."""
    return memory.numpy() if isinstance(memory, torch.Tensor) and 0 not in memory.stride() else memory
