"""What runs one after another have in common: data sets, which may be read ahead, and channels with their combiners."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING

from airfl.config import Config
from airfl.devices.dataset import Dataset
from airfl.devices.datasets import is_here, load_dataset

if TYPE_CHECKING:
    import torch

    from airfl.devices.task import Samples
    from airfl.transceiver.radio import Heard, Radio


class Shelf:
    """Hands out the samples and the radio of configurations; those that have the same ones share them."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str | None], Future[Dataset]] = {}
        self._samples: dict[tuple[object, ...], Samples] = {}
        self._radios: dict[tuple[object, ...], Radio] = {}

    def begin(self, config: Config) -> None:
        """Read the data set on a thread, if that only takes files that are here already.

        The thread does not keep the interpreter from ending.
        """
        key = config.learning.dataset, config.learning.data_dir
        if key in self._begun or not is_here(*key):
            return
        begun = self._begun[key] = Future()

        def read() -> None:
            try:
                begun.set_result(load_dataset(*key))
            except BaseException as error:  # told to who waits
                begun.set_exception(error)

        threading.Thread(target=read, name="data", daemon=True).start()

    def samples(self, config: Config, device: torch.device) -> Samples:
        """See ``load_samples``."""
        from airfl.devices.task import seen_as

        learning = config.learning
        name, data_dir, declared = learning.dataset, learning.data_dir, learning.declared
        key = name, data_dir, learning.features, str(device), declared
        if key not in self._samples:
            begun = self._begun.get((name, data_dir))
            dataset = load_dataset(name, data_dir, declared) if begun is None else begun.result()
            self._samples[key] = seen_as(learning.features, dataset, device)
        return self._samples[key]

    def radio(self, config: Config, trials: Sequence[int], device: torch.device, hears: Heard | None = None) -> Radio:
        """See ``open_radio``; channels and combiners do not depend on the power, on what is learnt, or on a budget."""
        from airfl.transceiver.radio import open_radio

        drawn = config.channel.model_copy(update=dict.fromkeys(("power_w", "power_dbm", "snr_db")))
        asked = config.scheme.model_copy(update={"names": ()})
        key = repr((config.system, drawn, asked)), tuple(trials), str(device)
        if key not in self._radios:
            self._radios[key] = open_radio(config, trials, device, hears)
        return replace(self._radios[key].at(config), hears=hears)
