"""Pages from templates, everything in them escaped, and the data that they show."""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from airfl.version import __version__

#: What is served from ``static``.
KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@cache
def _environment() -> Environment:
    loader = PackageLoader("airfl.web", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def page(template: str, **values: Any) -> str:
    """A page from a template."""
    return _environment().get_template(template).render(version=__version__, **values)


def json_of(content: Any) -> str:
    """JSON without NaN, and with a question mark for half a character: neither goes into an address of a page."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace").decode()


@cache
def static_files() -> dict[str, bytes]:
    """Our own scripts and styles by name; nothing else is served from there."""
    folder = resources.files("airfl.web") / "static"
    return {item.name: item.read_bytes() for item in folder.iterdir() if item.name.rpartition(".")[2] in KINDS}
