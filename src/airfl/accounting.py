"""Accountants by name, ours and others': ``privacy`` knows its own, and an import path names one from outside."""

from __future__ import annotations

from airfl.config import Config
from airfl.errors import InputError
from airfl.imports import import_object, is_import_path
from airfl.privacy import ACCOUNTANTS, Accountant, shown

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
    return found


def accountants_of(config: Config) -> dict[str, type[Accountant]]:
    """All of ours, and the one from outside that a configuration names."""
    own = config.privacy.accountant
    return {**ACCOUNTANTS, **({own: accountant_named(own)} if is_import_path(own) else {})}


def words_for(name: str) -> str:
    """How a sentence calls the arithmetic of an accountant."""
    return shown(accountant_named(name)).words or f"accounting by `{name}`"
