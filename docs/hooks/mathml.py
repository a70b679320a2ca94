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

MARKED = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
CONVERTER = LatexToMathML(fancy_error=False)
#: Characters of LaTeX from which on a formula within a line may be wider than a telephone, and scrolls by itself.
LONG = 45


@cache
def mathml(latex: str, display: bool) -> str:
    """One formula; LaTeX that cannot be read stops the build."""
    made = CONVERTER.convert_with_local_state(latex, displaystyle=display)
    if display:
        return f'<div class="formula">{made}</div>'
    return f'<span class="long">{made}</span>' if len(latex) > LONG else made


def on_page_content(content: str, **_: Any) -> str:
    """Replace what is marked as LaTeX in the HTML of a page."""
    return MARKED.sub(lambda match: mathml(html.unescape(match[2]).strip(), match[1] == "div"), content)
