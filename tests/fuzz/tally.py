"""What a fuzzer found: how many inputs ended how, and which of them did not end as they may."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Outcome = Literal["ok", "refused", "traceback", "silent_difference", "hang"]


@dataclass
class Tally:
    """Counts of outcomes; an input ends well if it works (``ok``) or is refused in one sentence (``refused``).

    Attributes:
        offending: seed and what was seen, of every input that ended otherwise.
    """

    ok: int = 0
    refused: int = 0
    tracebacks: int = 0
    silent_differences: int = 0
    hangs: int = 0
    offending: list[tuple[int, str]] = field(default_factory=list)

    def count(self, outcome: Outcome, seed: int, seen: str = "") -> None:
        """Book one input."""
        if outcome == "ok":
            self.ok += 1
        elif outcome == "refused":
            self.refused += 1
        elif outcome == "traceback":
            self.tracebacks += 1
        elif outcome == "silent_difference":
            self.silent_differences += 1
        else:
            self.hangs += 1
        if outcome not in ("ok", "refused"):
            self.offending.append((seed, f"{outcome}: {seen}"))

    @property
    def total(self) -> int:
        """Inputs in all."""
        return self.ok + self.refused + self.tracebacks + self.silent_differences + self.hangs

    @property
    def clean(self) -> bool:
        """Whether every input ended as it may."""
        return not self.offending

    @property
    def summary(self) -> dict[str, Any]:
        """As plain data."""
        return {"total": self.total, **asdict(self)}
