"""The paper's sentences that can be tested: our number, the verdict, and the caveat."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from airfl.paper.studies import Row
from airfl.wording import at_most_text

Rows = Mapping[str, Sequence[Row]]


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, tested.

    Attributes:
        sentence: in our words.
        verdict: holds, holds in part, does not hold, or not run.
        found: our number.
        caveat: what that means in plain terms.
    """

    sentence: str
    verdict: str
    found: str
    caveat: str


def judge(
    rows: Rows, notes: Mapping[str, Mapping[str, Any]], curves: Sequence[Row], variant: str, least: float = 0.005
) -> list[Claim]:
    """Every claim from the rows of the figures.

    Args:
        curves: of Fig. 2 (accountant, diameter, rounds, ε).
        least: a difference of accuracies that means nothing, whatever the trials say.
    """
    own = {name: [row for row in found if row["variant"] == variant] for name, found in rows.items()}
    return [
        _stricter(own.get("fig5", []), least),
        _mimo_like_clipping(own.get("fig3", []), least),
        _gap_closes(own.get("fig5", []), least),
        _heterogeneous(own.get("fig3", []), own.get("fig4", [])),
        _threshold(own.get("fig6", []), notes.get("fig6", {}), variant, least),
        *([_converges(curves)] if variant == "authors" else []),  # formulas, for the published setting
        _no_artificial_noise(own.get("fig5", []), notes.get("fig5", {}), variant),
        *([_power_gain(rows.get("fig6", []))] if variant == "airfl" else []),
    ]


def _final(rows: Sequence[Row], scheme: str, budget: float | None = None) -> Row | None:
    found = [r for r in rows if r["scheme"] == scheme and (budget is None or r["epsilon_tilde"] == budget)]
    return max(found, key=lambda row: row["round"]) if found else None


def _private(rows: Sequence[Row]) -> list[Row]:
    return sorted((row for row in rows if row["scheme"] == "airfl-dp"), key=lambda row: row["epsilon_tilde"])


def _slack(least: float, *rows: Row) -> float:
    """What chance may do to a mean: its spread over √trials, or ``least`` where that is more."""
    spreads = [float((row["accuracy_high"] - row["accuracy_low"]) / row["trials"] ** 0.5) for row in rows]
    return max(least, *spreads)


def _stricter(rows: Sequence[Row], least: float) -> Claim:
    sentence = "Stricter privacy costs accuracy."
    own = _private(rows)
    if len(own) < 2:
        return Claim(sentence, "not run", "", "")
    drops = [a["accuracy_mean"] - b["accuracy_mean"] - _slack(least, a, b) for a, b in pairwise(own)]
    first, last = own[0], own[-1]
    holds = max(drops) <= 0 and last["accuracy_mean"] > first["accuracy_mean"]
    found = (
        f"{100 * first['accuracy_mean']:.1f} % at ε̃ = {first['epsilon_tilde']:g}, "
        f"{100 * last['accuracy_mean']:.1f} % at ε̃ = {last['epsilon_tilde']:g}"
    )
    spans = f"ε = {at_most_text(first['epsilon'])} to {at_most_text(last['epsilon'])} as booked"
    exact = f"{at_most_text(first['epsilon_exact'])} to {at_most_text(last['epsilon_exact'])} by exact accounting"
    return Claim(sentence, "holds" if holds else "does not hold", found, f"That is {spans}, {exact}.")


def _mimo_like_clipping(rows: Sequence[Row], least: float) -> Claim:
    sentence = "AirFL-MIMO is as good as FL with clipping over a perfect channel."
    mimo, clip = _final(rows, "airfl-mimo"), _final(rows, "fedavg-clip")
    if mimo is None or clip is None:
        return Claim(sentence, "not run", "", "")
    gap = mimo["accuracy_mean"] - clip["accuracy_mean"]
    verdict = "holds" if abs(gap) <= _slack(least, mimo, clip) else "does not hold"
    return Claim(
        sentence,
        verdict,
        f"{100 * mimo['accuracy_mean']:.2f} % against {100 * clip['accuracy_mean']:.2f} %",
        f"AirFL-MIMO promises no privacy: ε = {at_most_text(mimo['epsilon_exact'])}.",
    )


