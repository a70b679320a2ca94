"""From what was given to a question: which quantity is unknown, and which contradict each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from airfl.catalogue import SITES, nearest
from airfl.errors import InputError
from airfl.linkplan.quantities import SAME, WORDS, Quantities, read_scenario, word_of
from airfl.places import scenario_names

#: What makes a link.
LINK = ("power_w", "distance_m", "bandwidth_hz")
#: What laws of 3GPP bring along.
OF_SITES = ("path_loss", "path_loss_exponent", "shadowing_db", "antenna_gain_dbi")
#: What a stated SNR has in it already.
IN_SNR = ("antenna_gain_dbi", "device_gain_dbi", "loss_db")


def _flag(name: str) -> str:
    return f"--{word_of(name)}"


def pose(scenario: str | None, given: Mapping[str, Any], solve_for: str | None = None) -> tuple[Quantities, str | None]:
    """Join a scenario with options, find the one unknown, and refuse contradictions in one sentence.

    Args:
        scenario: a name or a file; its values give way to options.
        given: options by field name, and ``active`` (K); None for those that were left out.
        solve_for: a key of ``WORDS``; default: the one quantity that is missing.

    Returns:
        The quantities and the field name of the unknown; None if nothing is.
    """
    options = {name: value for name, value in given.items() if value is not None}
    if solve_for is not None and solve_for not in WORDS:
        near = nearest(solve_for, WORDS)
        raise InputError(f"cannot solve for `{solve_for}`{near}{' Known' if near else '; known'}: {', '.join(WORDS)}")
    wanted = None if solve_for is None else WORDS[solve_for]
    _refuse_pairs(options, wanted)
    values = {} if scenario is None else read_scenario(scenario)
    _give_way(values, options, wanted)
    values.update(options)
    if wanted is not None:
        values.pop(wanted, None)
    _resolve_active(values, wanted)
    _resolve_clip(values)
    quantities = Quantities(**values)
    _refuse_what_does_not_matter(quantities, wanted)
    missing = [name for name in _needed(values, wanted) if not _known(values, name) and name != wanted]
    if wanted is None and len(missing) == 1:
        wanted, missing = missing[0], []
    if missing:
        words = ", ".join(_flag(name) for name in missing)
        more = f" besides {_flag(wanted)}, which is solved for" if wanted else ""
        known = ", ".join(scenario_names())
        raise InputError(f"{words} missing{more}; one quantity can be left out, or give a scenario ({known})")
    _refuse_beside_snr(quantities, wanted)
    c_unknown = quantities.clip_norm is None and quantities.clip_factor is None
    if quantities.update_norm is not None and c_unknown and wanted != "clip_norm":
        raise InputError("--update-norm needs --clip to compare the noise with; give both or none")
    if (quantities.update_norm or 0.0) > (quantities.clip_norm or math.inf):
        raise InputError(
            f"--update-norm {quantities.update_norm:g} is more than the clip norm {quantities.clip_norm:g}, and a mean "
            "of clipped updates cannot exceed that; lower it or raise --clip"
        )
    if quantities.interference_dbm is not None and quantities.bandwidth_hz is None and wanted != "bandwidth_hz":
        raise InputError("--interference is weighed against the noise over the bandwidth; give --bandwidth too")
    return quantities, wanted


def _refuse_pairs(options: Mapping[str, Any], wanted: str | None) -> None:
    """Contradictions among what the user typed, whatever a scenario says."""
    if wanted is not None and wanted in options:
        raise InputError(f"{_flag(wanted)} is given and solved for; leave out one of the two")
    if "active" in options and wanted == "devices":
        raise InputError("--active fixes how many devices transmit; to solve for devices give --participation instead")
    asked = {*options, *([wanted] if wanted else [])}
    for one, other in SAME:
        if one in asked and other in asked:
            if one == "noise_var":
                raise InputError(f"--noise-var stands for the whole link; leave out {_flag(other)}, or --noise-var")
            raise InputError(f"{_flag(one)} and {_flag(other)} say the same thing; give one of them")
    if "snr_db" in options and wanted in LINK:
        raise InputError(f"--snr says how good the link is, so {_flag(wanted)} cannot be solved for; leave out --snr")


def _give_way(values: dict[str, Any], options: Mapping[str, Any], wanted: str | None) -> None:
    """Drop what a scenario says in other words than the options do."""
    asked = {*options, *([wanted] if wanted else [])}
    if wanted in LINK and "snr_db" not in options:
        values.pop("snr_db", None)
    if "snr_db" in asked:
        for name in IN_SNR:
            values.pop(name, None)
    if "clip_norm" in asked:
        values.pop("clip_factor", None)
    for one, other in SAME:
        if one in asked:
            values.pop(other, None)
        if other in asked:
            values.pop(one, None)
    if options.get("path_loss", "log-distance") != "log-distance":
        values.pop("path_loss_exponent", None)
    if "path_loss_exponent" in options:
        values.pop("path_loss", None)
    law = options.get("fading")
    if law in SITES:  # which has these of its own
        for name in OF_SITES:
            values.pop(name, None)
    elif law is None and values.get("fading") in SITES and any(name in options for name in OF_SITES):
        values.pop("fading")


def _known(values: Mapping[str, Any], name: str) -> bool:
    """Whether a quantity is given, in one way or another."""
    return any(values.get(said) is not None for said in (name, *(["power_dbm"] if name == "power_w" else [])))


def _refuse_what_does_not_matter(quantities: Quantities, wanted: str | None) -> None:
    """An unknown that ε does not depend on has no answer."""
    if wanted == "clip_norm" and quantities.noise_var is None:
        raise InputError(
            "cannot solve for the clip norm: at full power ε does not depend on it; give --noise-var in place of the "
            "link"
        )
    if quantities.noise_var is not None and wanted in ("devices", "antennas", "parameters", *LINK):
        raise InputError(
            f"cannot solve for {_flag(wanted)}: with --noise-var ε does not depend on it; leave out --noise-var"
        )


def _refuse_beside_snr(quantities: Quantities, wanted: str | None) -> None:
    """Gains that would be ignored, and places whose distances nobody knows."""
    if quantities.noise_var is None and (quantities.snr_db is not None or wanted == "snr_db"):
        for name in IN_SNR:
            if getattr(quantities, name):
                raise InputError(
                    f"--snr is what arrives, with {_flag(name)} in it already; leave out {_flag(name)}, or give power "
                    "and distance in place of --snr"
                )
    is_correlated = quantities.shadowing_db > 0.0 and quantities.shadowing_distance_m > 0.0
    if is_correlated and quantities.distance_m is None and quantities.noise_var is None:
        raise InputError(
            "`shadowing_distance_m` says what is alike at so many metres, so channels depend on how far devices are: "
            "give --distance, which cannot be solved for then; try some distances"
        )


def _resolve_active(values: dict[str, Any], wanted: str | None) -> None:
    active = values.pop("active", None)
    if active is None:
        return
    if wanted == "devices":
        raise InputError("the scenario fixes `active`; to solve for devices give --participation")
    if isinstance(active, bool) or not isinstance(active, int) or active < 1:
        raise InputError(f"`active` must be a whole number of at least 1; got {active!r}")
    devices = values.setdefault("devices", active)  # nobody else was mentioned
    if type(devices) not in (int, float) or devices < 1:
        raise InputError(f"`devices` must be a whole number of at least 1; got {devices!r}")
    if active > devices:
        raise InputError(f"{active:,} active devices are more than the {devices:,} that there are; lower --active")
    values["participation"] = active / devices


def _resolve_clip(values: dict[str, Any]) -> None:
    """c² = clip_factor·d, for the d that is planned with; left as it is while d is not known."""
    parameters = values.get("parameters")
    if values.get("clip_factor") is None or parameters is None:
        return
    if isinstance(parameters, bool) or not isinstance(parameters, int | float) or not 0 < parameters < math.inf:
        raise InputError(f"`clip_factor` needs a positive number of `parameters`; got {parameters!r}")
    values["clip_norm"] = math.sqrt(values.pop("clip_factor") * parameters)


def _needed(values: Mapping[str, Any], wanted: str | None) -> tuple[str, ...]:
    """What must be known for ε, given how the link is described."""
    if values.get("noise_var") is not None or wanted == "noise_var":
        return ("clip_norm", "noise_var", "rounds", "epsilon")
    # Nothing at all about the link is one unknown: how good it is.
    if (
        values.get("snr_db") is not None
        or wanted == "snr_db"
        or not any(_known(values, n) or wanted == n for n in LINK)
    ):
        return ("devices", "antennas", "snr_db", "parameters", "rounds", "epsilon")
    return ("devices", "antennas", *LINK, "parameters", "rounds", "epsilon")
