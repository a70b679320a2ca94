"""Accountants by name, ours and others': ``privacy`` knows its own, and an import path names one from outside."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cache
from typing import Any

from airfl.config import Config
from airfl.errors import InputError
from airfl.imports import calling, import_object, is_import_path
from airfl.privacy import ACCOUNTANTS, OBSERVERS, Accountant, Budget, Ledger, Observer, proves, shown

_ASKED = ("name", "label", "assumptions", "observers", "valid", "epsilon", "delta", "budget")


def accountant_named(name: str) -> type[Accountant]:
    """An accountant's class by its name or import path."""
    if not is_import_path(name):
        return ACCOUNTANTS[name]
    found: type[Accountant] = import_object(name, "accountant")
    missing = [what for what in _ASKED if not hasattr(found, what)]
    if not isinstance(found, type) or missing:
        raise InputError(
            f"accountant `{name}` must be a class like `airfl.privacy.Accountant`; "
            f"it has no {', '.join(missing) or 'class'}"
        )
    return _guarded(found, name)


@cache
def _guarded(kind: type[Accountant], path: str) -> type[Accountant]:
    """The same accountant, whose failures are one sentence and whose ε is a number that is not negative."""

    class Guarded(kind):  # type: ignore[misc, valid-type]
        def epsilon(self, delta: float) -> float:
            with calling(kind, "accountant"):
                value = float(super().epsilon(delta))
            if not value >= 0.0:
                raise InputError(f"accountant `{path}` answers ε = {value}; it must be a number that is not negative")
            return value

        @classmethod
        def budget(cls, *question: Any) -> Budget:
            with calling(kind, "accountant"):
                made = kind.budget(*question)
            if not isinstance(made, Budget) or not 0.0 < made.floor < math.inf:
                raise InputError(
                    f"accountant `{path}` must return a Budget with a positive, finite floor; got {made!r}"
                )
            return made

    Guarded.__module__, Guarded.__qualname__ = kind.__module__, kind.__qualname__
    return Guarded


def accountants_of(config: Config) -> dict[str, type[Accountant]]:
    """All of ours, and the one from outside that a configuration names."""
    own = config.privacy.accountant
    return {**ACCOUNTANTS, **({own: accountant_named(own)} if is_import_path(own) else {})}


def observers_in(config: Config) -> tuple[Observer, ...]:
    """Whom ε is reported for: an eavesdropper only where one is configured."""
    return tuple(name for name in OBSERVERS if name != "eavesdropper" or config.eavesdropper is not None)


def is_proven(name: str, ledgers: Iterable[Ledger] = ()) -> bool:
    """Whether an accountant's ε, of these ledgers, is proven; of one from outside airfl cannot know."""
    return not is_import_path(name) and proves(ACCOUNTANTS[name], ledgers)


def label_of(name: str) -> str:
    """A few words for tables."""
    return "from outside" if is_import_path(name) else ACCOUNTANTS[name].label


def assumptions_of(name: str) -> str:
    """What an accountant's ε rests on; for one from outside, its author's word. Nothing is imported."""
    return "As its author says; airfl has not checked it." if is_import_path(name) else ACCOUNTANTS[name].assumptions


def words_for(name: str) -> str:
    """How a sentence calls the arithmetic of an accountant."""
    own = "" if is_import_path(name) else shown(ACCOUNTANTS[name]).words
    return own or f"accounting by `{name}`"
