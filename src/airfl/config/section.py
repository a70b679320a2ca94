"""What all sections of a configuration have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator

from airfl.errors import Problems
from airfl.imports import path_of


class Section(BaseModel):
    """Base of all sections: frozen, no unknown keys, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    pairs: ClassVar[tuple[tuple[str, str], ...]] = ()
    #: Keys that take a part: a name, ``package.module:name``, or from Python the object itself.
    parts: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _objects_by_their_paths(cls, values: Any) -> Any:
        if not cls.parts or not isinstance(values, Mapping):
            return values
        return {key: part_named(key, value) if key in cls.parts else value for key, value in values.items()}

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if problems := list(self._problems()):
            raise Problems(problems)
        return self

    def _problems(self) -> Iterator[str]:
        """All that is wrong with keys that are each right by themselves."""
        for first, second in self.pairs:
            if getattr(self, first) is not None and getattr(self, second) is not None:
                yield f"`{first}` and `{second}` say the same thing; give one of them"


def part_named(key: str, value: Any) -> Any:
    """What a key that takes parts is given, as plain data: an object by its path, texts and numbers as they are."""
    if key.endswith("names") and isinstance(value, list | tuple):
        return [part_named("name", item) for item in value]
    return value if _is_plain(value) else path_of(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, str | bytes | int | float | Mapping)
