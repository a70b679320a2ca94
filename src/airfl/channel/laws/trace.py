"""Measured channels from a file, in place of geometry and fading."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from airfl.channel.laws.law import Law
from airfl.errors import InputError, in_words


@dataclass(frozen=True)
class Trace(Law):
    """Channels as they were measured, of ``channel.trace_file``; path loss is part of the measurement."""

    def __post_init__(self) -> None:
        _ = self._measured  # so that a bad file is refused before anything else is done

    @cached_property
    def _measured(self) -> np.ndarray:
        system = self.config.system
        path = self.config.channel.trace_file or ""
        return read_trace(path, max(self.trials) + 1, system.rounds, system.num_devices, system.num_antennas)

    def _of(self, index: int) -> np.ndarray:
        """A trial's own, or the one that all share, [rounds, devices, antennas]."""
        measured: np.ndarray = self._measured[self.trials[index] if self._measured.shape[0] > 1 else 0]
        return measured

    def draw(self, index: int, round_index: int) -> np.ndarray:
        """The measurement of that round."""
        measured: np.ndarray = self._of(index)[round_index]
        return measured

    @cached_property
    def amplitude(self) -> np.ndarray:
        """√ of the mean power over rounds and antennas."""
        return np.stack([np.sqrt(_power(self._of(index))) for index in range(len(self.trials))])

    def weakest_path_gain(self, index: int) -> float:
        """The mean power of the trial's weakest device."""
        return float(_power(self._of(index)).min())


def _power(measured: np.ndarray) -> np.ndarray:
    """Mean power of each device over rounds and antennas."""
    power: np.ndarray = (np.abs(measured) ** 2).mean(axis=(0, 2))
    return power


def read_trace(path: str, trials: int, rounds: int, num_devices: int, num_antennas: int) -> np.ndarray:
    """Read ``channels`` from an .npz file, shape [trials or 1, rounds, num_devices, num_antennas], complex.

    The file holds [rounds, devices, antennas] (used for every trial) or [trials, rounds, devices, antennas]; it may
    hold more than is asked for. Path loss is part of the measurement, so none is added.
    """
    if not Path(path).is_file():
        raise InputError(f"channel trace `{path}` not found; `channel.trace_file` must name an .npz file")
    try:
        with np.load(path, allow_pickle=False) as archive:
            channels = np.asarray(archive["channels"], dtype=np.complex128)
    except KeyError:
        raise InputError(f"channel trace `{path}` has no array named `channels`") from None
    except (OSError, EOFError, TypeError, AttributeError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"channel trace `{path}` cannot be read: {in_words(error)}") from None
    if channels.ndim == 3:
        channels = channels[None]
    wanted = (trials if channels.ndim == 4 and channels.shape[0] > 1 else 1, rounds, num_devices, num_antennas)
    if channels.ndim != 4 or any(have < need for have, need in zip(channels.shape, wanted, strict=True)):
        raise InputError(
            f"channel trace `{path}` has shape {channels.shape}, but the run needs at least (trials, rounds, devices, "
            f"antennas) = {wanted}"
        )
    channels = channels[: wanted[0], :rounds, :num_devices, :num_antennas]
    if not np.isfinite(channels).all():
        raise InputError(f"channel trace `{path}` holds NaN or infinity")
    return channels
