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
from airfl.transceiver.combiners.polish import polished
from airfl.transceiver.combiners.zero_forcing import zero_forcing
from airfl.transceiver.design import Design, better_of, check_channels, finish, modulus, times

#: Starting points and steps at effort 1. Vector units take 16 numbers at a time: a multiple of that makes the rounding
#: of an instance independent of those beside it.
STARTS, STEPS, LEAST_STEPS = 16, 80, 20
#: Devices that count in the soft minimum: as a share of all at first, as a share of min(K, m) in the end.
FIRST, LAST = 0.9, 0.15
#: A step moves the devices that count by so many widths of the soft minimum: at first, in the end.
FIRST_STEP, LAST_STEP, LONGEST = 2.0, 0.25, 0.5
MOMENTUM = 0.85
#: With few dimensions or few devices the schedule leads to the same optimum from everywhere, and that need not be the
#: best: further starts enter it later, up to here, up to four for each that does not.
LATEST, MOST_LATER = 0.6, 4
#: Dimensions with which there is one such start for each other one; more of them in proportion, the fewer there are.
MANY_DIMENSIONS = 16
#: Devices × dimensions with which there is one, and how many at most for that reason.
SMALL, MOST_BY_SIZE = 20_000, 2
#: Rounds of polishing, and up to so many more where they cost nothing, with few devices × dimensions.
ROUNDS, MORE_ROUNDS, VERY_SMALL = 2, 6, 1_000
#: Steps between two looks at all devices anew (rounding), and at who is left out.
RENEW, RENEW_LEFT_OUT = 25, 5
#: Level of the soft minimum over its width 1/β at most: 1 at first, so much in the end, geometrically between.
SHARPEST = 30.0
#: Longest channel over the shortest that counts: a device 80 dB stronger is reached anyway, and taken for no stronger.
SPREAD = 1e4
#: Numbers h_iᴴ w held at a time by the instances of a chunk: at most by one thread, at least (calls have a price), by a
#: GPU; one instance is always held. Its starts are split beyond ``MOST_HEARD``, about 2 GB with all that goes with it.
THREAD_CHUNK, LEAST_CHUNK, GPU_CHUNK, MOST_HEARD = 200_000, 40_000, 100_000_000, 100_000_000
#: Guards divisions.
TINY = 1e-30


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
    batch, _, num_antennas = channels.shape
    count = how.starts + how.later
    draw = np.random.Generator(np.random.Philox(key=num_antennas)).standard_normal((count, 2 * num_antennas))
    first = torch.from_numpy(draw).to(channels.real).expand(batch, -1, -1)
    real, imag = channels.real, channels.imag
    rows = torch.stack([torch.cat([real, imag], dim=2), torch.cat([-imag, real], dim=2)], dim=1)
    entrance = torch.cat([torch.zeros(how.starts), torch.linspace(0.0, LATEST, how.later)]).to(first)
    # Few instances are held at a time, but one of them may still have too many starts.
    block = max(STARTS, MOST_HEARD // (2 * batch * channels.shape[1]) // STARTS * STARTS)
    parts = [
        _climb(rows, some, places, how.steps, left_out)
        for some, places in zip(first.split(block, dim=1), entrance.split(block), strict=True)
    ]
    found, level = (torch.cat(part, dim=1) for part in zip(*parts, strict=True))
    best = found.gather(1, level.argmax(dim=1)[:, None, None].expand(-1, 1, found.shape[2])).squeeze(1).double()
    return torch.complex(best[:, :num_antennas], best[:, num_antennas:])


def _climb(
    rows: torch.Tensor, first: torch.Tensor, entrance: torch.Tensor, steps: int, left_out: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Directions [B, S, 2m] from starts of that shape for rows [B, 2, K, 2m], and the level they reach [B, S].

    Starts enter the schedule at the places ``entrance`` [S], 0 being its beginning and 1 its end.

    Real numbers throughout: a direction is (Re w, Im w), rows give the real and the imaginary part of h_iᴴ w.
    """
    batch, _, num_devices, size = rows.shape
    starts = first.shape[1]
    most = FIRST * (num_devices - left_out)
    least = min(most, max(LAST * min(num_devices - left_out, size // 2), 1.02))
    entrance = entrance[:, None]
    rows = rows.flatten(1, 2)
    across = rows.mT
    w = first / _norm(first)
    heard = (w @ across).view(batch, starts, 2, num_devices)
    real, imag = heard[:, :, 0], heard[:, :, 1]
    power = real.square().addcmul_(imag, imag)
    sharpness = 1.0 / power.median(dim=2, keepdim=True).values.clamp(min=TINY)
    direction, level = torch.zeros_like(w), power.amin(dim=2, keepdim=True)
    weight, slope = torch.empty_like(power), torch.empty_like(power)
    weighted, change = torch.empty_like(heard), torch.empty_like(heard)
    for step in range(steps):
        done = step / (steps - 1)
        place = entrance + (1.0 - entrance) * done
        target = most * (least / most) ** place
        if left_out == 0:
            level = power.amin(dim=2, keepdim=True)
        elif step % RENEW_LEFT_OUT == 0:
            level = power.kthvalue(left_out + 1, dim=2, keepdim=True).values
        else:  # somebody counts
            level = torch.minimum(level, power.amax(dim=2, keepdim=True))
        for _ in range(1 if step else 8):
            torch.sub(level, power, out=weight).mul_(sharpness).clamp_(min=-50.0, max=0.0).exp_()
            if left_out:
                weight.mul_(power >= level)
            total = weight.sum(dim=2, keepdim=True)
            softly = torch.mul(weight, power, out=slope).sum(dim=2, keepdim=True) / total
            root = (total / (_norm(weight) * target.sqrt())).clamp_(min=0.5, max=2.0)
            # (n/target)^¾ from roots, which round the same everywhere.
            sharpness = torch.minimum(sharpness * (root * root.sqrt()), SHARPEST**place / softly.clamp_(min=TINY))
        torch.mul(heard, weight.unsqueeze(2), out=weighted)
        gradient = weighted.view(batch, starts, -1) @ rows
        gradient = gradient - w * (w * gradient).sum(dim=2, keepdim=True)
        gradient = gradient / _norm(gradient).clamp_(min=TINY)
        direction = torch.lerp(gradient, direction, MOMENTUM)
        torch.bmm(direction, across, out=change.view(batch, starts, -1))
        torch.mul(real, change[:, :, 0], out=slope).addcmul_(imag, change[:, :, 1]).square_().mul_(weight)
        moved = 2.0 * (slope.sum(dim=2, keepdim=True) / total).sqrt()
        widths = FIRST_STEP * (LAST_STEP / FIRST_STEP) ** done
        length = torch.minimum(widths / (sharpness * moved).clamp_(min=TINY), LONGEST / _norm(direction))
        w = w + length * direction
        shrink = 1.0 / _norm(w)
        w = w * shrink
        if step % RENEW == RENEW - 1:
            torch.bmm(w, across, out=heard.view(batch, starts, -1))
        else:
            heard.addcmul_(change, length.unsqueeze(2)).mul_(shrink.unsqueeze(2))
        torch.mul(real, real, out=power).addcmul_(imag, imag)
    return w, power.kthvalue(left_out + 1, dim=2).values


def _norm(x: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(x, dim=2, keepdim=True)
    return norm
