"""The last gate: a model leaves only if its ledger keeps the promise."""

from __future__ import annotations

from airfl.privacy.accountant import make_accountant
from airfl.privacy.events import Neighbours
from airfl.privacy.ledger import Ledger


class BudgetError(RuntimeError):
    """The ledger exceeds the budget; the model is not released."""


def release(ledger: Ledger, accountant: str, neighbours: Neighbours, epsilon: float, delta: float) -> float:
    """Return the ε spent by the final model, or refuse with ``BudgetError`` if it exceeds ``epsilon`` at ``delta``."""
    spent = make_accountant(accountant, ledger, neighbours).epsilon(delta)
    if not spent <= epsilon:
        raise BudgetError(
            f"the budget is exceeded: accountant `{accountant}` finds epsilon = {spent:.6g} at delta = {delta:g} "
            f"({neighbours}), allowed is {epsilon:.6g}; the model is not released"
        )
    return spent
