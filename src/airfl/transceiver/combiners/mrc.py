"""A cheap baseline in the manner of maximum-ratio combining."""

from __future__ import annotations

import torch

from airfl.transceiver.design import Design, check_channels, finish


def mrc(channels: torch.Tensor) -> Design:
    """w ∝ Σ_i h_i/‖h_i‖², scaled so that the weakest device is reached: every device pulls with its own direction.

    Args:
        channels: [..., K, m], any K and m. No device is protected from the others, so with many of them the weakest
            may hear next to nothing and the norm is large.
    """
    flat, usable = check_channels(channels)
    power = flat.abs().square().sum(dim=-1, keepdim=True)
    return finish((flat / power).sum(dim=1), channels, usable, 0)
