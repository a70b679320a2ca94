"""LaTeX in pages becomes MathML when the site is built: no script, no font, nothing to fetch when a page is read.

``pymdownx.arithmatex`` marks ``$…$`` and fences named ``math``. Where a forge shows the Markdown itself, the
same sources are formulas too.
"""

from __future__ import annotations

import html
import re
from functools import cache
from typing import Any

from math_core import LatexToMathML

MARKED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>([.,;:)]*)', re.DOTALL)
CONVERTER = LatexToMathML(fancy_error=False)
#: Characters of LaTeX from which on a formula within a line may be wider than a telephone, and scrolls by itself.
LONG = 45


@cache
def mathml(latex: str, display: bool, behind: str) -> str:
    """One formula with the punctuation behind it; LaTeX that cannot be read stops the build."""
    made = CONVERTER.convert_with_local_state(latex, displaystyle=display)
    if display:
        return f'<div class="formula">{made}</div>{behind}'
    if len(latex) > LONG:
        return f'<span class="long">{made}</span>{behind}'
    return f'<span class="kept">{made}{behind}</span>' if behind else made


def on_page_content(content: str, **_: Any) -> str:
    """Replace what is marked as LaTeX in the HTML of a page."""

    def formula(match: re.Match[str]) -> str:
        return mathml(html.unescape(match[2]).strip(), match[1] == "div", match[3])

    return MARKED.sub(formula, content)
