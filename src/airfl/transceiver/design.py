"""What a combiner method returns, and the transmit side that goes with it.

Signal model: the base station takes wᴴ y_j, with y_j = Σ_i h_i s_i Δ̄_ij + n_j. Device i sees the gain wᴴ h_i s_i;
s_i = 1/(wᴴ h_i) makes it 1. Power: |s_i|² c² ≤ d·P for ‖Δ̄_i‖ ≤ c, so |wᴴ h_i| ≥ g with the reach g = c/√(dP).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch

from airfl.errors import InputError

#: Relative slack when a constraint is checked; far above rounding, far below anything physical.
TOLERANCE = 1e-9

Status = Literal["ok", "singular", "infeasible"]


@dataclass(frozen=True)
class Design:
    """A combiner that every served device can reach, |wᴴ h_i| ≥ 1, batched over leading dimensions.

    The reach g scales everything, so methods solve the problem for g = 1 and the caller multiplies.

    Attributes:
        combiner: w, [..., m], complex128.
        norm: ‖w‖, [...], float64.
        lower_bound: proven lower bound on ‖w‖², [...]; 0 until ``certificate.certify`` proves one.
        iterations: steps taken, [...], int64.
        status: one word per instance, row-major over the leading dimensions.
    """

    combiner: torch.Tensor
    norm: torch.Tensor
    lower_bound: torch.Tensor
    iterations: torch.Tensor
    status: tuple[Status, ...]

    @property
    def gap(self) -> torch.Tensor:
        """‖w‖² over its lower bound minus one; infinite where nothing was proven."""
        return self.norm.square() / self.lower_bound - 1.0

    def tx_scaling(self, channels: torch.Tensor) -> torch.Tensor:
        """s_i = 1/(wᴴ h_i), the scalars that give every device of channels [..., K, m] unit gain, [..., K]."""
        return 1.0 / received_gains(self.combiner, channels.to(torch.complex128))

    def cpu(self) -> Design:
        """The same design on the CPU."""
        return Design(self.combiner.cpu(), self.norm.cpu(), self.lower_bound.cpu(), self.iterations.cpu(), self.status)

    def require_ok(self) -> Design:
        """Return self if every instance was solved, else raise."""
        bad = [word for word in self.status if word != "ok"]
        if bad:
            raise InputError(
                f"the combiner failed on {len(bad)} of {len(self.status)} rounds ({bad[0]}); the channels of the "
                "served devices must be linearly independent and not zero"
            )
        return self


def check_channels(channels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return channels [..., K, m] as complex128 [B, K, m], and which instances can be served at all, [B].

    An instance with NaN, infinity, a device that is not heard (h_i = 0) or one beyond what squares in float64 can hold
    cannot; it is replaced by a harmless one.
    """
    if channels.ndim < 2 or channels.shape[-2] < 1 or channels.shape[-1] < 1:
        raise InputError(
            f"channels must be [..., K, m] with at least one device and antenna; got {tuple(channels.shape)}"
        )
    flat = channels.to(torch.complex128).reshape(-1, *channels.shape[-2:])
    moduli = flat.abs()
    largest = moduli.amax(dim=-1)
    usable = (torch.isfinite(moduli).all(dim=-1) & (largest > 1e-100) & (largest < 1e100)).all(dim=-1)
    return torch.where(usable[:, None, None], flat, torch.ones_like(flat)), usable


def finish(combiner: torch.Tensor, channels: torch.Tensor, usable: torch.Tensor, iterations: int) -> Design:
    """Scale combiner [B, m] so that the weakest device of channels [..., K, m] is reached, and say how it went.

    Any phase of w gives the same ‖w‖ and |wᴴ h_i|, but Re(wᴴ n) is then another draw of the noise: wᴴ h_1 is made real
    and positive, so that rounding does not choose.
    """
    flat = channels.to(torch.complex128).reshape(-1, *channels.shape[-2:])
    received = times(flat.conj(), combiner)
    weakest = modulus(received).amin(dim=-1)
    solved = usable & torch.isfinite(weakest) & (weakest > 0)
    # A few ulp more, so that |wᴴ h_i| ≥ 1 survives the rounding of the division itself.
    scaled = in_phase(combiner, received[:, 0]) * (torch.where(solved, 1.0 / weakest, 1.0) * (1.0 + 1e-14)).unsqueeze(
        -1
    )
    norm = torch.where(solved, torch.view_as_real(scaled).square().sum(dim=(1, 2)).sqrt(), torch.inf)
    solved = solved & torch.isfinite(norm)
    lead = channels.shape[:-2]
    return Design(
        scaled.reshape(*lead, channels.shape[-1]),
        norm.reshape(lead),
        torch.zeros(lead, dtype=torch.float64, device=norm.device),
        torch.full(lead, iterations, dtype=torch.int64, device=norm.device),
        tuple("ok" if good else "infeasible" for good in solved.tolist()),
    )


