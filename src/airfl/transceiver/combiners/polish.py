"""From a good combiner to the nearest local optimum: successive convex approximation over the active few.

With the phases ψ_i = arg(h_iᴴ w) of the combiner at hand, Re(e^{−iψ_i} h_iᴴ w) ≥ 1 is a convex constraint that implies
|h_iᴴ w| ≥ 1 and holds with w itself, so the least-norm problem

    minimise ½‖x‖² subject to A x ≥ 1

in x = (Re w, Im w) never makes w longer (Tran, Hanif & Juntti 2014). At most 2m of its constraints bind, so only the
devices that are hardest to reach are looked at; whether the others are reached is checked afterwards. Solved by a
primal-dual interior-point method with Mehrotra's corrector, in double precision, batched.
"""

from __future__ import annotations

import torch

from airfl.transceiver.design import modulus, times

#: Devices looked at, for m antennas: this many for each, and some more.
PER_ANTENNA, MORE = 4, 64
#: Interior-point steps for each convex problem.
STEPS = 8
#: The first point has this much to spare.
ROOM = 1.05
#: Share of the way to the boundary that a step may go.
NEARLY = 0.99
TINY = torch.finfo(torch.float64).tiny


def polished(channels: torch.Tensor, w: torch.Tensor, rounds: int) -> torch.Tensor:
    """A combiner that is never longer than w [B, m] once both are scaled to reach the weakest of channels [B, K, m]."""
    rows = channels.conj()
    best, heard, value = _scaled(rows, w)
    for _ in range(rounds):
        found = least_norm(_half_planes(rows, heard), _reals(best) * ROOM)
        half = found.shape[1] // 2
        new, new_heard, new_value = _scaled(rows, torch.complex(found[:, :half], found[:, half:]))
        better = (new_value < value)[:, None]  # never where a step failed: its value is not a number
        best, heard = torch.where(better, new, best), torch.where(better, new_heard, heard)
        value = torch.where(better[:, 0], new_value, value)
    return best


def least_norm(constraints: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The shortest x [B, n] with A x ≥ 1 for A [B, W, n], from an x that has A x > 1; to about 1e-6."""
    _, count, size = constraints.shape
    across = constraints.mT
    few = count < size  # then the system for the multipliers is the smaller one
    gram = constraints @ across if few else None
    identity = torch.eye(size, dtype=x.dtype, device=x.device)
    slack = times(constraints, x) - 1.0
    dual = 1.0 / slack
    dual = dual * (x.square().sum(dim=1, keepdim=True) / dual.sum(dim=1, keepdim=True))
    for _ in range(STEPS):
        dual_gap = x - times(across, dual)
        primal_gap = times(constraints, x) - 1.0 - slack
        if gram is not None:
            factor, _ = torch.linalg.cholesky_ex(gram + torch.diag_embed(slack / dual))
        else:
            factor, _ = torch.linalg.cholesky_ex(identity + across @ (constraints * (dual / slack).unsqueeze(2)))

        def move(wanted: torch.Tensor, state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            """Newton step (x, slack, dual) that takes slack·dual down by ``wanted``."""
            dual_gap, primal_gap, slack, dual, factor = state
            if few:
                right = times(constraints, dual_gap) - wanted / dual - primal_gap
                d_dual = torch.cholesky_solve(right.unsqueeze(2), factor).squeeze(2)
                d_x = times(across, d_dual) - dual_gap
                return d_x, times(constraints, d_x) + primal_gap, d_dual
            right = times(across, -(wanted + dual * primal_gap) / slack) - dual_gap
            d_x = torch.cholesky_solve(right.unsqueeze(2), factor).squeeze(2)
            d_slack = times(constraints, d_x) + primal_gap
            return d_x, d_slack, -(wanted + dual * d_slack) / slack

        state = (dual_gap, primal_gap, slack, dual, factor)
        product = slack * dual
        mean = product.mean(dim=1, keepdim=True)
        _, d_slack, d_dual = move(product, state)
        ahead = (slack + _room(slack, d_slack) * d_slack) * (dual + _room(dual, d_dual) * d_dual)
        ratio = ahead.mean(dim=1, keepdim=True) / mean
        d_x, d_slack, d_dual = move(product + d_slack * d_dual - ratio * ratio * ratio * mean, state)
        primal, other = NEARLY * _room(slack, d_slack), NEARLY * _room(dual, d_dual)
        x, slack, dual = x + primal * d_x, slack + primal * d_slack, dual + other * d_dual
    return x


def _half_planes(rows: torch.Tensor, heard: torch.Tensor) -> torch.Tensor:
    """Real rows of Re(e^{−iψ_i} h_iᴴ w) for the devices that are hardest to reach, [B, W, 2m]."""
    count = min(rows.shape[1], PER_ANTENNA * rows.shape[2] + MORE)
    size = modulus(heard)
    chosen = size.topk(count, dim=1, largest=False).indices
    if count % 2:  # one of them twice: solvers round the same for even sizes only, wherever a system lies in memory
        chosen = torch.cat([chosen, chosen[:, :1]], dim=1)
    nearest = rows.gather(1, chosen.unsqueeze(2).expand(-1, -1, rows.shape[2]))
    real, imag = nearest.real, nearest.imag
    cos, sin = ((part / size).gather(1, chosen).unsqueeze(2) for part in (heard.real, heard.imag))
    return torch.cat([real * cos + imag * sin, real * sin - imag * cos], dim=2)


def _scaled(rows: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """w scaled so that the weakest device is just reached, what all hear of it, and its squared length."""
    heard = times(rows, w)
    scale = 1.0 / modulus(heard).amin(dim=1, keepdim=True).clamp(min=TINY)
    return w * scale, heard * scale, _reals(w * scale).square().sum(dim=1)


def _reals(w: torch.Tensor) -> torch.Tensor:
    return torch.cat([w.real, w.imag], dim=1)


def _room(x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """The longest share of a step, at most 1, that keeps x positive, [B, 1]."""
    return (-step / x).amax(dim=1, keepdim=True).clamp(min=1.0).reciprocal()
