"""Which of the active devices transmit, when the weakest would set the noise for all; `aligned`, which finds them
together with the combiner, is ``combiners.annealed_for_most``.

With K ≫ m the combiner's norm follows the few devices that are hardest to reach. Leaving them silent for a round is
free of privacy cost (the choice looks at channels, not at data) but biases the sum towards the others: plans report
which devices are never heard.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from airfl.transceiver.certificates import prices

#: Devices are dropped in this many steps, with new prices after each.
STEPS = 6


def strongest(channels: torch.Tensor, keep: int) -> torch.Tensor:
    """Truncated channel inversion: the ``keep`` devices with the largest ‖h_i‖ of channels [..., K, m], [..., keep].

    The threshold is the quantile that leaves so many, so that the number of transmitters, and with it the normaliser,
    is the same in every round.
    """
    power = channels.abs().square().sum(dim=-1)
    return power.topk(keep, dim=-1).indices.sort(dim=-1).values


def greedy(channels: torch.Tensor, keep: int) -> torch.Tensor:
    """Drop the devices with the highest price λ_i (what the certificate says each one costs), a few at a time."""
    lead, total = channels.shape[:-2], channels.shape[-2]
    flat = channels.reshape(-1, *channels.shape[-2:])
    left = torch.arange(total, device=channels.device).expand(len(flat), total)
    targets = [total - round((total - keep) * step / STEPS) for step in range(1, STEPS + 1)]
    for target in targets:
        if target < left.shape[1]:
            part = flat.gather(1, left.unsqueeze(-1).expand(-1, -1, flat.shape[2]))
            cheapest = prices(part).topk(target, dim=1, largest=False).indices
            left = left.gather(1, cheapest)
    return left.sort(dim=1).values.reshape(*lead, keep)


SELECTIONS: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {"strongest": strongest, "greedy": greedy}
