"""One frozen, validated description of a run: TOML in, TOML out, ``section.key=value`` overrides, presets.

Every quantity carries its unit in its name (``_w``, ``_hz``, ``_m``, ``_dbm``, ``_db``). Some keys say the
same thing in different ways, and only one of them may be given: ``local_epochs | local_steps``, ``clip_norm |
clip_factor`` (c² = clip_factor · d), ``epsilon | epsilon_tilde`` (ε = ε̃ · √d), ``power_w | power_dbm | snr_db`` and
``noise_density_dbm_hz | noise_figure_db``.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from airfl.catalogue import (
    FADING_LAWS,
    LEAST_EFFORT,
    MOST_EFFORT,
    NEEDS_ANTENNAS,
    RURAL_SIGHT_M,
    SCHEMES,
    SEEING,
    SHARES,
    SITES,
    USUAL_SHARE,
    WITH_SIONNA,
    AccountantName,
    CombinerName,
    EngineName,
    FadingName,
    Needs,
    ParticipationName,
    PartPath,
    PathLossName,
    SchemeName,
    is_import_path,
    nearest,
    site_of,
)
from airfl.errors import InputError, Problems, in_words, listed
from airfl.imports import look_beside, path_of
from airfl.toml import parse_toml
from airfl.wording import number

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

#: As in ``channel.geometry``, which loads more than a configuration needs.
LIGHT_M_S = 299_792_458.0
#: f_D·age where J_0(2π f_D·age) is zero for the first time.
FIRST_ZERO = 2.404825557695773 / (2.0 * math.pi)
#: Strings that name files; a colon in any other one makes it ``package.module:callable``.
FILE_KEYS = ("data_dir", "trace_file")
#: Of a run or a study, which is also the name of a folder: `.` and `..` are other folders.
NAME_PATTERN = r"^\.*[A-Za-z0-9_-][A-Za-z0-9._-]*$"


class Section(BaseModel):
    """Base of all sections: frozen, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    pairs: ClassVar[tuple[tuple[str, str], ...]] = ()
    #: Keys that take a part: a name, ``package.module:name``, or from Python the object itself.
    parts: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _objects_by_their_paths(cls, values: Any) -> Any:
        if not cls.parts or not isinstance(values, Mapping):
            return values
        return {key: part_named(key, value) if key in cls.parts else value for key, value in values.items()}

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if problems := list(self._problems()):
            raise Problems(problems)
        return self

    def _problems(self) -> Iterator[str]:
        """All that is wrong with keys that are each right by themselves."""
        for first, second in self.pairs:
            if getattr(self, first) is not None and getattr(self, second) is not None:
                yield f"`{first}` and `{second}` say the same thing; give one of them"


