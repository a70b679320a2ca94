"""The errors a user can meet. Each is one sentence: what is wrong, what was expected, how to fix it."""

from __future__ import annotations


class InputError(ValueError):
    """The request cannot be carried out as written; nothing was run and nothing written."""


class DivergedError(RuntimeError):
    """Training produced NaN or infinity; what was recorded before is kept.

    ``state`` is where the run stands: its ledgers include the round that diverged, which was sent all the same.
    """

    def __init__(self, message: str, state: object = None) -> None:
        super().__init__(message)
        self.state = state
