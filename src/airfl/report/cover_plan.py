"""What hiding from the base station costs, for people: a table and plain sentences below a plan."""

from __future__ import annotations

from airfl.analysis import CoverPlan
from airfl.linkplan import Quantities
from airfl.terminal import numbers, print_table, words
from airfl.wording import epsilon_text, number, plain_console

_ROWS = {"trusted": "trusted", "shielded": "shielded", "own-noise": "own noise only"}
_KINDS = {"quadrature": "noise in quadrature", "masks": "masks that cancel", "none": "noise of their own"}


def print_cover(found: CoverPlan, q: Quantities) -> None:
    """Three ways to keep the target, and what the cover takes."""
    rows = []
    for name, title in _ROWS.items():
        row = found.rows[name]
        if row is None:
            rows.append((title, *("–" * 6)))
            continue
        rows.append(
            (
                title,
                number(float(f"{row.noise_std:.3g}")),
                f"{max(0.0, row.price_db):.1f} dB",
                number(float(f"{row.noise_to_update:.3g}")),
                f"{100.0 * row.accuracy_cost:.1f}",
                *(epsilon_text(row.epsilon[observer]) for observer in ("models", "base-station")),
            )
        )
    console = plain_console()
    console.print()
    print_table(
        [words("base station"), *numbers("noise", "price", "ratio", "cost", "ε models", "ε base station")], rows
    )
    for sentence in cover_sentences(found, q):
        console.print(f"• {sentence}", highlight=False)


def cover_sentences(found: CoverPlan, q: Quantities) -> list[str]:
    """What the columns mean, what the cover takes, whether that is there, and from how many antennas it hides."""
    return [
        "Noise: standard deviation per real coordinate of the sum; price: that over a trusted base station's; ratio: "
        "noise of the averaged update over its norm, a round; cost: predicted points of accuracy. From "
        f"{found.rounds} drawn round{'s' if found.rounds > 1 else ''}; ε with a trusted base station as above.",
        _cover_sentence(found, q),
        _antenna_sentence(found),
    ]


def _cover_sentence(found: CoverPlan, q: Quantities) -> str:
    shielded = found.rows["shielded"]
    if shielded is None:
        return "No cover and no noise hides these devices from the base station."
    price = f"{max(0.0, shielded.price_db):.1f} dB more noise than a trusted base station takes"
    compared = "at least" if found.kind == "quadrature" else "below"
    few = f"K = {q.active:,} is {compared} 2m − 1 = {2 * (q.antennas or 1) - 1}"
    taken = (
        f"To hide from the base station devices send {_KINDS[found.kind]} ({few}): {found.power_db:.1f} dB more power "
        f"than the update alone, and {price}"
    )
    if found.power_db == 0.0:
        taken = f"To hide from the base station devices send no cover at this power: it takes {price}"
    if found.is_enough and found.spare_db is None:
        return f"{taken}. The power is there, and any lower power does too."
    if found.is_enough:
        return f"{taken}. The power is there with {found.spare_db:.0f} dB to spare."
    refused = f"a run of `airfl-shielded` is refused above a price of {number(found.limit_db)} dB"
    if found.missing_db is None:
        return f"{taken}. No power is enough: {refused}."
    return f"{taken}. {found.missing_db:.0f} dB of power are missing: {refused}."


def _antenna_sentence(found: CoverPlan) -> str:
    price, most = f"at a price of at most {number(found.limit_db)} dB", found.most_antennas
    if most is None:
        return f"At this power and ε devices hide from no number of antennas up to {found.tried_antennas} {price}."
    end = ", the most that were tried" if most == found.tried_antennas else ""
    text = (
        f"The base station may have {most} antenna{'s' if most > 1 else ''} at most{end}: {price} at this power and ε."
    )
    if not found.not_antennas:
        return text
    *rest, last = map(str, found.not_antennas)
    return f"{text} Fewer are not always easier: of those tried not {', '.join(rest)}{' and ' if rest else ''}{last}."
