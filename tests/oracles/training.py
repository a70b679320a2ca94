"""Local training with nothing but a module, an optimiser and a loop."""

from __future__ import annotations

import torch
from torch import nn


def sgd(module: nn.Module, batches: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, rate: float) -> None:
    """Train ``module`` in place on the samples of each step."""
    optimiser = torch.optim.SGD(module.parameters(), lr=rate)
    for samples in batches:
        chosen = [int(s) for s in samples if s >= 0]
        if chosen:
            optimiser.zero_grad()
            nn.functional.cross_entropy(module(inputs[chosen]), labels[chosen]).backward()
            optimiser.step()
