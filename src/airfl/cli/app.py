"""What all commands share: options, exit codes, and how an error becomes one sentence."""

from __future__ import annotations

import errno
import gc
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer

from airfl.cli.complete import complete_settings
from airfl.cli.usage import Commands, UsageError, usage_sentence
from airfl.version import __version__

EXIT_FAILED, EXIT_BAD_INPUT, EXIT_BUDGET, EXIT_INTERRUPTED = 1, 2, 3, 130

app = typer.Typer(
    cls=Commands,
    help="Federated learning over the air, with differential privacy paid by the radio channel.",
    context_settings={"help_option_names": ["-h", "--help"]},
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
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override section.key; may be repeated.",
        autocompletion=complete_settings,
    ),
]


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"airfl {__version__}")
        raise typer.Exit


def _be_quiet(wanted: bool) -> None:
    """Said before or after the command; either will do."""
    from airfl.terminal import be_quiet

    if wanted:
        be_quiet()


@app.callback(invoke_without_command=True)
def everywhere(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_say_version, is_eager=True, expose_value=False, help="Print the version and exit."
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            "-q",
            callback=_be_quiet,
            expose_value=False,
            help="No progress bars and no notes; results, warnings and errors stay. Before or after the command.",
        ),
    ] = False,
) -> None:
    """Federated learning over the air, with differential privacy paid by the radio channel."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(EXIT_BAD_INPUT)


def main() -> None:
    """Entry point: errors become one sentence and an exit code."""
    from airfl.terminal import be_quiet

    warnings.formatwarning = lambda message, *where, **more: f"airfl: {message}\n"
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":  # names that are no text go out as well
        sys.stdout.reconfigure(errors="surrogateescape")
    sys.path.append("")  # so that package.module:callable finds the user's own files
    try:
        code = app(prog_name="airfl", standalone_mode=False)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except MemoryError as error:
        fail(f"not enough memory ({error or 'no more to be had'}); ask for fewer trials, rounds or devices", 2)
    except Exception as error:
        known = _explained(error)
        if known is None:
            raise
        fail(*known)
    finally:
        be_quiet(False)
    if code == EXIT_INTERRUPTED:
        fail("interrupted", EXIT_INTERRUPTED)
    raise SystemExit(code if isinstance(code, int) else 0)


def _explained(error: Exception) -> tuple[str, int] | None:
    """An error that a user can meet in a sentence, and its exit code; None for a defect of ours: it keeps its trace."""
    from airfl.errors import DivergedError, InputError, about_file

    if isinstance(error, UsageError):
        return usage_sentence(error), EXIT_BAD_INPUT
    if isinstance(error, InputError):
        return str(error), EXIT_BAD_INPUT
    if isinstance(error, OSError):  # a full disk, or a folder where a file is to be written
        return about_file(error), EXIT_BAD_INPUT if error.errno == errno.ENAMETOOLONG else EXIT_FAILED
    if isinstance(error, DivergedError):
        return str(error), EXIT_FAILED
    if "airfl.privacy" not in sys.modules:  # then it is none of theirs
        return None
    from airfl.privacy import BudgetError, PrivacyError

    if isinstance(error, PrivacyError):
        return str(error), EXIT_BAD_INPUT
    return (str(error), EXIT_BUDGET) if isinstance(error, BudgetError) else None


@contextmanager
def loading() -> Iterator[None]:
    """Import large packages inside: Python looks for garbage among what they make neither now nor later.

    OpenMP's threads burn a core while they wait for the next product; that core is wanted by who trains devices. They
    are told to sleep after some microseconds, unless somebody said how they are to wait.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & set(os.environ):
        os.environ["GOMP_SPINCOUNT"] = "2000"
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def name_imports(paths: Sequence[str], refuse: bool) -> None:
    """Say which code a configuration is about to execute, or refuse to."""
    from airfl.errors import InputError
    from airfl.terminal import warn

    if not paths:
        return
    named = ", ".join(repr(path) for path in paths)
    if refuse:
        raise InputError(f"the configuration names code of its own, {named}, and --no-imports refuses that")
    warn(f"this executes code that the configuration names: {named} (--no-imports refuses it)")


@contextmanager
def going_on(how: str) -> Iterator[None]:
    """Say how to go on where machines of a cluster are gone for good."""
    from airfl.errors import LostError

    try:
        yield
    except LostError as error:
        fail(f"{error}; {how}", EXIT_FAILED)


def fail(problem: object, code: int) -> NoReturn:
    """One sentence on standard error, and the exit code."""
    print(f"airfl: {problem}", file=sys.stderr)
    raise SystemExit(code)
