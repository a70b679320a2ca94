"""Many directions at once climb a soft minimum of what devices hear; see ``annealed``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from airfl.products import times_transposed

#: Devices that count in the soft minimum: as a share of all at first, as a share of min(K, m) in the end.
FIRST, LAST = 0.9, 0.15
#: A step moves the devices that count by so many widths of the soft minimum: at first, in the end.
FIRST_STEP, LAST_STEP, LONGEST = 2.0, 0.25, 0.5
MOMENTUM = 0.85
#: Steps between two looks at all devices anew (rounding), and at who is left out.
RENEW, RENEW_LEFT_OUT = 25, 5
#: Level of the soft minimum over its width 1/β at most: 1 at first, so much in the end, geometrically between.
SHARPEST = 30.0
#: Numbers h_iᴴ w beyond which an instance has a thread to itself, and entries of w from which on a long product pays.
ALONE, WIDE = 200_000, 32
#: Guards divisions.
TINY = 1e-30


@dataclass(frozen=True)
class Stretch:
    """A part of the schedule, and where each start enters it; 0 is the schedule's beginning and 1 its end.

    Attributes:
        first, end: of the part.
        begin: where starts enter it, [S, 1].
        most, least: devices that count at the schedule's beginning and end, or a sample's share of them.
    """

    first: float
    end: float
    begin: torch.Tensor
    most: float
    least: float

    @staticmethod
    def whole(num_devices: int, num_antennas: int, entrance: torch.Tensor, left_out: int = 0) -> Stretch:
        """The schedule from the places ``entrance`` [S] on."""
        served = num_devices - left_out
        most = FIRST * served
        least = min(most, max(LAST * min(served, num_antennas), 1.02))
        return Stretch(0.0, 1.0, entrance[:, None], most, least)


def climb(
    rows: torch.Tensor, first: torch.Tensor, stretch: Stretch, steps: int, left_out: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Directions [B, S, 2m] from starts of that shape for rows [B, 2, K, 2m], and the level they reach [B, S].

    Real numbers throughout: a direction is (Re w, Im w), rows give the real and the imaginary part of h_iᴴ w.
    """
    batch, _, num_devices, size = rows.shape
    starts = first.shape[1]
    rows = rows.flatten(1, 2)
    across = rows.mT
    # Alone on its thread, whoever is beside it: see ``_solve_all``.
    alone = rows.device.type == "cpu" and batch == 1 and 2 * starts * num_devices > ALONE
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
        place = stretch.begin + (stretch.end - stretch.begin) * done
        target = stretch.most * (stretch.least / stretch.most) ** place
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
        if alone:
            gradient = times_transposed(weighted.view(starts, -1), across[0]).unsqueeze(0)
        else:
            gradient = weighted.view(batch, starts, -1) @ rows
        gradient = gradient - w * (w * gradient).sum(dim=2, keepdim=True)
        gradient = gradient / _norm(gradient).clamp_(min=TINY)
        direction = torch.lerp(gradient, direction, MOMENTUM)
        if alone and size >= WIDE:
            change.view(starts, -1).copy_(times_transposed(direction[0], rows[0]))
        else:
            torch.bmm(direction, across, out=change.view(batch, starts, -1))
        torch.mul(real, change[:, :, 0], out=slope).addcmul_(imag, change[:, :, 1]).square_().mul_(weight)
        moved = 2.0 * (slope.sum(dim=2, keepdim=True) / total).sqrt()
        widths = FIRST_STEP * (LAST_STEP / FIRST_STEP) ** (stretch.first + (stretch.end - stretch.first) * done)
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
