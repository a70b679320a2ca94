"""One run: driving the simulator, keeping its result in a folder, bringing it back, going on with it.

In: a configuration. Out: a ``Result``, and its folder. May import the simulator and all before it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airfl.runs.execute import Progress, pick_device, run
    from airfl.runs.ledgers import read_ledgers, require_files, require_readable
    from airfl.runs.lock import locked
    from airfl.runs.manifest import is_run
    from airfl.runs.result import Result, SchemeResult
    from airfl.runs.signals import Interrupts
    from airfl.runs.store import load, prepare_folder, save, write_run
    from airfl.runs.tracking import Tracked, make_trackers
    from airfl.runs.unfinished import Keeper, claimed, resumed

#: Where each name lives. They are imported when first used, so that reading a ledger need not load torch.
_HOME = {
    "execute": ("Progress", "pick_device", "run"),
    "ledgers": ("read_ledgers", "require_files", "require_readable"),
    "lock": ("locked",),
    "manifest": ("is_run",),
    "result": ("Result", "SchemeResult"),
    "signals": ("Interrupts",),
    "store": ("load", "prepare_folder", "save", "write_run"),
    "tracking": ("Tracked", "make_trackers"),
    "unfinished": ("Keeper", "claimed", "resumed"),
}

__all__ = [
    "Interrupts",
    "Keeper",
    "Progress",
    "Result",
    "SchemeResult",
    "Tracked",
    "claimed",
    "is_run",
    "load",
    "locked",
    "make_trackers",
    "pick_device",
    "prepare_folder",
    "read_ledgers",
    "require_files",
    "require_readable",
    "resumed",
    "run",
    "save",
    "write_run",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(f"airfl.runs.{module}"), name)
    raise AttributeError(f"module `airfl.runs` has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
