"""Clipping, in one place: the sensitivity of everything that is sent follows from it."""

from __future__ import annotations

import torch


def clip(updates: torch.Tensor, clip_norm: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Δ̄ = Δ · min(1, c′/‖Δ‖) for each row of updates [B, d]; returns the clipped rows and the norms before, [B].

    c′ = c·(1 − 1e-6): the millionth covers what float32 loses when the row is scaled and what the radio's unit gain is
    off by, so that ‖gain · Δ̄‖ ≤ c holds after rounding too.
    """
    limit = clip_norm * (1.0 - 1e-6)
    norms = torch.linalg.vector_norm(updates, dim=-1, dtype=torch.float64)
    factors = torch.clamp(limit / norms, max=1.0)
    return updates * factors.to(updates.dtype).unsqueeze(-1), norms
