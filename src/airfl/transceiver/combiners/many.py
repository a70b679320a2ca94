"""The same search where there are very many devices: from a sample of them to those that are worst off.

A soft minimum that many devices count in looks the same on a sample. Where few count, all others might as well not be
there. So each start climbs a sample first, then the devices that it reaches worst, of a larger sample and in the end
of all of them, chosen anew whenever ``FALL`` times fewer count. A step then costs the same for 100,000 devices and for
a million; choosing them is what grows.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from airfl.transceiver.combiners.climb import Stretch, climb

#: Devices of the first sample, up to twice as many.
COARSE = 2**14
#: More than so many devices are worked on in this way.
MANY = 4 * COARSE
#: So many of a sample count when a larger one takes over; how their number falls from one choice to the next.
COUNT, FALL = 512, 8
#: Devices held for each that counts, and at least.
MARGIN, LEAST_SET = 16, 1024
#: From a choice with so few that count there is no further one.
LAST_COUNT = 32
#: Steps, as a multiple of those of a search that always looks at everybody: they are cheap. Of a stretch at least.
LONGER, LEAST_STEPS = 2, 4
#: Numbers held at a time.
HELD = 2**26


def from_coarse_to_fine(rows: torch.Tensor, first: torch.Tensor, entrance: torch.Tensor, steps: int) -> torch.Tensor:
    """The best direction [2m] from starts [S, 2m] for rows [2, K, 2m]."""
    num_devices = rows.shape[1]
    whole = Stretch.whole(num_devices, rows.shape[2] // 2, entrance)
    stride = 2 ** int(math.log2(num_devices // COARSE))
    w, place, count = first.clone(), 0.0, whole.most
    while place < 1.0:
        sample = rows[:, ::stride].contiguous()
        if place == 0.0:
            held, left = sample.shape[1], COUNT * stride
        else:
            held = min(sample.shape[1], max(LEAST_SET, round(MARGIN * count / stride)))
            left = count / FALL if count > LAST_COUNT else whole.least
        end = min(1.0, math.log(left / whole.most) / math.log(whole.least / whole.most))
        there = torch.nonzero(entrance < end)[:, 0]  # the others enter later
        begin = entrance[there].clamp(min=place)[:, None]
        stretch = Stretch(place, end, begin, whole.most / stride, whole.least / stride)
        w[there] = _climbed(sample, w[there], held, stretch, max(LEAST_STEPS, round(LONGER * steps * (end - place))))
        place, count, stride = end, left, max(1, stride // FALL)
    levels = torch.cat([_heard(rows, some).amin(dim=1) for some in w.split(_at_a_time(rows, 2))])
    return w[levels.argmax()]


def _climbed(sample: torch.Tensor, w: torch.Tensor, held: int, stretch: Stretch, steps: int) -> torch.Tensor:
    """Directions [S, 2m] after a stretch: all look at the sample [2, K, 2m], or each at those it reaches worst."""
    everybody = held == sample.shape[1]
    size, found = _at_a_time(sample[:, :held], 1 if everybody else sample.shape[2]), []
    for some, begin in zip(w.split(size), stretch.begin.split(size), strict=True):
        if everybody:
            found.append(climb(sample.unsqueeze(0), some.unsqueeze(0), replace(stretch, begin=begin), steps, 0)[0][0])
            continue
        worst = torch.cat([_heard(sample, one[None]).topk(held, dim=1, largest=False, sorted=False)[1] for one in some])
        own, part = sample[:, worst].transpose(0, 1), replace(stretch, begin=begin.unsqueeze(1))
        found.append(climb(own, some.unsqueeze(1), part, steps, 0)[0][:, 0])
    return torch.cat(found)


def _heard(rows: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """|h_iᴴ w|² of directions [S, 2m], [S, K]."""
    real, imag = (w @ part.mT for part in rows)
    power: torch.Tensor = real.square_().addcmul_(imag, imag)
    return power


def _at_a_time(rows: torch.Tensor, size: int) -> int:
    """Starts worked on at a time."""
    return max(1, HELD // (2 * rows.shape[1] * size))
