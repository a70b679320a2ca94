"""What a figure can have as x, as y, and a line for each of: names, words and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from airfl.catalogue import is_import_path, nearest
from airfl.channel.budget import link_budget, power_limit_w
from airfl.channel.noise import dbm_of_power
from airfl.config import Config
from airfl.errors import InputError
from airfl.report.study_source import RECORDED, Cell, Source
from airfl.schemes import scheme_shown
from airfl.traits import OBSERVERS
from airfl.wording import OBSERVER_WORDS, at_most_text, number

#: Keys in words, where their own are not enough.
WORDS = {
    "system.num_devices": "devices",
    "system.num_antennas": "antennas",
    "system.participation": "share of devices that take part",
    "privacy.epsilon": "privacy budget ε",
    "privacy.epsilon_tilde": "privacy budget ε̃ = ε/√d",
    "privacy.delta": "δ",
    "learning.clip_norm": "clip norm c",
    "learning.clip_factor": "clip factor c²/d",
    "channel.power_w": "transmit power, W",
    "channel.csi_error": "channel estimation error τ",
    "round": "round",
    "scheme": "scheme",
    "snr_db": r"worst-case SNR $P\,\Lambda_{\min}/\sigma^2$ per antenna, dB",
    "power_dbm": "transmit power, dBm",
    "num_active": "active devices per round",
}
UNITS = {"_dbm_hz": "dBm/Hz", "_hz": "Hz", "_db": "dB", "_w": "W", "_m": "m"}
#: Other names of what is computed from a configuration.
ALIASES = {
    "channel.snr_db": "snr_db",
    "channel.power_dbm": "power_dbm",
    "system.num_active": "num_active",
    "scheme.names": "scheme",
    "system.round": "round",
}


@dataclass(frozen=True)
class Field:
    """Something that cells differ in.

    Attributes:
        name: as it is asked for, and the name of its column.
        label: on an axis.
    """

    name: str
    label: str
    value: Callable[[Cell], Any]

    def text(self, value: Any) -> str:
        """A value, for legends and tables."""
        if self.name == "scheme":
            return scheme_shown(value).title
        if self.name == "epsilon":
            return at_most_text(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return f"{value:,}"
        if isinstance(value, float):
            short = f"{value:.1f}" if self.name in ("snr_db", "power_dbm") else number(float(f"{value:.6g}"))
            return short.replace("-", "−", 1 if value < 0 else 0)
        return "–" if value is None else ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)

    def named(self, value: Any) -> str:
        """A value that says what it is of."""
        plain = self.name == "scheme" or isinstance(value, str)
        if self.name in ("system.num_devices", "system.num_antennas"):
            return f"{self.text(value)} {self.label}"
        words, _, unit = ("SNR, dB" if self.name == "snr_db" else self.label).partition(", ")
        return self.text(value) if plain else f"{words} = {self.text(value)}{f' {unit}' if unit else ''}"


@dataclass(frozen=True)
class Quantity:
    """Something that is measured.

    Attributes:
        over_rounds: what stands for a whole trial: its last round, the mean or the largest of all.
        share: shown in %.
    """

    name: str
    label: str
    over_rounds: str = "last"
    share: bool = False

    def text(self, value: float | None) -> str:
        """A value, for tables."""
        if self.name.startswith("epsilon"):
            return at_most_text(value)
        if value is None:
            return "–"
        return f"{100 * value:.1f}" if self.share else number(float(f"{value:.4g}"))


QUANTITIES = {
    quantity.name: quantity
    for quantity in (
        Quantity("accuracy", "test accuracy", share=True),
        Quantity("loss", "test loss"),
        Quantity("train_loss", "training loss"),
        Quantity("epsilon", "ε"),
        Quantity("epsilon_booked", "ε as booked"),
        Quantity("noise_var", "noise variance per coordinate", "mean"),
        Quantity("combiner_norm", "norm of the combiner", "mean"),
        Quantity("minimum_norm", "least norm that the power allows", "mean"),
        Quantity("update_norm", "norm of updates before clipping", "mean"),
        Quantity("clipped_fraction", "share of updates that are clipped", "mean", share=True),
        Quantity("max_power_w", "largest transmit power, W", "max"),
        Quantity("misalignment", "misalignment", "mean"),
        Quantity("auc", "area under the ROC curve"),
        Quantity("calibration_error", "calibration error"),
        Quantity("own_accuracy", "accuracy on devices' own samples", share=True),
        Quantity("device_accuracy_mean", "accuracy, mean over devices", share=True),
        Quantity("device_accuracy_p10", "accuracy, 10th percentile of devices", share=True),
        Quantity("personal_accuracy", "accuracy of personal layers", share=True),
        Quantity("personal_accuracy_mean", "accuracy of personal layers, mean over devices", share=True),
        Quantity("personal_accuracy_p10", "accuracy of personal layers, 10th percentile", share=True),
        Quantity("seconds", "seconds"),
    )
}
assert {*RECORDED} < {*QUANTITIES}


def quantity_of(name: str, source: Source) -> Quantity:
    """What y stands for."""
    known = [key for key in QUANTITIES if key != "seconds" or source.kind == "run"]
    plain = "epsilon_booked" if name == "epsilon_max" else name.removesuffix("_mean")
    if name == "seconds" and source.kind == "study":
        raise InputError(
            "a study keeps `seconds` by batch, not by configuration, so they cannot be drawn; choose another y"
        )
    if plain not in known:
        raise InputError(f"no quantity `{name}` to draw{nearest(name, known) or '; known: ' + ', '.join(known)}")
    return QUANTITIES[plain]


def check_observer(observer: str, source: Source) -> None:
    """Refuse an observer of whom nothing is known."""
    seen = {name for cell in source.cells for name in cell.epsilons or ()}
    if observer not in seen:
        known = [name for name in OBSERVERS if name in seen]
        hint = nearest(observer, known) or f"; known: {', '.join(known) or 'nobody, since no ledgers were kept'}"
        raise InputError(f"there is no ε for the observer `{observer}` here{hint}")
    without = [cell.scheme for cell in source.cells if cell.epsilons and observer not in cell.epsilons]
    if without:
        raise InputError(
            f"`{without[0]}` counts on nobody knowing who took part, and its ε of `{observer}` would tell; choose "
            "`model` or `models`"
        )


def exact_epsilon(cell: Cell, observer: str) -> float | None:
    """ε by exact accounting, the worst trial; None: no finite one."""
    return ((cell.epsilons or {}).get(observer) or {}).get("gaussian")


def field_of(name: str, source: Source, observer: str) -> Field:
    """What a name stands for: a key of the configuration, its last part, or something that follows from it."""
    plain = ALIASES.get(name, name)
    computed: dict[str, Callable[[Cell], Any]] = {
        "scheme": lambda cell: cell.scheme,
        "round": lambda cell: None,
        "snr_db": lambda cell: round(snr_db(cell.config), 6),
        "power_dbm": lambda cell: round(dbm_of_power(power_limit_w(cell.config.channel)), 6),
        "num_active": lambda cell: cell.config.system.num_active,
        "epsilon": lambda cell: exact_epsilon(cell, observer),
    }
    if plain == "epsilon":
        check_observer(observer, source)
        return Field(plain, "ε", computed[plain])
    if plain in computed:
        return Field(plain, WORDS[plain], computed[plain])
    keys = dict.fromkeys(key for cell in source.cells for key in cell.keys)
    key = name if name in keys else _shorthand(name, source, list(keys))
    if key is None:
        known = [*source.axes, *computed, *ALIASES, *keys]
        hint = nearest(name, known) or f"; what varies here: {', '.join(varying(source))}"
        raise InputError(f"no configuration key and no quantity `{name}`{hint}")
    return Field(key, WORDS.get(key) or words_of(key), lambda cell: cell.keys.get(key))


def _shorthand(name: str, source: Source, keys: Sequence[str]) -> str | None:
    """The one key that ends in a name, `devices` being `num_devices`; those that vary are looked at first."""
    for some in (source.axes, keys):
        found = [key for key in some if key.partition(".")[2] in (name, f"num_{name}")]
        if len(found) > 1:
            raise InputError(f"`{name}` may be {' or '.join(f'`{key}`' for key in found)}; write one of them")
        if found:
            return found[0]
    return None


def varying(source: Source) -> list[str]:
    """What x can be."""
    schemes = ["scheme"] if len({cell.scheme for cell in source.cells}) > 1 else []
    also = ["snr_db"] if any(axis.startswith("channel.") for axis in source.axes) else []
    return ["round", *source.axes, *also, *schemes, "epsilon"]


def words_of(key: str) -> str:
    """The last part of a key as words, its unit behind a comma."""
    last = key.partition(".")[2]
    for suffix, unit in UNITS.items():
        if last.endswith(suffix):
            return f"{last.removesuffix(suffix).replace('_', ' ')}, {unit}"
    return last.replace("_", " ")


def snr_db(config: Config) -> float:
    """The paper's worst-case SNR per antenna, P·Λ_min/σ² with the path gain Λ_min at the cell edge, dB."""
    channel = config.channel
    if channel.fading == "trace" or is_import_path(channel.fading):
        raise InputError(
            f"`snr_db` takes the path gain at the cell edge, which fading `{channel.fading}` does not have; use "
            "channel.power_w or power_dbm"
        )
    return 10.0 * math.log10(link_budget(config).snr)


def epsilon_label(cells: Sequence[Cell], observer: str) -> str:
    """What an ε is: at which δ, for which neighbours, against whom."""
    deltas = {number(cell.config.privacy.delta) for cell in cells}
    relations = {cell.config.neighbours for cell in cells}
    at = f" at δ = {deltas.pop()}" if len(deltas) == 1 else ""
    relation = f" ({relations.pop()})" if len(relations) == 1 else ""
    return f"ε by exact accounting{at}{relation}, against {OBSERVER_WORDS[observer]}; the worst trial."
