"""Data sets that are read once for several runs, and read ahead while other things are loaded."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import TYPE_CHECKING

from airfl.config import Config
from airfl.devices.dataset import Dataset
from airfl.devices.datasets import is_here, load_dataset

if TYPE_CHECKING:
    import torch

    from airfl.devices.task import Samples


class Shelf:
    """Hands out the samples of configurations; those that have the same ones share them."""

    def __init__(self) -> None:
        self._begun: dict[tuple[str, str | None], Future[Dataset]] = {}
        self._samples: dict[tuple[object, ...], Samples] = {}

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
