"""Section [scheme]: which schemes to run, and the parts they are joined from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from airfl.catalogue import (
    LEAST_EFFORT,
    MOST_EFFORT,
    SHARES,
    USUAL_SHARE,
    CombinerName,
    PartPath,
    SchemeName,
)
from airfl.config.section import Section


class SchemeSection(Section):
    """Which schemes to run, and the parts they are joined from."""

    parts: ClassVar = ("names", "combiner", "encoder", "policy", "decoder")

    names: tuple[SchemeName, ...] = Field(("airfl-dp",), min_length=1)
    combiner: CombinerName = Field(
        "auto",
        description="auto, zero-forcing, sdr, mrc, or package.module:name",
    )
    effort: float = Field(
        1.0,
        ge=LEAST_EFFORT,
        le=MOST_EFFORT,
        description="time that the combiner `auto` may take, as a multiple of the usual",
    )
    combiner_columns: Literal["active", "all"] = Field(
        "active", description="all: the combiner serves all n devices, active or not"
    )
    selection: Literal["all", "aligned", "strongest", "greedy"] = Field(
        "all", description="which of the active devices transmit; the others stay silent this round"
    )
    selection_keep: Annotated[float, Field(gt=0, le=1)] | Literal["best"] | None = Field(
        None,
        description="share of the active devices that transmit; best: the one with the least error of the mean. "
        "Default: best with `aligned`, 0.9 with `strongest` and `greedy`",
    )
    cover: Literal["auto", "quadrature", "masks", "none"] = Field(
        "auto",
        description="what airfl-shielded hides devices in, at the antennas and not in the sum; auto: quadrature if "
        "there are enough devices, else masks; none: only noise that the sum hears too",
    )
    mask_degree: int = Field(6, ge=2, le=10**6, description="with how many others a device shares masks; even")
    cover_price_db: float = Field(
        3.0,
        ge=0,
        le=1000,
        description="refuse a run of airfl-shielded that would take so much more noise than a trusted base station",
    )
    online: Literal["law", "estimate", "predictions"] = Field(
        "law", description="what airfl-dp-online knows of the channels to come"
    )
    prediction_correlation: float = Field(0.9, ge=0, le=1, description="ρ of noisy predictions")
    contraction: float = Field(
        0.95, gt=0, le=1, description="1 − μ/L of liu2020's power control: what noise of a round is left after the next"
    )
    feedback: float = Field(1.0, ge=0, le=1, description="β of one-bit-memory: what a device adds of its memory")
    vote_worth: float | None = Field(
        None, gt=0, le=1e12, description="a of one-bit-memory: what a vote takes off the memory. Default: ‖u‖₁/d"
    )
    memory_cap: float = Field(
        4.0, gt=0, le=1e6, description="how long a device's memory may get, in clip norms, for schemes that remember"
    )
    l1_clip: float | None = Field(
        None,
        gt=0,
        le=1e12,
        description="c₁ of nc-airfl, ‖g‖₁ at most. Default: half of what an update adds up to",
    )
    fresh_fading: bool = Field(
        True, description="nc-airfl: fading is fresh for every symbol; false: as the channel's blocks have it"
    )
    phases: Literal["ones", "random"] = Field("ones", description="u of zero forcing")
    uplink: Literal["equivalent", "signal"] = "equivalent"
    encoder: PartPath | None = Field(None, description="package.module:name in place of what the schemes' devices send")
    policy: PartPath | None = Field(None, description="package.module:name in place of the schemes' norm policy")
    decoder: PartPath | None = Field(
        None, description="package.module:name in place of what the server makes of the sum"
    )

    @property
    def share(self) -> float | Literal["best"]:
        """``selection_keep``, or what it is where nothing is said."""
        if self.selection_keep is None:
            return "best" if self.selection == "aligned" else USUAL_SHARE
        return self.selection_keep

    @property
    def least_share(self) -> float:
        """The smallest share of the active devices that may transmit."""
        if self.selection == "all":
            return 1.0
        return SHARES[-1] if self.share == "best" else float(self.share)

    @field_validator("selection_keep", mode="before")
    @classmethod
    def _a_share_or_best(cls, value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is None or value == "best" or (is_number and 0 < value <= 1):
            return value
        raise ValueError(f'a share above 0 and at most 1, or "best"; got {value!r}')

    @field_validator("mask_degree")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError(f"masks go round in cycles, so the degree is even; got {value}, give {value + 1}")
        return value

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if len(set(self.names)) != len(self.names):
            yield "`names` lists a scheme twice"
        if self.phases != "ones" and self.combiner != "zero-forcing":
            yield '`phases` go with combiner = "zero-forcing"; the other methods choose their own'
        if self.combiner != "auto" and self.effort != 1.0:
            yield '`effort` goes with combiner = "auto"; the other methods have none'
        if self.selection == "aligned" and self.combiner != "auto":
            yield 'selection = "aligned" goes with combiner = "auto": both are found together'
        if self.selection in ("strongest", "greedy") and self.selection_keep == "best":
            yield 'selection_keep = "best" goes with selection = "aligned"; give `selection_keep` a number'
        if self.selection != "all" and self.combiner_columns == "all":
            yield '`selection` goes with combiner_columns = "active": the combiner serves who transmits'
