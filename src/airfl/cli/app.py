"""What all commands share: options, exit codes, and how an error becomes one sentence."""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_BUDGET, EXIT_INTERRUPTED = 1, 2, 3, 130

app = typer.Typer(
    help="Federated learning over the air, with differential privacy paid by the radio channel.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines, on the last line.")]
NoImports = Annotated[
    bool,
    typer.Option("--no-imports", help="Refuse configurations that name code of their own (package.module:callable)."),
]
Track = Annotated[
    list[str] | None, typer.Option(metavar="NAME", help="Also write for tensorboard or mlflow; may be repeated.")
]


def main() -> None:
    """Entry point: errors become one sentence and an exit code."""
    sys.path.append("")  # so that package.module:callable finds the user's own files
    try:
        app()
    except KeyboardInterrupt:
        fail("interrupted", EXIT_INTERRUPTED)
    except MemoryError as error:
        fail(f"not enough memory ({error or 'no more to be had'}); ask for fewer trials, rounds or devices", 2)
    except Exception as error:
        code = _exit_code(error)
        if code is None:
            raise
        fail(error, code)


def _exit_code(error: Exception) -> int | None:
    """The exit code of an error that a user can meet; None for a defect of ours, which keeps its traceback."""
    from airfl.errors import DivergedError, InputError
    from airfl.privacy import BudgetError, PrivacyError

    if isinstance(error, InputError | PrivacyError):
        return EXIT_BAD_INPUT
    if isinstance(error, BudgetError):
        return EXIT_BUDGET
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return EXIT_BAD_INPUT
    # A full disk, or a folder where a file is to be written: the message names it.
    return EXIT_FAILED if isinstance(error, DivergedError | OSError) else None


def name_imports(paths: Sequence[str], refuse: bool) -> None:
    """Say which code a configuration is about to execute, or refuse to."""
    from airfl.errors import InputError

    if not paths:
        return
    named = ", ".join(repr(path) for path in paths)
    if refuse:
        raise InputError(f"the configuration names code of its own, {named}, and --no-imports refuses that")
    print(f"airfl: this executes code that the configuration names: {named} (--no-imports refuses it)", file=sys.stderr)


def fail(problem: object, code: int) -> None:
    """One sentence on standard error, and the exit code."""
    print(f"airfl: {problem}", file=sys.stderr)
    raise SystemExit(code)
