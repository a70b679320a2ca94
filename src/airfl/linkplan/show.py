"""A plan for people: a table and plain sentences."""

from __future__ import annotations

import math
from html import escape
from pathlib import Path

from airfl.linkplan.accuracy import SHIPPED, Check, CostModel, shipped, study_check
from airfl.linkplan.answer import Answer
from airfl.linkplan.law import MOST_ANTENNAS
from airfl.linkplan.quantities import Quantities, word_of
from airfl.linkplan.show_radio import (
    drawn_sentence,
    flattered_sentence,
    interference_sentence,
    radio_sentences,
    transmit_sentence,
)
from airfl.terminal import numbers, print_table, prose, words
from airfl.wording import (
    NEIGHBOUR_WORDS,
    counted,
    epsilon_meaning,
    epsilon_text,
    html_table,
    number,
    plain_console,
    power_text,
    scaled_text,
    text_table,
)

#: Standard error of the table of combiners below which it need not be mentioned.
WELL_KNOWN = 0.02
#: How far off extrapolated combiners were where they were measured after all.
EXTRAPOLATED = "the SNR threshold was up to 0.5 dB off where that was checked (docs/plan.md)"

_OBSERVERS = {
    "model": "anyone who sees the final model",
    "models": "anyone who hears every round's model",
    "base-station": "a curious base station",
}


def print_plan(answer: Answer, title: str, check: Check | None, folder: Path | None) -> None:
    """The table of observers, the plan in sentences, and where the figure is."""
    console = plain_console()
    console.print(f"{title}: {in_short(answer.quantities)}", highlight=False)
    rows = [tuple(row.values()) for row in observer_rows(answer)]
    print_table([words("observer"), prose(""), *numbers("free ε", "ε kept")], rows)
    for sentence in sentences(answer, check):
        console.print(f"• {sentence}", highlight=False)
    if folder is not None:
        print(f"\nFigure: {(folder / 'plan.png').resolve()}")


def plan_text(answer: Answer) -> str:
    """The plan as text: who learns how much, and the sentences."""
    lines = [f"<airfl plan: {in_short(answer.quantities)}", text_table(observer_rows(answer))]
    return "\n".join([*lines, *(f"• {sentence}" for sentence in sentences(answer, study_check()))]) + ">"


def plan_html(answer: Answer) -> str:
    """The same for a notebook."""
    said = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences(answer, study_check()))
    return f"{html_table(observer_rows(answer), in_short(answer.quantities))}<ul>{said}</ul>"


def observer_rows(answer: Answer) -> list[dict[str, str]]:
    """Who learns how much, without a target and with it."""
    rows = []
    for observer, who in _OBSERVERS.items():
        known = answer.snr_db is not None or observer != "base-station"
        free, kept = (
            epsilon_text(value) if known else "?" for value in (answer.epsilon[observer], answer.epsilon_kept[observer])
        )
        rows.append({"observer": observer, "": who, "free ε": free, "ε kept": kept})
    return rows


def in_short(q: Quantities) -> str:
    """The link in a few words."""
    parts = []
    if q.devices is not None:
        devices = counted(q.devices, "device")
        parts.append(devices if q.active == q.devices else f"{q.active:,} of {devices}")
    if q.antennas is not None and q.noise_var is None:
        parts.append(counted(q.antennas, "antenna"))
    if q.parameters is not None:
        parts.append(counted(q.parameters, "parameter"))
    parts.append(counted(q.rounds or 0, "round"))
    return ", ".join(parts)


