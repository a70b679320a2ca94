"""The last gate: a model leaves only if its ledger keeps the promise."""

from __future__ import annotations

from airfl.privacy.accountant import ACCOUNTANTS, Accountant, epsilon_of
from airfl.privacy.events import Neighbours, Observer
from airfl.privacy.ledger import Ledger


class BudgetError(RuntimeError):
    """The ledger exceeds the budget; the model is not released."""


def release(
    ledger: Ledger,
    accountant: str | type[Accountant],
    neighbours: Neighbours,
    epsilon: float,
    delta: float,
    observer: Observer = "model",
) -> float:
    """Return the ε that the observer gets, or refuse with ``BudgetError`` if it exceeds ``epsilon`` at ``delta``.

    Where noise followed an estimate from updates, no accountant that is proven lets a model leave.
    """
    proven = ACCOUNTANTS[accountant].valid if isinstance(accountant, str) else accountant.valid
    if proven and ledger.noise_follows_data:
        raise BudgetError(
            "the noise of this run was chosen by an estimate from updates, which is not a proof: no accountant whose "
            "epsilon is proven keeps a promise about it; the model is not released"
        )
    spent = epsilon_of(ledger, accountant, neighbours, observer, delta)
    if not spent <= epsilon:
        name = accountant if isinstance(accountant, str) else accountant.name
        raise BudgetError(
            f"the budget is exceeded: accountant `{name}` finds epsilon = {spent:.6g} at delta = {delta:g} "
            f"({neighbours}, observer {observer}), allowed is {epsilon:.6g}; the model is not released"
        )
    return spent
