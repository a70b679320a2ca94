"""How a column of a table becomes inputs of a model: by constants that are stated, so they tell of nobody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, model_validator

from airfl.config.section import Section

#: What a table's cells are compared with.
Value = bool | int | float | str


class Column(Section):
    """One column: its categories, or a mean and a scale, or the range that its numbers are clipped to."""

    values: tuple[Value, ...] | None = Field(None, min_length=1, max_length=10_000, description="all categories")
    mean: float | None = Field(None, description="taken off")
    scale: float | None = Field(None, gt=0, description="divided by")
    low: float | None = Field(None, description="smaller numbers count as this")
    high: float | None = Field(None, description="larger numbers count as this")

    @model_validator(mode="before")
    @classmethod
    def _list_of_categories(cls, given: Any) -> Any:
        return given if isinstance(given, Mapping) or not isinstance(given, list | tuple) else {"values": given}

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        ways = [self.values is not None, self.mean is not None and self.scale is not None, self.is_range]
        given = [name for name in ("values", "mean", "scale", "low", "high") if getattr(self, name) is not None]
        if sum(ways) != 1 or len(given) != (1 if self.values is not None else 2):
            yield "a column is a list of categories, or `mean` and `scale`, or `low` and `high`; give one of these"
        if self.low is not None and self.high is not None and not self.low < self.high:
            yield f"`low` must be below `high`; got {self.low:g} and {self.high:g}"
        if self.values is not None and len({text_of(value) for value in self.values}) < len(self.values):
            yield "a category is listed twice"

    @property
    def is_range(self) -> bool:
        """Whether numbers are clipped to a range, and so have a bounded mean and variance."""
        return self.low is not None and self.high is not None


def text_of(value: object) -> str:
    """A cell or a category as the text by which they are compared: 1, 1.0 and "1" are the same."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