def sentences(answer: Answer, check: Check | None = None) -> list[str]:
    """The plan in plain words, the answer first."""
    q = answer.quantities
    free = answer.epsilon["models"]
    said = []
    if answer.solved_for is not None:
        said.append(f"Solved for {word_of(answer.solved_for)}: {solved_text(answer)}.{_but(answer)}")
    spread = ""
    if answer.epsilon_range is not None and answer.epsilon_range[1] > 1.01 * answer.epsilon_range[0]:
        low, high = (epsilon_text(value) for value in answer.epsilon_range)
        spread = f"; from {low} to {high} depending on where the devices happen to be"
    noise = "At full power the noise alone" if answer.snr_db is not None else "This noise"
    said.append(
        f"{noise} gives ε = {epsilon_text(free)} to anyone who sees the models (δ = {number(q.delta)}, "
        f"{NEIGHBOUR_WORDS[q.relation]}, exact accounting{spread}): {epsilon_meaning(free)}."
    )
    said += _table_sentence(answer)
    said.append(_perk_sentence(answer))
    flattered = flattered_sentence(answer)
    said += [] if flattered is None else [flattered]
    said += _ratio_sentences(answer, check)
    disturbed = interference_sentence(answer)
    said += [] if disturbed is None else [disturbed]
    if answer.airtime_s is not None:
        said.append(_air_sentence(answer))
    return said + radio_sentences(answer)


def warnings(answer: Answer) -> list[str]:
    """Those of the sentences that somebody who builds this must not miss."""
    flattered, found = flattered_sentence(answer), answer.feasibility
    said = [*_table_sentence(answer), *([] if flattered is None else [flattered])]
    if found is not None and found["transmit"] is not None and not found["transmit"]["is_sendable"]:
        said.append(transmit_sentence(found["transmit"]))
    return said


def _table_sentence(answer: Answer) -> list[str]:
    """What the mean over combiners rests on, where that is little."""
    beyond, error = answer.octaves_beyond or 0.0, answer.table_error or 0.0
    drawn = drawn_sentence(answer)
    if drawn is not None:
        return [drawn]
    if beyond > 0.0:
        times = number(float(f"{2.0**beyond:.2g}"))
        return [
            f"{answer.quantities.active:,} active devices are {times} times as many as the table of combiners has, "
            f"and so an extrapolation: {EXTRAPOLATED}."
        ]
    if error > WELL_KNOWN:
        return [f"The table of combiners rests on few drops here: μ² has a standard error of {100 * error:.0f} %."]
    return []


def _but(answer: Answer) -> str:
    """A number beyond the solved one for which neighbours mean something else, and which misses the target."""
    if answer.not_at is None:
        return ""
    return f" Not every larger number does: {answer.not_at:,} misses the target."


def _perk_sentence(answer: Answer) -> str:
    target = f"ε = {epsilon_text(answer.quantities.epsilon)}"
    where = ""
    if answer.threshold_db is not None:
        where = (
            " The worst-case SNR (P·Λ_min/σ² per antenna, Λ_min the path gain at the edge) is "
            f"{answer.snr_db:.1f} dB and the threshold {answer.threshold_db:.1f} dB."
        )
    if answer.solved_for == "epsilon":
        return f"There is no target but {target}, which is what the noise gives: nothing is held back.{where}"
    if answer.is_perk:
        spare = f"{answer.margin_db:.1f} dB to spare"
        return f"DP is a perk: for anyone who sees the models the noise meets {target} with {spare}.{where}"
    if answer.snr_db is None:
        return f"DP is not a perk: {target} needs {-answer.margin_db:.1f} dB more noise."
    return (
        f"DP is not a perk: for {target} the link is {-answer.margin_db:.1f} dB too good, so devices hold that much "
        f"power back.{where}"
    )


def _tested(model: CostModel, check: Check | None) -> str:
    """How good predictions like this one are."""
    if check is None:
        return "this rule of thumb is unchecked: there is no experiments/results/perk.csv to check it against"
    known = {name: check.by_model[name] for name in model.models if name in check.by_model}
    errors = [
        f"{name} {100 * middle:.1f} points in the median and {100 * largest:.1f} at worst"
        for name, (middle, largest) in known.items()
    ]
    unchecked = [name for name in model.models if name not in known]
    said = []
    if errors:
        said.append("error where each number of devices is predicted from the others: " + ", ".join(errors))
    if unchecked:
        said.append(f"unchecked for {' and '.join(unchecked)}: the study has one number of devices at most")
    return "; ".join(said)


