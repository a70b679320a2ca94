"""Figures as the documentation shows them: SVG whose colours follow the page, light or dark; alone, the system."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from airfl.report.html import readable
from airfl.report.perk_figure import OWN_COLOURS

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SVG, XLINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}"
#: Grounds of the site.
LIGHT, DARK = "#ffffff", "#1e2529"
#: Colours that are the page's own (docs/stylesheets/airfl.css), and what they are in the dark where there is no page.
OWN = {"000000": "ink", "ffffff": "ground", "dddddd": "grid", "cccccc": "grid", "e6e6e6": "panel"}
NIGHT = {"ink": "#dde6ea", "ground": DARK, "grid": "#3a474f", "panel": "#263239"}
#: Pixels per point below which letters get too small to read; a page narrower than that scrolls the figure.
LEAST = 0.8


def write_picture(svg: bytes, name: str) -> None:
    """A drawing of matplotlib's as docs/images/NAME.svg."""
    (IMAGES / f"{name}.svg").write_text(picture(svg, name), encoding="utf-8")


def picture(svg: bytes, name: str) -> str:
    """A drawing of matplotlib's with ids of its own, without what nobody sees, and with colours by variables."""
    root = ElementTree.fromstring(svg)
    for part in root.findall(f"{SVG}metadata"):
        root.remove(part)
    for defs in root.iter(f"{SVG}defs"):
        for part in defs.findall(f"{SVG}style"):
            defs.remove(part)
    _colour(root, kept=False)
    _name_ids(root, name)
    for element in root.iter():
        _shorten(element)
    width, height = (float(value) for value in str(root.get("viewBox")).split()[2:])
    drawn = "".join(ElementTree.tostring(part, encoding="unicode") for part in root)
    drawn = re.sub(r' xmlns:\w+="[^"]*"', "", drawn).replace("<ns0:", "<").replace("</ns0:", "</").replace(" />", "/>")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width / 0.75:.0f}" '
        f'style="--least:{LEAST * width:.0f}px;fill:var(--airfl-ink,#000000);stroke-linejoin:round">'
    )
    return f"{head}\n<style>\n{_palette(drawn)}</style>\n{drawn}\n</svg>\n"


def _colour(element: ElementTree.Element, kept: bool) -> None:
    """Colours become variables, but for what lies on a field with a colour of its own."""
    if str(element.get("id", "")).startswith(OWN_COLOURS):
        kept = True
        element.set("style", f"fill:#000000;{element.get('style', '')}")
    elif not kept and "style" in element.attrib:
        element.set("style", re.sub(r"(fill|stroke): #([0-9a-f]{6})", _variable, element.attrib["style"]))
    for part in element:
        _colour(part, kept)


def _variable(found: re.Match[str]) -> str:
    kind, colour = found.groups()
    name = f"airfl-{OWN[colour]}" if colour in OWN else f"c-{colour}"
    return f"{kind}: var(--{name},#{colour})"


def _name_ids(root: ElementTree.Element, name: str) -> None:
    """Ids that something refers to begin with the name of the figure; the others go."""
    text = ElementTree.tostring(root, encoding="unicode")
    used = {*re.findall(r"url\(#([^)]+)\)", text), *re.findall(r'href="#([^"]+)"', text)}
    short = {old: f"{name}-{index}" for index, old in enumerate(sorted(used))}
    for element in root.iter():
        own = element.attrib.pop("id", None)
        if own in short:
            element.set("id", short[own])
        link = element.attrib.pop(f"{XLINK}href", None)
        if link is not None:
            element.set("href", f"#{short[link[1:]]}" if link.startswith("#") else link)
        for key, value in element.attrib.items():
            element.set(key, re.sub(r"url\(#([^)]+)\)", lambda found: f"url(#{short[found[1]]})", value))


def _shorten(element: ElementTree.Element) -> None:
    """Hundredths of a point, and no blanks."""
    element.text = element.tail = None
    for key in ("d", "x", "y", "transform"):
        if key in element.attrib and "scale" not in element.attrib[key]:
            rounded = re.sub(
                r"-?\d+\.\d+", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), element.attrib[key]
            )
            element.set(key, " ".join(rounded.split()))
    if "style" in element.attrib:
        element.set("style", element.attrib["style"].replace(": ", ":").replace("; ", ";").rstrip(";"))


def _palette(drawn: str) -> str:
    """What the colours are by day and by night: in a page by its switch, alone by the system's."""
    colours = sorted(set(re.findall(r"var\(--c-([0-9a-f]{6})", drawn)))
    day, night = ("".join(f"--c-{c}:{readable(f'#{c}', ground)};" for c in colours) for ground in (LIGHT, DARK))
    alone = "".join(f"--airfl-{name}:{colour};" for name, colour in NIGHT.items())
    return (
        "svg:root{background:var(--airfl-ground,#ffffff)}\n"
        f'svg:root,[data-md-color-scheme="default"]{{{day}}}\n'
        f'[data-md-color-scheme="slate"]{{{night}}}\n'
        f"@media(prefers-color-scheme:dark){{svg:root{{{alone}{night}}}}}\n"
    )
