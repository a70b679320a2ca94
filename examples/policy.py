"""A norm policy of your own: the same noise in every round, just enough for the budget.

airfl run paper --scheme airfl-dp --set scheme.policy=policy:Even
"""

import torch

from airfl.schemes import Outlook, Policy


class Even(Policy):
    """q_t = max(π_t, floor): simple, and a little noisier than the best split over rounds."""

    def norms(self, outlook: Outlook) -> torch.Tensor:
        """One floor for all rounds."""
        return outlook.at_floor(outlook.require_budget().floor)
