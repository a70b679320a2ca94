"""Channels for links that the tables of combiners do not cover: drawn in a process of its own, and remembered.

Drawing takes seconds and PyTorch. A process can be ended when it takes too long; a thread cannot. What was drawn once
answers at once, whatever power, noise or target: these do not change channels.

``python -m airfl.web.drawing`` is that process: a question on standard input, an answer on standard output, both JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import OrderedDict

from airfl.errors import InputError
from airfl.linkplan.combiners import Advance
from airfl.linkplan.law import Drawn
from airfl.linkplan.quantities import Quantities
from airfl.web.limits import DRAW_SECONDS

#: Links whose channels are remembered.
REMEMBERED = 64


class NotDrawn(InputError):
    """The answer takes channels that were not drawn yet."""


class Drawer:
    """Draws links, one at a time, and remembers them.

    Args:
        seconds: that a drawing may take.
    """

    def __init__(self, seconds: float = DRAW_SECONDS) -> None:
        self._seconds, self._known = seconds, OrderedDict[tuple[Quantities, int | None], Drawn]()
        self._turn, self._lock = threading.Lock(), threading.Lock()

    def known(self, q: Quantities, drops: int | None, advance: Advance | None = None) -> Drawn:
        """What was drawn before; ``NotDrawn`` where nothing was."""
        with self._lock:
            found = self._known.get((q, drops))
        if found is None:
            raise NotDrawn("these channels have to be drawn first, which takes some seconds")
        return found

    def draw(self, q: Quantities, drops: int | None, advance: Advance | None = None) -> Drawn:
        """The same, drawn if need be."""
        if not self._turn.acquire(timeout=self._seconds):
            raise InputError("channels of other links are being drawn; try again in a minute")
        try:
            return self.known(q, drops)
        except NotDrawn:
            found = self._drawn(q, drops)
        finally:
            self._turn.release()
        with self._lock:
            self._known[q, drops] = found
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return found

    def _drawn(self, q: Quantities, drops: int | None) -> Drawn:
        question = json.dumps({"quantities": vars(q), "drops": drops})
        command = [sys.executable, "-m", "airfl.web.drawing"]
        try:
            done = subprocess.run(
                command, input=question, capture_output=True, text=True, timeout=self._seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise InputError(
                f"drawing these channels takes more than {self._seconds:g} s, which is more than a page waits; ask "
                "`airfl plan`, or for fewer drops"
            ) from None
        try:
            answer = json.loads(done.stdout.splitlines()[-1])
        except (ValueError, IndexError):
            raise InputError("drawing these channels failed; `airfl plan` with the same words says why") from None
        if "problem" in answer:
            raise InputError(answer["problem"])
        return Drawn(**answer)


def main() -> None:
    """Answer one question."""
    from airfl.analysis.drawn_law import draw_law

    question = json.load(sys.stdin)
    try:
        answer = vars(draw_law(Quantities(**question["quantities"]), question["drops"]))
    except (InputError, MemoryError) as error:
        answer = {"problem": str(error) or "there is not enough memory for these channels"}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
