"""Figures, tables and the page that a person reads.

In: results of runs, sweeps and analyses. Out: files and text. May import ``analysis`` and all before it. Its names are
imported when first used: a command that prints a short table need not load what draws figures.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airfl.report.figures import render_figures
    from airfl.report.page import write_report
    from airfl.report.sentences import headline
    from airfl.wording import epsilon_text

_HOME = {
    "render_figures": "airfl.report.figures",
    "write_report": "airfl.report.page",
    "headline": "airfl.report.sentences",
    "epsilon_text": "airfl.wording",
}

__all__ = ["epsilon_text", "headline", "render_figures", "write_report"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module `airfl.report` has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME[name]), name)
