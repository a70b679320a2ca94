"""How many replicas a recorded step of the fused kernels works on, and in which order steps come."""

from __future__ import annotations

import itertools

import numpy as np
import torch


def compact(samples: torch.Tensor) -> tuple[torch.Tensor, np.ndarray, torch.Tensor]:
    """Steps without samples put last, [R, steps, batch], how many are taken, [R], and of how many samples, [R].

    A step without samples leaves the model as it is, so leaving it out changes nothing.
    """
    filled = (samples >= 0).sum(dim=2)
    known = filled.cpu().numpy() > 0  # the device is asked once
    if (known[:, 1:] & ~known[:, :-1]).any():
        order = (filled == 0).to(torch.int8).argsort(dim=1, stable=True)
        samples = samples.gather(1, order.unsqueeze(2).expand_as(samples))
    return samples, known.sum(axis=1), filled.sum(dim=1)


def in_parts(widths: list[int], most: int) -> list[tuple[int, int]]:
    """Steps of these widths, put together where they are alike: width and number of steps, ``most`` at a time."""
    parts = []
    for width, alike in itertools.groupby(widths):
        count = len(list(alike))
        parts += [(width, most)] * (count // most) + [(width, count % most)] * (count % most > 0)
    return parts


def width_for(count: int, replicas: int) -> int:
    """``count`` or a little more, one of few sizes, so that few steps are recorded.

    They are a quarter apart, and closer where nearly all take part, as in rounds where each device tosses a coin.
    """
    if count * 5 > replicas * 4:
        return min(replicas, in_steps_of(max(1, replicas // 32), count))
    width = replicas
    while (smaller := -(-width * 4 // 5)) >= count and smaller < width:
        width = smaller
    return width


def in_steps_of(unit: int, count: int) -> int:
    """The smallest multiple of ``unit`` that is not below ``count``."""
    return -(-count // unit) * unit


def power_of_two(value: int) -> int:
    """The smallest power of two that is not below ``value``."""
    return 1 << max(0, value - 1).bit_length()
