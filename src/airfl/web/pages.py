"""Pages from templates, everything in them escaped."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from airfl.version import __version__


@cache
def _environment() -> Environment:
    loader = PackageLoader("airfl.web", "templates")
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def page(template: str, **values: Any) -> str:
    """A page from a template."""
    return _environment().get_template(template).render(version=__version__, **values)
