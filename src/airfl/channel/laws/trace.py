"""Measured channels from a file, in place of geometry and fading."""

from __future__ import annotations

import math
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from airfl.channel.blocks import Grid, Place, bands_of, coherence_time_s
from airfl.channel.laws.law import Law
from airfl.errors import InputError, in_words
from airfl.memory import size_text

#: Arrays of a file: rounds are one block, or several.
FLAT, IN_BLOCKS = "channels", "block_channels"
AXES = ("trials", "rounds", "blocks", "devices", "antennas")
#: So many of each of the axes are needed; None: as many blocks as there are.
Least = tuple[int, int, int | None, int, int]
#: An array may have so many bytes, or be so many times larger than what a run needs of it.
SPARE_BYTES, SPARE_TIMES = 2**30, 10


@dataclass(frozen=True)
class Trace(Law):
    """Channels as they were measured, of ``channel.trace_file``; path loss is part of the measurement."""

    def __post_init__(self) -> None:
        _ = self._measured  # so that a bad file is refused before anything else is done

    @cached_property
    def _measured(self) -> np.ndarray:
        system, channel = self.config.system, self.config.channel
        blocks = bands_of(channel) if coherence_time_s(channel) is None else None
        return read_trace(
            channel.trace_file or "",
            max(self.trials) + 1,
            system.rounds,
            system.num_devices,
            system.num_antennas,
            blocks,
        )

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


def read_trace(
    path: str, trials: int, rounds: int, num_devices: int, num_antennas: int, blocks: int | None = None
) -> np.ndarray:
    """Read an .npz file, shape [trials or 1, rounds, blocks, num_devices, num_antennas], complex.

    The file holds ``channels`` [rounds, devices, antennas] (used for every trial) or [trials, rounds, devices,
    antennas]; or ``block_channels``, which has an axis of blocks after that of rounds, and is read where both are
    there. It may hold more than is asked for, but for blocks. Path loss is part of the measurement, so none is added.

    Args:
        blocks: of a round, to tell whether the file is far too large; default: as many as it says.
    """
    if not Path(path).is_file():
        raise InputError(f"channel trace `{path}` not found; `channel.trace_file` must name an .npz file")
    try:
        with zipfile.ZipFile(path) as archive:
            stored = _header(archive)
            least = (1 if stored.held[:1] == (1,) else trials, rounds, blocks, num_devices, num_antennas)
            if problem := stored.misfit(least) or stored.flaw(least):
                raise InputError(f"array `{stored.name}` of channel trace `{path}` {problem}")
            with archive.open(f"{stored.name}.npy") as file:
                whole = np.lib.format.read_array(file, allow_pickle=False).reshape(stored.held)
    except (InputError, MemoryError):
        raise
    except KeyError:
        raise InputError(f"channel trace `{path}` has no array named `{FLAT}` or `{IN_BLOCKS}`") from None
    except Exception as error:  # of a dozen kinds, by what the file is instead
        known = isinstance(error, OSError) and error.errno is not None
        why = in_words(error) if known else "it is damaged, or no .npz file; write one with numpy.savez"
        raise InputError(f"channel trace `{path}` cannot be read: {why}") from None
    found = whole[: least[0], :rounds, :, :num_devices, :num_antennas]
    # A view would keep the rest in memory, and another order of the axes would round sums otherwise.
    channels = found.astype(np.complex128, order="C", copy=found.size < whole.size)
    if not np.isfinite(channels).all():
        raise InputError(f"channel trace `{path}` holds NaN or infinity")
    return channels


@dataclass(frozen=True)
class _Stored:
    """An array of a file, as its header has it.

    Attributes:
        size: bytes after the header.
    """

    name: str
    shape: tuple[int, ...]
    kind: np.dtype
    size: int

    @property
    def axes(self) -> list[str]:
        """With trials, which the shape may leave out."""
        return [axis for axis in AXES if axis != "blocks" or self.name == IN_BLOCKS]

    @property
    def held(self) -> tuple[int, ...]:
        """How many there are of each of the five; empty for a shape of other axes."""
        full = (1, *self.shape) if len(self.shape) == len(self.axes) - 1 else self.shape
        if len(full) != len(self.axes):
            return ()
        return full if self.name == IN_BLOCKS else (*full[:2], 1, *full[2:])

    def misfit(self, least: Least) -> str:
        """Why it is not for a run that needs so many of each; empty if it is."""
        one = (*least[:2], 1, *least[3:])  # how many blocks there must be is told later, and in more words
        if self.held and all(have >= need for have, need in zip(self.held, one, strict=True)):
            return ""
        asked = tuple(need for axis, need in zip(AXES, one, strict=True) if axis in self.axes)
        more = f"; one with blocks is named `{IN_BLOCKS}`" if self.name == FLAT and len(self.shape) == 5 else ""
        return f"has shape {self.shape}, but the run needs at least ({', '.join(self.axes)}) = {asked}{more}"

    def flaw(self, least: Least) -> str:
        """Why it is not read at all; empty if it is."""
        if self.kind.kind != "c":
            return f"is of `{self.kind.name}`, but a channel has an amplitude and a phase; store complex numbers"
        if self.size != math.prod(self.shape) * self.kind.itemsize:
            return f"is damaged: its header says {self.shape}, and that is not what follows; write it anew"
        part = self.kind.itemsize * math.prod(
            min(have, need or have) for have, need in zip(self.held, least, strict=True)
        )
        if self.size <= max(SPARE_BYTES, SPARE_TIMES * part):
            return ""
        return (
            f"has {size_text(self.size)}, {SPARE_TIMES} times what the run needs and more; store only the rounds, "
            "devices and antennas that are used"
        )


def _header(archive: zipfile.ZipFile) -> _Stored:
    """What is said of the array that a file is read for; nothing behind that is unpacked."""
    name = IN_BLOCKS if f"{IN_BLOCKS}.npy" in archive.namelist() else FLAT
    with archive.open(f"{name}.npy") as file:
        first = np.lib.format.read_magic(file) == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, _, kind = read(file)
        return _Stored(name, shape, kind, archive.getinfo(f"{name}.npy").file_size - file.tell())
