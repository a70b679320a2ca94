"""A private mean and variance: what devices tell once, before the first round, so that columns can be standardised.

Column j is clipped to a stated range and put on [−1, 1]. A device tells the means over its own training samples,

    s_i = (mean x_j, mean x_j²)_j,   ‖s_i‖ ≤ c₀ = √(2k)   for k columns,

whatever its size, so all count the same. A trusted base station adds N(0, v₀) to every coordinate of Σ_i s_i, and from
then on m_j = Σ/n and var_j = Σ/n − m_j² are public: inputs become (x_j − m_j)/√var_j. One device moves the sum by c₀ if
its contribution becomes zero, by 2c₀ if it becomes any other one, so the release is a Gaussian mechanism with
μ₀ = c₀/√v₀ or 2c₀/√v₀, and v₀ follows from the ε that it may cost. It is booked in every ledger as an event of its own,
before round 0.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from airfl.config import Config
from airfl.devices.partition import Partition
from airfl.privacy import RoundEvent, Sampling, gaussian_mu
from airfl.privacy.events import reach
from airfl.randomness import stream

#: When it is booked: before the first round.
BEFORE = -1
#: Variances on [−1, 1] below which a column counts as constant.
LEAST_VARIANCE = 1e-3


def standardise_event(config: Config, columns: int) -> RoundEvent | None:
    """The release as it is booked; None where nothing is released. It follows from the configuration alone."""
    epsilon = config.learning.standardise_epsilon
    if epsilon is None or columns == 0:
        return None
    bound, devices = math.sqrt(2.0 * columns), config.system.num_devices
    deviation = reach(config.neighbours) * bound / gaussian_mu(epsilon, config.privacy.delta)
    return RoundEvent(
        round=BEFORE,
        clip_norm=bound,
        gain_bound=1.0,
        noise_var=math.nextafter(deviation * deviation * (1.0 + 1e-12), math.inf),
        noise_source="artificial",
        noise_power=None,
        sampling=Sampling("all", devices, devices),
        update_factor=1.0 / devices,
    )


def standardised(
    config: Config, inputs: torch.Tensor, columns: tuple[int, ...], partition: Partition, trial: int, event: RoundEvent
) -> torch.Tensor:
    """Inputs [N, F] with the columns standardised by what the devices of a trial release."""
    wanted = list(columns)
    values = inputs[:, wanted].double().cpu().numpy()
    told = contributions(values[partition.train], partition.offsets)
    noise = stream(config.system.seed, "standardise", trial).standard_normal(told.shape[1])
    released = (told.sum(axis=0) + math.sqrt(event.noise_var) * noise) / config.system.num_devices
    mean = np.clip(released[: len(wanted)], -1.0, 1.0)
    variance = np.clip(released[len(wanted) :] - mean**2, LEAST_VARIANCE, 1.0)
    made = inputs.clone()
    made[:, wanted] = torch.from_numpy((values - mean) / np.sqrt(variance)).to(inputs)
    return made


def contributions(values: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """s_i of every device, [n, 2k]; none is longer than √(2k), whatever its values are.

    Args:
        values: [training samples, k], in the order of the devices; offsets: [n + 1].
    """
    inside = np.clip(values, -1.0, 1.0)
    both = np.concatenate([inside, inside**2], axis=1)
    sizes = np.diff(offsets)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    sums = np.stack([np.bincount(owner, weights=column, minlength=len(sizes)) for column in both.T], axis=1)
    told = sums / np.maximum(sizes, 1)[:, None]
    length, bound = np.linalg.norm(told, axis=1, keepdims=True), math.sqrt(2.0 * values.shape[1])
    limited: np.ndarray = told * np.minimum(1.0, bound * (1.0 - 1e-12) / np.maximum(length, 1e-300))
    return limited
