"""A fading law from outside: a function that draws coefficients, or a class of laws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from airfl.channel.blocks import Place
from airfl.channel.laws.law import Law, Placed
from airfl.config import Config
from airfl.errors import InputError, about_file
from airfl.randomness import stream

#: (generator, devices, antennas) -> coefficients [devices, antennas] of unit mean power.
Draw = Callable[[np.random.Generator, int, int], np.ndarray]


@dataclass(frozen=True)
class FromFunction(Placed):
    """Coefficients by a function; positions and path loss are ours."""

    function: Draw
    name: str

    def draw_in(self, index: int, round_index: int, place: Place) -> np.ndarray:
        """See ``Law.draw_in``: blocks are independent."""
        drawn: np.ndarray = self.amplitude[index][:, None] * self._coefficients(index, round_index, *place.key)
        return drawn

    def coefficients(self, index: int, round_index: int) -> np.ndarray:
        """See ``Placed.coefficients``; checked on every draw."""
        return self._coefficients(index, round_index)

    def _coefficients(self, index: int, *key: int) -> np.ndarray:
        system = self.config.system
        generator = stream(system.seed, "fading", self.trials[index], *key)
        shape = system.num_devices, system.num_antennas
        try:
            drawn = np.asarray(self.function(generator, *shape), dtype=np.complex128)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"fading law `{self.name}` failed: {about_file(error)}; it is called with a generator, the number "
                "of devices and the number of antennas"
            ) from error
        if drawn.shape != shape or not np.isfinite(drawn).all():
            raise InputError(
                f"fading law `{self.name}` must return finite coefficients of shape {shape}; got shape {drawn.shape}"
            )
        return drawn


def outside_law(found: Any, name: str, config: Config, trials: Sequence[int]) -> Law:
    """The law that an imported class or function stands for."""
    if isinstance(found, type) and issubclass(found, Law):
        return found(config, tuple(trials))
    return FromFunction(config, tuple(trials), found, name)
