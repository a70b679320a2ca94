"""Measured channels from a file, in place of geometry and fading."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from airfl.channel.blocks import Grid, Place, bands_of
from airfl.channel.laws.law import Law
from airfl.errors import InputError, in_words

#: Arrays of a file: rounds are one block, or several.
FLAT, IN_BLOCKS = "channels", "block_channels"


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
        """A trial's own, or the one that all share, [rounds, blocks, devices, antennas]."""
        measured: np.ndarray = self._measured[self.trials[index] if self._measured.shape[0] > 1 else 0]
        return measured

    def draw(self, index: int, round_index: int) -> np.ndarray:
        """The measurement of that round, its first block where it has several."""
        measured: np.ndarray = self._of(index)[round_index, 0]
        return measured

    def draw_in(self, index: int, round_index: int, place: Place) -> np.ndarray:
        """The measurement of a block; all bands of a span of time come before the next span."""
        number = place.span * bands_of(self.config.channel) + place.band
        measured: np.ndarray = self._of(index)[round_index, number]
        return measured

    def check_grid(self, grid: Grid) -> None:
        """A file holds the blocks of a round, neither more nor fewer: which of more is meant nobody could say."""
        held, path = self._measured.shape[2], self.config.channel.trace_file
        if held == grid.count:
            return
        asked = f"{grid.count:,} blocks ({grid.bands:,} of frequency, {grid.spans:,} of time)"
        if grid.count == 1:
            wide = self.config.channel.bandwidth_hz / held
            asked = f"one; `channel.coherence_hz` = {wide:g} makes that many blocks of frequency, `coherence_s` of time"
        has = f"{held:,} blocks of a round" if held > 1 else "one channel for a whole round"
        raise InputError(
            f"channel trace `{path}` holds {has}, but what the configuration says of coherence makes a round {asked}; "
            f"give an array `{IN_BLOCKS}`, [rounds, blocks, devices, antennas], with exactly as many"
        )

    @cached_property
    def amplitude(self) -> np.ndarray:
        """√ of the mean power over rounds, blocks and antennas."""
        return np.stack([np.sqrt(_power(self._of(index))) for index in range(len(self.trials))])

    def weakest_path_gain(self, index: int) -> float:
        """The mean power of the trial's weakest device."""
        return float(_power(self._of(index)).min())


def _power(measured: np.ndarray) -> np.ndarray:
    """Mean power of each device over rounds, blocks and antennas."""
    power: np.ndarray = (np.abs(measured.reshape(-1, *measured.shape[2:])) ** 2).mean(axis=(0, 2))
    return power


def read_trace(path: str, trials: int, rounds: int, num_devices: int, num_antennas: int) -> np.ndarray:
    """Read an .npz file, shape [trials or 1, rounds, blocks, num_devices, num_antennas], complex.

    The file holds ``channels`` [rounds, devices, antennas] (used for every trial) or [trials, rounds, devices,
    antennas]; or ``block_channels``, which has an axis of blocks after that of rounds, and is read where both are
    there. It may hold more than is asked for, but for blocks. Path loss is part of the measurement, so none is added.
    """
    name, found = _stored(path)
    axes = ["trials", "rounds", "blocks", "devices", "antennas"]
    needed = [trials, rounds, 1, num_devices, num_antennas]
    if name == FLAT:
        axes.pop(2)
        needed.pop(2)
    channels = found[None] if found.ndim == len(axes) - 1 else found
    if channels.ndim == len(axes) and channels.shape[0] == 1:
        needed[0] = 1
    if channels.ndim != len(axes) or any(have < need for have, need in zip(channels.shape, needed, strict=True)):
        more = f"; one with blocks is named `{IN_BLOCKS}`" if name == FLAT and found.ndim == 5 else ""
        raise InputError(
            f"array `{name}` of channel trace `{path}` has shape {found.shape}, but the run needs at least "
            f"({', '.join(axes)}) = {tuple(needed)}{more}"
        )
    if name == FLAT:
        channels = channels[:, :, None]
    channels = channels[: needed[0], :rounds, :, :num_devices, :num_antennas]
    if not np.isfinite(channels).all():
        raise InputError(f"channel trace `{path}` holds NaN or infinity")
    return channels


def _stored(path: str) -> tuple[str, np.ndarray]:
    """The array that a file is read for, with its name."""
    if not Path(path).is_file():
        raise InputError(f"channel trace `{path}` not found; `channel.trace_file` must name an .npz file")
    try:
        with np.load(path, allow_pickle=False) as archive:
            name = IN_BLOCKS if IN_BLOCKS in archive else FLAT
            return name, np.asarray(archive[name], dtype=np.complex128)
    except KeyError:
        raise InputError(f"channel trace `{path}` has no array named `{FLAT}` or `{IN_BLOCKS}`") from None
    except (OSError, EOFError, TypeError, AttributeError, ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"channel trace `{path}` cannot be read: {in_words(error)}") from None
