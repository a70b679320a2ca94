"""Scaling online so that least is told while noise stays within a limit: ``online`` with goal and constraint exchanged.

    minimise Σ 1/q_t²   subject to   Σ q_t² ≤ B,   q_t ≥ π_t,      q_t from π_0..π_t only.

In x = q² it is convex, with q_t = max(π_t, m) and Σ q_t² = B: the optima of ``allocation``, for another parameter. Each
round solves m² + (n_t − 1) E[max(π, m)²] = R_t, with R_t what is left of B for n_t rounds, this one included. Where
channels to come are worse than that, no choice keeps to B: q_t = π_t, and the sum exceeds it.

In the manner of AdaScale (2025), whose problem of a single round was not looked at.
"""

from __future__ import annotations

import torch

from airfl.transceiver.online import Knowledge


def scale_online(minimum: torch.Tensor, limit: float, knowledge: Knowledge) -> torch.Tensor:
    """Norms q_t ≥ π_t chosen causally, [..., T].

    Args:
        minimum: π_t > 0, [..., T]; round t reads π_0..π_t only.
        limit: B > 0.
        knowledge: what is assumed about later rounds.
    """
    pi = minimum.to(torch.float64)
    rounds, norms = pi.shape[-1], list[torch.Tensor]()
    left = torch.full_like(pi[..., 0], limit)
    for t in range(rounds):
        future = knowledge.future(pi[..., : t + 1], rounds - t) if t + 1 < rounds else pi[..., :0]
        norms.append(torch.maximum(pi[..., t], level_of(left, rounds - t, future)))
        left = left - norms[-1].square()
    return torch.stack(norms, dim=-1)


def level_of(left: torch.Tensor, rounds_left: int, future: torch.Tensor) -> torch.Tensor:
    """Solve m² + (n − 1) mean_s max(π_s, m)² = R for m, [...]; 0 where even m = 0 is too much.

    With the j smallest of S values lifted, m² = (R − w Σ_{s≥j} π_s²)/(1 + w j), w = (n − 1)/S. The sum grows with m, so
    the right j is the first whose m stays below the next value.

    Args:
        left: R, [...]; may be negative.
        rounds_left: n ≥ 1.
        future: π_s ascending, [..., S]; none where this is the last round.
    """
    size = future.shape[-1]
    if size == 0:
        return left.clamp(min=0.0).sqrt()
    weight, squares = (rounds_left - 1) / size, future.square().expand(*left.shape, size)
    unlifted = torch.nn.functional.pad(squares.flip(-1).cumsum(-1).flip(-1), (0, 1))
    lifted = torch.arange(size + 1, dtype=squares.dtype, device=squares.device)
    squared = (left.unsqueeze(-1) - weight * unlifted) / (1.0 + weight * lifted)
    fits = torch.nn.functional.pad(squared[..., :-1] <= squares, (0, 1), value=True)
    first = fits.to(torch.int8).argmax(dim=-1, keepdim=True)
    return squared.gather(-1, first).squeeze(-1).clamp(min=0.0).sqrt()
