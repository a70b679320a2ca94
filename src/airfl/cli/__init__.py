"""The command line, a file per command: parse, call, print.

In: arguments. Out: text, or one JSON object. May import everything; heavy things only where a command uses them.
"""

# In the order in which `airfl --help` lists them.
from airfl.cli import run  # noqa: F401, I001
from airfl.cli import demo, epsilon, audit  # noqa: F401
from airfl.cli import sweep, report, reproduce, arena  # noqa: F401
from airfl.cli import design, plan, serve  # noqa: F401
from airfl.cli import presets, doctor  # noqa: F401
from airfl.cli.app import app, main

__all__ = ["app", "main"]
