"""What a user knows about a link, in one frozen record: from a scenario file, from options, or both.

Names carry units and are the simulator's; what is not known is None. Some quantities say the same thing in two ways,
and only one may be given: ``snr_db`` stands for power, distance and noise together, ``noise_var`` for the whole link.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from airfl.catalogue import nearest, no_such
from airfl.channel.blocks import symbols_of
from airfl.channel.budget import edge_gain
from airfl.channel.noise import power_of_dbm
from airfl.errors import InputError, in_words
from airfl.linkplan.law import LAYOUTS, Layout
from airfl.linkplan.link import disturbance_of, snr_of, wide_channel_of
from airfl.places import scenario_names
from airfl.privacy import Neighbours, PrivacyError, relation_of
from airfl.toml import parse_toml


@dataclass(frozen=True)
class Quantities:
    """n devices, K = r·n of them active, m antennas, and what else a plan needs.

    Attributes:
        devices: n.
        participation: r.
        sampling: ``fixed`` (K of n) or ``poisson``.
        antennas: m.
        layout: ``disk`` (r = R√U) or ``ring`` (all at the edge).
        power_w, power_dbm: P, the transmit power limit; one of them.
        distance_m: R, cell radius.
        snr_db: P·Λ_edge/σ² per antenna, in place of power, distance and noise.
        carrier_hz, bandwidth_hz: Λ_edge and σ² follow.
        noise_density_dbm_hz, noise_figure_db: N₀, −173 where neither is given, or −174 and the figure.
        antenna_gain_dbi, device_gain_dbi, loss_db: of a base station's antenna, a device's, and what is lost between.
        path_loss, path_loss_exponent: as ``channel.path_loss``; the exponent is log-distance, free space at 1 m.
        shadowing_db, shadowing_distance_m: log-normal; the edge is then the median's.
        interference_dbm: at each antenna over the bandwidth; counts against accuracy and never for privacy.
        fading: the law; ``rician_k_db``, ``profile``, ``hall`` and ``indoor_share`` belong to some of them.
        base_height_m, device_height_m: of 3GPP path losses.
        parameters: d.
        rounds: T.
        clip_norm: c; ε at full power does not depend on it.
        clip_factor: c²/d, where d is still to be found.
        delta, epsilon, neighbours: the promise; neighbours None: as the simulator chooses.
        symbol_rate_hz: complex symbols a second; default: the bandwidth.
        update_norm: ‖mean of Δ̄_i‖; default: alignment times c.
        alignment: norm of the averaged update over c.
        noise_var: v per real coordinate of the sum, in place of the link.
        speed_m_s, delay_spread_s: of what moves, and of echoes (RMS): how long and how wide a channel stands still.
        coherence_hz, coherence_s: the same, stated outright.
        symbols: ``real``: a symbol carries one coordinate; ``complex``: two.
        csi_error: τ, error power of the channel estimates over channel power.
        csi_age_s: how old the channels are that the base station knows.
        phase_error_rad, timing_offset_s, clipping_db, adc_bits: what goes wrong on air, as in ``[channel]``.
    """

    devices: int | None = None
    participation: float = 1.0
    sampling: str = "fixed"
    antennas: int | None = None
    layout: Layout = "disk"
    power_w: float | None = None
    power_dbm: float | None = None
    distance_m: float | None = None
    snr_db: float | None = None
    carrier_hz: float = 2.4e9
    noise_density_dbm_hz: float | None = None
    noise_figure_db: float | None = None
    antenna_gain_dbi: float = 0.0
    device_gain_dbi: float = 0.0
    loss_db: float = 0.0
    path_loss: str | None = None
    path_loss_exponent: float | None = None
    shadowing_db: float = 0.0
    shadowing_distance_m: float = 0.0
    interference_dbm: float | None = None
    fading: str = "rayleigh"
    rician_k_db: float | None = None
    profile: str | None = None
    hall: str | None = None
    indoor_share: float | None = None
    base_height_m: float | None = None
    device_height_m: float | None = None
    bandwidth_hz: float | None = None
    parameters: int | None = None
    rounds: int | None = None
    clip_norm: float | None = None
    clip_factor: float | None = None
    delta: float = 1e-5
    epsilon: float | None = None
    neighbours: Neighbours | None = None
    symbol_rate_hz: float | None = None
    update_norm: float | None = None
    alignment: float = 0.3
    noise_var: float | None = None
    speed_m_s: float | None = None
    delay_spread_s: float | None = None
    coherence_hz: float | None = None
    coherence_s: float | None = None
    symbols: str = "real"
    csi_error: float | None = None
    csi_age_s: float | None = None
    phase_error_rad: float | None = None
    timing_offset_s: float | None = None
    clipping_db: float | None = None
    adc_bits: int | None = None

    def __post_init__(self) -> None:
        if self.noise_density_dbm_hz is None and self.noise_figure_db is None:
            object.__setattr__(self, "noise_density_dbm_hz", USUAL_DENSITY)
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is None:
                continue
            good = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
            if not good or (name in _WHOLE and value != int(value)):
                kind = "a whole number from" if name in _WHOLE else "a number from"
                raise InputError(f"`{name}` must be {kind} {low:g} to {high:.10g}; got {value!r}")
        choices: tuple[tuple[str, tuple[str, ...]], ...] = (
            ("layout", LAYOUTS), ("sampling", ("fixed", "poisson")), ("symbols", ("real", "complex")),
        )  # fmt: skip
        if self.neighbours is not None:
            try:
                object.__setattr__(self, "neighbours", relation_of(self.neighbours))
            except PrivacyError as error:
                raise InputError(str(error)) from None
        for name, known in choices:
            if getattr(self, name) not in known:
                near = nearest(str(getattr(self, name)), known)
                raise InputError(f"`{name}` must be one of {', '.join(known)}; got {getattr(self, name)!r}{near}")
        for name in ("fading", "path_loss", "profile", "hall"):
            if not isinstance(getattr(self, name), str | None):
                raise InputError(f"`{name}` must be a name; got {getattr(self, name)!r}")
        if self.fading == "trace":
            raise InputError("a plan draws channels from a law, and `trace` has measured ones; name another `fading`")
        edge_gain(wide_channel_of(self))

    @property
    def active(self) -> int:
        """K, as the simulator rounds it."""
        assert self.devices is not None
        return max(1, round(self.participation * self.devices))

    @property
    def relation(self) -> Neighbours:
        """The neighbours; where none were named, ``replace`` if exactly K of n are drawn, as in the simulator."""
        if self.neighbours is not None:
            return self.neighbours
        some = self.participation < 1.0 and (self.devices is None or self.active < self.devices)
        return "replace" if some and self.sampling == "fixed" else "zero-out"

    @property
    def snr(self) -> float:
        """P·Λ_edge/σ², linear: what arrives at one antenna from the cell edge at full power, over the noise."""
        return snr_of(self) if self.snr_db is None else float(10.0 ** (self.snr_db / 10.0))

    @property
    def disturbance(self) -> float:
        """1 + I/σ²: the noise that accuracy suffers over the noise that privacy counts on."""
        return 1.0 if self.interference_dbm is None or self.noise_var is not None else disturbance_of(self)

    @property
    def limit_w(self) -> float | None:
        """P in watts, whichever way it was given; None: not known."""
        return self.power_w if self.power_dbm is None else power_of_dbm(self.power_dbm)

    @property
    def symbols_a_round(self) -> int | None:
        """How many symbols d coordinates take; None: d is not known."""
        return None if self.parameters is None else symbols_of(wide_channel_of(self), int(self.parameters))

    @property
    def symbols_per_second(self) -> float | None:
        """The symbol rate; one complex symbol a second and hertz where none was given."""
        return self.symbol_rate_hz if self.symbol_rate_hz is not None else self.bandwidth_hz

    def with_values(self, values: Mapping[str, Any]) -> Quantities:
        """A copy with some quantities changed; what said the same in other words is left out."""
        given = {name for name, value in values.items() if value is not None}
        gone = {other for pair in EITHER for one, other in (pair, pair[::-1]) if one in given and other not in given}
        changes: dict[str, Any] = {**dict.fromkeys(gone), **values}
        return replace(self, **changes)


#: N₀ where nothing is said of the receiver, dBm/Hz.
USUAL_DENSITY = -173.0
_WHOLE = ("devices", "antennas", "parameters", "rounds", "adc_bits")
#: What a plan takes.
RANGES: dict[str, tuple[float, float]] = {
    "devices": (1, 10**9),
    "participation": (1e-9, 1.0),
    "antennas": (1, 10**6),
    "power_w": (1e-30, 1e12),
    "distance_m": (1e-6, 1e12),
    "power_dbm": (-270.0, 150.0),
    "snr_db": (-400.0, 400.0),
    "carrier_hz": (1e-6, 1e18),
    "noise_density_dbm_hz": (-400.0, 400.0),
    "noise_figure_db": (0.0, 100.0),
    "antenna_gain_dbi": (-100.0, 100.0),
    "device_gain_dbi": (-100.0, 100.0),
    "loss_db": (0.0, 200.0),
    "path_loss_exponent": (0.0, 20.0),
    "shadowing_db": (0.0, 50.0),
    "shadowing_distance_m": (0.0, 1e6),
    "rician_k_db": (-100.0, 100.0),
    "indoor_share": (0.0, 1.0),
    "interference_dbm": (-400.0, 150.0),
    "base_height_m": (1e-6, 1000.0),
    "device_height_m": (1e-6, 1000.0),
    "bandwidth_hz": (1e-6, 1e18),
    "parameters": (1, 10**15),
    "rounds": (1, 10**9),
    "clip_norm": (1e-12, 1e12),
    "delta": (1e-200, 1.0 - 1e-9),
    "epsilon": (1e-9, 1e15),
    "symbol_rate_hz": (1e-6, 1e18),
    "update_norm": (1e-30, 1e30),
    "alignment": (1e-9, 1.0),
    "noise_var": (1e-100, 1e100),
    "speed_m_s": (0.0, 1e6),
    "delay_spread_s": (1e-15, 1e-3),
    "coherence_hz": (1e-6, 1e18),
    "coherence_s": (1e-15, 1e12),
    "csi_error": (1e-12, 0.999),
    "csi_age_s": (0.0, 1e6),
    "phase_error_rad": (0.0, 100.0),
    "timing_offset_s": (0.0, 1.0),
    "clipping_db": (0.0, 100.0),
    "adc_bits": (1, 32),
}


#: The command's word for each quantity that can be solved for.
WORDS = {
    "devices": "devices",
    "antennas": "antennas",
    "power": "power_w",
    "distance": "distance_m",
    "snr": "snr_db",
    "bandwidth": "bandwidth_hz",
    "parameters": "parameters",
    "rounds": "rounds",
    "clip": "clip_norm",
    "delta": "delta",
    "epsilon": "epsilon",
    "noise-var": "noise_var",
}


#: The command's words that are no names of quantities with hyphens for what they stand for.
FLAGS = {
    "carrier_hz": "carrier",
    "noise_density_dbm_hz": "noise-density",
    "noise_figure_db": "noise-figure",
    "antenna_gain_dbi": "antenna-gain",
    "device_gain_dbi": "device-gain",
    "loss_db": "loss",
    "shadowing_db": "shadowing",
    "interference_dbm": "interference",
    "base_height_m": "base-height",
    "device_height_m": "device-height",
    "symbol_rate_hz": "symbol-rate",
    "rician_k_db": "rician-k",
    "speed_m_s": "speed",
    "delay_spread_s": "delay-spread",
    "csi_age_s": "csi-age",
    "phase_error_rad": "phase-error",
    "timing_offset_s": "timing-offset",
    "clipping_db": "clipping",
}

#: Of these one gives way to the other in a copy.
EITHER = (("power_w", "power_dbm"), ("noise_density_dbm_hz", "noise_figure_db"))
#: Two ways of saying one thing: a scenario, or what was typed, has one of them.
SAME = (
    *EITHER,
    ("active", "participation"),
    ("update_norm", "alignment"),
    ("snr_db", "distance_m"),
    ("coherence_s", "speed_m_s"),
    *(("noise_var", name) for name in ("snr_db", "distance_m", "power_w", "power_dbm", "antennas", "interference_dbm")),
)


def word_of(name: str) -> str:
    """The command's word for a quantity."""
    return FLAGS.get(name) or next((word for word, field in WORDS.items() if field == name), name.replace("_", "-"))


