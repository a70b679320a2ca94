"""How visible each device is to someone who sees signals, exactly.

Take the real and imaginary parts of what she sees of one symbol as one real vector. Device i's update enters it
along p̃_i, and everything that covers it has a covariance Σ. If the update moves by S, the likelihood ratio tells the
two cases apart like N(μ, 1) and N(0, 1) with μ = S·√(p̃_iᵀ Σ⁻¹ p̃_i), whatever else she knows: all channels and updates.

At the base station, with P̃ = [p̃_1 … p̃_K], J the multiplication by j and L the Laplacian of the graph of masks,

    Σ = (σ²/2) I + a² P̃P̃ᵀ + e² (JP̃)(JP̃)ᵀ + b² P̃LP̃ᵀ.

Where a symbol is a complex number of two coordinates, both parts carry data, and own noise and masks are on both: all
that covers a device is proper, with covariance C = σ² I + 2a² PPᴴ + 2b² PLPᴴ in complex numbers, and a change of the
symbol by z shows as |z|² · 2 pᴴ C⁻¹ p, whatever the phase of z. Taken apart into real numbers,

    Σ = (σ²/2) I + a² (P̃P̃ᵀ + JP̃(JP̃)ᵀ) + b² (P̃LP̃ᵀ + JP̃L(JP̃)ᵀ),

so it is the same form with other matrices; there is no quadrature.

Zero-sum perturbations are masks between all pairs, in both parts of a symbol that carries one coordinate: with
ν = 2Kb² they have the covariance ν(I − 11ᵀ/K) over the devices, in complex numbers, and

    Σ = (σ²/2) I + b² (P̃LP̃ᵀ + JP̃L(JP̃)ᵀ).

Everything is kept for a combiner of norm 1. With norm q all paths are shorter by q, which is the same as q² times the
receiver's noise: r_i² = p̃_iᵀ (q²N + a²A + e²E + b²B)⁻¹ p̃_i.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from airfl.transceiver.cover import Cover, laplacian_of

#: Devices up to which masks are taken apart for anyone who sees every device by itself; beyond, own noise alone counts.
TAKEN_APART = 1000
#: How far rounding may move a direction, of the length of all that is in it.
ROUNDED = 2.0**-50
#: How well squares of eigenvectors of masks are known.
CLOSE = 1e-9
#: By how much more, as a share, what is seen may be booked for the speed of squares.
SQUARED = 4e-7


@dataclass(frozen=True)
class Sight:
    """One round as one observer sees it, for a combiner of norm 1; leading dimensions are rounds.

    What covers devices is kept as roots, A = RᵀR: a square forgets what is eight digits below the loudest.

    Attributes:
        signal: p̃_i as columns, [..., R, K]; zero for a device that is silent.
        noise: diagonal of N, the receiver's noise at q = 1, [..., R].
        own, quadrature, masks: roots of A, E and B, of honest devices only, [..., R, R].
        told: what of quadrature and masks reaches the sum along this direction is not credited: the observer is told
            it, [..., R]. None: it is credited, or nothing reaches the sum.
    """

    signal: torch.Tensor
    noise: torch.Tensor
    own: torch.Tensor
    quadrature: torch.Tensor
    masks: torch.Tensor
    told: torch.Tensor | None = None

    def seen(self, squared_norm: torch.Tensor, cover: Cover) -> torch.Tensor:
        """r_i, [..., K], for combiners of squared norm q², [...]; infinite where nothing covers a device, or in doubt.

        Never too little: what rounding may have moved is added. Σ loses twice the digits that its root loses, so where
        that shows the root is taken instead.
        """
        square, off = self._squared(squared_norm, cover)
        size, count = square.diagonal(dim1=-2, dim2=-1).sqrt(), self.noise.shape[-1]
        signal = torch.nn.functional.pad(self.signal, (0, 0, 0, size.shape[-1] - count))
        # A direction with nothing in it gets something: what is to be seen there is bare.
        filled = torch.diag_embed(torch.where(size > 0.0, 0.0, torch.where(off > 0.0, off, 1.0)))
        upper, failed = torch.linalg.cholesky_ex(square + filled.square(), upper=True)
        # The least that covers a direction: noise, and of what she is told what nothing else tells.
        least = [(squared_norm.unsqueeze(-1) * self.noise).sqrt(), upper.diagonal(dim1=-2, dim2=-1)[..., count:]]
        seen, moved, share = _seen_through(upper, signal, off, torch.cat(least, dim=-1).reciprocal(), size + off)
        if bool(failed.any()) or not bool((moved <= SQUARED * seen).all()):
            upper = torch.linalg.qr(torch.cat([self._root(squared_norm, cover), filled], dim=-2), mode="r").R
            units = torch.eye(upper.shape[-1], dtype=upper.dtype).expand_as(upper)
            shown = torch.linalg.solve_triangular(upper, units, upper=True).square().sum(dim=-1).sqrt()
            seen, moved, share = _seen_through(upper, signal, off, shown)
        bare = ~(share < 0.5) | (filled @ signal).any(dim=-2)
        return torch.where(signal.any(dim=-2), torch.where(bare, torch.inf, seen + moved), 0.0)

    def covariance(self, squared_norm: torch.Tensor, cover: Cover) -> torch.Tensor:
        """q²N + a²A + e²E + b²B, [..., R, R]."""
        own, quadrature, masks = self._squares
        covered = cover.own * own + cover.quadrature * quadrature + cover.masks * masks
        return covered + torch.diag_embed(squared_norm.unsqueeze(-1) * self.noise)

    @cached_property
    def _squares(self) -> tuple[torch.Tensor, ...]:
        return tuple(root.mT @ root for root in (self.own, self.quadrature, self.masks))

    def _leak(self, cover: Cover) -> tuple[torch.Tensor, torch.Tensor]:
        """What she is told of noise in quadrature and of masks, by its sources, [..., R, 1] each."""
        assert self.told is not None
        along = self.told.unsqueeze(-1)
        return cover.quadrature.sqrt() * (self.quadrature @ along), cover.masks.sqrt() * (self.masks @ along)

    def _squared(self, squared_norm: torch.Tensor, cover: Cover) -> tuple[torch.Tensor, torch.Tensor]:
        """Σ with what she is told as one more direction, and by how much rounding may move directions of its root."""
        square = self.covariance(squared_norm, cover)
        size = square.diagonal(dim1=-2, dim2=-1)
        # Where there is no noise directions may have been turned: rounding of one is in all of them.
        quiet = (self.noise == 0.0) & (size > 0.0)
        off = torch.where(quiet, (size * quiet).sum(dim=-1, keepdim=True), size).sqrt()
        if self.told is not None:
            _, quadrature, masks = self._squares
            hidden = (cover.quadrature * quadrature + cover.masks * masks).diagonal(dim1=-2, dim2=-1).sqrt()
            off = torch.cat([off, (hidden * self.told.abs()).sum(dim=-1, keepdim=True)], dim=-1)
            turned, masked = self._leak(cover)
            both = cover.quadrature.sqrt() * (self.quadrature.mT @ turned)
            both = both + cover.masks.sqrt() * (self.masks.mT @ masked)
            itself = turned.mT @ turned + masked.mT @ masked
            square = torch.cat([torch.cat([square, both], dim=-1), torch.cat([both.mT, itself], dim=-1)], dim=-2)
        return square, ROUNDED * off

    def _root(self, squared_norm: torch.Tensor, cover: Cover) -> torch.Tensor:
        """A root of the same."""
        noise = torch.diag_embed((squared_norm.unsqueeze(-1) * self.noise).sqrt())
        hidden = cover.quadrature.sqrt() * self.quadrature, cover.masks.sqrt() * self.masks
        root = torch.cat([noise, cover.own.sqrt() * self.own, *hidden], dim=-2)
        if self.told is None:
            return root
        leak = torch.cat(self._leak(cover), dim=-2)
        return torch.cat([root, torch.nn.functional.pad(leak, (0, 0, root.shape[-2] - leak.shape[-2], 0))], dim=-1)

    def of(self, columns: torch.Tensor) -> Sight:
        """The same for some devices, or with devices in another order; −1: one that is silent."""
        # The last place is one that is silent, and there may be no other.
        signal = torch.nn.functional.pad(self.signal, (0, 1))[..., columns]
        return Sight(signal, self.noise, self.own, self.quadrature, self.masks, self.told)

    @staticmethod
    def stacked(sights: Sequence[Sight]) -> Sight:
        """Several rounds of the same devices; where one has fewer directions, it gets some that no device reaches."""
        width = max(one.noise.shape[-1] for one in sights)
        usual = max((float(one.noise.max()) for one in sights if one.noise.numel()), default=0.0)
        wide = [one._widened(width, usual) for one in sights]
        parts = ("signal", "noise", "own", "quadrature", "masks")
        made = [torch.stack([getattr(one, name) for one in wide]) for name in parts]
        told = [one.told for one in wide if one.told is not None]
        return Sight(made[0], made[1], made[2], made[3], made[4], torch.stack(told) if told else None)

    def _widened(self, width: int, noise: float) -> Sight:
        """The same with more directions, in which there is nothing but noise."""
        more, pad = width - self.noise.shape[-1], torch.nn.functional.pad
        if not more:
            return self
        square = [pad(part, (0, more, 0, more)) for part in (self.own, self.quadrature, self.masks)]
        told = None if self.told is None else pad(self.told, (0, more))
        wide = pad(self.signal, (0, 0, 0, more)), pad(self.noise, (0, more), value=noise)
        return Sight(*wide, square[0], square[1], square[2], told)


@dataclass(frozen=True)
class BareSight:
    """One round as someone sees it who hears every device by itself, without noise: Σ = a²I + b²L over the devices.

    Noise in quadrature does not help: she reads the part in phase. With a = 0 nothing hides what all masks add up to.

    Attributes:
        weights: squared eigenvectors of L, [..., K, j]; None: masks are not taken apart, and own noise alone counts.
        spectrum: its eigenvalues, [..., j].
        there: which devices are looked at, [..., K]: honest ones that send.
        share: their own noise in units of a², [..., K]; None: all add alike.
    """

    weights: torch.Tensor | None
    spectrum: torch.Tensor | None
    there: torch.Tensor
    share: torch.Tensor | None = None

    def seen(self, squared_norm: torch.Tensor, cover: Cover) -> torch.Tensor:
        """r_i, [..., K]; infinite without own noise."""
        if self.weights is None or self.spectrum is None:
            own = cover.own if self.share is None else cover.own * self.share
            return torch.where(self.there, own.rsqrt(), 0.0)
        spread = cover.own + cover.masks * self.spectrum
        squared = (self.weights / spread.unsqueeze(-2)).nan_to_num(posinf=torch.inf).sum(dim=-1)
        squared = squared if bool(cover.own > 0) else torch.full_like(squared, torch.inf)
        return torch.where(self.there, squared.sqrt(), 0.0)

    def of(self, columns: torch.Tensor) -> BareSight:
        """The same for some devices; −1: one that is silent."""
        weights = None if self.weights is None else torch.nn.functional.pad(self.weights, (0, 0, 0, 1))[..., columns, :]
        return BareSight(weights, self.spectrum, torch.nn.functional.pad(self.there, (0, 1))[..., columns])

    @staticmethod
    def stacked(sights: Sequence[BareSight]) -> BareSight:
        """Several rounds of the same devices; with fewer senders in some there are zero weights."""
        there = torch.stack([one.there for one in sights])
        if any(one.weights is None for one in sights):
            return BareSight(None, None, there)
        width = max(one.weights.shape[-1] for one in sights if one.weights is not None)

        def padded(part: torch.Tensor | None) -> torch.Tensor:
            assert part is not None
            return torch.nn.functional.pad(part, (0, width - part.shape[-1]))

        weights = torch.stack([padded(one.weights) for one in sights])
        return BareSight(weights, torch.stack([padded(one.spectrum) for one in sights]), there)


def base_station_sight(
    paths: torch.Tensor,
    noise_power: float,
    edges: np.ndarray,
    honest: np.ndarray,
    combiner: torch.Tensor | None = None,
    per_symbol: int = 1,
    *,
    circular: bool = False,
    share: torch.Tensor | None = None,
) -> Sight:
    """What all antennas of the base station see.

    Args:
        paths: h_i s_i of the devices that send, for a combiner of norm 1, [K, m].
        noise_power: σ² that is credited.
        edges: who shares masks, places of devices, [E, 2].
        honest: who does not hand over what it knows, [K].
        combiner: w of norm 1, [m]; given where channels are not known exactly and what leaks is not credited.
        per_symbol: coordinates that a symbol carries; with two, channels are known exactly.
        circular: whether masks are in both parts of a symbol that carries one coordinate.
        share: own noise of the devices in units of a², [K]; None: all add alike.
    """
    signal = _stacked(paths)
    noise = torch.full((len(signal),), 0.5 * noise_power, dtype=torch.float64)
    told = None if combiner is None else torch.cat([combiner.real, combiner.imag])
    return _sight(signal, _stacked(1j * paths), noise, edges, honest, told, per_symbol, circular, share)


def eavesdropper_sight(
    paths: torch.Tensor,
    gains: torch.Tensor,
    her_noise: float,
    noise_power: float,
    edges: np.ndarray,
    honest: np.ndarray,
    *,
    exact: bool,
    credit: bool,
    per_symbol: int = 1,
    circular: bool = False,
    share: torch.Tensor | None = None,
    as_heard: bool = False,
) -> Sight:
    """What antennas elsewhere see, and the sum, which the broadcast models tell.

    Args:
        paths: g_i s_i from the devices that send to her, for a combiner of norm 1, [K, m_E].
        gains: wᴴh_i s_i, what each is multiplied with in the sum, [K].
        her_noise: σ_E²; may be 0.
        noise_power: σ² of the base station's receiver: all of it is beyond her.
        exact: whether channels are known exactly, so that gains are 1 and nothing of the cover reaches the sum.
        credit: whether what does reach the sum is credited.
        per_symbol: coordinates that a symbol carries; with two, the sum is one more antenna, and channels are known
            exactly.
        circular, share: as for the base station.
        as_heard: direction by direction as her antennas and the sum have it, also where she hears each device alone.
    """
    leaks = not exact and not credit
    if her_noise == 0.0 and honest.sum() <= paths.shape[1] and not as_heard:
        # She hears each device by itself, what is in quadrature too: the sum tells her nothing but of masks that leak.
        nothing, told = torch.zeros(len(paths), dtype=torch.float64), gains.real if leaks else None
        return _sight(torch.diag(nothing + 1.0), torch.diag(nothing), nothing, edges, honest, told, share=share)
    if per_symbol > 1:
        heard = torch.ones_like(gains) if exact else gains
        both = torch.cat([paths, heard.to(paths.dtype).unsqueeze(-1)], dim=-1)
        noise = torch.full((both.shape[1],), 0.5 * her_noise, dtype=torch.float64)
        noise[-1] = 0.5 * noise_power
        return _sight(
            _stacked(both), _stacked(1j * both), noise.repeat(2), edges, honest, None, per_symbol, False, share
        )
    last = torch.ones(1, len(paths), dtype=torch.float64) if exact else gains.real.unsqueeze(0)
    turned = torch.zeros_like(last) if exact else -gains.imag.unsqueeze(0)
    signal, quadrature = torch.cat([_stacked(paths), last]), torch.cat([_stacked(1j * paths), turned])
    noise = torch.full((len(signal),), 0.5 * her_noise, dtype=torch.float64)
    noise[-1] = 0.5 * noise_power
    told = torch.zeros_like(noise)
    told[-1] = 1.0
    if her_noise == 0.0 and not as_heard:
        signal, quadrature = _turned(signal, quadrature, torch.from_numpy(honest))
    return _sight(signal, quadrature, noise, edges, honest, told if leaks else None, 1, circular, share)


def bare_sight(senders: int, edges: np.ndarray, honest: np.ndarray, share: torch.Tensor | None = None) -> BareSight:
    """What is seen of every device by itself, without receiver noise; masks go with own noise that is alike."""
    there = torch.from_numpy(honest)
    if senders > TAKEN_APART or not len(edges):
        return BareSight(None, None, there, share)
    kept = edges[honest[edges].all(axis=1)]
    spectrum, vectors = torch.linalg.eigh(torch.from_numpy(laplacian_of(kept, senders)))
    # Nothing covers what all masks add up to, not even rounding.
    spectrum = (spectrum - senders * ROUNDED * spectrum[-1]).clamp(min=0.0)
    return BareSight(vectors.square() * (1.0 + CLOSE), spectrum, there)


def _sight(
    signal: torch.Tensor,
    quadrature: torch.Tensor,
    noise: torch.Tensor,
    edges: np.ndarray,
    honest: np.ndarray,
    told: torch.Tensor | None,
    per_symbol: int = 1,
    circular: bool = False,
    share: torch.Tensor | None = None,
) -> Sight:
    mine = torch.from_numpy(honest)
    signal, quadrature = signal * mine, quadrature * mine
    kept = torch.from_numpy(edges[honest[edges].all(axis=1)])
    root = torch.ones(len(honest), dtype=torch.float64) if share is None else share.sqrt()
    covering, turned = signal * root, quadrature * root
    apart = signal[:, kept[:, 0]] - signal[:, kept[:, 1]]
    if circular or per_symbol > 1:
        apart = torch.cat([apart, quadrature[:, kept[:, 0]] - quadrature[:, kept[:, 1]]], dim=1)
    if per_symbol > 1:
        covering, turned = torch.cat([covering, turned], dim=1), turned[:, :0]
    return Sight(signal, noise, _root_of(covering), _root_of(turned), _root_of(apart), told)


def _turned(signal: torch.Tensor, quadrature: torch.Tensor, mine: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Directions but the last turned so that where no update arrives there is nothing of one, and no rounding of it.

    There are fewer of them than devices and their parts in quadrature together.
    """
    both = torch.cat([signal[:, mine], quadrature[:, mine]], dim=1)
    both = torch.cat([torch.linalg.qr(both[:-1], mode="r").R, both[-1:]])
    turned = torch.zeros_like(signal), torch.zeros_like(quadrature)
    for whole, part in zip(turned, both.chunk(2, dim=1), strict=True):
        whole[:, mine] = part
    return turned