def _beyond(answer: Answer, model: CostModel) -> str:
    """What about this question lies outside of what the prediction was fitted on."""
    kept, sizes = answer.epsilon_kept["models"], sorted(SHIPPED)
    low, high = model.epsilons
    odd = []
    if kept is not None and not 0.99 * low <= kept <= 1.01 * high:
        odd.append(f"ε from {number(low)} to {number(high)}")
    if not sizes[0] <= (answer.quantities.parameters or 0) <= sizes[-1]:
        odd.append(f"{sizes[0]:,} to {sizes[-1]:,} parameters")
    return f"; a guess here, since the fit has {' and '.join(odd)}" if odd else ""


def _ratio_sentences(answer: Answer, check: Check | None) -> list[str]:
    if answer.noise_to_update is None or answer.accuracy_cost is None:
        return ["Noise against update is not known without --devices and --parameters."]
    q = answer.quantities
    against = f"taken as {number(q.alignment)}·c" if q.update_norm is None else f"given as {number(q.update_norm)}"
    said = [
        f"Noise of the averaged update over its norm ({against}): {answer.noise_to_update:.3g} a round"
        + (f", {answer.free_noise_to_update:.3g} without the target" if not answer.is_perk else "")
        + "."
    ]
    points = 100.0 * answer.accuracy_cost
    cost = f"{points:.1f}" if points >= 0.05 else "less than 0.1"
    model = shipped(q.parameters)
    said.append(
        f"Predicted cost: {cost} points of accuracy (fitted on {model.source}; {_tested(model, check)}"
        f"{_beyond(answer, model)})."
    )
    assert answer.tolerated is not None
    where = " (where the prediction costs one point)" if answer.is_default_ratio else ""
    said.append(
        f"Smallest number of devices for ε = {epsilon_text(q.epsilon)} at a ratio of {answer.tolerated:.3g}"
        f"{where}: {answer.smallest_devices:,}. The energy of the sum grows with K²; the noise that the target asks "
        "for does not."
    )
    return said


def _air_sentence(answer: Answer) -> str:
    q = answer.quantities
    assert answer.airtime_s is not None
    each = "two coordinates each" if q.symbols == "complex" else "one real value each, since only the real part is used"
    text = f"A round takes {_seconds(answer.airtime_s)} on air: {q.symbols_a_round:,} symbols, {each}"
    if answer.energy_j is None or answer.mean_energy_j is None:
        return text + "."
    return f"{text}; a device spends at most {_joules(answer.energy_j)}, {_joules(answer.mean_energy_j)} on average" + (
        f", with {answer.backoff_db:.1f} dB of power held back." if answer.backoff_db > 0 else ", at full power."
    )


def solved_text(answer: Answer) -> str:
    """The solved quantity with its unit."""
    name = answer.solved_for or ""
    if name == "antennas" and answer.quantities.antennas == MOST_ANTENNAS:
        return f"{MOST_ANTENNAS}, or more: the table ends there"
    value = getattr(answer.quantities, name)
    if name == "power_w":
        return power_text(value) if value >= 1e-14 else f"{value:.3g} W"
    if name == "distance_m":
        return f"{value / 1000:,.4g} km" if value >= 1000 else f"{value:.4g} m"
    if name == "snr_db":
        return f"{value:.2f} dB"
    if name == "bandwidth_hz":
        unit, word = next(((u, w) for u, w in ((1e9, "GHz"), (1e6, "MHz")) if value >= 0.1 * u), (1.0, "Hz"))
        return f"{value / unit:,.4g} {word}"
    if name == "epsilon":
        return f"ε = {epsilon_text(value)}"
    return f"{value:,}" if isinstance(value, int) else number(float(f"{value:.5g}"))


def _seconds(value: float) -> str:
    return scaled_text(value, "s") if value < 120 else f"{value / 60:.3g} min"


def _joules(value: float) -> str:
    return scaled_text(value, "J") if math.isfinite(value) else "∞"
