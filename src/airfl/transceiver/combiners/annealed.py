"""The smallest combiner that every device can reach, for any number of antennas and devices.

minimise ‖w‖² subject to |h_iᴴ w| ≥ 1, i = 1..K: single-group multicast beamforming, NP-hard in general. Equivalently:
maximise the least of a_i = |h_iᴴ w|² over ‖w‖ = 1. From many starts at once, w climbs a soft minimum of the a_i,

    Σ_i ω_i h_i (h_iᴴ w),   ω_i = exp(−β (a_i − min a)),

that looks at nearly all devices at first and at the weakest few in the end. β has no unit of its own: it is steered so
that n = (Σω)²/Σω², the number of devices that count, falls geometrically from ``FIRST``·K to ``LAST``·min(K, m), but
never so fast that the width 1/β shrinks below a share of the level that falls too; a step is as long as moves those
devices by a few widths. So the same schedule serves 10 devices
and 100,000, and path loss over many decades. A device may be lost early on (a_i passes through 0) and found again: a
multiplicative soft minimum, or any method that keeps all phases, gets stuck there.

The best start is polished (``polish``) and scaled in double precision, so that every device is reached whatever the
search did.

Leaving out the r worst aligned devices is the same search with ω_i = 0 below the (r + 1)-th smallest a_i: who is left
out is found together with w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from airfl.errors import InputError
from airfl.parallel import one_per_thread
from airfl.transceiver.combiners.climb import ALONE, Stretch, climb
from airfl.transceiver.combiners.many import MANY, from_coarse_to_fine
from airfl.transceiver.combiners.polish import polished
from airfl.transceiver.combiners.zero_forcing import zero_forcing
from airfl.transceiver.design import Design, better_of, check_channels, finish, modulus, times

#: Starting points and steps at effort 1. Vector units take 16 numbers at a time: a multiple of that makes the rounding
#: of an instance independent of those beside it.
STARTS, STEPS, LEAST_STEPS = 16, 80, 20
#: With few dimensions or few devices the schedule leads to the same optimum from everywhere, and that need not be the
#: best: further starts enter it later, up to here, up to four for each that does not.
LATEST, MOST_LATER = 0.6, 4
#: Dimensions with which there is one such start for each other one; more of them in proportion, the fewer there are.
MANY_DIMENSIONS = 16
#: Devices × dimensions with which there is one, and how many at most for that reason.
SMALL, MOST_BY_SIZE = 20_000, 2
#: Rounds of polishing, and up to so many more where they cost nothing, with few devices × dimensions.
ROUNDS, MORE_ROUNDS, VERY_SMALL = 2, 6, 1_000
#: Longest channel over the shortest that counts: a device 80 dB stronger is reached anyway, and taken for no stronger.
SPREAD = 1e4
#: Numbers h_iᴴ w held at a time by the instances of a chunk: at most by one thread, at least (calls have a price), by a
#: GPU; one instance is always held. Its starts are split beyond ``MOST_HEARD``, about 2 GB with all that goes with it.
THREAD_CHUNK, LEAST_CHUNK, GPU_CHUNK, MOST_HEARD = ALONE, 40_000, 100_000_000, 100_000_000


@dataclass(frozen=True)
class Effort:
    """How hard to look.

    Attributes:
        starts: starting points that go through the whole schedule, a multiple of 16.
        later: further ones that enter it later, a multiple of 16.
        steps: of each.
    """

    starts: int
    later: int
    steps: int

    @staticmethod
    def of(effort: float, num_devices: int, num_antennas: int) -> Effort:
        """Less effort takes fewer steps, more effort more starts and, in many dimensions, more steps."""
        dimensions = min(num_devices, num_antennas)
        by_dimensions = round(MANY_DIMENSIONS / dimensions)
        by_size = min(MOST_BY_SIZE, SMALL // (num_devices * dimensions))
        longer = math.sqrt(effort) if dimensions > MANY_DIMENSIONS else 1.0
        times = max(1, round(effort / longer))
        steps = max(LEAST_STEPS, round(STEPS * effort / times))
        return Effort(STARTS * times, STARTS * times * min(MOST_LATER, max(by_dimensions, by_size)), steps)


def annealed(channels: torch.Tensor, effort: float = 1.0) -> Design:
    """Return the best combiner found for channels [..., K, m]; see the module's first lines.

    Works where the channels are, CPU or GPU. Starting points are the same for every instance, and on a CPU bits do not
    depend on how instances are batched or on the number of threads.

    Args:
        effort: time to spend, as a multiple of the usual.
    """
    flat, usable = check_channels(channels)
    how = Effort.of(effort, flat.shape[1], flat.shape[2])
    combiner, _ = _solve_all(flat, how, 0)
    return _or_closed_form(finish(combiner, channels, usable, how.steps), channels)


def annealed_for_most(channels: torch.Tensor, keep: int, effort: float = 1.0) -> tuple[Design, torch.Tensor]:
    """The best combiner found for any ``keep`` of the devices of channels [..., K, m], and which these are [..., keep].

    The numbers of the devices are sorted. As everywhere, an instance with a device that is not heard at all cannot be
    served, even if that is one to leave out.
    """
    if not 1 <= keep <= channels.shape[-2]:
        raise InputError(f"`keep` must be between 1 and {channels.shape[-2]} devices; got {keep}")
    flat, usable = check_channels(channels)
    how = Effort.of(effort, flat.shape[1], flat.shape[2])
    combiner, kept = _solve_all(flat, how, flat.shape[1] - keep)
    kept = kept.reshape(*channels.shape[:-2], keep)
    served = channels.gather(-2, kept.unsqueeze(-1).expand(*kept.shape, channels.shape[-1]))
    # Where an instance cannot be served, a closed form for the few that are kept must not say otherwise.
    sound = torch.where(usable.reshape(*channels.shape[:-2], 1, 1), served.to(torch.complex128), torch.nan)
    return _or_closed_form(finish(combiner, served, usable, how.steps), sound), kept


def _or_closed_form(design: Design, channels: torch.Tensor) -> Design:
    """Never worse than the closed form, where there is one."""
    return better_of(design, zero_forcing(channels)) if channels.shape[-2] <= channels.shape[-1] else design


def _solve_all(flat: torch.Tensor, how: Effort, left_out: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Combiners [B, m], not yet scaled, and who is served [B, K − left_out], a chunk of instances at a time."""
    if len(flat) == 0:
        nobody = torch.zeros(0, flat.shape[1] - left_out, dtype=torch.int64, device=flat.device)
        return flat.new_zeros(0, flat.shape[2]), nobody
    heard = 2 * (how.starts + how.later) * flat.shape[1]
    if flat.device.type == "cpu":
        fair = max(-(-len(flat) // torch.get_num_threads()), LEAST_CHUNK // heard)
        chunks = flat.split(max(1, min(fair, THREAD_CHUNK // heard)))
        parts = one_per_thread(lambda part: _solve(part, how, left_out), chunks)
    else:
        parts = [_solve(part, how, left_out) for part in flat.split(max(1, GPU_CHUNK // heard))]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def _solve(channels: torch.Tensor, how: Effort, left_out: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One chunk of instances [B, K, m]."""
    num_devices, num_antennas = channels.shape[1:]
    basis = None
    if num_devices < num_antennas:  # w lies in the span of the channels
        basis, triangle = torch.linalg.qr(channels.mT)
        channels = triangle.mT
    length = torch.view_as_real(channels).square().sum(dim=(2, 3)).sqrt().unsqueeze(2)
    scale = length.kthvalue(left_out + 1, dim=1, keepdim=True).values
    channels = channels * torch.minimum(1.0 / scale, SPREAD / length)
    w = _best_start(channels.to(torch.complex64), how, left_out)
    if left_out == 0:
        kept = torch.arange(num_devices, device=channels.device).expand(len(channels), -1)
    else:
        heard = modulus(times(channels.conj(), w))
        kept = heard.topk(num_devices - left_out, dim=1).indices.sort(dim=1).values
        channels = channels.gather(1, kept.unsqueeze(2).expand(-1, -1, channels.shape[2]))
    more = min(MORE_ROUNDS, VERY_SMALL // (channels.shape[1] * channels.shape[2]))
    w = polished(channels, w, ROUNDS + more)
    return w if basis is None else times(basis, w), kept


def _best_start(channels: torch.Tensor, how: Effort, left_out: int) -> torch.Tensor:
    """The best direction found for channels [B, K, m] in single precision, [B, m] in double."""
    batch, num_devices, num_antennas = channels.shape
    count = how.starts + how.later
    draw = np.random.Generator(np.random.Philox(key=num_antennas)).standard_normal((count, 2 * num_antennas))
    first = torch.from_numpy(draw).to(channels.real).expand(batch, -1, -1)
    real, imag = channels.real, channels.imag
    rows = torch.stack([torch.cat([real, imag], dim=2), torch.cat([-imag, real], dim=2)], dim=1)
    entrance = torch.cat([torch.zeros(how.starts), torch.linspace(0.0, LATEST, how.later)]).to(first)
    if num_devices > MANY and not left_out:
        ends = [from_coarse_to_fine(own, some, entrance, how.steps) for own, some in zip(rows, first, strict=True)]
        best = torch.stack(ends).double()
        return torch.complex(best[:, :num_antennas], best[:, num_antennas:])
    # Few instances are held at a time, but one of them may still have too many starts.
    block = max(STARTS, MOST_HEARD // (2 * batch * channels.shape[1]) // STARTS * STARTS)
    parts = [
        climb(rows, some, Stretch.whole(num_devices, num_antennas, places, left_out), how.steps, left_out)
        for some, places in zip(first.split(block, dim=1), entrance.split(block), strict=True)
    ]
    found, level = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    best = found.gather(1, level.argmax(dim=1)[:, None, None].expand(-1, 1, found.shape[2])).squeeze(1).double()
    return torch.complex(best[:, :num_antennas], best[:, num_antennas:])
