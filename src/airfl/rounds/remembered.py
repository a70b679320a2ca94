"""What devices remember from round to round: in this process, or with whoever trains them."""

from __future__ import annotations

from typing import Protocol

import torch


class Elsewhere(Protocol):
    """Memories that somebody else keeps, as they stood after one round."""

    def fetch(self) -> torch.Tensor:
        """All of them, [trials, n, d], float32."""
        ...


#: What devices remember, [trials, n, d]; None for an encoder without memory.
Memory = torch.Tensor | Elsewhere | None


def fetched(memory: Memory) -> torch.Tensor | None:
    """Memories in this process, wherever they were."""
    return memory if memory is None or isinstance(memory, torch.Tensor) else memory.fetch()
