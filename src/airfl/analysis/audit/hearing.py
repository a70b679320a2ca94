"""The best test of one device that someone who sees signals has, as a setting to open the run's own uplink with.

What she sees of a symbol is p̃_i x_i in noise of covariance Σ (``transceiver.sight``). Nothing tells two values of x_i
apart better than Σ⁻¹p̃_i, a linear test: with the right antennas and combiner the uplink's Re(wᴴy) is its outcome, with
mean r²x_i and variance r² = p̃_iᵀΣ⁻¹p̃_i, and r is what the ledger books.

She has what no receiver can do without as her noise (``Link.credited_power``) and no interference, knows all channels,
and is told what colluding devices add: these are silent here, and masks that they share are not there.

Of a round of several blocks she listens to the one that shows the device best, where the device sends all that it has:
at full length, even where that is more than its power would allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from airfl.air import Setting
from airfl.channel import Link
from airfl.channel.blocks import Place, place_of
from airfl.privacy import Observer
from airfl.rounds import Schedule
from airfl.transceiver import Cover, Sight, base_station_sight, degrees_of, eavesdropper_sight, laplacian_of
from airfl.transceiver.sight import TAKEN_APART

#: Noise of a receiver that has none, over that of the base station's, as amplitudes: uplinks have one noise for all.
QUIET = 1e-9
#: An eigenvalue so far below the largest is no cover.
NOTHING = 1e-12


@dataclass(frozen=True)
class Hearing:
    """One round as it is listened to.

    Attributes:
        setting: what the uplink is opened with: what it takes for the sum is the outcome of the test.
        energy: r², [rows]; infinite where nothing covers the device, 0 where it is silent.
    """

    setting: Setting
    energy: np.ndarray


@dataclass(frozen=True)
class _Part:
    """One row of it: h [K, antennas], s [K], w [antennas], who shares masks, and r²."""

    channels: torch.Tensor
    scaling: torch.Tensor
    combiner: torch.Tensor
    edges: np.ndarray
    energy: float


def hear(plan: Schedule, setting: Setting, observer: Observer, devices: np.ndarray) -> Hearing:
    """Listen to one round for one device of each row, by its number, [rows]."""
    # Copies of a trial share all but the noise.
    rows = range(0, len(setting.gains), plan.copies)
    parts: list[_Part] = []
    for one, place in _scenes(plan, setting, observer):
        found = [_part(plan.link, one, observer, row, row // plan.copies, int(devices[row]), place) for row in rows]
        parts = [max(pair, key=lambda part: part.energy) for pair in zip(parts or found, found, strict=True)]

    def stretched(name: str) -> torch.Tensor:
        return torch.stack([getattr(part, name) for part in parts]).repeat_interleave(plan.copies, dim=0)

    tuned = replace(
        setting.undisturbed(),
        channels=stretched("channels"),
        tx_scaling=stretched("scaling"),
        combiner=stretched("combiner"),
        edges=tuple(part.edges for part in parts for _ in range(plan.copies)),
        blocks=None,
        hardware=setting.hardware.ideal_converters(),
        noise_power={"base-station": plan.link.credited_power, "eavesdropper": setting.noise_power}.get(observer, 0.0),
    )
    return Hearing(tuned, np.repeat([part.energy for part in parts], plan.copies))


def _scenes(plan: Schedule, setting: Setting, observer: Observer) -> Iterator[tuple[Setting, Place | None]]:
    """The round, or its blocks, one after the other; one is enough for who hears every device by itself."""
    if setting.blocks is None:
        yield setting, None
        return
    grid = setting.blocks.grid
    for number in range(1 if observer == "everything" else grid.count):
        yield setting.blocks.scene(number), place_of(number, grid, plan.link.config.channel)


def _part(
    link: Link, setting: Setting, observer: Observer, row: int, index: int, device: int, where: Place | None
) -> _Part:
    here = setting.heard[row]
    who = setting.active[row][setting.active[row] >= 0]
    honest = ~link.colluding[index, who]
    edges = setting.edges[row][honest[setting.edges[row]].all(axis=1)]
    place = int((who == device).argmax()) if (who == device).any() else None
    scaling = setting.tx_scaling[row].clone()
    scaling[torch.nonzero(here)[:, 0][torch.from_numpy(~honest)]] = 0.0
    channels, combiner, cover = setting.channels[row], setting.combiner[row], setting.cover[row]
    share = None if cover.share is None else cover.share[0, who]
    if observer == "everything":
        along, energy = _bare_test(honest, edges, cover, place, share)
        # A linear test of what every device sends is an antenna of its own: device i's path to it is its weight.
        weights = torch.zeros(len(scaling), 1, dtype=torch.complex128)
        weights[here, 0] = torch.where(scaling[here] == 0, 0.0, along / scaling[here])
        return _Part(weights, scaling, torch.ones(1, dtype=torch.complex128), edges, energy)
    paths = setting.tx_scaling[row][here].unsqueeze(-1)
    if observer == "base-station":
        sight = base_station_sight(
            channels[here] * paths,
            link.credited_power,
            edges,
            honest,
            per_symbol=setting.per_symbol,
            circular=cover.circular,
            share=share,
        )
        along, energy = _test(sight, cover, place)
        return _Part(channels, scaling, torch.complex(*along.chunk(2)), edges, energy)
    assert link.listener is not None
    drawn = torch.from_numpy(link.listener.draw(index, setting.round_index, where))
    hers = torch.zeros(len(scaling), drawn.shape[1], dtype=torch.complex128)
    hers[here] = drawn[torch.from_numpy(who)]
    power = float(combiner.abs().square().sum()) * setting.noise_power
    exact = link.config.channel.estimation_error == 0.0
    sight = eavesdropper_sight(
        hers[here] * paths,
        setting.gains[row][here],
        link.listener.noise_power,
        power,
        edges,
        honest,
        exact=exact,
        credit=True,
        per_symbol=setting.per_symbol,
        circular=cover.circular,
        share=share,
        as_heard=True,
    )
    along, energy = _test(sight, cover, place)
    # Her antennas beside the base station's, in units in which they have the same noise; the sum is what models tell.
    louder = 1.0 / max((link.listener.noise_power / setting.noise_power) ** 0.5, QUIET)
    if setting.per_symbol > 1:
        both = torch.complex(*along.chunk(2))
        combined = torch.cat([both[:-1] / louder, both[-1] * combiner])
    else:
        combined = torch.cat([torch.complex(*along[:-1].chunk(2)) / louder, along[-1] * combiner])
    return _Part(torch.cat([louder * hers, channels], dim=-1), scaling, combined, edges, energy)


def _test(sight: Sight, cover: Cover, place: int | None) -> tuple[torch.Tensor, float]:
    """Σ⁻¹p̃ of the device at a place, and p̃ᵀΣ⁻¹p̃; zeros where it is silent."""
    if place is None:
        return torch.zeros(len(sight.signal), dtype=torch.float64), 0.0
    covered, own = sight.covariance(torch.tensor(1.0, dtype=torch.float64), cover), sight.signal[:, place]
    return _best(covered, own, sure=bool((sight.noise > 0).all()))


def _bare_test(
    honest: np.ndarray, edges: np.ndarray, cover: Cover, place: int | None, share: torch.Tensor | None
) -> tuple[torch.Tensor, float]:
    """The same where every device is heard by itself and without noise: Σ = a²I + b²L."""
    size = len(honest)
    own = torch.zeros(size, dtype=torch.float64)
    if place is None or not honest[place]:
        return own, 0.0
    own[place] = 1.0
    variance, masks = float(cover.own) * (1.0 if share is None else float(share[place])), float(cover.masks)
    if size > TAKEN_APART:
        spread = variance + masks * int(degrees_of(edges, size)[place])
        return (own / spread, 1.0 / spread) if spread > 0 else (own, np.inf)
    covered = torch.from_numpy(masks * laplacian_of(edges, size) + variance * np.eye(size))
    return _best(covered, own, sure=variance > 0)


def _best(covered: torch.Tensor, own: torch.Tensor, *, sure: bool) -> tuple[torch.Tensor, float]:
    """Σ⁻¹p̃ and p̃ᵀΣ⁻¹p̃; where nothing covers some part of p̃, that part alone, so that the test has mean x_i.

    Args:
        sure: whether Σ is known to have an inverse.
    """
    # Diagonals of one, lest tiny numbers beside large ones lose digits.
    size = covered.diagonal()
    scale = torch.where(size > 0, size, 1.0).rsqrt()
    own, covered = scale * own, scale.unsqueeze(0) * covered * scale.unsqueeze(1)
    if sure:
        root, failed = torch.linalg.cholesky_ex(covered)
        if not bool(failed.any()):
            solved = torch.cholesky_solve(own.unsqueeze(1), root)[:, 0]
            return scale * solved, float(own @ solved)
    spectrum, vectors = torch.linalg.eigh(covered)
    parts = vectors.mT @ own
    covers = spectrum > NOTHING * spectrum[-1].clamp(min=1e-300)
    bare = torch.where(covers, 0.0, parts)
    if float(bare.square().sum()) > NOTHING * float(parts.square().sum()):
        return scale * (vectors @ bare) / bare.square().sum(), np.inf
    solved = vectors @ torch.where(covers, parts / spectrum, 0.0)
    return scale * solved, float(own @ solved)