def part_named(key: str, value: Any) -> Any:
    """What a key that takes parts is given, as plain data: an object by its path, texts and numbers as they are."""
    if key.endswith("names") and isinstance(value, list | tuple):
        return [part_named("name", item) for item in value]
    return value if _is_plain(value) else path_of(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, str | bytes | int | float | Mapping)


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
    dropout: float = Field(
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


class Learning(Section):
    """What is learnt, from what, and how."""

    parts: ClassVar = ("dataset", "features", "model")

    dataset: str = Field(
        "fashion-mnist", description="fashion-mnist, fashion-mnist-standard, idx, digits, or package.module:callable"
    )
    num_classes: int | None = Field(
        None, ge=1, le=10**6, description="How many classes there are; for data sets that do not declare it."
    )
    data_dir: str | None = Field(None, description="Folder with the four IDX files; default: cache, then system.")
    features: str = Field("none", description="none, scattering, or package.module:callable; fixed, nothing is learnt")
    split: Literal["pooled", "standard", "validation"] = Field(
        "standard",
        description="pooled: all images, split on each device; standard: the data set's own test part; validation: "
        "a sixth of its training part is tested on in place of that, to tune with",
    )
    test_fraction: float = Field(0.25, gt=0, lt=1, description="Held-out part on each device when split = pooled.")
    partition: Literal["iid", "classes", "dirichlet"] = "iid"
    samples_per_device: int | None = Field(None, ge=1, description="s of `n devices × s samples`; iid only.")
    max_samples_per_device: int | None = Field(
        None, ge=1, description="No device trains on more; of one that has more, so many are drawn. A public bound."
    )
    classes_per_device: int = Field(2, ge=1, description="k, for partition = classes")
    dirichlet_alpha: float = Field(0.5, gt=0, description="α, for partition = dirichlet")
    model: str = Field("paper-cnn", description="paper-cnn, small-cnn, mlp, softmax, or package.module:callable")
    local_epochs: int | None = Field(None, ge=1)
    local_steps: int | None = Field(None, ge=1)
    batch_size: int = Field(10, ge=1)
    drop_last: bool = Field(False, description="Leave out the last, smaller batch of an epoch.")
    learning_rate: float = Field(0.005, gt=0, le=1e100, description="η, of the local steps")
    server_step: float = Field(1.0, gt=0, le=1e100, description="η_g")
    server_schedule: Literal["constant", "linear"] = Field(
        "constant", description="linear: η_g falls from round to round, to η_g/T in the last"
    )
    server_momentum: float = Field(0.0, ge=0, lt=1, description="β of the server's heavy ball; free post-processing")
    model_average: float = Field(
        0.0, ge=0, lt=1, description="a of the running mean of models that is tested and released; 0: the last model"
    )
    clip_norm: float | None = Field(None, ge=1e-12, le=1e12, description="c")
    clip_factor: float | None = Field(None, ge=1e-18, le=1e18, description="c² / d")
    domain_diameter: float | None = Field(
        None, gt=0, le=1e12, description="D; the model is projected on this ball if given."
    )

    pairs: ClassVar = (("local_epochs", "local_steps"), ("clip_norm", "clip_factor"))

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.local_epochs is None and self.local_steps is None:
            yield "give `local_epochs` or `local_steps`"
        if self.clip_norm is None and self.clip_factor is None:
            yield "give `clip_norm` or `clip_factor`"
        if self.samples_per_device is not None and self.partition != "iid":
            yield '`samples_per_device` goes with partition = "iid"'
        moved = self.learning_rate * self.server_step
        if not _is_float32(self.learning_rate):
            yield (
                f"`learning_rate` = {self.learning_rate:g} is zero or infinite in float32, in which models are "
                "trained; give one between 1e-45 and 3e38"
            )
        elif moved < 1.0 and not _is_float32(moved):  # one that is too large diverges, and is reported as that
            yield (
                f"`learning_rate` × `server_step` = {moved:g}, by which models move, is zero in float32; "
                "give a product of at least 1e-45"
            )

    @property
    def public_sizes(self) -> bool:
        """Whether the size of the largest device follows from public numbers, and not from who has how many."""
        return self.partition == "iid" or self.max_samples_per_device is not None

    @property
    def plain_server(self) -> bool:
        """Whether the server only steps, and releases the last model: what bounds with a hidden state count on."""
        return self.server_momentum == self.model_average == 0.0 and self.server_schedule == "constant"

    def clip_norm_for(self, dim: int) -> float:
        """Return c for a model with ``dim`` parameters."""
        return self.clip_norm if self.clip_norm is not None else math.sqrt((self.clip_factor or 0.0) * dim)


class Channel(Section):
    """Geometry, fading, and the link budget: power, gains, losses, noise."""

    parts: ClassVar = ("fading",)

    fading: FadingName = Field("rayleigh", description=f"{', '.join(FADING_LAWS)}, or package.module:name")
    trace_file: str | None = Field(
        None,
        description="npz: `channels` [(trials,) rounds, devices, antennas] or `block_channels`, blocks after rounds",
    )
    distance: Literal["per-device", "common"] = Field(
        "per-device", description="common: one distance for all devices of a trial"
    )
    cell_radius_m: float = Field(1000.0, ge=1e-6, le=1e12)
    min_distance_m: float = Field(1.0, ge=1e-6, le=1e12)
    carrier_hz: float = Field(2.4e9, ge=1e-6, le=1e18)
    rician_k_db: float = Field(
        6.0, ge=-100, le=100, description="Line-of-sight to scattered power, for fading = rician"
    )
    profile: Literal["A", "B", "C", "D", "E"] = Field("A", description="which TDL or CDL; D and E have a line of sight")
    delay_spread_s: float | None = Field(
        None, gt=0, le=1e-3, description="RMS delay spread: a band wider than a fifth over it is several blocks"
    )
    coherence_hz: float | None = Field(None, gt=0, le=1e18, description="bandwidth over which a channel is the same")
    coherence_s: float | None = Field(None, gt=0, le=1e12, description="time for which a channel stands still")
    speed_m_s: float | None = Field(None, gt=0, le=1e5, description="of devices: channels stand still for 0.423 λ/v")
    symbols: Literal["real", "complex"] = Field(
        "real", description="complex: two coordinates a symbol, half the time on air"
    )
    rotation: bool = Field(
        False, description="devices turn updates by public random signs and sums, which spreads them over blocks"
    )
    hall: Literal["SL", "DL", "SH", "DH"] = Field(
        "SH", description="of 3gpp-inf: sparse or dense clutter, low or high base station"
    )
    indoor_share: float | None = Field(
        None, ge=0, le=1, description="of the devices of 3gpp-umi, -uma, -rma; left out: 0.8, 0.8, 0.5 as 3GPP says"
    )
    antenna_correlation: float = Field(0.0, ge=0, lt=1, description="ρ of R_ij = ρ^|i−j| between antennas")
    device_correlation: float = Field(0.0, ge=0, lt=1, description="ρ of the same between devices")
    csi_error: float = Field(0.0, ge=0, lt=1, description="τ, estimation error power over channel power")
    csi_outage: float = Field(
        1e-9, gt=0, lt=1, description="chance over a trial that a gain exceeds the bound that is booked for it"
    )
    csi_age_s: float = Field(0.0, ge=0, le=1e6, description="how old the channels are that the base station knows")
    phase_error_rad: float = Field(
        0.0, ge=0, le=100, description="of oscillators: standard deviation, new for each device, round and block"
    )
    timing_offset_s: float = Field(0.0, ge=0, le=1, description="RMS, of when devices start; for several bands")
    cyclic_prefix_s: float | None = Field(
        None, gt=0, le=1, description="what echoes leave of the guard before each symbol; three times the offset fits"
    )
    clipping_db: float | None = Field(
        None, ge=0, le=100, description="amplifiers limit each symbol to this far above the mean power limit"
    )
    adc_bits: int | None = Field(
        None, ge=1, le=32, description="of the converters, per antenna and real dimension; with subtracted dither"
    )
    path_loss: PathLossName | None = Field(
        None,
        description="free-space; log-distance: free space at the reference, then the exponent; or 3gpp-…-los and "
        "-nlos, medians of TR 38.901. Left out: log-distance if there is an exponent, else free-space",
    )
    path_loss_exponent: float | None = Field(None, ge=0, le=20, description="for log-distance")
    path_loss_reference_m: float = Field(1.0, ge=1e-6, le=1e6, description="where log-distance begins")
    base_height_m: float | None = Field(None, gt=0, le=1000, description="of 3GPP path losses; left out: theirs")
    device_height_m: float | None = Field(None, gt=0, le=1000, description="of 3GPP path losses; left out: theirs")
    shadowing_db: float = Field(0.0, ge=0, le=50, description="standard deviation; fixed over a trial")
    shadowing_distance_m: float = Field(
        0.0, ge=0, le=1e6, description="over which shadowing decorrelates to 1/e; 0: devices are independent"
    )
    power_w: float | None = Field(2e-3, ge=1e-30, le=1e12, description="P, mean transmit power per symbol and device")
    power_dbm: float | None = Field(None, ge=-270, le=150, description="the same in dBm")
    snr_db: float | None = Field(
        None,
        ge=-400,
        le=400,
        description="P·Λ_edge/σ² per antenna in place of the power, with the median path gain at the cell edge",
    )
    antenna_gain_dbi: float = Field(0.0, ge=-100, le=100, description="of each of the base station's antennas")
    device_gain_dbi: float = Field(0.0, ge=-100, le=100, description="of a device's antenna")
    loss_db: float = Field(0.0, ge=0, le=200, description="of cables, bodies and windows together")
    noise_density_dbm_hz: float | None = Field(-173.0, ge=-400, le=400)
    noise_figure_db: float | None = Field(None, ge=0, le=100, description="over −174 dBm/Hz, in place of the density")
    interference_dbm: float | None = Field(
        None, ge=-400, le=150, description="at each antenna, over the bandwidth; disturbs, but is never privacy"
    )
    bandwidth_hz: float = Field(20e6, ge=1e-6, le=1e18)

    pairs: ClassVar = (
        ("power_w", "power_dbm"),
        ("power_w", "snr_db"),
        ("power_dbm", "snr_db"),
        ("noise_density_dbm_hz", "noise_figure_db"),
        ("coherence_s", "speed_m_s"),
    )

    @model_validator(mode="before")
    @classmethod
    def _defaults_give_way(cls, values: Any) -> Any:
        """A default is no second way of saying what was given."""
        if not isinstance(values, Mapping):
            return values
        for default, *others in (("power_w", "power_dbm", "snr_db"), ("noise_density_dbm_hz", "noise_figure_db")):
            if default not in values and any(values.get(name) is not None for name in others):
                values = {**values, default: None}
        return values

    @property
    def loss_model(self) -> str:
        """The path loss after resolving what was left out."""
        return self.path_loss or ("free-space" if self.path_loss_exponent is None else "log-distance")

    @property
    def is_wideband(self) -> bool:
        """Whether something was said of how long or how wide a channel stays the same."""
        stated = (self.coherence_hz, self.coherence_s, self.speed_m_s, self.delay_spread_s)
        return any(value is not None for value in stated)

    @property
    def is_3gpp(self) -> bool:
        """Whether the fading law has path loss, shadowing and correlated antennas of its own."""
        return self.fading in SITES

    @property
    def estimation_error(self) -> float:
        """Power of the error of all that is known of a channel, over the channel's: 1 − (1 − τ) J_0(2π f_D age)²."""
        if self.csi_age_s == 0.0:
            return self.csi_error
        known = (1.0 - self.csi_error) * _bessel_j0(2.0 * math.pi * self._turns_of_age) ** 2
        return max(0.0, 1.0 - known)

    @property
    def _turns_of_age(self) -> float:
        """f_D·age: by how many wavelengths devices have moved since their channels were looked at."""
        return self.csi_age_s * (self.speed_m_s or 0.0) * self.carrier_hz / LIGHT_M_S

    @property
    def impairments(self) -> tuple[str, ...]:
        """Keys of what goes wrong on air, but for what is known of channels; see ``channel.impairments``."""
        keys = ("phase_error_rad", "timing_offset_s", "clipping_db", "adc_bits")
        return tuple(key for key in keys if getattr(self, key) not in (None, 0.0))

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if (self.fading == "trace") != (self.trace_file is not None):
            yield '`trace_file` and fading = "trace" go together'
        plain = self.fading == "rayleigh" and self.antenna_correlation == self.device_correlation == 0.0
        for key in ("csi_error", "csi_age_s"):
            if getattr(self, key) > 0 and not plain:
                yield (f"`{key}` is for uncorrelated Rayleigh fading: only there is the booked gain bound proven")
        if self.min_distance_m > self.cell_radius_m:
            yield "`min_distance_m` must not exceed `cell_radius_m`"
        for first, second in (("power_w", "power_dbm"), ("noise_density_dbm_hz", "noise_figure_db")):
            if all(getattr(self, name) is None for name in (first, second)) and self.snr_db is None:
                yield f"give `{first}` or `{second}`"
        if self.noise_density_dbm_hz is None and self.noise_figure_db is None and self.snr_db is not None:
            yield "give `noise_density_dbm_hz` or `noise_figure_db`"
        if self.snr_db is not None and (self.fading == "trace" or is_import_path(self.fading)):
            yield (
                f"`snr_db` takes the path gain at the cell edge, which fading `{self.fading}` may not have; give "
                "`power_w` or `power_dbm`"
            )
        yield from self._age_and_timing_problems()
        yield from self._path_loss_problems()

    def _age_and_timing_problems(self) -> Iterator[str]:
        """What old channel knowledge and late symbols cannot do with."""
        if self.csi_age_s > 0 and self.speed_m_s is None:
            yield "`csi_age_s` goes with `speed_m_s`: where nothing moves, no channel gets old"
        if self._turns_of_age >= FIRST_ZERO:
            oldest = FIRST_ZERO * LIGHT_M_S / ((self.speed_m_s or 1.0) * self.carrier_hz)
            yield (
                f"`csi_age_s` = {self.csi_age_s:g} is too old: at {self.speed_m_s:g} m/s a channel has nothing to do "
                f"any more with what it was {oldest:.3g} s before, the first zero of J_0; give less than that"
            )
        if self.timing_offset_s > 0 and 6.0 * self.timing_offset_s > (self.cyclic_prefix_s or 0.0) * (1.0 + 1e-9):
            yield (
                f"`timing_offset_s` = {self.timing_offset_s:g} takes a `cyclic_prefix_s` of at least six times that, "
                "three to either side: symbols that run into each other are not simulated"
            )
        if self.cyclic_prefix_s is not None and self.timing_offset_s == 0.0:
            yield "`cyclic_prefix_s` goes with `timing_offset_s`; leave it out"

    def _path_loss_problems(self) -> Iterator[str]:
        """What path loss, shadowing and the laws of 3GPP cannot do with."""
        own = self.fading == "trace" or self.is_3gpp
        theirs = ["path_loss", "path_loss_exponent", "shadowing_db", "antenna_gain_dbi"]
        if self.fading == "trace":  # all of it is in what was measured
            theirs += ["device_gain_dbi", "loss_db"]
        brought = [name for name in theirs if getattr(self, name) not in (None, 0.0)]
        if self.path_loss_exponent == 0.0:
            brought.append("path_loss_exponent")
        if own and brought:
            whose = "channels that were measured" if self.fading == "trace" else f"fading `{self.fading}`"
            verb = "have" if self.fading == "trace" else "has"
            yield f"{whose} {verb} path loss, shadowing and antennas of their own; leave out `{brought[0]}`"
        if self.is_3gpp and (self.antenna_correlation or self.device_correlation):
            yield f"fading `{self.fading}` correlates antennas and devices by itself; leave out the correlation"
        if self.path_loss == "log-distance" and self.path_loss_exponent is None:
            yield 'path_loss = "log-distance" needs `path_loss_exponent`; 2 is free space, 3.5 a city'
        if self.path_loss_exponent is not None and self.loss_model != "log-distance":
            yield f'`path_loss_exponent` goes with path_loss = "log-distance", not with "{self.path_loss}"'
        name = self.fading if self.is_3gpp else self.loss_model
        site = site_of(name)
        if site is not None:
            low, high = site.carrier_hz
            if not low <= self.carrier_hz <= high:
                yield (
                    f"`{name}` is for carriers from {low / 1e9:g} to {high / 1e9:g} GHz; got `carrier_hz` = "
                    f"{self.carrier_hz:g}"
                )
            farthest = RURAL_SIGHT_M if name == "3gpp-rma-los" else site.farthest_m
            if self.cell_radius_m > farthest or self.cell_radius_m < site.nearest_m:
                yield (
                    f"`{name}` is for distances from {site.nearest_m:g} to {farthest:,.0f} m; got "
                    f"`cell_radius_m` = {self.cell_radius_m:g}"
                )
            device = self.device_height_m or site.device_height_m
            if device > site.highest_device_m or device > (self.base_height_m or max(site.base_height_m, device)):
                yield (
                    f"`{name}` is for devices up to {site.highest_device_m:g} m, and no higher than the base station; "
                    f"got `device_height_m` = {device:g}"
                )
        elif self.fading == "cdl" and not 0.5e9 <= self.carrier_hz <= 100e9:
            yield f"`cdl` is for carriers from 0.5 to 100 GHz; got `carrier_hz` = {self.carrier_hz:g}"
        if self.fading in WITH_SIONNA and self.bandwidth_hz > 0.1 * self.carrier_hz:
            yield f"`{self.fading}` is for bandwidths up to a tenth of the carrier; got {self.bandwidth_hz:g} Hz"
        if self.shadowing_distance_m > 0 and self.shadowing_db == 0:
            yield "`shadowing_distance_m` goes with `shadowing_db` above 0"


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


class Engine(Section):
    """How the computation is carried out; changes time and rounding, not meaning."""

    parts: ClassVar = ("backend",)

    backend: EngineName = Field(
        "auto",
        description="loop, threads: one device after another, or one per thread; batched, fused: all at once; "
        "or package.module:name",
    )
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "tf32", "bf16"] = Field(
        "auto", description="of matrix products; master weights are float32. auto: bf16 on Hopper GPUs, else float32"
    )
    compile: bool = Field(True, description="compiled kernels on a GPU; without, the first round starts sooner")
    eval_every: int = Field(1, ge=1, description="Test every k rounds, and after the last.")
    train_loss: Literal["local", "global"] = Field(
        "local",
        description="local: mean over local steps; global: of the new model on all training samples, when tested",
    )


