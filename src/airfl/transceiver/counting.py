"""The size of ‖w‖² that one combiner can be expected to need when K ≫ m: a scale from counting directions, no bound.

A direction w, ‖w‖ = 1, drawn at random reaches device i at level x, |wᴴ h_i|² ≥ x, with probability
(1 − x/‖h_i‖²)^(m−1), so it reaches all with about exp(−(m−1) x Σ 1/‖h_i‖²). Turning w by an angle δ moves wᴴ h_i by
about δ √g for a device of power g per dimension: at level x there are about (g/x)^(m−1) directions that differ. One of
them can be expected to reach everybody until

    x Σ 1/‖h_i‖² = ln(s/x),

and then ‖w‖² = 1/x. The scale s is the geometric mean of g_i, each device with the weight 1/‖h_i‖² of its chance to be
the one that fails; strong devices do not count. On unit Rayleigh channels Σ 1/‖h_i‖² = K/(m−1) and s = 1 in the mean:

    K x = (m−1) ln(1/x) = ln N,   N = x^−(m−1).

Limits: failures are not independent, and a search follows the devices where counting draws at random. A search with
many starts came 1.1 to 1.7 times below the figure for m = 4 and 16 (K = 6,000), 2.2 times for m = 64 (K = 3,000), and
3.7 times for K = 2m, much the same with and without path loss. With few devices, or few that matter, w can be fitted
to them and the argument fails.
"""

from __future__ import annotations

import torch

from airfl.transceiver.design import check_channels


def counting_figure(channels: torch.Tensor) -> torch.Tensor:
    """1/x for channels [..., K, m], shape [...]; it scales as ‖w‖² does. Not a bound on ‖w‖² from either side.

    For m = 1 it is exact, 1/min|h_i|². NaN for an instance that cannot be served, and where the argument makes no
    sense, when no more than m devices matter: (Σ p_i)²/Σ p_i² ≤ m with p_i = 1/‖h_i‖².
    """
    flat, usable = check_channels(channels)
    num_antennas = flat.shape[2]
    power = flat.abs().square().sum(dim=-1)
    if num_antennas == 1:
        figure = 1.0 / power.amin(dim=1)
    else:
        share = power.amin(dim=1, keepdim=True) / power
        total = share.sum(dim=1)
        usable = usable & (total.square() > num_antennas * share.square().sum(dim=1))
        # ‖h‖² with the weight 1/‖h‖² is a Gamma variable of shape m − 1 on Rayleigh channels: ψ(m−1) makes s = 1 there.
        mean_log = torch.special.entr(share).sum(dim=1) / total
        order = torch.special.digamma(torch.tensor(num_antennas - 1.0, dtype=torch.float64, device=flat.device))
        figure = total * torch.exp(-_log_omega(mean_log - order + total.log())) / power.amin(dim=1)
    return torch.where(usable, figure, torch.nan).reshape(channels.shape[:-2])


def rayleigh_figure(num_devices: int, num_antennas: int) -> float:
    """1/x with K x = (m−1) ln(1/x), for unit Rayleigh channels; NaN for K ≤ m or m = 1."""
    if num_antennas < 2 or num_devices <= num_antennas:
        return float("nan")
    ratio = torch.tensor(num_devices / (num_antennas - 1), dtype=torch.float64)
    return float(ratio * torch.exp(-_log_omega(ratio.log())))


def _log_omega(right: torch.Tensor) -> torch.Tensor:
    """y with y + exp(y) = b, by Newton's method from the right: the left side rises and is convex."""
    root = torch.where(right > 1.0, right.clamp(min=1.0).log(), right)
    for _ in range(8):
        root = root - (root + root.exp() - right) / (1.0 + root.exp())
    return root
