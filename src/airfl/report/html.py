"""What all pages share: templates, and figures as SVG that take the page's colours, by day and by night."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

#: Grounds of a page, and the least contrast of a line on either (WCAG 2.1 asks for 3).
LIGHT, DARK = "#ffffff", "#14181f"
LEAST_CONTRAST = 4.0
#: Colours of a drawing that are the page's own.
_OWN = {"000000": "ink", "ffffff": "page", "dddddd": "grid", "cccccc": "grid"}


def render(template: str, drawn: Mapping[str, bytes], **values: Any) -> str:
    """A page from a template; ``drawn`` are the figures that it shows, SVG by name."""
    environment = Environment(
        loader=PackageLoader("airfl.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    svgs = {name: inline(svg, name) for name, svg in drawn.items()}
    colors = sorted({color for svg in svgs.values() for color in re.findall(r"var\(--c-([0-9a-f]{6})\)", svg)})
    palettes = {
        ground: Markup(" ".join(f"--c-{color}: {readable(f'#{color}', ground)};" for color in colors))
        for ground in (LIGHT, DARK)
    }
    shared = {"light": palettes[LIGHT], "dark": palettes[DARK], "ground": {"light": LIGHT, "dark": DARK}}
    return environment.get_template(template).render(svgs=svgs, **shared, **values)


def inline(svg: bytes, name: str) -> Markup:
    """A drawing of matplotlib's as part of a page: ids of its own, colours by variables, as wide as its place."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r'\s(xmlns(:\w+)?|version)="[^"]*"', "", text)
    text = re.sub(r'^<svg width="[^"]*" height="[^"]*"', f'<svg class="drawn" role="img" aria-label="{name}"', text)
    text = re.sub(r'\bid="', f'id="{name}-', text).replace("url(#", f"url(#{name}-")
    text = re.sub(r'xlink:href="#([^"]*)"', rf"href='#{name}-\1'", text)
    return Markup(re.sub(r"(fill|stroke): #([0-9a-f]{6})", _variable, text))


def _variable(found: re.Match[str]) -> str:
    kind, color = found.groups()
    return f"{kind}: var(--{_OWN.get(color, f'c-{color}')})"


def readable(color: str, ground: str) -> str:
    """The colour, as much darker or lighter as it takes to be seen on the ground."""
    towards = 0.0 if luminance(ground) > 0.5 else 255.0
    channels = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    for step in range(101):
        mixed = [round(c + (towards - c) * step / 100) for c in channels]
        found = "#" + "".join(f"{c:02x}" for c in mixed)
        if contrast(found, ground) >= LEAST_CONTRAST:
            return found
    return color


def contrast(first: str, second: str) -> float:
    """How far two colours stand out from each other, 1 to 21 (WCAG 2.1)."""
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def luminance(color: str) -> float:
    """Relative luminance of #rrggbb, 0 to 1."""
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
