"""How an accountant is shown, and what it takes: kept on its class, with a fallback for one that says nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

#: What must be granted for an ε, beside what the ledger says.
Granted = Literal["nothing", "hidden participation", "smoothness"]


@dataclass(frozen=True)
class Shown:
    """What tables, figures and sentences need of an accountant, beside its label.

    Attributes:
        words: "ε is at most 1 (…, words)"; empty: `accounting by NAME`.
        color, linestyle, marker: of its line.
        work: the publication, for a table of related work; empty: its label.
        receiver: what receiver that work is about.
        converges: whether it claims that ε stops growing with rounds; None: it claims nothing.
        uses_domain: whether an enforced domain changes its ε.
        needs_domain: whether it says anything only with one.
        needs_antennas: whether it needs what the antennas receive.
        gaussian: whether it claims a Gaussian trade-off curve, which a Gaussian reading of counts may refute.
        rests_on: what must be granted where its ε is below that of `gaussian`.
    """

    words: str = ""
    color: str = "#7F7F7F"
    linestyle: Any = (0, (4, 1, 1, 1))
    marker: str | None = None
    work: str = ""
    receiver: str = "several antennas"
    converges: bool | None = None
    uses_domain: bool = False
    needs_domain: bool = False
    needs_antennas: bool = False
    gaussian: bool = False
    rests_on: Granted = "nothing"


def shown(kind: Any) -> Shown:
    """How an accountant's class wants to be shown, or the fallback."""
    own = getattr(kind, "shown", None)
    return own if isinstance(own, Shown) else Shown()
