"""Sections [privacy] and [eavesdropper]: the promise, and one more who listens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from airfl.catalogue import AccountantName
from airfl.config.section import Section


class Privacy(Section):
    """The promise: how much, to whom, and who does the arithmetic."""

    parts: ClassVar = ("accountant",)

    epsilon: float | None = Field(None, ge=1e-9, le=1e9)
    epsilon_tilde: float | None = Field(None, ge=1e-12, le=1e6, description="ε / √d")
    delta: float = Field(1e-5, ge=1e-200, lt=1)
    neighbours: Literal["auto", "zero-out", "replace"] = Field(
        "auto", description="auto: replace when exactly K of n are drawn, else zero-out (older name: add-remove)"
    )

    @field_validator("neighbours", mode="before")
    @classmethod
    def _older_name(cls, value: object) -> object:
        return "zero-out" if value == "add-remove" else value

    accountant: AccountantName = Field(
        "auto", description="Who books the budget; auto: the tightest of those that are proven for the run"
    )
    smoothness: float | None = Field(None, gt=0, description="L, an assumption that you state")
    observer: Literal["auto", "model", "models", "base-station", "eavesdropper", "everything"] = Field(
        "auto", description="whom the promise is about, for airfl-shielded; auto: the base station. Models always too"
    )
    colluding: float = Field(
        0.0, ge=0, lt=1, description="share of the devices that hand what they know to whoever looks on"
    )
    credited_noise: Literal["thermal", "receiver"] = Field(
        "thermal",
        description="which noise of its receiver a base station cannot do without: thermal, kT₀B; or all of it",
    )
    credit_leak: bool = Field(
        False, description="count cover that reaches the sum by imperfect channel knowledge as noise too"
    )
    estimate_gradient_noise: bool = Field(
        False,
        description="book how far updates spread, for park2023; it depends on the data, and that is not accounted for",
    )

    pairs: ClassVar = (("epsilon", "epsilon_tilde"),)

    def epsilon_for(self, dim: int) -> float | None:
        """Return the plain ε of the budget for a model with ``dim`` parameters, or None when there is no budget."""
        return self.epsilon_tilde * math.sqrt(dim) if self.epsilon_tilde is not None else self.epsilon


class Eavesdropper(Section):
    """Someone with antennas of her own, somewhere in the cell, who hears the broadcast models too."""

    antennas: int = Field(1, ge=1, le=4096, description="how many she has")
    distance_m: float | None = Field(None, gt=0, le=1e12, description="from the base station")
    position: tuple[float, float] | None = Field(None, description="x and y in metres; the base station is at (0, 0)")
    noise_density_dbm_hz: float | None = Field(
        None, ge=-400, le=400, description="of her receiver; left out: she has no noise at all"
    )

    pairs: ClassVar = (("distance_m", "position"),)

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.distance_m is None and self.position is None:
            yield "give `distance_m` or `position`: where is she?"

    @property
    def place(self) -> tuple[float, float]:
        """Where she is, metres from the base station."""
        return self.position if self.position is not None else (self.distance_m or 0.0, 0.0)