def in_phase(w: torch.Tensor, received: torch.Tensor) -> torch.Tensor:
    """w [..., m] turned so that hᴴw, [...], is real and positive; as it is where that is 0.

    In steps that round alike wherever w lies in memory.
    """
    size = modulus(received)
    turn = torch.where(size > 0, received / torch.where(size > 0, size, 1.0), 1.0).unsqueeze(-1)
    return torch.complex(w.real * turn.real + w.imag * turn.imag, w.imag * turn.real - w.real * turn.imag)


def times(matrix: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """matrix [B, K, m] times x [B, m], as a product of two columns: with one, rounding depends on what is beside it."""
    return (matrix @ torch.stack([x, x], dim=2))[..., 0]


def modulus(z: torch.Tensor) -> torch.Tensor:
    """|z| from steps that round the same wherever z lies in memory."""
    return (z.real * z.real + z.imag * z.imag).sqrt()


def better_of(first: Design, second: Design) -> Design:
    """Instance by instance the design with the smaller norm; one that failed never wins against one that did not."""

    def rank(design: Design) -> torch.Tensor:
        words = [word == "ok" for word in design.status]
        good = torch.tensor(words, dtype=torch.bool, device=design.norm.device)
        return torch.where(good.reshape(design.norm.shape), design.norm, torch.inf)

    take = rank(second) < rank(first)
    flags = take.reshape(-1).tolist()
    return Design(
        torch.where(take.unsqueeze(-1), second.combiner, first.combiner),
        torch.where(take, second.norm, first.norm),
        torch.maximum(first.lower_bound, second.lower_bound),
        first.iterations,
        tuple(b if flag else a for a, b, flag in zip(first.status, second.status, flags, strict=True)),
    )


@dataclass(frozen=True)
class Transmission:
    """The transmit side of a design for the devices that are active; zeros for places where nobody transmits.

    Attributes:
        tx_scaling: s_i, [..., K], complex128.
        gains: wᴴ h_i s_i, [..., K], complex128; what device i's update is multiplied with.
        received_norms: ‖h_i s_i‖, [..., K].
        power_w: d-symbol mean transmit power of each device at full clip, |s_i|² times (c²/d + that of its cover),
            [..., K].
    """

    tx_scaling: torch.Tensor
    gains: torch.Tensor
    received_norms: torch.Tensor
    power_w: torch.Tensor


def least_gain(clip_norm: float, dim: int, power_w: float) -> float:
    """g = c/√(dP): the smallest |wᴴ h_i| at which device i keeps to its power limit."""
    return clip_norm / math.sqrt(dim * power_w)


def received_gains(combiner: torch.Tensor, channels: torch.Tensor) -> torch.Tensor:
    """wᴴ h_i for combiner [..., m] and channels [..., K, m]; shape [..., K]."""
    return torch.einsum("...m,...km->...k", combiner.conj(), channels)


def transmit(
    combiner: torch.Tensor,
    channels: torch.Tensor,
    clip_norm: float,
    dim: int,
    power_limit_w: float,
    true_channels: torch.Tensor | None = None,
    *,
    silent: torch.Tensor | None = None,
    cover_power: torch.Tensor | float = 0.0,
) -> Transmission:
    """Transmit scalars s_i = 1/(wᴴ ĥ_i), with the power limit |s_i|²(c²/d + cover) ≤ P checked.

    Args:
        combiner: w, [..., m].
        channels: ĥ_i of the active devices as they are known, [..., K, m].
        true_channels: h_i; default: they are known exactly, and all gains are 1.
        silent: places where nobody transmits, [..., K]; default: none.
        cover_power: of what devices add to each entry of their update, [..., K].
    """
    true_channels = channels if true_channels is None else true_channels
    tx_scaling = 1.0 / received_gains(combiner, channels)
    if silent is not None:
        tx_scaling = torch.where(silent, torch.zeros_like(tx_scaling), tx_scaling)
    return transmitted(combiner, true_channels, tx_scaling, clip_norm, dim, power_limit_w, cover_power)


def transmitted(
    combiner: torch.Tensor,
    true_channels: torch.Tensor,
    tx_scaling: torch.Tensor,
    clip_norm: float,
    dim: int,
    power_limit_w: float,
    cover_power: torch.Tensor | float = 0.0,
) -> Transmission:
    """The same for transmit scalars that are given, [..., K]."""
    power_w = tx_scaling.abs().square() * (clip_norm**2 / dim + cover_power)
    worst = float(power_w.max())
    if not worst <= power_limit_w * (1.0 + TOLERANCE):
        raise InputError(
            f"a device would need {worst:.3g} W to be heard with unit gain, but the limit is {power_limit_w:.3g} W; "
            "the combiner must satisfy |wᴴh| >= c/sqrt(dP) for every active device"
        )
    gains = received_gains(combiner, true_channels) * tx_scaling
    # Ten times as fast as the norm of complex numbers; channels are bounded far from overflow.
    squared = torch.view_as_real(true_channels).square().sum(dim=(-2, -1))
    return Transmission(tx_scaling, gains, tx_scaling.abs() * squared.sqrt(), power_w)
