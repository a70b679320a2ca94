"""Section [channel]: geometry, fading, link budget, blocks, and what goes wrong on air."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from airfl.catalogue import (
    FADING_LAWS,
    RURAL_SIGHT_M,
    SITES,
    WITH_SIONNA,
    FadingName,
    PathLossName,
    is_import_path,
    site_of,
)
from airfl.config.section import Section
from airfl.traits import Axis

#: As in ``channel.geometry``, which loads more than a configuration needs.
LIGHT_M_S = 299_792_458.0
#: f_D·age where J_0(2π f_D·age) is zero for the first time.
FIRST_ZERO = 2.404825557695773 / (2.0 * math.pi)


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
        None, ge=1e-15, le=1e-3, description="RMS delay spread: a band wider than a fifth over it is several blocks"
    )
    coherence_hz: float | None = Field(None, ge=1e-6, le=1e18, description="bandwidth over which a channel is the same")
    coherence_s: float | None = Field(None, ge=1e-15, le=1e12, description="time for which a channel stands still")
    speed_m_s: float | None = Field(None, gt=0, le=1e5, description="of devices: channels stand still for 0.423 λ/v")
    symbols: Literal["real", "complex"] = Field(
        "real", description="complex: two coordinates a symbol, half the time on air"
    )
    rotation: Annotated[bool, Axis.ROTATION] = Field(
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
    phase_error_rad: Annotated[float, Axis.PHASE_ERROR] = Field(
        0.0, ge=0, le=100, description="of oscillators: standard deviation, new for each device, round and block"
    )
    timing_offset_s: Annotated[float, Axis.TIMING] = Field(
        0.0, ge=0, le=1, description="RMS, of when devices start; for several bands"
    )
    cyclic_prefix_s: float | None = Field(
        None, gt=0, le=1, description="what echoes leave of the guard before each symbol; three times the offset fits"
    )
    clipping_db: Annotated[float | None, Axis.CLIPPING] = Field(
        None, ge=0, le=100, description="amplifiers limit each symbol to this far above the mean power limit"
    )
    adc_bits: Annotated[int | None, Axis.ADC] = Field(
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
    interference_dbm: Annotated[float | None, Axis.INTERFERENCE] = Field(
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


def _bessel_j0(x: float) -> float:
    """J_0(x) = mean of cos(x sin θ) over half a turn, to rounding for |x| up to 10."""
    return math.fsum(math.cos(x * math.sin(math.pi * k / 32)) for k in range(32)) / 32.0
