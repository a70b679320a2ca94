"""Figures, tables and the page that a person reads.

In: results of runs, sweeps and analyses. Out: files and text. May import ``analysis`` and all before it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airfl.report.figures import render_figures
    from airfl.report.page import write_report
    from airfl.report.sentences import headline
    from airfl.wording import epsilon_text

#: Where each name lives. They are imported when first used: `airfl epsilon` prints without torch and Matplotlib.
_HOME = {
    "airfl.report.figures": ("render_figures",),
    "airfl.report.page": ("write_report",),
    "airfl.report.sentences": ("headline",),
    "airfl.wording": ("epsilon_text",),
}

__all__ = ["epsilon_text", "headline", "render_figures", "write_report"]


def __getattr__(name: str) -> Any:
    for module, names in _HOME.items():
        if name in names:
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module `airfl.report` has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
