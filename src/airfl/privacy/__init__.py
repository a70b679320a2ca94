"""What was released, to whom, and how ε follows from it. Imports nothing else of the package."""

from airfl.privacy.accountant import ACCOUNTANTS, OBSERVERS, Accountant, make_accountant
from airfl.privacy.events import NEIGHBOURS, Domain, Neighbours, Observer, PrivacyError, RoundEvent, Sampling
from airfl.privacy.gaussian import GaussianAccountant, gaussian_delta, gaussian_epsilon, gaussian_mu
from airfl.privacy.ledger import Ledger
from airfl.privacy.paper import PaperAccountant
from airfl.privacy.release import BudgetError, release
from airfl.privacy.whatif import compare, what_if_ledger

__all__ = [
    "ACCOUNTANTS",
    "NEIGHBOURS",
    "OBSERVERS",
    "Accountant",
    "BudgetError",
    "Domain",
    "GaussianAccountant",
    "Ledger",
    "Neighbours",
    "Observer",
    "PaperAccountant",
    "PrivacyError",
    "RoundEvent",
    "Sampling",
    "compare",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "make_accountant",
    "release",
    "what_if_ledger",
]
