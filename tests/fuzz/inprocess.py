"""The command line in this process: what it printed, how it ended, and whether it ended at all."""

from __future__ import annotations

import contextlib
import io
import json
import logging
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
from tests.fuzz.tally import Outcome

#: Seconds after which a command counts as hanging.
PATIENCE = 60


class HangError(BaseException):
    """A command took longer than anybody would wait; not an ``Exception``, so that nobody catches it on the way."""


@dataclass(frozen=True)
class Ended:
    """How a command ended; ``code`` is None where it raised what no user should see, and ``error`` is the traceback."""

    code: int | None
    out: str
    error: str
    hung: bool = False

    @property
    def sentences(self) -> list[str]:
        """What was said on standard error beside bars, warnings and the code that is executed."""
        lines = [line for line in self.error.splitlines() if line.startswith("airfl: ")]
        return [line for line in lines if "this executes code" not in line]

    @property
    def refused(self) -> bool:
        """Exit code 2 with one sentence, and no number of the system's in it."""
        return self.code == 2 and len(self.sentences) == 1 and "[Errno" not in self.error

    @property
    def answer(self) -> Any:
        """The JSON object on the last line; NaN and infinity are none."""
        return json.loads(self.out.strip().splitlines()[-1], parse_constant=_no_number)

    def judged(self, codes: tuple[int, ...] = (2,)) -> tuple[Outcome, str]:
        """How it ended, in a fuzzer's words; ``codes`` are those that one sentence may come with."""
        if self.hung:
            return "hang", f"still running after {PATIENCE} s"
        if self.code == 0:
            return "ok", ""
        plain = self.refused or (self.code in codes and len(self.sentences) == 1 and "Traceback" not in self.error)
        return ("refused", "") if plain else ("traceback", self.error[-400:])


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """End what takes longer."""

    def late(number: int, frame: object) -> None:
        raise HangError

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without warnings and without a log, and with both as they were afterwards."""
    logger = logging.getLogger("airfl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def call(*arguments: str, folder: Path) -> Ended:
    """Run a command with ``folder`` as the working directory."""
    out, error = io.StringIO(), io.StringIO()
    before, here = sys.argv, os.getcwd()
    sys.argv = ["airfl", *arguments]
    os.chdir(folder)
    code: int | None = 0
    hung = False
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), quiet(), limited(PATIENCE):
            cli.main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except HangError:
        code, hung = None, True
    except BaseException:
        code = None
        error.write(traceback.format_exc())
    finally:
        sys.argv = before
        os.chdir(here)
    return Ended(code, out.getvalue(), error.getvalue(), hung)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
