"""Which code computes: what a run or study was begun with must be what goes on with it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from airfl.errors import InputError
from airfl.imports import code_identity, source_digest

log = logging.getLogger("airfl")


def code_of(imports: Iterable[str]) -> dict[str, str]:
    """This package, PyTorch, and the files of parts that configurations name."""
    return {**code_identity(), **{path: source_digest(path) or "not found" for path in imports}}


def require_same_code(
    stored: Mapping[str, Any] | None, out: str | Path, *, anyway: bool = False, now: Mapping[str, Any] | None = None
) -> None:
    """Refuse to go on in ``out`` with other code than it was begun with, and show the difference.

    Args:
        stored: what was kept at the beginning; None where an older version kept nothing, which is said and let pass.
        anyway: say it, and go on.
        now: default: ``code_identity()``.
    """
    if stored is None:
        log.warning("`%s` does not say which code it was begun with; going on as if it were this one", out)
        return
    now = code_identity() if now is None else now
    changed = [key for key in sorted({*stored, *now}) if stored.get(key) != now.get(key)]
    if not changed:
        return
    shown = "; ".join(f"{key}: begun with {stored.get(key)}, now {now.get(key)}" for key in changed)
    if not anyway:
        raise InputError(
            f"`{out}` was begun with other code ({shown}); go back to that one, begin anew in another folder, or add "
            "--anyway to mix the two"
        )
    log.warning("`%s` was begun with other code (%s); going on anyway", out, shown)
