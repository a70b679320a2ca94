"""Tables for LaTeX, with the rules of booktabs."""

from __future__ import annotations

import re
from collections.abc import Sequence

_SPECIAL = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
    **{"ε̃": r"$\tilde{\varepsilon}$", "ε": r"$\varepsilon$", "δ": r"$\delta$", "τ": r"$\tau$", "σ": r"$\sigma$"},
    **{"Λ_min": r"$\Lambda_{\min}$", "√": r"$\surd$", "²": r"$^2$", "∞": r"$\infty$", "±": r"$\pm$", "·": r"$\cdot$"},
    **{"–": "--", "−": "$-$", "…": r"\dots{}", "×": r"$\times$", "‖": r"$\Vert$", "≤": r"$\le$", "≥": r"$\ge$"},
}
_PATTERN = re.compile("|".join(re.escape(key) for key in sorted(_SPECIAL, key=len, reverse=True)))


def escape(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    found = _PATTERN.sub(lambda found: _SPECIAL[found.group()], " ".join(text.split()))
    return re.sub(r"(?<!\\)\$\$", "", found)  # symbols beside each other are one formula


def table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str, comments: Sequence[str] = ()) -> str:
    r"""A table environment: the first column to the left, the others to the right.

    Args:
        comments: lines above it, beside the one that names the package.
    """
    lines = [r"% needs \usepackage{booktabs}", *(f"% {' '.join(text.split())}" for text in comments)]
    lines += [r"\begin{table}[t]", r"\centering", f"\\caption{{{escape(caption)}}}"]
    lines += [f"\\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}", r"\toprule", _row(head), r"\midrule"]
    lines += [_row(row) for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", r"\end{table}"]) + "\n"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(escape(cell) for cell in cells) + r" \\"
