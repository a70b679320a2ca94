"""A run that takes a blink: the ground that contracts of whole parts are tested on."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from airfl.config import Config, from_mapping
from airfl.devices import Dataset, Samples, Task, open_task

DEVICES, CLASSES, INPUTS = 6, 3, 5


def small_config(overrides: dict[str, Any] | None = None) -> Config:
    """Softmax regression on six devices over a Rayleigh link, three rounds, two trials."""
    base = from_mapping(
        {
            "name": "contract",
            "system": {"trials": 2, "num_devices": DEVICES, "num_antennas": 4, "rounds": 3, "seed": 5},
            "learning": {
                "dataset": "digits",
                "model": "softmax",
                "local_steps": 2,
                "batch_size": 3,
                "clip_norm": 1.0,
                "samples_per_device": 7,
                "learning_rate": 0.1,
            },
            "channel": {"power_w": 1e-9},
            "privacy": {"epsilon": 5.0, "accountant": "gaussian"},
            "scheme": {"sum_noise_db": 60.0},
            "engine": {"device": "cpu"},
        }
    )
    return base.replace(overrides or {})


def small_task(config: Config) -> Task:
    """Its task, on data made here."""
    generator = np.random.Generator(np.random.Philox(key=11))
    labels = np.arange(60) % CLASSES
    inputs = generator.standard_normal((60, INPUTS)) + labels[:, None]
    dataset = Dataset(inputs.astype(np.float32), labels, 48, num_classes=CLASSES)
    samples = Samples(dataset, torch.from_numpy(dataset.inputs), torch.from_numpy(dataset.labels))
    return open_task(config, tuple(range(config.system.trials)), samples)
