"""A sentence per question, drawn from the data: is one scheme better than another, where, by how much?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airfl.arena.description import Arena, Cell, needs_of
from airfl.arena.ranks import Difference, Outcome, Place, difference
from airfl.schemes import scheme_shown
from airfl.traits import USUAL
from airfl.wording import at_most_text, counted, number


@dataclass(frozen=True)
class Verdict:
    """A question, answered.

    Attributes:
        question: is the first better than the second?
        answer: better, worse, depends, the same, cannot tell, or not comparable.
        found: in how many cells, and by how much.
        caveat: what the one needs and the other does not.
    """

    first: str
    second: str
    question: str
    answer: str
    found: str
    caveat: str


Met = tuple[Place, Place, Difference]


def verdicts(arena: Arena, found: Sequence[Place]) -> list[Verdict]:
    """Whom the arena asks about, of the schemes that were run."""
    there = dict.fromkeys(place.scheme for place in found)
    pairs = [(arena.against, name) for name in there if needs_of(name).over_air and name != arena.against]
    asked = dict.fromkeys([*pairs, *arena.questions])
    return [judge(found, first, second) for first, second in asked if first in there and second in there]


def judge(found: Sequence[Place], first: str, second: str) -> Verdict:
    """Is the first scheme better than the second, in the cells where both keep what was asked for?"""
    one = {place.cell: place for place in found if place.scheme == first}
    other = {place.cell: place for place in found if place.scheme == second}
    titles = scheme_shown(first).title, scheme_shown(second).title
    question = f"Is {titles[0]} better than {titles[1]}?"
    cells = [cell for cell in one if cell in other]
    kept = [cell for cell in cells if one[cell].keeps and other[cell].keeps]
    caveat = _caveat(first, second, [cell for cell in cells if cell not in kept], one, other)
    if not kept:
        return Verdict(first, second, question, "not comparable", "", caveat)
    met = [(one[cell], other[cell], difference(one[cell].accuracies, other[cell].accuracies)) for cell in kept]
    kinds: tuple[Outcome, ...] = ("better", "worse", "cannot tell", "the same")
    by = {kind: [m for m in met if m[2].outcome == kind] for kind in kinds}
    told = [kind for kind in kinds[:2] if by[kind]]
    answer = "depends" if len(told) > 1 else next(kind for kind in kinds if by[kind])
    parts = [*(_most(kind, by[kind], len(met)) for kind in told), _same(by["the same"], len(met))]
    said = "; ".join(part for part in (*parts, _open(by["cannot tell"], len(met))) if part)
    return Verdict(first, second, question, answer, said, caveat)


def _most(word: str, met: Sequence[Met], cells: int) -> str:
    """In how many cells, and the one with the largest difference."""
    if not met:
        return ""
    sizes = sorted(abs(gap.mean) for _, _, gap in met)
    one, other, gap = max(met, key=lambda m: abs(m[2].mean))
    low, high = sorted((abs(gap.low), abs(gap.high)))
    span = f"{100 * sizes[0]:.1f} to {100 * sizes[-1]:.1f}" if len(sizes) > 1 else f"{100 * sizes[0]:.1f}"
    return (
        f"{word} in {len(met)} of {counted(cells, 'cell')}, by {span} points (most with {cell_text(one.cell)}: "
        f"{100 * one.mean:.1f} % against {100 * other.mean:.1f} %, 95 % interval of the difference {100 * low:.1f} to "
        f"{100 * high:.1f})"
    )


def _same(met: Sequence[Met], cells: int) -> str:
    """Cells where both did the very same."""
    return f"the same, trial by trial, in {len(met)} of {counted(cells, 'cell')}" if met else ""


def _open(met: Sequence[Met], cells: int) -> str:
    """Cells where the interval of the difference holds zero."""
    if not met:
        return ""
    if len(met[0][0].accuracies) < 2:
        return f"one trial tells nothing in {len(met)} of {counted(cells, 'cell')}"
    widest = max(max(abs(gap.low), abs(gap.high)) for _, _, gap in met)
    mean = sum(gap.mean for _, _, gap in met) / len(met)
    signed = f"{100 * mean:+.1f}".replace("-", "−")
    return (
        f"open in {len(met)} of {counted(cells, 'cell')}, where the difference is {signed} points on average "
        f"and its intervals reach {100 * widest:.1f}"
    )


def _caveat(first: str, second: str, lost: Sequence[Cell], one: dict[Cell, Place], other: dict[Cell, Place]) -> str:
    """Where the two could not be compared, and how their needs differ."""
    said = []
    for name, places in ((first, one), (second, other)):
        failed = [cell for cell in lost if places[cell].failed]
        unproven = [cell for cell in lost if not places[cell].proven and not places[cell].failed]
        above = [cell for cell in lost if not places[cell].keeps and cell not in failed and cell not in unproven]
        title = scheme_shown(name).title
        if unproven:
            said.append(f"No ε of {title} is a proof: its noise was chosen by looking at updates.")
        if above:
            spent = sorted(places[cell].epsilon for cell in above)
            span = f"{at_most_text(spent[0])} to {at_most_text(spent[-1])}" if spent[0] < spent[-1] else ""
            said.append(
                f"In {counted(len(above), 'cell')} the exact ε of {title} is above what was asked, "
                f"{span or at_most_text(spent[0])}."
            )
        if failed:
            said.append(f"In {counted(len(failed), 'cell')} {title} failed in some trial.")
    for name, than in ((first, second), (second, first)):
        if more := _needs_beyond(name, than):
            said.append(f"{scheme_shown(name).title} needs {' and '.join(more)}.")
    return " ".join(said)


def _needs_beyond(name: str, other: str) -> list[str]:
    own, its = needs_of(name), needs_of(other)
    more = []
    if own.knows_channel and not its.knows_channel:
        more.append("channel knowledge at the devices")
    if own.remembers and not its.remembers:
        more.append("a memory of the model's size at every device")
    if own.symbols not in (its.symbols, USUAL.symbols):
        more.append(f"other symbols ({own.symbols})")
    if own.shared and own.shared != its.shared:
        more.append(f"something shared beforehand ({own.shared})")
    return more


def cell_text(cell: Cell) -> str:
    """`i.i.d. data, −55 dB, ε = 1`."""
    snr = "" if cell.snr_db is None else f", {number(cell.snr_db).replace('-', '−')} dB"
    epsilon = "" if cell.epsilon is None else f", ε = {at_most_text(cell.epsilon)}"
    return f"{cell.data} data{snr}{epsilon}"
