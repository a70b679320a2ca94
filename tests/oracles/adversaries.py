"""What each adversary learns of a device, from the signals alone: covariances of all that she sees, with 100 digits.

One symbol of a block is z = M (e_i x + Σ_k n_k u_k) + noise: device i's update x enters it along M e_i, every piece of
cover k that she does not know enters it along M n_k with u_k ~ N(0, 1), and M is linear: to antennas, to the sum, or to
what devices send. Then the best test between two updates that are S apart has μ² = S² (M e_i)ᵀ Σ⁻¹ (M e_i). Nothing of
the library's arithmetic is called; what is read is who sends what over which channels, and who tells what it knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from mpmath import erfc, exp, gammainc, inf, log, mpc, mpf, sqrt, workdps

from airfl.air import Setting
from airfl.channel import Link
from airfl.channel.blocks import place_of
from airfl.privacy import Observer

DIGITS = 100
#: Of a unit variance: less noise than that is none. It only ever makes a device harder to see.
NEXT_TO_NOTHING = mpf("1e-50")

Vector = list[mpc]
#: From what devices add to their symbols to what somebody sees, in real numbers.
View = Callable[[Vector], list[mpf]]
#: r² by device, and by device and the one that looks on; None: somebody who does not send.
Told = dict[tuple[int, int | None], mpf]


@dataclass(frozen=True)
class Piece:
    """A piece of cover: what one N(0, 1) adds to the symbols of the devices, [K], and who knows it.

    Attributes:
        hidden: whether the sum is not to hear it.
    """

    adds: Vector
    known_to: frozenset[int]
    hidden: bool


@dataclass(frozen=True)
class Block:
    """All that happens to one symbol of a block.

    Attributes:
        who: numbers of the devices that send, [K].
        paths: h_i s_i, [K][m], and to the eavesdropper, [K][m_E].
        gains: wᴴh_i s_i, [K].
        sum_noise: ‖w‖²σ²/2.
        parts: real numbers that the base station takes of a symbol.
        told: whether everybody is told what the sum hears of what it is not to hear.
    """

    who: list[int]
    paths: list[Vector]
    hers: list[Vector] | None
    gains: Vector
    pieces: list[Piece]
    antenna_noise: mpf
    credited_noise: mpf
    her_noise: mpf
    sum_noise: mpf
    parts: int
    told: bool
    measures: bool

    def unknown(self, known: frozenset[int]) -> list[Piece]:
        """What those who hand over what they know have no part in."""
        return [piece for piece in self.pieces if not piece.known_to & known]

    def sums(self, adds: Vector) -> list[mpf]:
        """What the base station keeps of wᴴy."""
        heard = _dot(self.gains, adds)
        return [heard.real, heard.imag][: self.parts]


def round_told(link: Link, setting: Setting) -> dict[Observer, Told]:
    """r² of a round by observer: what its worst block tells of a device whose update moves by 1."""
    found: dict[Observer, Told] = {}
    colluding = frozenset(np.flatnonzero(link.colluding[0]).tolist())
    with workdps(DIGITS):
        for block in _blocks(link, setting):
            for observer, told in _block_told(block, colluding, everything="everything" not in found).items():
                worst = found.setdefault(observer, {})
                for key, value in told.items():
                    worst[key] = max(value, worst.get(key, mpf(0)))
    return found


def run_told(rounds: Sequence[Told], devices: int) -> mpf:
    """Σ_t r² of the device that is told most of, beside whoever looks on all the time."""
    with workdps(DIGITS):
        best = mpf(0)
        for device in range(devices):
            for looker in (None, *range(devices)):
                if looker != device:
                    best = max(best, sum((_of(told, device, looker) for told in rounds), mpf(0)))
        return best


def _of(told: Told, device: int, looker: int | None) -> mpf:
    return told.get((device, looker), told.get((device, None), mpf(0)))


def gaussian_log_excess(epsilon: float, delta: float, mu: mpf) -> float:
    """log of δ(ε)/δ for a μ-Gaussian mechanism: above 0 where (ε, δ) is not kept."""
    if mu == 0:
        return -math.inf
    with workdps(DIGITS):

        def tail(x: mpf) -> mpf:
            return erfc(x / sqrt(mpf(2))) / 2

        e = mpf(epsilon)
        found = tail(e / mu - mu / 2) - exp(e) * tail(e / mu + mu / 2)
        return float(log(found / mpf(delta))) if found > 0 else -math.inf


def outage(length: float, antennas: int) -> float:
    """The chance that m standard exponentials add up to more than length²."""
    with workdps(DIGITS):
        return float(gammainc(antennas, mpf(length) ** 2, inf, regularized=True))


def _block_told(block: Block, colluding: frozenset[int], *, everything: bool) -> dict[Observer, Told]:
    honest = [place for place, number in enumerate(block.who) if number not in colluding]
    antennas = _antennas(block.paths)
    found: dict[Observer, Told] = {}

    def seen(views: Sequence[tuple[View, mpf]], known: frozenset[int], *, told: bool) -> dict[int, mpf]:
        return dict(zip((block.who[i] for i in honest), _seen(block, views, known, honest, told=told), strict=True))

    def alone(values: Mapping[int, mpf]) -> Told:
        return {(device, None): value for device, value in values.items()}

    found["base-station"] = alone(seen([(antennas, block.credited_noise)], colluding, told=block.told))
    the_sum = (antennas, block.antenna_noise) if block.measures else (block.sums, block.sum_noise)
    if block.hers is not None:
        views = [(_antennas(block.hers), block.her_noise), the_sum]
        found["eavesdropper"] = alone(seen(views, colluding, told=block.told))
    if everything:
        found["everything"] = alone(seen([(_apart, mpf(0))], colluding, told=False))
    found["models"] = alone(seen([the_sum], colluding, told=block.told))
    for place in honest:
        looker = block.who[place]
        for device, value in seen([the_sum], colluding | {looker}, told=block.told).items():
            if device != looker:
                found["models"][device, looker] = value
    return found


def _seen(
    block: Block, views: Sequence[tuple[View, mpf]], known: frozenset[int], honest: Sequence[int], *, told: bool
) -> list[mpf]:
    """pᵀ Σ⁻¹ p of each honest device, where several things are seen at once."""

    def rows(adds: Vector, hidden: bool | None) -> list[mpf]:
        # Who is told a leak sees one more number: what hidden pieces add to the sum, and nothing else does.
        leak = [_dot(block.gains, adds).real if hidden else mpf(0)] if told else []
        return [value for view, _ in views for value in view(adds)] + leak

    count = len(block.who)
    units = [[mpc(place == other) for other in range(count)] for place in range(count)]
    signals = [rows(units[place], None) for place in honest]
    noises = [rows(piece.adds, piece.hidden) for piece in block.unknown(known)]
    white = [level for view, level in views for _ in view(units[0])] + ([mpf(0)] if told else [])
    size = len(white)
    covariance = [[sum((n[i] * n[j] for n in noises), mpf(0)) for j in range(size)] for i in range(size)]
    for i, level in enumerate(white):
        covariance[i][i] += level
    return quadratic_forms(covariance, signals)


def quadratic_forms(covariance: list[list[mpf]], signals: list[list[mpf]]) -> list[mpf]:
    """pᵀ Σ⁻¹ p by elimination, for rows of unit variance; infinite for what no noise is on."""
    scale = [sqrt(covariance[i][i]) for i in range(len(covariance))]
    rows = [i for i, root in enumerate(scale) if root > 0]
    bare = [any(signal[i] != 0 for i, root in enumerate(scale) if root == 0) for signal in signals]
    sigma = [[covariance[i][j] / scale[i] / scale[j] for j in rows] for i in rows]
    left = [[signal[i] / scale[i] for i in rows] for signal in signals]
    found = [mpf(0) for _ in signals]
    for k in range(len(rows)):
        sigma[k][k] += NEXT_TO_NOTHING
    for k in range(len(rows)):
        pivot = sigma[k][k]
        for number, signal in enumerate(left):
            found[number] += signal[k] ** 2 / pivot
        for i in range(k + 1, len(rows)):
            factor = sigma[i][k] / pivot
            if factor != 0:
                for j in range(k + 1, len(rows)):
                    sigma[i][j] -= factor * sigma[k][j]
                for signal in left:
                    signal[i] -= factor * signal[k]
    return [mpf(inf) if is_bare else value for is_bare, value in zip(bare, found, strict=True)]


def _blocks(link: Link, setting: Setting) -> Iterator[Block]:
    """Blocks in which somebody sends."""
    if not setting.heard[0].any():
        return
    if setting.blocks is None:
        yield _block(link, setting, None)
        return
    grid = setting.blocks.grid
    for number in range(grid.count):
        yield _block(link, setting.blocks.scene(number), place_of(number, grid, link.config.channel))


def _block(link: Link, setting: Setting, place: object) -> Block:
    privacy, listener, t = link.config.privacy, link.listener, setting.round_index
    here = np.flatnonzero(setting.active[0] >= 0)
    who = setting.active[0][here].tolist()
    scalars = [_number(setting.tx_scaling[0, i]) for i in here]
    channels = [[_number(h) for h in setting.channels[0, i]] for i in here]
    combiner = [_number(w) for w in setting.combiner[0]]
    if setting.detects == "fresh energy":  # fading of every symbol is as strong as is booked
        channels = [[mpc(float(setting.gain_bound[0]) * link.law.amplitude[0, number])] for number in who]
    gains = [mpc(0)] * len(who)
    if setting.detects == "sum":
        gains = [_dot([w.conjugate() for w in combiner], h) * s for h, s in zip(channels, scalars, strict=True)]
    hers = None
    if listener is not None:
        drawn = listener.draw(0, t, place)[who]  # type: ignore[arg-type]
        hers = [[_number(g) * s for g in row] for row, s in zip(drawn, scalars, strict=True)]
    half = mpf(setting.noise_power) / 2
    squared = sum((abs(w) ** 2 for w in combiner), mpf(0))
    return Block(
        who, [[h * s for h in row] for row, s in zip(channels, scalars, strict=True)], hers, gains,
        list(_pieces(setting, who)), half, mpf(link.credited_power) / 2,
        mpf(0 if listener is None else listener.noise_power) / 2, half * squared, setting.per_symbol,
        link.config.channel.estimation_error > 0.0 and not privacy.credit_leak, setting.detects != "sum",
    )  # fmt: skip


def _pieces(setting: Setting, who: Sequence[int]) -> Iterator[Piece]:
    """What devices add, as the uplink does: noise of their own in each part of a symbol, and masks in pairs."""
    cover, count, turn = setting.cover, len(who), mpc(0, 1)
    own, quadrature, masks = (mpf(float(part[0])) for part in (cover.own, cover.quadrature, cover.masks))
    imaginary = own if setting.per_symbol > 1 else quadrature
    for place, number in enumerate(who):
        share = mpf(1 if cover.share is None else float(cover.share[0, number]))
        for variance, direction in ((own, mpc(1)), (imaginary, turn)):
            if variance > 0:
                size = sqrt(variance * share)
                adds = [size * direction if other == place else mpc(0) for other in range(count)]
                # Circular noise is as large in both parts, and only the first is meant for the sum.
                yield Piece(adds, frozenset([number]), direction == turn and setting.per_symbol == 1)
    for first, second in setting.edges[0].tolist() if masks > 0 else []:
        for direction in (mpc(1), turn) if cover.circular or setting.per_symbol > 1 else (mpc(1),):
            size = sqrt(masks) * direction
            adds = [size * ((other == first) - (other == second)) for other in range(count)]
            yield Piece(adds, frozenset([who[first], who[second]]), True)


def _antennas(paths: list[Vector]) -> View:
    """Both parts of what every antenna hears."""

    def view(adds: Vector) -> list[mpf]:
        heard = [sum((a * row[m] for a, row in zip(adds, paths, strict=True)), mpc(0)) for m in range(len(paths[0]))]
        return [h.real for h in heard] + [h.imag for h in heard]

    return view


def _apart(adds: Vector) -> list[mpf]:
    """Both parts of what every device sends."""
    return [a.real for a in adds] + [a.imag for a in adds]


def _dot(first: Vector, second: Vector) -> mpc:
    return sum((a * b for a, b in zip(first, second, strict=True)), mpc(0))


def _number(value: object) -> mpc:
    return mpc(complex(value))  # type: ignore[arg-type,call-overload]
