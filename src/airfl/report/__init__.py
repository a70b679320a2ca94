"""Figures, tables and the page that a person reads.

In: results of runs, sweeps and analyses. Out: files and text. May import ``analysis`` and all before it.
"""

from airfl.report.figures import render_figures
from airfl.report.page import write_report
from airfl.report.sentences import headline
from airfl.wording import epsilon_text

__all__ = ["epsilon_text", "headline", "render_figures", "write_report"]
