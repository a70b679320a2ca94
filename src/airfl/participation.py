"""Who takes part in a round: the law that accountants may count on, and the draw, in one place."""

from __future__ import annotations

import math

import numpy as np

from airfl.config import Config
from airfl.errors import InputError
from airfl.imports import import_callable, is_import_path
from airfl.privacy import Sampling
from airfl.randomness import stream


def sampling_of(config: Config) -> Sampling:
    """The law by which the run draws its active devices; one from outside is a draw that earns no credit."""
    system = config.system
    if system.everyone or is_import_path(system.sampling):
        return Sampling("all", system.num_devices, system.num_devices)
    if system.varies:
        return Sampling("poisson", system.num_devices, expected_senders(config))
    return Sampling("without-replacement", system.num_devices, system.num_active)


def expected_senders(config: Config) -> float:
    """K where it varies: how many take part on average."""
    return config.system.participation * config.system.num_devices


def participants(config: Config, key: int, round_index: int) -> np.ndarray:
    """Sorted numbers of the active devices of one trial and round; n places filled up with −1 where K varies.

    Fixed: K of n are drawn uniformly without replacement, afresh in every round. Poisson: every device by its own coin.
    """
    system = config.system
    if system.everyone:
        return np.arange(system.num_devices)
    generator = stream(system.seed, "participation", key, round_index)
    if not system.varies:
        return np.sort(generator.choice(system.num_devices, system.num_active, replace=False))
    if is_import_path(system.sampling):
        chosen = _outside(config, generator, round_index)
    else:
        chosen = np.flatnonzero(generator.random(system.num_devices) < system.participation)
    return np.pad(chosen, (0, system.num_devices - len(chosen)), constant_values=-1)


def _outside(config: Config, generator: np.random.Generator, round_index: int) -> np.ndarray:
    """A function (generator, round, devices, participation) -> numbers of the devices that take part."""
    system, name = config.system, config.system.sampling
    function = import_callable(name, "law of participation")
    try:
        made = function(generator, round_index, system.num_devices, system.participation)
        numbers = np.asarray(list(made))
        if numbers.size and not np.issubdtype(numbers.dtype, np.integer):
            raise TypeError(f"it returned {numbers.dtype} values")
        chosen = np.unique(numbers.astype(np.int64))
    except Exception as error:
        raise InputError(
            f"law of participation `{name}` failed: {error}; it is called with a generator, the round, the number of "
            "devices and `system.participation`, and returns numbers of devices"
        ) from error
    if len(chosen) and not 0 <= chosen[0] <= chosen[-1] < system.num_devices:
        raise InputError(f"law of participation `{name}` named a device outside 0 to {system.num_devices - 1}")
    return chosen


def dropouts(config: Config, key: int, round_index: int) -> np.ndarray:
    """Which devices fail to send in a round, after all was planned, [n]."""
    system = config.system
    if system.dropout == 0.0:
        return np.zeros(system.num_devices, dtype=bool)
    missing: np.ndarray = stream(system.seed, "dropout", key, round_index).random(system.num_devices) < system.dropout
    return missing


def colluders(config: Config, key: int) -> np.ndarray:
    """Which devices hand what they know to whoever looks on, [n]: chosen once, before anything else is drawn."""
    system = config.system
    found = np.zeros(system.num_devices, dtype=bool)
    count = min(system.num_devices - 1, math.ceil(config.privacy.colluding * system.num_devices - 1e-9))
    if count:
        found[stream(system.seed, "colluding", key).choice(system.num_devices, count, replace=False)] = True
    return found
