"""Numbers and names as people write them. Loads nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context
from html import escape
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

OBSERVER_WORDS = {
    "model": "anyone who sees the final model",
    "models": "anyone who sees the model of every round (any device that hears the broadcast)",
    "base-station": "a curious base station that looks at every antenna",
    "eavesdropper": "an eavesdropper with antennas of her own who also hears the models",
    "everything": "anyone who sees what every device sends, by itself and without noise",
}

#: At the head of a column, and what they see.
OBSERVER_SHORT = {
    "model": ("model", "the final model"),
    "models": ("models", "every round's model"),
    "base-station": ("base", "every antenna"),
    "eavesdropper": ("eavesdr.", "antennas elsewhere and the models"),
    "everything": ("all", "every device by itself"),
}

#: Whom an ε is against, in the middle of a sentence.
OBSERVER_AGAINST = {
    "model": "anyone who sees only the final model",
    "models": "anyone who sees the models",
    "base-station": "the base station",
    "eavesdropper": "the eavesdropper",
    "everything": "anyone who sees what every device sends",
}

NEIGHBOUR_WORDS = {
    "zero-out": "one device's contribution set to zero",
    "replace": "one device's data replaced by any other",
}


def name_text(name: str) -> str:
    """A name of a file as text: bytes of it that are no UTF-8 as `\\xe9`."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def plain_console(file: TextIO | None = None) -> Console:
    """A terminal that prints what it is given: `[/red]` in a user's name or value is no markup, `:x:` no picture."""
    from rich.console import Console

    return Console(file=file, markup=False, emoji=False)


def epsilon_text(epsilon: float | None) -> str:
    """ε with three significant digits; ∞ where there is no protection."""
    if epsilon is None or math.isinf(epsilon):
        return "∞"
    if epsilon < 999.5:
        return number(float(f"{epsilon:.3g}"))
    return f"{epsilon:,.0f}" if epsilon < 100_000 else f"{epsilon:.1e}".replace("e+0", "e").replace("e+", "e")


def rounded_up(value: float, digits: int = 5) -> str:
    """A number with so many significant digits, 6 at most, that is not below it: for what is said to be a bound."""
    if not math.isfinite(value):
        return "∞"
    up = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(repr(float(value)))  # 0.1 and not a hair above
    return number(float(up))


def at_most_text(epsilon: float | None) -> str:
    """As ``epsilon_text``, and never below: for what is said to be the most. A part in 1e9 is rounding of our own."""
    if epsilon is None or math.isinf(epsilon) or epsilon == 0.0:
        return epsilon_text(epsilon)
    shown = epsilon * (1.0 - 1e-9)
    digits = 3 if shown < 999.5 else max(2, math.floor(math.log10(shown)) + 1) if shown < 99_999.5 else 2
    up = Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(shown)
    return epsilon_text(float(up))


def epsilon_meaning(epsilon: float | None) -> str:
    """What an ε of this size promises one device, in a few words."""
    if epsilon is None or math.isinf(epsilon):
        return "no protection"
    for bound, words in (
        (1.0, "strong protection"),
        (3.0, "good protection"),
        (10.0, "some protection, what large deployments use"),
        (30.0, "weak protection"),
    ):
        if epsilon <= bound:
            return words
    return "protects nobody in practice"


def number(value: float) -> str:
    """A number as people write it: 1e-5, not 1e-05."""
    return f"{value:g}".replace("e-0", "e-").replace("e+0", "e").replace("e+", "e")


def power_text(power_w: float) -> str:
    """A power in W, mW, µW, nW or pW."""
    for scale, unit in ((1.0, "W"), (1e-3, "mW"), (1e-6, "µW"), (1e-9, "nW")):
        if power_w >= scale:
            return f"{power_w / scale:.3g} {unit}"
    return f"{power_w * 1e12:.3g} pW"


def scaled_text(value: float, unit: str) -> str:
    """A quantity with the prefix that suits it: 29.1 ms."""
    for scale, prefix in ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"), (1e-15, "f")):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.2g} {unit}"


def percent(mean: float | None, std: float | None = None, trials: int = 1) -> str:
    """An accuracy as a percentage, with its spread over trials if there are several."""
    if mean is None:
        return "–"
    spread = f" ± {100 * std:.1f}" if std is not None and trials > 1 else ""
    return f"{100 * mean:.1f}{spread} %"


def counted(count: int, what: str) -> str:
    """`1 round`, `2 rounds`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def text_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows as lines of text, columns aligned; some rows may have columns that others lack."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([row.get(name, "") for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    return "\n".join("  " + "  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def html_table(rows: Sequence[Mapping[str, str]], caption: str = "") -> str:
    """The same for notebooks: without colours of its own, so that it fits light and dark themes."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{escape(row.get(name, str()))}</td>' for name in names)}</tr>" for row in rows)
    said = f"<div>{escape(caption)}</div>" if caption else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{said}"