def _gap_closes(rows: Sequence[Row], least: float) -> Claim:
    sentence = "The gap to AirFL-MIMO closes as the budget grows: privacy for free at ε̃ = 0.13."
    own, mimo, at = _private(rows), _final(rows, "airfl-mimo"), _final(rows, "airfl-dp", 0.13)
    if len(own) < 2 or mimo is None or at is None:
        return Claim(sentence, "not run", "", "")
    gaps = [mimo["accuracy_mean"] - row["accuracy_mean"] for row in (own[0], at, own[-1])]
    closes, free = gaps[0] > gaps[1] > gaps[2] - least, gaps[1] <= _slack(least, mimo, at)
    verdict = "holds" if closes and free else ("holds in part" if closes else "does not hold")
    names = [f"ε̃ = {row['epsilon_tilde']:g}" for row in (own[0], at, own[-1])]
    found = ", ".join(f"{100 * gap:.1f} points at {name}" for gap, name in zip(gaps, names, strict=True))
    price = "" if free else f" It is not free there: {100 * gaps[1]:.1f} points are left."
    strength = f"ε̃ = 0.13 is ε = {at_most_text(at['epsilon'])} as booked, {at_most_text(at['epsilon_exact'])} exactly"
    return Claim(sentence, verdict, found, f"{strength}: no meaningful protection.{price}")


def _heterogeneous(same: Sequence[Row], skewed: Sequence[Row]) -> Claim:
    sentence = "With two classes per device accuracy is a little lower."
    pairs = []
    for scheme in ("fedavg", "fedavg-clip", "airfl-mimo"):
        one, two = _final(same, scheme), _final(skewed, scheme)
        if one is not None and two is not None:
            pairs.append((scheme, one["accuracy_mean"] - two["accuracy_mean"]))
    for row in _private([r for r in same if r["round"] == max(x["round"] for x in same)]):
        two = _final(skewed, "airfl-dp", row["epsilon_tilde"])
        if two is not None:
            pairs.append((f"airfl-dp {row['epsilon_tilde']:g}", row["accuracy_mean"] - two["accuracy_mean"]))
    if not pairs:
        return Claim(sentence, "not run", "", "")
    lost = [value for _, value in pairs]
    lower, little = min(lost) > 0, max(lost) <= 0.05
    verdict = "holds" if lower and little else ("holds in part" if lower and min(lost) <= 0.05 else "does not hold")
    most, least = max(pairs, key=lambda p: p[1]), min(pairs, key=lambda p: p[1])
    found = f"{100 * least[1]:.1f} points lower ({least[0]}) to {100 * most[1]:.1f} ({most[0]})"
    much = "Lower, but by far more than a little. " if lower and min(lost) > 0.05 else ""
    return Claim(sentence, verdict, found, f"{much}Five points is what we call a little.")


def _threshold(rows: Sequence[Row], notes: Mapping[str, Any], variant: str, least: float) -> Claim:
    sentence = "Below a threshold of SNR AirFL-DP equals AirFL-MIMO; above it, it is poorer."
    if not rows or "snr_threshold_db" not in notes or variant not in notes["snr_threshold_db"]:
        return Claim(sentence, "not run", "", "")
    thresholds, offset = notes["snr_threshold_db"][variant], notes["snr_of_one_watt_db"]
    threshold = sum(thresholds) / len(thresholds)
    below: list[float] = []
    above: list[float] = []
    for power in sorted({row["power_w"] for row in rows}):
        here = {row["scheme"]: row["accuracy_mean"] for row in rows if row["power_w"] == power}
        snr = 10 * math.log10(power) + offset
        if {"airfl-dp", "airfl-mimo"} <= set(here):  # one may have diverged
            gap = here["airfl-mimo"] - here["airfl-dp"]
            # In between, some trials are below their own threshold and some above.
            below += [gap] if snr < min(thresholds) else []
            above += [gap] if snr > max(thresholds) else []
    if not below or not above:
        return Claim(sentence, "not run", f"no powers on both sides of the threshold, {threshold:.1f} dB", "")
    equal, poorer = max(abs(gap) for gap in below) <= least, above[-1] > least
    verdict = "holds" if equal and poorer else ("holds in part" if equal or poorer else "does not hold")
    spread = f"{threshold:.1f} dB ({min(thresholds):.1f} to {max(thresholds):.1f} over trials)"
    largest = 100 * max(abs(gap) for gap in below)
    found = (
        f"threshold {spread}; below it they differ by at most {largest:.2f} points, at the top by {100 * above[-1]:.1f}"
    )
    budget = max((row for row in rows if row["scheme"] == "airfl-dp"), key=lambda row: row["power_w"])
    strength = f"That is the perk for ε = {at_most_text(budget['epsilon'])}"
    if budget["epsilon"] and (budget["epsilon_exact"] or math.inf) > 1.001 * budget["epsilon"]:
        strength += f" as booked, {at_most_text(budget['epsilon_exact'])} exactly"
    return Claim(sentence, verdict, found, f"{strength}, on a link of {threshold:.0f} dB: one where little is heard.")


