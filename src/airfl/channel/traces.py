"""Measured channels from a file, in place of geometry and fading."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from airfl.errors import InputError


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
        raise InputError(f"channel trace `{path}` cannot be read: {error}") from None
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
