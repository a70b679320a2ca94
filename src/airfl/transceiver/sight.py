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

import numpy as np
import torch

from airfl.transceiver.cover import Cover, laplacian_of

#: Devices up to which masks are taken apart for anyone who sees every device by itself; beyond, own noise alone counts.
TAKEN_APART = 1000
#: An eigenvalue so far below the largest is no cover.
NOTHING = 1e-12


@dataclass(frozen=True)
class Sight:
    """One round as one observer sees it, for a combiner of norm 1; leading dimensions are rounds.

    Attributes:
        signal: p̃_i as columns, [..., R, K]; zero for a device that is silent.
        noise: diagonal of N, the receiver's noise at q = 1, [..., R].
        own, quadrature, masks: A, E and B, of honest devices only, [..., R, R].
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
        """r_i, [..., K], for combiners of squared norm q², [...]; infinite where nothing covers a device."""
        covered = self.covariance(squared_norm, cover)
        if bool((self.noise > 0).all()):
            root, failed = torch.linalg.cholesky_ex(covered)
            if not bool(failed.any()):
                white: torch.Tensor = torch.linalg.solve_triangular(root, self.signal, upper=False)
                least = squared_norm * self.noise.amin(dim=-1) if self.noise.numel() else squared_norm
                return (white.square().sum(dim=-2) * _rounded_up(covered, least)).sqrt()
        return _by_eigenvalues(covered, self.signal)

    def covariance(self, squared_norm: torch.Tensor, cover: Cover) -> torch.Tensor:
        """q²N + a²A + e²E + b²B, [..., R, R]."""
        covered = self._hidden(cover) + cover.own * self.own
        return covered + torch.diag_embed(squared_norm.unsqueeze(-1) * self.noise)

    def _hidden(self, cover: Cover) -> torch.Tensor:
        hidden = cover.quadrature * self.quadrature + cover.masks * self.masks
        if self.told is None:
            return hidden
        along = torch.einsum("...ij,...j->...i", hidden, self.told)
        size = torch.einsum("...i,...i->...", along, self.told)[..., None, None]
        # Given what it adds to the sum, the rest has this covariance.
        return hidden - torch.where(size > 0, along.unsqueeze(-1) * along.unsqueeze(-2) / size, 0.0)

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
        spread = cover.own + cover.masks * self.spectrum.clamp(min=0.0)
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
    """
    if per_symbol > 1:
        both = torch.cat([paths, torch.ones(len(paths), 1, dtype=paths.dtype)], dim=-1)
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
    told = None
    if not exact and not credit:
        told = torch.zeros(len(signal), dtype=torch.float64)
        told[-1] = 1.0
    return _sight(signal, quadrature, noise, edges, honest, told, 1, circular, share)


def bare_sight(senders: int, edges: np.ndarray, honest: np.ndarray, share: torch.Tensor | None = None) -> BareSight:
    """What is seen of every device by itself, without receiver noise; masks go with own noise that is alike."""
    there = torch.from_numpy(honest)
    if senders > TAKEN_APART or not len(edges):
        return BareSight(None, None, there, share)
    kept = edges[honest[edges].all(axis=1)]
    spectrum, vectors = torch.linalg.eigh(torch.from_numpy(laplacian_of(kept, senders)))
    return BareSight(vectors.square(), spectrum, there)


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
    covering, turned = signal[:, mine], quadrature[:, mine]
    if share is not None:
        root = share[mine].sqrt()
        covering, turned = covering * root, turned * root
    kept = torch.from_numpy(edges[honest[edges].all(axis=1)])
    apart = signal[:, kept[:, 0]] - signal[:, kept[:, 1]]
    spun = quadrature[:, kept[:, 0]] - quadrature[:, kept[:, 1]] if circular or per_symbol > 1 else apart[:, :0]
    if per_symbol == 1:
        masks = apart @ apart.mT + spun @ spun.mT if circular else apart @ apart.mT
        return Sight(signal * mine, noise, covering @ covering.mT, turned @ turned.mT, masks, told)
    assert told is None
    own = covering @ covering.mT + turned @ turned.mT
    return Sight(signal * mine, noise, own, torch.zeros_like(own), apart @ apart.mT + spun @ spun.mT)


def _stacked(paths: torch.Tensor) -> torch.Tensor:
    """Real and imaginary parts one below the other, devices as columns, [2m, K]."""
    return torch.cat([paths.real, paths.imag], dim=-1).mT.contiguous()


def _by_eigenvalues(covered: torch.Tensor, signal: torch.Tensor) -> torch.Tensor:
    """√(p̃ᵀ Σ⁺ p̃) where Σ may be singular: infinite for what has a part that nothing covers."""
    spectrum, vectors = torch.linalg.eigh(covered)
    parts = (vectors.mT @ signal).square()
    covers = spectrum > NOTHING * spectrum[..., -1:].clamp(min=1e-300)
    squared = (parts * torch.where(covers, 1.0 / spectrum, 0.0).unsqueeze(-1)).sum(dim=-2)
    squared = squared * _rounded_up(covered, torch.where(covers, spectrum, torch.inf).amin(dim=-1))
    bare = (parts * ~covers.unsqueeze(-1)).sum(dim=-2) > NOTHING * parts.sum(dim=-2)
    return torch.where(bare, torch.inf, squared.sqrt())


def _rounded_up(covered: torch.Tensor, least: torch.Tensor) -> torch.Tensor:
    """1 + R·2⁻⁵²·tr Σ/λ, [..., 1]: rounding of Σ, whose least eigenvalue is λ or more, moves p̃ᵀ Σ⁻¹ p̃ by no more."""
    size = covered.diagonal(dim1=-2, dim2=-1).sum(dim=-1)
    return 1.0 + (covered.shape[-1] * 2.0**-52 * size / least).unsqueeze(-1)
