"""Section [system]: who takes part, and how often."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from airfl.catalogue import ParticipationName
from airfl.config.section import Section
from airfl.traits import Axis


class System(Section):
    """Who takes part, and how often the experiment is repeated."""

    parts: ClassVar = ("sampling",)

    seed: int = Field(0, ge=0, description="All randomness follows from it.")
    trials: int = Field(1, ge=1, description="Monte Carlo repetitions: new positions, fading, data split, noise.")
    num_devices: int = Field(50, ge=1, description="n")
    num_antennas: int = Field(100, ge=1, description="m, at the base station")
    participation: float = Field(1.0, gt=0, le=1, description="r; K = r·n devices are drawn each round")
    sampling: ParticipationName = Field(
        "fixed",
        description="fixed: exactly K of n; poisson: each device by its own coin, K on average; or package.module:name",
    )
    rounds: int = Field(50, ge=1, description="T")
    dropout: Annotated[float, Axis.DROPOUT] = Field(
        0.0, ge=0, lt=1, description="chance that a device that was to send in a round does not, after all was planned"
    )

    @property
    def num_active(self) -> int:
        """K, the number of devices that transmit in a round; on average, and rounded, with Poisson sampling."""
        return max(1, round(self.participation * self.num_devices))

    @property
    def varies(self) -> bool:
        """Whether the number of active devices varies from round to round."""
        return self.sampling != "fixed" and (self.participation < 1.0 or self.sampling != "poisson")

    @property
    def everyone(self) -> bool:
        """Whether all devices take part in every round."""
        return not self.varies and self.num_active == self.num_devices