def _converges(curves: Sequence[Row]) -> Claim:
    sentence = "The privacy loss converges: it stops growing with the number of rounds."
    lines: dict[float, list[Row]] = {}
    for row in curves:
        if row["accountant"] == "convergent" and row["diameter"] is not None:
            lines.setdefault(row["diameter"], []).append(row)
    if not lines:
        return Claim(sentence, "not run", "", "")
    plain = {row["rounds"]: row["epsilon"] for row in curves if row["accountant"] == "gaussian"}
    parts, flat = [], []
    for diameter, own in sorted(lines.items()):
        own.sort(key=lambda row: row["rounds"])
        flat.append(own[-1]["epsilon"] <= 1.001 * own[-4]["epsilon"])
        parts.append(f"D = {diameter:g}: ε ≤ {at_most_text(own[-1]['epsilon'])}")
    last = max(plain)
    found = "; ".join(parts) + f" for {last:,.0f} rounds, where composition gives {at_most_text(plain[last])}"
    verdict = "holds" if all(flat) else ("holds in part" if any(flat) else "does not hold")
    caveat = (
        "Only when the run projects on a domain of diameter D and the loss is L-smooth (L = 1 assumed), and only for "
        "someone who sees the final model alone."
    )
    if not all(flat):
        late = ", ".join(f"{d:g}" for d, done in zip(sorted(lines), flat, strict=True) if not done)
        caveat += f" D = {late}: still growing after {last:,.0f} rounds."
    return Claim(sentence, verdict, found, caveat)


def _no_artificial_noise(rows: Sequence[Row], notes: Mapping[str, Any], variant: str) -> Claim:
    sentence = "No artificial noise is ever needed."
    own = _private(rows)
    backoff = notes.get("power_backoff_db", {}).get(variant)
    if not own or backoff is None:
        return Claim(sentence, "not run", "", "")
    short = [row for row in own if row["epsilon_exact"] is None or row["epsilon_exact"] > 1.001 * row["epsilon"]]
    found = f"{len(own)} budgets from ε = {at_most_text(own[0]['epsilon'])} on are kept by a scheme without any"
    caveat = (
        f"Devices hold power back instead, {backoff:.0f} dB of it at the preset's budget, so the link is made worse on "
        "purpose."
    )
    if short:
        caveat += f" {len(short)} of the budgets are met as booked only: their exact ε is larger."
    return Claim(sentence, "holds in part" if short else "holds", found, caveat)


def _power_gain(rows: Sequence[Row]) -> Claim:
    """How much more power the published design needs for our accuracy, at the three lowest powers."""
    sentence = "(ours) At the three lowest powers AirFL-MIMO gains what 5 dB of power would give."
    lines = {
        variant: sorted((r for r in rows if r["variant"] == variant and r["scheme"] == "airfl-mimo"), key=_power)
        for variant in ("authors", "airfl")
    }
    if len(lines["authors"]) < 4 or len(lines["airfl"]) < 3:
        return Claim(sentence, "not run", "", "Both variants are needed.")

    def gains(errors: float) -> list[float]:
        """With our accuracies so many standard errors higher, and the published ones lower."""
        theirs = [(_power(row), row["accuracy_mean"] - errors * _error(row)) for row in lines["authors"]]
        ours = [(_power(row), row["accuracy_mean"] + errors * _error(row)) for row in lines["airfl"][:3]]
        return [_needed(theirs, accuracy) - power for power, accuracy in ours]

    middle = gains(0.0)
    verdict = "holds" if min(middle) >= 5.0 else ("holds in part" if max(middle) >= 5.0 else "does not hold")
    ranges = zip(middle, gains(-1.0), gains(1.0), strict=True)
    found = ", ".join(f"{gain:.1f} dB ({low:.1f} to {high:.1f})" for gain, low, high in ranges)
    caveat = (
        "Combiner and distances together; read off the curves, straight between their points, ± one standard error; "
        "the verdict is about the means."
    )
    return Claim(sentence, verdict, found, caveat)


def _power(row: Row) -> float:
    """In dBW."""
    return 10.0 * math.log10(row["power_w"])


def _error(row: Row) -> float:
    """About one standard error of a mean over trials, from their spread."""
    return float((row["accuracy_high"] - row["accuracy_low"]) / (2.0 * row["trials"] ** 0.5))


def _needed(line: Sequence[tuple[float, float]], accuracy: float) -> float:
    """The power in dBW at which a rising line reaches an accuracy; infinite if it never does."""
    for (low, before), (high, after) in pairwise(line):
        if before <= accuracy <= after:
            return low + (high - low) * ((accuracy - before) / (after - before) if after > before else 0.0)
    return -math.inf if accuracy < line[0][1] else math.inf
