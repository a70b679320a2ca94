"""Clipping, in one place: the sensitivity of everything that is sent follows from it."""

from __future__ import annotations

import torch

from airfl.devices.updates import Spanned

BLOCK = 1024
#: How far below c updates are clipped. 1,024 squares added up in float32, in whatever order, lose 3.1e-5 of a norm at
#: most; the rest is for scaling a row in float32 and for the radio's unit gain.
MARGIN = 4e-5
SINGLE = torch.finfo(torch.float32)


def clip(updates: torch.Tensor, clip_norm: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Δ̄ = Δ · min(1, c′/‖Δ‖) for each row of updates [B, d]; returns the clipped rows and the norms before, [B]."""
    factors, norms = clip_factors(updates, clip_norm)
    return updates * factors.unsqueeze(-1), norms


def clip_factors(updates: torch.Tensor | Spanned, clip_norm: float) -> tuple[torch.Tensor, torch.Tensor]:
    """min(1, c′/‖Δ‖) for each of the updates, in float32, and the norms, [B].

    c′ is a hair below c, so that ‖gain · Δ̄‖ ≤ c holds after rounding too. An update that is not finite gets 0, and so
    does one that is too long for float32, or whose factor is too small to have its digits there.
    """
    limit = clip_norm * (1.0 - MARGIN)
    norms = updates.norms if isinstance(updates, Spanned) else row_norms(updates)
    factors = torch.clamp(limit / norms, max=1.0).nan_to_num(nan=0.0)
    lost = factors < SINGLE.tiny
    if isinstance(updates, Spanned):
        lost |= norms > SINGLE.max
    return factors.float().masked_fill(lost, 0.0), norms


def row_norms(rows: torch.Tensor) -> torch.Tensor:
    """‖row‖ in float64 for each row of [B, d]: float32 within blocks of 1,024."""
    whole = rows.shape[-1] // BLOCK * BLOCK
    squares = torch.linalg.vector_norm(rows[..., whole:], dim=-1).double().square()
    if whole:
        blocks = torch.linalg.vector_norm(rows[..., :whole].unflatten(-1, (-1, BLOCK)), dim=-1)
        squares = squares + blocks.double().square().sum(dim=-1)
    norms: torch.Tensor = squares.sqrt()
    return norms
