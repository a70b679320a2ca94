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
        "law", description="what airfl-dp-online and adascale know of the channels to come"
    )
    prediction_correlation: float = Field(0.9, ge=0, le=1, description="ρ of noisy predictions")
    contraction: float = Field(
        0.95,
        gt=0,
        le=1,
        description="1 − μ/L of the power control of liu2020 and power-gap: what errors of a round are left after the "
        "next",
    )
    peak_factor: float = Field(
        4.0,
        ge=1,
        le=1e6,
        description="how many times the power limit a device of power-gap may send with in one round; on average over "
        "its rounds it keeps to the limit",
    )
    gain_correction: bool = Field(
        False,
        description="power-mse and power-gap: divide what is heard by the mean gain, which the least error makes small "
        "where noise is large; of each round, or of all rounds together",
    )
    sum_noise_db: float = Field(
        10.0,
        ge=-200,
        le=200,
        description="energy of the noise in the sum over c², dB: what select-mse has in every round, and adascale at "
        "most on average over rounds",
    )
    gain_feedback: bool = Field(
        False,
        description="random-orth: the base station tells each device how it is heard, and each makes that one",
    )
    truncation_threshold: float | None = Field(
        None, gt=0, le=50, description="γ of tci and tci-memory: who fades below this share of its mean power is silent"
    )
    truncation_share: float | None = Field(
        None, gt=0, lt=1, description="λ = e^−γ, the same as a share of the time that is sent. Default: 0.8"
    )
    gradient_bound: float | None = Field(
        None,
        gt=0,
        le=1e12,
        description="G₂, an assumption that you state: γ follows from it, `privacy.smoothness` and the noise",
    )
    truncation_power: Literal["peak", "average", "spread"] = Field(
        "peak",
        description="how tci and tci-memory keep to the power: in every symbol; on average over fading; as average, "
        "and who would exceed it in a round sends less",
    )
    truncation_combiner: Literal["strongest", "served", "one"] = Field(
        "strongest",
        description="with several antennas: where fading is strongest in each block, the combiner there, or one "
        "direction for all",
    )
    interior_radius_m: float | None = Field(
        None, gt=0, le=1e12, description="R_in of tci and tci-memory: who is farther away never takes part"
    )
    memory: Literal["long", "short", "mild"] = Field(
        "long", description="what tci-memory remembers: all, the last round, or all but what clipping took"
    )
    zero_sum_power: float | None = Field(
        None,
        ge=0,
        le=1e9,
        description="power of `zero-sum`'s perturbations over that of the update; default: what takes the least noise",
    )
    replacement: Literal["binomial", "multinomial"] = Field(
        "multinomial",
        description="how `replacement` draws K devices: exactly K draws in all, or each device by coins of its own, "
        "which hides it",
    )
    replacement_cap: int = Field(
        4, ge=1, le=1000, description="how often a device counts at most in a round of `replacement`"
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

    pairs: ClassVar = (("truncation_threshold", "truncation_share"),)

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
        if self.gradient_bound is not None and (self.truncation_threshold or self.truncation_share):
            yield "a threshold follows from `gradient_bound`, or is stated; give one of them"
        if self.phases != "ones" and self.combiner != "zero-forcing":
            yield '`phases` go with combiner = "zero-forcing"; the other methods choose their own'
        if self.combiner != "auto" and self.effort != 1.0:
            yield '`effort` goes with combiner = "auto"; the other methods have none'
        if self.selection == "aligned" and self.combiner != "auto":
            yield 'selection = "aligned" goes with combiner = "auto": both are found together'
        if self.selection in ("strongest", "greedy") and self.selection_keep == "best":
            yield 'selection_keep = "best" goes with selection = "aligned"; give `selection_keep` a number'
