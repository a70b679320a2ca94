"""The combiner methods by name. A method maps channels [..., K, m] to a ``Design``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from airfl.errors import InputError
from airfl.imports import import_callable, is_import_path
from airfl.transceiver.combiners.annealed import annealed
from airfl.transceiver.combiners.mrc import mrc
from airfl.transceiver.combiners.sdr import sdr
from airfl.transceiver.combiners.zero_forcing import zero_forcing
from airfl.transceiver.design import Design, check_channels, finish

#: minimise ‖w‖² subject to |wᴴ h_i| ≥ 1 for all served devices, exactly or approximately
Combiner = Callable[[torch.Tensor], Design]

COMBINERS: dict[str, Combiner] = {
    "auto": annealed,  # the best of ours for any number of devices and antennas (docs/transceiver.md)
    "zero-forcing": zero_forcing,
    "sdr": sdr,
    "mrc": mrc,
}


def combiner_named(name: str, effort: float = 1.0) -> Combiner:
    """A method by its name, or from outside by its import path; only `auto` can take more or less effort."""
    if name == "auto":
        return partial(annealed, effort=effort)
    return outside(import_callable(name, "combiner"), name) if is_import_path(name) else COMBINERS[name]


def outside(function: Callable[[Any], Any], name: str) -> Combiner:
    """The method of a function (channels [..., K, m], complex128) -> w [..., m].

    w may have any length: it is scaled so that every device is reached, and where one cannot be, the status says so.
    """

    def method(channels: torch.Tensor) -> Design:
        flat, usable = check_channels(channels)
        try:
            made = torch.as_tensor(_called(function, flat.reshape(channels.shape)))
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"combiner `{name}` failed: {error}; it is called with channels [..., K, m] and returns w [..., m]"
            ) from error
        wanted = (*channels.shape[:-2], channels.shape[-1])
        if tuple(made.shape) != wanted:
            raise InputError(f"combiner `{name}` must return w of shape {wanted}; got {tuple(made.shape)}")
        return finish(made.to(torch.complex128).reshape(-1, wanted[-1]), channels, usable, 0)

    return method


def _called(function: Callable[[Any], Any], channels: torch.Tensor) -> Any:
    """With a tensor, or with an array where the function takes nothing else."""
    try:
        return function(channels)
    except (TypeError, AttributeError):
        return function(channels.cpu().numpy())
