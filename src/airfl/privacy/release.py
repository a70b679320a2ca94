"""The last gate: a model leaves only if its ledger keeps the promise."""

from __future__ import annotations

from airfl.privacy.accountant import make_accountant
from airfl.privacy.events import Neighbours, Observer
from airfl.privacy.ledger import Ledger


class BudgetError(RuntimeError):
    """The ledger exceeds the budget; the model is not released."""


def release(
    ledger: Ledger,
    accountant: str,
    neighbours: Neighbours,
    epsilon: float,
    delta: float,
    observer: Observer = "model",
) -> float:
    """Return the ε that the observer gets, or refuse with ``BudgetError`` if it exceeds ``epsilon`` at ``delta``."""
    spent = make_accountant(accountant, ledger, neighbours, observer).epsilon(delta)
    if not spent <= epsilon:
        raise BudgetError(
            f"the budget is exceeded: accountant `{accountant}` finds epsilon = {spent:.6g} at delta = {delta:g} "
            f"({neighbours}, observer {observer}), allowed is {epsilon:.6g}; the model is not released"
        )
    return spent
