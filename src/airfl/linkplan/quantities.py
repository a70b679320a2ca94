"""What a user knows about a link, in one frozen record: from a scenario file, from options, or both.

Names carry units; what is not known is None. Some quantities say the same thing in two ways, and only one may be given:
``snr_db`` stands for power, distance and noise together, and ``noise_var`` stands for the whole link.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib import resources
from pathlib import Path
from typing import Any

from airfl.catalogue import nearest, no_such
from airfl.channel.geometry import path_gain
from airfl.channel.noise import noise_power_w
from airfl.errors import InputError, in_words
from airfl.linkplan.law import LAYOUTS, Layout
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
        power_w: P, the transmit power limit.
        distance_m: R, cell radius.
        snr_db: P·Λ_edge/σ² per antenna, in place of power, distance and noise.
        carrier_hz, noise_density_dbm_hz, bandwidth_hz: Λ_edge and σ² follow.
        parameters: d.
        rounds: T.
        clip_norm: c; ε at full power does not depend on it.
        clip_factor: c²/d, where d is still to be found.
        delta, epsilon, neighbours: the promise; neighbours None: as the simulator chooses.
        symbol_rate_hz: complex symbols a second; default: the bandwidth.
        update_norm: ‖mean of Δ̄_i‖; default: alignment times c.
        alignment: norm of the averaged update over c.
        noise_var: v per real coordinate of the sum, in place of the link.
    """

    devices: int | None = None
    participation: float = 1.0
    sampling: str = "fixed"
    antennas: int | None = None
    layout: Layout = "disk"
    power_w: float | None = None
    distance_m: float | None = None
    snr_db: float | None = None
    carrier_hz: float = 2.4e9
    noise_density_dbm_hz: float = -173.0
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

    def __post_init__(self) -> None:
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is None:
                continue
            good = isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
            if not good or (name in _WHOLE and value != int(value)):
                kind = "a whole number from" if name in _WHOLE else "a number from"
                raise InputError(f"`{name}` must be {kind} {low:g} to {high:.10g}; got {value!r}")
        choices: tuple[tuple[str, tuple[str, ...]], ...] = (("layout", LAYOUTS), ("sampling", ("fixed", "poisson")))
        if self.neighbours is not None:
            try:
                object.__setattr__(self, "neighbours", relation_of(self.neighbours))
            except PrivacyError as error:
                raise InputError(str(error)) from None
        for name, known in choices:
            if getattr(self, name) not in known:
                near = nearest(str(getattr(self, name)), known)
                raise InputError(f"`{name}` must be one of {', '.join(known)}; got {getattr(self, name)!r}{near}")

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
        if self.snr_db is not None:
            return float(10.0 ** (self.snr_db / 10.0))
        assert self.power_w is not None
        assert self.distance_m is not None
        assert self.bandwidth_hz is not None
        noise = noise_power_w(self.noise_density_dbm_hz, self.bandwidth_hz)
        return self.power_w * float(path_gain(self.distance_m, self.carrier_hz)) / noise

    @property
    def symbols_per_second(self) -> float | None:
        """The symbol rate; one complex symbol a second and hertz where none was given."""
        return self.symbol_rate_hz if self.symbol_rate_hz is not None else self.bandwidth_hz

    def with_values(self, values: Mapping[str, Any]) -> Quantities:
        """A copy with some quantities changed."""
        return replace(self, **values)


_WHOLE = ("devices", "antennas", "parameters", "rounds")
#: What a plan takes.
RANGES: dict[str, tuple[float, float]] = {
    "devices": (1, 10**9),
    "participation": (1e-9, 1.0),
    "antennas": (1, 10**6),
    "power_w": (1e-30, 1e12),
    "distance_m": (1e-6, 1e12),
    "snr_db": (-400.0, 400.0),
    "carrier_hz": (1e-6, 1e18),
    "noise_density_dbm_hz": (-400.0, 400.0),
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


#: Two ways of saying one thing: a scenario, or what was typed, has one of them.
SAME = (
    ("active", "participation"),
    ("update_norm", "alignment"),
    ("snr_db", "distance_m"),
    *(("noise_var", name) for name in ("snr_db", "distance_m", "power_w", "antennas")),
)


def word_of(name: str) -> str:
    """The command's word for a quantity."""
    return next((word for word, field in WORDS.items() if field == name), name.replace("_", "-"))


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
