"""SVG drawings and figures are put into the page itself, so that they take the colours of the theme, light or dark.

A page names one as any other image, ``![what it shows](images/round.svg)``, and GitHub shows it as such. One that would
be too small to read on a narrow screen scrolls.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

IMAGE = re.compile(r'<img alt="(?P<alt>[^"]*)" src="(?:\.\./)*(?P<source>images/[\w-]+\.svg)"\s*/?>')


def on_page_content(content: str, config: Any, **_: Any) -> str:
    """Replace images that are drawings by the drawings."""

    def drawing(match: re.Match[str]) -> str:
        svg = Path(config.docs_dir, match["source"]).read_text(encoding="utf-8")
        label = html.escape(html.unescape(match["alt"]), quote=True)
        svg = svg.replace("<svg ", f'<svg class="drawing" role="img" aria-label="{label}" ', 1)
        return f'<span class="scroll">{svg}</span>'

    return IMAGE.sub(drawing, content)