def scenario_text(name: str) -> str:
    """The TOML of a shipped scenario, or of a file."""
    if name in scenario_names():
        return (resources.files("airfl") / "linkplan" / "scenarios" / f"{name}.toml").read_text(encoding="utf-8")
    path = Path(name)
    if path.suffix != ".toml" and not path.is_file():
        raise InputError(no_such("scenario or file", name, scenario_names()))
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the scenario `{name}`: {in_words(error)}") from None


def read_scenario(name: str) -> dict[str, Any]:
    """The values of a scenario as they stand there, with `clip_factor` (c² = clip_factor·d) and `active` (K)."""
    values = parse_toml(scenario_text(name), f"scenario `{name}`")
    known = {item.name for item in fields(Quantities)} | {"active"}
    unknown = sorted(set(values) - known)
    if unknown:
        near = nearest(unknown[0], known) or f"; known: {', '.join(sorted(known))}"
        raise InputError(f"scenario `{name}`: unknown key `{unknown[0]}`{near}")
    for one, other in (*SAME, ("clip_factor", "clip_norm")):
        if one in values and other in values:
            raise InputError(f"scenario `{name}`: `{one}` and `{other}` say the same thing; keep one of them")
    factor = values.get("clip_factor", 1.0)
    if type(factor) not in (int, float) or not 0 < factor < math.inf:
        raise InputError(f"scenario `{name}`: `clip_factor` must be a positive number; got {factor!r}")
    return values