class Config(Section):
    """The whole run."""

    name: str = Field("run", pattern=NAME_PATTERN, max_length=200)
    system: System = System()
    learning: Learning
    channel: Channel = Channel()
    privacy: Privacy = Privacy()
    scheme: SchemeSection = SchemeSection()
    eavesdropper: Eavesdropper | None = None
    engine: Engine = Engine()

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        needs = {name: SCHEMES.get(name, Needs()) for name in self.scheme.names}
        needs_air = any(entry.air for entry in needs.values())
        served_all = self.scheme.combiner_columns == "all" or self.system.varies
        columns = self.system.num_devices if served_all else self.system.num_active
        limited = self.scheme.combiner in NEEDS_ANTENNAS
        if needs_air and limited and columns > self.system.num_antennas:
            yield (
                f"combiner `{self.scheme.combiner}` serves at most as many devices as there are antennas, got "
                f"{columns} devices and `system.num_antennas` = {self.system.num_antennas}; use `auto`, "
                "lower `system.participation` or add antennas"
            )
        if self.system.varies and self.scheme.selection != "all":
            yield '`scheme.selection` goes with system.sampling = "fixed": it keeps a share of K devices'
        if "airfl-an" in self.scheme.names and self.channel.estimation_error > 0:
            yield f"scheme `airfl-an` needs exact channel knowledge; set `channel.{self._what_errs}` = 0"
        yield from self._impairment_problems()
        private = [name for name, entry in needs.items() if entry.budget]
        if private and self.privacy.epsilon is None and self.privacy.epsilon_tilde is None:
            yield f"scheme `{private[0]}` needs a budget; give `privacy.epsilon` or `privacy.epsilon_tilde`"
        if self.privacy.accountant == "convergent":
            yield from self._hidden_state_problems()
        yield from self._cover_problems()

    def _hidden_state_problems(self) -> Iterator[str]:
        """What the accountant `convergent` cannot do with."""
        if None in (self.learning.domain_diameter, self.privacy.smoothness):
            yield (
                "accountant `convergent` needs an enforced domain and a stated smoothness; give "
                "`learning.domain_diameter` and `privacy.smoothness`"
            )
        if not self.learning.plain_server:
            yield (
                "accountant `convergent` counts on plain server steps and on hidden models; set "
                "`learning.server_momentum` = 0, `learning.model_average` = 0 and a constant `learning.server_schedule`"
            )
        if self.learning.local_epochs and not self.learning.public_sizes:
            yield (
                "accountant `convergent` needs the number of local steps, which would tell the size of the largest "
                "device; give `learning.max_samples_per_device`, or `learning.local_steps` in place of "
                "`learning.local_epochs`"
            )
        if self.channel.estimation_error > 0:
            yield f"accountant `convergent` needs exact channel knowledge; set `channel.{self._what_errs}` = 0"
        for key in self.channel.impairments:
            yield f"accountant `convergent` needs a sum that nothing distorts; leave out `channel.{key}`"

    @property
    def _what_errs(self) -> str:
        return "csi_error" if self.channel.csi_error > 0 else "csi_age_s"

    def _impairment_problems(self) -> Iterator[str]:
        """What happens to symbols and at antennas takes symbols and antennas; and hides nobody's cover."""
        for key, what in (("clipping_db", "symbol by symbol"), ("adc_bits", "antenna by antenna")):
            if key in self.channel.impairments and self.scheme.uplink == "equivalent":
                yield f'`channel.{key}` acts {what}, which takes scheme.uplink = "signal"'
        hidden = [name for name in self.scheme.names if name in ("airfl-an", "airfl-shielded")]
        for key in self.channel.impairments if hidden else ():
            yield (
                f"scheme `{hidden[0]}` hides devices in noise or masks of their own, which is not simulated with "
                f"`channel.{key}`; leave it out"
            )
        for key in ("phase_error_rad", "timing_offset_s"):
            if self.eavesdropper is not None and key in self.channel.impairments:
                yield f"what an [eavesdropper] learns is not worked out with `channel.{key}`; leave out one of them"

    def _cover_problems(self) -> Iterator[str]:
        """What schemes that hide devices in signals, and promises about those who see signals, cannot do with."""
        scheme, observer = self.scheme, self.privacy.observer
        shielded = "airfl-shielded" in scheme.names
        outside = scheme.encoder is not None or any(is_import_path(name) for name in scheme.names)
        if scheme.cover != "auto" and not shielded and not outside:
            yield (
                f"`scheme.cover` hides devices in the signals of a radio link, and scheme `{scheme.names[0]}` sends no "
                "cover; use `airfl-shielded`, or leave it out"
            )
        promised = shielded or outside or ("airfl-an" in scheme.names and observer == "base-station")
        if observer in SEEING and not promised:
            yield (
                f'`privacy.observer` = "{observer}" takes a scheme that hides devices in the signals themselves; use '
                "`airfl-shielded`"
            )
        if observer == "eavesdropper" and self.eavesdropper is None:
            yield '`privacy.observer` = "eavesdropper" needs a section [eavesdropper]: where is she?'
        if self.eavesdropper is not None and self.channel.fading == "trace":
            yield "measured channels have no positions, so an eavesdropper has no channels; leave out one"
        if (shielded or outside) and scheme.cover == "quadrature" and self.channel.symbols == "complex":
            yield (
                'cover = "quadrature" is noise in the imaginary part of symbols, and with channel.symbols = "complex" '
                "that carries data; use masks, or real symbols"
            )
        senders = max(1, round(scheme.least_share * self.system.num_active))
        directions = 2 * self.system.num_antennas - 1
        if shielded and scheme.cover == "quadrature" and senders < directions:
            yield (
                f'cover = "quadrature" of {senders} devices leaves {directions - senders} of the {directions} '
                f"directions beside the sum uncovered: it takes K >= 2m - 1 for {self.system.num_antennas} antennas; "
                "use masks, or fewer antennas"
            )
        if shielded and scheme.cover == "masks" and scheme.mask_degree >= senders:
            yield (
                f"`scheme.mask_degree` = {scheme.mask_degree} must be below the number of devices that send, {senders}"
            )

    @property
    def neighbours(self) -> Literal["zero-out", "replace"]:
        """The neighbouring relation after resolving ``auto``."""
        if self.privacy.neighbours == "auto":
            return "zero-out" if self.system.everyone or self.system.varies else "replace"
        return self.privacy.neighbours

    @property
    def num_transmitting(self) -> int:
        """How many of the K active devices transmit over the air, once the share is settled."""
        share = self.scheme.share
        if self.scheme.selection == "all":
            return self.system.num_active
        assert share != "best", "a share is settled before rounds are designed"
        return max(1, round(share * self.system.num_active))

    @property
    def imports(self) -> tuple[str, ...]:
        """User code that this names, ``package.module:callable``; it is executed when the run is opened."""
        named = [
            value
            for section in self.to_mapping().values()
            if isinstance(section, dict)
            for key, item in section.items()
            if key not in FILE_KEYS
            for value in (item if isinstance(item, list) else [item])
        ]
        return tuple(dict.fromkeys(value for value in named if isinstance(value, str) and ":" in value))

    def replace(self, overrides: Mapping[str, Any] | None = None, /, **sections: Mapping[str, Any] | str) -> Config:
        """Return a copy with keys changed: ``replace({"system.rounds": 3})`` or ``replace(system={"rounds": 3})``.

        Naming one key of an exclusive pair drops the other one.
        """
        flat = dict(overrides or {})
        for section, values in sections.items():
            if isinstance(values, Mapping):
                flat.update({f"{section}.{key}": value for key, value in values.items()})
            else:
                flat[section] = values
        return from_mapping(_apply(self.to_mapping(), flat))

    def to_mapping(self) -> dict[str, Any]:
        """Return nested plain data, keys that are not set left out."""
        return self.model_dump(mode="json", exclude_none=True)

    def _changes(self) -> tuple[str, dict[str, Any]]:
        """The preset of the same name and the keys that differ from it; where there is none, from the defaults."""
        if self.name not in preset_names():
            return "", _flat(self.model_dump(mode="json", exclude_defaults=True, exclude_none=True))
        own, base = _flat(self.to_mapping()), _flat(preset(self.name).to_mapping())
        differ = dict.fromkeys(key for key in (*own, *base) if own.get(key) != base.get(key))
        return self.name, {key: own.get(key) for key in differ}

    def __repr__(self) -> str:
        like, changed = self._changes()
        whose = f"preset {like!r}" if like else repr(self.name)
        return f"<airfl.Config {whose}{''.join(f', {key} = {_short(value)}' for key, value in changed.items())}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        like, changed = self._changes()
        whose = f"preset <b>{escape(like)}</b>" if like else f"<b>{escape(self.name)}</b>"
        rows = "".join(f"<tr><td>{key}</td><td>{escape(_short(value))}</td></tr>" for key, value in changed.items())
        kind = "preset" if like else "defaults"
        said = f"what differs from the {kind}" if rows else f"nothing differs from the {kind}"
        return f"<div>airfl configuration, {whose}: {said}</div>" + (f"<table>{rows}</table>" if rows else "")

    def sha256(self) -> str:
        """A fingerprint of the resolved configuration."""
        return hashlib.sha256(json.dumps(self.to_mapping(), sort_keys=True).encode()).hexdigest()

    def to_toml(self) -> str:
        """Return the resolved configuration as TOML; ``from_toml`` reads it back to an equal object."""
        return tomli_w.dumps(self.to_mapping())


