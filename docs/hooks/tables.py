"""A number in a table, its unit with it, stays on one line: its cell gets the class ``num``."""

from __future__ import annotations

import re
from typing import Any

#: A cell of one piece of text, bold or not; and which of them count: a few characters with a digit, such as 27.0 %.
CELL = re.compile(r'<(t[dh])( style="[^"]*")?>((?:<strong>)?([^<]*)(?:</strong>)?)</\1>')
NUMBER = re.compile(r"(?=.*\d).{1,14}")


def on_page_content(content: str, **_: Any) -> str:
    """Mark such cells."""

    def marked(cell: re.Match[str]) -> str:
        tag, style, inner, text = cell.groups()
        return f'<{tag} class="num"{style or ""}>{inner}</{tag}>' if NUMBER.fullmatch(text) else cell[0]

    return CELL.sub(marked, content)
