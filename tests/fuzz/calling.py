"""One command of airfl in this process, with a limit: what it printed, how it ended, and how long that took."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airfl import cli

#: Seconds after which a command hangs.
LIMIT = 60


class Hang(BaseException):
    """The limit is over; no handler of exceptions may keep it."""


@dataclass(frozen=True)
class Called:
    """How a command ended.

    Attributes:
        code: exit code; None if it did not end by itself.
        trace: the traceback of an exception that came through.
    """

    code: int | None
    out: str
    err: str
    trace: str = ""

    @property
    def sentence(self) -> bool:
        """Whether it was refused as it should be: exit code 1 to 3, and one line on standard error that says why."""
        lines = [line for line in self.err.strip().splitlines() if line.startswith(("airfl: ", "Error: "))]
        return self.code in (1, 2, 3) and len(lines) == 1 and "Traceback" not in self.err

    @property
    def answer(self) -> Any:
        """The JSON object on the last line."""
        return json.loads(self.out.strip().splitlines()[-1], parse_constant=_refuse)


def call(arguments: list[str], folder: Path) -> Called:
    """Run ``airfl ARGUMENTS`` in a folder."""
    out, err = io.StringIO(), io.StringIO()
    before, argv = Path.cwd(), sys.argv
    code: int | None = None
    trace = ""
    os.chdir(folder)
    sys.argv = ["airfl", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings(), _limited():
            warnings.simplefilter("ignore")
            cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Hang:
        trace = f"still running after {LIMIT} s"
    except BaseException:
        code, trace = -1, traceback.format_exc()
    finally:
        os.chdir(before)
        sys.argv = argv
    return Called(code, out.getvalue(), err.getvalue(), trace)


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    def ring(number: int, frame: object) -> None:
        raise Hang

    previous = signal.signal(signal.SIGALRM, ring)
    signal.alarm(LIMIT)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