#: Keys that take a part, ``section.key``.
PART_KEYS = frozenset(
    f"{name}.{key}"
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
    for key in field.annotation.parts
)

#: Section and the two keys of each exclusive pair: an override that names one drops the other.
EXCLUSIVE_KEYS = tuple(
    (name, first, second)
    for name, section in (
        ("learning", Learning),
        ("channel", Channel),
        ("privacy", Privacy),
        ("eavesdropper", Eavesdropper),
    )
    for first, second in section.pairs
)


def from_mapping(values: Mapping[str, Any]) -> Config:
    """Validate nested plain data; every problem becomes one sentence in an ``InputError``."""
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        raise InputError(listed("the configuration", problems_of(error))) from None


def from_toml(text: str, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read a configuration from TOML text and apply dotted overrides before it is validated."""
    return from_mapping(_apply(parse_toml(text), overrides or {}))


def preset_names() -> list[str]:
    """Return the names of the presets shipped with the package."""
    folder = resources.files("airfl") / "presets"
    return sorted(item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """Return the TOML text of a preset, comments included."""
    if name not in preset_names():
        hint = nearest(name, preset_names()) or f"; known: {', '.join(preset_names())}"
        raise InputError(f"no preset or file named `{name}`{hint}")
    return (resources.files("airfl") / "presets" / f"{name}.toml").read_text(encoding="utf-8")


def preset(name: str) -> Config:
    """Return a preset shipped with the package."""
    return from_toml(preset_text(name))


def read(source: str, overrides: Mapping[str, Any] | None = None) -> Config:
    """Read a preset by name or a TOML file by path; parts that the file names are looked for beside it first."""
    path = Path(source)
    if source in preset_names() or (path.suffix != ".toml" and not path.is_file()):
        return from_toml(preset_text(source), overrides)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the configuration `{source}`: {in_words(error)}") from None
    look_beside(path)
    return from_toml(text, overrides)


def parse_override(text: str) -> tuple[str, Any]:
    """Split ``section.key=value``; the value is read as TOML, and as a plain string where it is none."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not key:
        raise InputError(f"`--set {text}` must look like section.key=value, e.g. --set system.rounds=10")
    try:
        return key, parse_toml(f"value = {value}")["value"]
    except InputError:
        return key, value.strip()


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a configuration file."""
    return Config.model_json_schema()


def _apply(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    result = {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items()}
    for dotted in overrides:
        section, _, key = dotted.partition(".")
        for pair_section, first, second in EXCLUSIVE_KEYS:
            if overrides[dotted] is None:  # to take one way of saying it back is not to choose another
                continue
            if section == pair_section and key in (first, second) and isinstance(result.get(section), dict):
                for name in (first, second):
                    if f"{section}.{name}" not in overrides:
                        result[section].pop(name, None)
    for dotted, value in overrides.items():
        section, dot, key = dotted.partition(".")
        if not dot:
            result[section] = value
            continue
        target = result.setdefault(section, {})
        if not isinstance(target, dict):
            raise InputError(f"`{section}` is not a section, so `{dotted}` cannot be set")
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
    return result


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keys of sections as ``section.key``; the name is left out."""
    sections = {name: section for name, section in values.items() if isinstance(section, Mapping)}
    return {f"{name}.{key}": value for name, section in sections.items() for key, value in section.items()}


def _short(value: Any) -> str:
    """A value for people."""
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return "not set" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _bessel_j0(x: float) -> float:
    """J_0(x) = mean of cos(x sin θ) over half a turn, to rounding for |x| up to 10."""
    return math.fsum(math.cos(x * math.sin(math.pi * k / 32)) for k in range(32)) / 32.0


def _is_float32(value: float) -> bool:
    """Whether a positive number is neither zero nor infinite in float32."""
    try:
        return bool(struct.unpack("<f", struct.pack("<f", value))[0] != 0.0)
    except OverflowError:
        return False


def problems_of(error: ValidationError, model: type[BaseModel] = Config) -> list[str]:
    """Everything that is wrong with plain data for a model, one sentence each."""
    found = error.errors()
    inside = {problem["loc"][:-1] for problem in found}  # a list that is too short, for what is wrong with its items
    counted = [problem for problem in found if problem["type"] != "too_short" or problem["loc"] not in inside]
    return [sentence for problem in counted for sentence in _sentences(problem, model)]


def _sentences(problem: ErrorDetails, model: type[BaseModel]) -> list[str]:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return [_unknown_key(problem["loc"], model)]
    if problem["type"] == "missing":
        return [f"`{where}` is missing; it must be given"]
    message = re.sub(r"0\.0{4,}\d+", lambda zeros: number(float(zeros[0])), problem["msg"])
    given = problem.get("ctx", {})
    if problem["type"] == "value_error":
        reason = given["error"]
        found = reason.problems if isinstance(reason, Problems) else (str(reason),)
        return [f"{where + ': ' if where else ''}{text}" for text in found]
    near = ""
    if problem["type"] == "literal_error":
        near = nearest(str(problem["input"]), re.findall(r"'([^']*)'", given["expected"]))
    return [f"`{where}`: {message[0].lower()}{message[1:]}; got {problem['input']!r}{near}"]


def _unknown_key(location: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """With the nearest key: of this section, or of another one that has a key of that very name."""
    *path, key = map(str, location)
    known = _keys_at(path, model)
    elsewhere = [name for name in setting_keys() if name.endswith(f".{key}")] if model is Config else []
    near = f"; did you mean `{elsewhere[0]}`?" if elsewhere else nearest(key, known)
    return f"unknown key `{'.'.join([*path, key])}`" + (near or f"; known keys: {', '.join(known)}")


def _keys_at(path: Sequence[str], model: type[BaseModel]) -> list[str]:
    for part in path:
        inner = _section(model, part)
        if inner is None:
            break
        model = inner
    return [field.alias or name for name, field in model.model_fields.items()]


def _section(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """The section that a key of a model holds, also one that may be left out."""
    field = model.model_fields.get(name)
    kinds = () if field is None else (field.annotation, *get_args(field.annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)), None)


def key_problem(name: str) -> str:
    """What is wrong with `section.key` as a key to set; empty if nothing is."""
    section, dot, key = name.partition(".")
    if name in Config.model_fields or name in setting_keys():
        return ""
    if not dot or _section(Config, section) is not None:
        return _unknown_key((section, key) if dot else (name,), Config)
    near = nearest(name, setting_keys()) or f"; known sections: {', '.join(Config.model_fields)}"
    return f"unknown key `{name}`{near}"


def setting_keys() -> list[str]:
    """Every key that can be set, as `section.key`."""
    return [
        f"{name}.{key}" if section else name
        for name in Config.model_fields
        for section in (_section(Config, name),)
        for key in (section.model_fields if section else [name])
    ]
