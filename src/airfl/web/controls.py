"""The planner's controls: every quantity of ``airfl plan`` by the command's own word, with its unit and usual range."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from airfl.catalogue import FADING_LAWS, PATH_LOSSES, nearest
from airfl.errors import InputError
from airfl.linkplan import WORDS
from airfl.linkplan.quantities import RANGES, SAME, word_of
from airfl.places import scenario_names
from airfl.web.limits import QUERY_NAMES, VALUE_CHARACTERS

Kind = Literal["int", "float", "choice"]


@dataclass(frozen=True)
class Control:
    """One quantity.

    Attributes:
        field: its name in ``linkplan``.
        unit: as it is shown; ``scale`` of it are one of the command's own (MHz are 1e6 Hz).
        low, high: the slider's ends, in the shown unit.
        log: whether the slider's steps are ratios.
        choices: what a ``choice`` may be.
    """

    field: str
    label: str
    unit: str = ""
    low: float = 0.0
    high: float = 1.0
    step: float = 0.0
    log: bool = False
    kind: Kind = "float"
    scale: float = 1.0
    choices: tuple[str, ...] = ()
    help: str = ""

    @property
    def name(self) -> str:
        """The command's word, which is also the query's."""
        return {"tolerated": "tolerate"}.get(self.field) or word_of(self.field)

    def value(self, text: str) -> Any:
        """What a text says, as the command line takes it; of names only those of the list."""
        if self.kind == "choice":
            if text not in self.choices:  # above all no import path: a link must not choose what is executed
                known = ", ".join(self.choices)
                raise InputError(f"--{self.name} must be one of {known}; got `{text[:40]}`")
            return text
        try:
            return int(text) if self.kind == "int" else float(text)
        except ValueError:
            word = "a whole number" if self.kind == "int" else "a number"
            raise InputError(f"--{self.name} must be {word}; got `{text[:40]}`") from None


def _whole(field: str, label: str, low: float, high: float, more: str = "", log: bool = True) -> Control:
    return Control(field, label, low=low, high=high, step=1.0, log=log, kind="int", help=more)


def _of(field: str, label: str, *names: str, more: str = "") -> Control:
    return Control(field, label, kind="choice", choices=names, help=more)


#: By group; the first few are what people turn first.
GROUPS: dict[str, tuple[Control, ...]] = {
    "Link": (
        Control("power_dbm", "Transmit power P", "dBm", -60, 40, 0.1),
        Control("distance_m", "Cell radius", "m", 1, 2e6, log=True),
        _whole("antennas", "Antennas m", 1, 256),
        Control("bandwidth_hz", "Bandwidth", "MHz", 0.01, 400, log=True, scale=1e6),
        Control("carrier_hz", "Carrier", "MHz", 100, 100_000, log=True, scale=1e6),
        Control("snr_db", "Worst-case SNR", "dB", -120, 60, 0.1, help="Per antenna at the edge, in place of distance."),
    ),
    "Devices": (
        _whole("devices", "Devices n", 1, 1e6),
        Control("participation", "Share that takes part r", "", 0.001, 1, log=True),
        _whole("active", "Active devices K", 1, 1e6, "In place of the share."),
        _of("sampling", "Who takes part", "fixed", "poisson", more="Exactly K of n, or a coin each."),
        _of("layout", "Where they are", "disk", "ring", more="Dropped on a disk, or all at the edge."),
    ),
    "Promise": (
        Control("epsilon", "Target ε", "", 0.05, 1000, log=True),
        Control("delta", "δ", "", 1e-12, 0.01, log=True),
        _of("neighbours", "Neighbours", "zero-out", "replace"),
    ),
    "Learning": (
        _whole("parameters", "Parameters d", 1, 1e8),
        _whole("rounds", "Rounds T", 1, 10_000),
        Control("clip_norm", "Clip norm c", "", 0.01, 1000, log=True),
        Control("alignment", "Averaged update over c", "", 0.01, 1, log=True),
        Control("update_norm", "Norm of the averaged update", "", 0.001, 1000, log=True),
        Control("tolerated", "Tolerated noise-to-update ratio", "", 0.01, 100, log=True),
        Control("noise_var", "Noise variance v", "", 1e-6, 1e9, log=True, help="Per coordinate, in place of the link."),
    ),
    "Link budget": (
        Control("power_w", "Transmit power P", "W", 1e-15, 10, log=True, help="In place of dBm."),
        Control("noise_figure_db", "Noise figure", "dB", 0, 20, 0.1),
        Control("noise_density_dbm_hz", "Noise density", "dBm/Hz", -200, -120, 0.1),
        Control("antenna_gain_dbi", "Gain of an antenna", "dBi", -10, 30, 0.1),
        Control("device_gain_dbi", "Gain of a device", "dBi", -20, 20, 0.1),
        Control("loss_db", "Loss", "dB", 0, 60, 0.1, help="Of cables, bodies and windows."),
        _of("path_loss", "Path loss", *PATH_LOSSES),
        Control("path_loss_exponent", "Path loss exponent", "", 1, 6, 0.01),
        Control("base_height_m", "Height of the base station", "m", 1, 200, log=True),
        Control("device_height_m", "Height of devices", "m", 0.5, 25, log=True),
        Control("shadowing_db", "Shadowing", "dB", 0, 15, 0.1),
        Control("interference_dbm", "Interference", "dBm", -180, -40, 0.1, help="Never counted as privacy."),
        _of("fading", "Fading", *(law for law in FADING_LAWS if law != "trace")),
        Control("rician_k_db", "Rician K", "dB", -20, 30, 0.1),
        _whole("drops", "Drops", 1, 200, "Draw so many places of the devices, in place of tables."),
    ),
    "Time, band and what goes wrong": (
        Control("speed_m_s", "Speed", "m/s", 0.01, 100, log=True),
        Control("delay_spread_s", "Delay spread, RMS", "ns", 1, 10_000, log=True, scale=1e-9),
        Control("coherence_hz", "Coherence bandwidth", "MHz", 0.001, 1000, log=True, scale=1e6),
        Control("coherence_s", "Coherence time", "ms", 0.01, 10_000, log=True, scale=1e-3),
        _of("symbols", "Symbols", "real", "complex"),
        Control("symbol_rate_hz", "Symbol rate", "MHz", 0.001, 1000, log=True, scale=1e6),
        Control("csi_error", "Error of channel estimates τ", "", 1e-4, 0.9, log=True),
        Control("csi_age_s", "Age of channel estimates", "ms", 0.01, 1000, log=True, scale=1e-3),
        Control("phase_error_rad", "Phase error", "rad", 0, 3, 0.01),
        Control("timing_offset_s", "Timing offset, RMS", "ns", 0.1, 10_000, log=True, scale=1e-9),
        Control("clipping_db", "Clipping above mean power", "dB", 0, 20, 0.1, help="Named, not counted."),
        _whole("adc_bits", "Bits of converters", 1, 16, "Named, not counted.", log=False),
    ),
}
#: Shown from the beginning; the others unfold.
OPEN = ("Link", "Devices", "Promise", "Learning")


@cache
def controls() -> dict[str, Control]:
    """All controls by name."""
    return {control.name: control for group in GROUPS.values() for control in group}


def rivals() -> dict[str, list[str]]:
    """Controls that say the same in other words, by name: touching one lets go of the others."""
    found: dict[str, list[str]] = {}
    for one, other in SAME:
        for mine, theirs in ((one, other), (other, one)):
            found.setdefault(word_of(mine), []).append(word_of(theirs))
    return {name: others for name, others in found.items() if name in controls()}


@dataclass(frozen=True)
class Asked:
    """A question: what the query says.

    Attributes:
        texts: by the command's word, as they were written.
    """

    scenario: str | None
    texts: dict[str, str]
    solve_for: str | None

    @property
    def given(self) -> dict[str, Any]:
        """Values by field name, as ``linkplan.plan`` takes them."""
        known = controls()
        return {known[name].field: known[name].value(text) for name, text in self.texts.items()}

    @property
    def words(self) -> list[str]:
        """The command line that asks the same."""
        more = [word for name, text in self.texts.items() for word in (f"--{name}", text)]
        solving = [] if self.solve_for is None else ["--solve-for", self.solve_for]
        return ["airfl", "plan", *([self.scenario] if self.scenario else []), *more, *solving]


def read_query(pairs: list[tuple[str, str]]) -> Asked:
    """A question from the pairs of a query; an empty value says nothing."""
    if len(pairs) > QUERY_NAMES:
        raise InputError(f"a question has at most {QUERY_NAMES} values; got {len(pairs)}")
    found: dict[str, str] = {}
    known = [*controls(), "scenario", "solve-for"]
    for name, text in pairs:
        if name not in known:
            raise InputError(f"a plan has no quantity `{name[:40]}`{nearest(name[:40], known)}")
        if name in found:
            raise InputError(f"--{name} is there twice; give it once")
        if len(text) > VALUE_CHARACTERS:
            raise InputError(f"--{name} has {len(text):,} characters; at most {VALUE_CHARACTERS} make sense")
        if text.strip():
            found[name] = text.strip()
    scenario, solve_for = found.pop("scenario", None), found.pop("solve-for", None)
    if scenario is not None and scenario not in scenario_names():  # never a file: the command line reads those
        raise InputError(f"no scenario `{scenario[:40]}`; known: {', '.join(scenario_names())}")
    if solve_for is not None and solve_for not in WORDS:
        raise InputError(f"cannot solve for `{solve_for[:40]}`; known: {', '.join(WORDS)}")
    return Asked(scenario, {name: found[name] for name in known if name in found}, solve_for)


def described() -> list[dict[str, Any]]:
    """The groups of controls, for the page."""
    return [
        {
            "name": group,
            "open": group in OPEN,
            "controls": [
                {**vars(control), "name": control.name, "range": RANGES.get(control.field)} for control in some
            ],
        }
        for group, some in GROUPS.items()
    ]