def _seen_through(
    upper: torch.Tensor, signal: torch.Tensor, off: torch.Tensor, shown: torch.Tensor, size: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """r = ‖U⁻ᵀp̃‖, [..., K]; by how much more it may be for rounding, [..., K]; and ε, [..., 1], which has to be small.

    For Σ = UᵀU with an error D and z = Σ⁻¹p̃ it is at most (r² + |zᵀDz| + r²ε²/(1 − ε))^½, where |xᵀDx| ≤ ε xᵀΣx for all
    x. With x = U⁻¹y and ‖y‖ = 1 no |x_k| is larger than ‖U⁻ᵀe_k‖.

    Args:
        off: errors δ_k of the columns of a root.
        shown: ‖U⁻ᵀe_k‖ or more.
        size: s_k, where U is from the square of the root: |xᵀDx| ≤ 2 Σ_k δ_k|x_k| Σ_k s_k|x_k|. None: U is from the
            root, and instead of the second sum there is the square root of xᵀΣx.
    """
    white = torch.linalg.solve_triangular(upper.mT, signal, upper=False)
    seen = white.square().sum(dim=-2).sqrt()
    weights = torch.linalg.solve_triangular(upper, white, upper=True).abs()
    first, share = (off.unsqueeze(-1) * weights).sum(dim=-2), (off * shown).sum(dim=-1, keepdim=True)
    if size is None:
        along, most = seen + first, 1.0 + share
    else:
        along, most = (size.unsqueeze(-1) * weights).sum(dim=-2), (size * shown).sum(dim=-1, keepdim=True)
    share = 2.0 * share * most
    squared = 2.0 * first * along + seen.square() * share.square() / (1.0 - share)
    return seen, squared / ((seen.square() + squared).sqrt() + seen).clamp(min=1e-300), share


def _root_of(factor: torch.Tensor) -> torch.Tensor:
    """U with UᵀU = FFᵀ, [R, R]."""
    upper = torch.linalg.qr(factor.mT, mode="r").R
    return torch.nn.functional.pad(upper, (0, 0, 0, len(factor) - len(upper)))


def _stacked(paths: torch.Tensor) -> torch.Tensor:
    """Real and imaginary parts one below the other, devices as columns, [2m, K]."""
    return torch.cat([paths.real, paths.imag], dim=-1).mT.contiguous()
