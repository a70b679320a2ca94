"""What was released, to whom, and how ε follows from it.

In: events of rounds. Out: ε, δ, budgets, lower bounds. Imports nothing else of the package.
"""

from airfl.privacy.accountant import ACCOUNTANTS, Accountant, epsilon_of, make_accountant, proves
from airfl.privacy.adapter import LedgerAccountant
from airfl.privacy.budget import Budget, smallest
from airfl.privacy.dp_event import to_dp_event
from airfl.privacy.events import (
    NEIGHBOURS,
    OBSERVERS,
    SEEING,
    Domain,
    Neighbours,
    NoiseSource,
    Observer,
    PrivacyError,
    RoundEvent,
    Sampling,
    reach,
    relation_of,
)
from airfl.privacy.gate import BudgetError, release
from airfl.privacy.gaussian import GaussianAccountant, gaussian_delta, gaussian_epsilon, gaussian_mu
from airfl.privacy.headline import Finding, proven
from airfl.privacy.inverse import Kept, Target, keep, least_noise, most_rounds, noise_for, rounds_for
from airfl.privacy.ledger import Ledger
from airfl.privacy.paper import PaperAccountant
from airfl.privacy.shown import Shown, shown
from airfl.privacy.whatif import MOST_ROUNDS, WhatIf, compare, default_neighbours, what_if_ledger

__all__ = [
    "ACCOUNTANTS",
    "MOST_ROUNDS",
    "NEIGHBOURS",
    "OBSERVERS",
    "SEEING",
    "Accountant",
    "Budget",
    "BudgetError",
    "Domain",
    "Finding",
    "GaussianAccountant",
    "Kept",
    "Ledger",
    "LedgerAccountant",
    "Neighbours",
    "NoiseSource",
    "Observer",
    "PaperAccountant",
    "PrivacyError",
    "RoundEvent",
    "Sampling",
    "Shown",
    "Target",
    "WhatIf",
    "compare",
    "default_neighbours",
    "epsilon_of",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "keep",
    "least_noise",
    "make_accountant",
    "most_rounds",
    "noise_for",
    "proven",
    "proves",
    "reach",
    "relation_of",
    "release",
    "rounds_for",
    "shown",
    "smallest",
    "to_dp_event",
    "what_if_ledger",
]
