"""Which of the active devices transmit, when the weakest would set the noise for all; `aligned`, which finds them
together with the combiner, is ``combiners.annealed_for_most``.

With K ≫ m the combiner's norm follows the few devices that are hardest to reach. Leaving them silent for a round is
free of privacy cost (the choice looks at channels, not at data) but biases the sum towards the others: plans report
which devices are never heard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from airfl.transceiver.certificates import prices

#: Devices are dropped in this many steps, with new prices after each.
STEPS = 6

#: Channels [..., K, m] of all blocks of a round, one after the other, as often as they are asked for; of one, where
#: channels stand still. Who sends is the same in all of them.
Blocks = Callable[[], Iterable[torch.Tensor]]


def strongest(blocks: Blocks, keep: int) -> torch.Tensor:
    """Truncated channel inversion: the ``keep`` devices with the largest mean ‖h_i‖² over all blocks, [..., keep].

    The threshold is the quantile that leaves so many, so that the number of transmitters, and with it the normaliser,
    is the same in every round.
    """
    power = sum(channels.abs().square().sum(dim=-1) for channels in blocks())
    assert isinstance(power, torch.Tensor)
    return power.topk(keep, dim=-1).indices.sort(dim=-1).values


def greedy(blocks: Blocks, keep: int) -> torch.Tensor:
    """Drop the devices with the highest price λ_i (what the certificate says each one costs), a few at a time.

    Σ_b ‖w_b‖² ≥ Σ_i Σ_b λ_ib, so what a device costs over several blocks is the sum of its prices.
    """
    first = next(iter(blocks()))
    lead, total = first.shape[:-2], first.shape[-2]
    left = torch.arange(total, device=first.device).expand(lead.numel(), total)
    targets = [total - round((total - keep) * step / STEPS) for step in range(1, STEPS + 1)]
    for target in targets:
        if target < left.shape[1]:
            cost = sum(_prices_of(channels, left) for channels in blocks())
            assert isinstance(cost, torch.Tensor)
            left = left.gather(1, cost.topk(target, dim=1, largest=False).indices)
    return left.sort(dim=1).values.reshape(*lead, keep)


def _prices_of(channels: torch.Tensor, left: torch.Tensor) -> torch.Tensor:
    """Prices of the devices that are left, [.., K'], in one block."""
    flat = channels.reshape(-1, *channels.shape[-2:])
    return prices(flat.gather(1, left.unsqueeze(-1).expand(-1, -1, flat.shape[2])))


SELECTIONS: dict[str, Callable[[Blocks, int], torch.Tensor]] = {"strongest": strongest, "greedy": greedy}
