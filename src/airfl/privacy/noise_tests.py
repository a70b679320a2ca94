"""Is it white Gaussian noise of the booked variance? Received less the sum, over repetitions, rounds and coordinates.

All take z, [R, T, d]: repetitions × rounds × coordinates, divided by the standard deviation that is planned. If the
code is right its entries are independent standard normals, and p-values are exact or conservative for any R, T, d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft, special

from airfl.privacy import checks
from airfl.privacy.checks import Check

#: A layer of the model: its name, and how many coordinates it has.
Layer = tuple[str, int]
#: |z| whose share is counted.
TAILS = (1.0, 2.0, 3.0, 4.0)
#: Rows that are compared each with each, coordinates whose spectrum is looked at, entries whose order is.
PAIRED_ROWS, SPECTRUM_COLUMNS, ORDERED = 1024, 1024, 2**18


@dataclass(frozen=True)
class _Sums:
    """What one pass over z leaves.

    Attributes:
        squares: Σ_r z², [T, d].
        totals: Σ_r z, [T, d].
        energies: Σ_j z², [R, T].
        beyond: how many |z| exceed each of `TAILS`, [tails, T, d].
        largest: max |z|.
    """

    repetitions: int
    squares: np.ndarray
    totals: np.ndarray
    energies: np.ndarray
    beyond: np.ndarray
    largest: float

    @staticmethod
    def of(z: np.ndarray) -> _Sums:
        repetitions, rounds, dim = z.shape
        squares, totals = np.empty((rounds, dim)), np.empty((rounds, dim))
        energies, beyond = np.empty((repetitions, rounds)), np.empty((len(TAILS), rounds, dim))
        largest = 0.0
        for t in range(rounds):
            part = z[:, t].astype(np.float64)
            size = np.abs(part)
            totals[t], largest = part.sum(axis=0), max(largest, float(size.max()))
            for index, tail in enumerate(TAILS):
                beyond[index, t] = np.count_nonzero(size > tail, axis=0)
            part *= part
            squares[t], energies[:, t] = part.sum(axis=0), part.sum(axis=1)
        return _Sums(repetitions, squares, totals, energies, beyond, largest)


def noise_checks(z: np.ndarray, layers: Sequence[Layer]) -> list[Check]:
    """All checks of the noise."""
    sums = _Sums.of(z)
    return [
        *_variances(sums, layers),
        _means(sums),
        _repetitions(sums),
        *_energies(sums),
        _rounds(z),
        _pairs(z),
        *_shifts(z),
        *spectrum_checks(z),
        *_shape(z, sums, layers),
    ]


def _by_layer(values: np.ndarray, layers: Sequence[Layer]) -> np.ndarray:
    """Sums over the coordinates of each layer, [..., layers]."""
    starts = np.cumsum([0, *(size for _, size in layers[:-1])])
    return np.add.reduceat(values, starts, axis=-1)


def _variances(sums: _Sums, layers: Sequence[Layer]) -> list[Check]:
    """Σz² is χ² with as many degrees of freedom as there are terms."""
    repetitions, (rounds, dim) = sums.repetitions, sums.squares.shape
    whole = float(sums.squares.sum()) / (repetitions * rounds * dim)
    by_round = sums.squares.sum(axis=1)
    t = _oddest(by_round, repetitions * dim)
    sizes = np.array([size for _, size in layers], dtype=np.float64)
    layered = _by_layer(sums.squares.sum(axis=0), layers)
    p_layers = checks.chi_square(layered, repetitions * rounds * sizes)
    odd = int(np.argmin(p_layers))
    ratio = layered[odd] / (repetitions * rounds * sizes[odd])
    by_coordinate = sums.squares.sum(axis=0)
    j = _oddest(by_coordinate, repetitions * rounds)
    places = sums.squares.ravel()
    place = _oddest(places, repetitions)
    return [
        Check(
            "noise variance",
            f"the noise has {whole:.4g} of its planned variance",
            float(checks.chi_square(whole * repetitions * rounds * dim, repetitions * rounds * dim)),
        ),
        Check(
            "noise variance by round",
            f"the noise of round {t + 1} has {by_round[t] / (repetitions * dim):.4g} of its planned variance",
            checks.chi_square_extremes(by_round, repetitions * dim),
            rounds,
        ),
        Check(
            "noise variance by layer",
            f"the noise on `{layers[odd][0]}` has {ratio:.4g} of its planned variance",
            checks.family(p_layers),
            len(layers),
        ),
        Check(
            "noise variance by coordinate",
            f"the noise on coordinate {j} has {by_coordinate[j] / (repetitions * rounds):.4g} of its planned variance",
            checks.chi_square_extremes(by_coordinate, repetitions * rounds),
            dim,
        ),
        Check(
            "noise variance by coordinate and round",
            f"the noise on coordinate {place % dim} in round {place // dim + 1} has "
            f"{places[place] / repetitions:.4g} of its planned variance",
            checks.chi_square_extremes(places, repetitions),
            places.size,
        ),
    ]


def _oddest(sums: np.ndarray, freedom: float) -> int:
    """Which of χ² sums with the same degrees of freedom has the smallest p."""
    ends = np.array([int(sums.argmin()), int(sums.argmax())])
    return int(ends[np.argmin(checks.chi_square(sums[ends], freedom))])


def _means(sums: _Sums) -> Check:
    """Σz/√n is N(0, 1)."""
    rounds, dim = sums.totals.shape
    scores = sums.totals.sum(axis=0) / math.sqrt(sums.repetitions * rounds)
    j = int(np.abs(scores).argmax())
    found = f"the noise on coordinate {j} does not average out over repetitions ({scores[j]:.3g} standard deviations)"
    return Check("noise mean", found, checks.family(checks.normal(scores[[j]]), dim), dim)


def _repetitions(sums: _Sums) -> Check:
    """Σ_tj (Σ_r z)²/R is χ² with T·d degrees of freedom; R times as large if all repetitions share their noise."""
    ratio = float((sums.totals**2).mean()) / sums.repetitions
    return Check(
        "independence of repetitions",
        f"means over repetitions have {ratio:.4g} times the variance of independent ones: noise is shared",
        float(checks.chi_square(ratio * sums.totals.size, sums.totals.size)),
    )


def _energies(sums: _Sums) -> list[Check]:
    """‖z‖² of a row is χ² with d degrees of freedom; noise that is shared between coordinates spreads it."""
    dim, energies = sums.squares.shape[1], sums.energies.ravel()
    worst = energies[_oddest(energies, dim)] / dim
    return [
        Check(
            "length of the noise",
            f"the noise of one round has {worst:.4g} times the energy of independent coordinates",
            checks.chi_square_extremes(energies, dim),
            energies.size,
        ),
        Check(
            "law of the length",
            "the noise's energy spreads otherwise than that of independent coordinates: it has fewer dimensions",
            checks.kolmogorov(special.chdtr(dim, energies)),
        ),
    ]


def _rounds(z: np.ndarray) -> Check:
    """⟨z_s, z_t⟩/‖z_t‖ over repetitions and coordinates is N(0, 1) given z_t."""
    rounds = z.shape[1]
    if rounds < 2:
        return Check("independence of rounds", "there is one round", 1.0, 0)
    score, (s, t) = _correlations(z.transpose(1, 0, 2).reshape(rounds, -1))
    looks = rounds * (rounds - 1) // 2
    found = f"the noise of rounds {s + 1} and {t + 1} is correlated ({score:.3g} standard deviations)"
    return Check("independence of rounds", found, checks.family(checks.normal(np.array([score])), looks), looks)


def _pairs(z: np.ndarray) -> Check:
    """The same for single rows: any two repetitions and rounds."""
    rounds, dim = z.shape[1:]
    rows = z[: max(1, PAIRED_ROWS // rounds)].reshape(-1, dim)
    score, (a, b) = _correlations(rows)
    places = [f"round {row % rounds + 1} of repetition {row // rounds + 1}" for row in (a, b)]
    looks = max(1, len(rows) * (len(rows) - 1) // 2)
    found = f"the noise of {places[0]} and of {places[1]} is correlated ({score:.3g} standard deviations)"
    return Check("independence of any two rows", found, checks.family(checks.normal(np.array([score])), looks), looks)


def _correlations(rows: np.ndarray) -> tuple[float, tuple[int, int]]:
    """The largest ⟨a, b⟩/‖b‖ of two different rows, and which."""
    gram = (rows @ rows.T).astype(np.float64)
    scores = np.triu(gram, 1) / np.sqrt(np.maximum(gram.diagonal(), np.finfo(float).tiny))
    where = np.unravel_index(int(np.abs(scores).argmax()), scores.shape)
    return float(scores[where]), (int(where[0]), int(where[1]))


def _shifts(z: np.ndarray) -> list[Check]:
    """Σ z_j z_{j+k} and Σ z_j z_{k−j} for every k, indices modulo d: noise that is repeated or mirrored in a row."""
    dim = z.shape[2]
    if dim < 3:
        return []
    rows = z.shape[0] * z.shape[1]
    power, square = np.zeros(dim // 2 + 1), np.zeros(dim // 2 + 1, dtype=np.complex128)
    for part in z:
        spectrum = fft.rfft(part, axis=-1)
        power += (spectrum.real**2 + spectrum.imag**2).sum(axis=0)
        square += (spectrum**2).sum(axis=0)
    lags = np.arange(1, dim // 2 + 1)
    shifted = fft.irfft(power, dim)[lags]
    # Σ cos²(2πkj/d) over j is d/2, but d where k is half of d.
    spread = rows * np.where(2 * lags == dim, 1.0, 0.5) * dim
    numbers = np.arange(dim)
    own = np.bincount(2 * numbers % dim, minlength=dim)  # terms z_j², whose mean is 1
    mirrored = fft.irfft(square, dim) - rows * own
    found = []
    for name, values, spreads, words in (
        ("repeats within the noise", shifted, spread, "after {} coordinates the noise repeats itself"),
        ("mirrors within the noise", mirrored, np.full(dim, 1.0 * rows * dim), "noise at j and {} − j is the same"),
    ):
        p_values = checks.quadratic(values, spreads)
        k = int(np.argmin(p_values))
        lag = int(lags[k]) if values is shifted else k
        text = f"{words.format(lag)} (correlation {values[k] / (rows * dim):.3g})"
        found.append(Check(name, text, checks.family(p_values), len(p_values)))
    return found


def spectrum_columns(dim: int, rows: int) -> np.ndarray:
    """Coordinates whose covariance can be looked at with so many rows; each with its partner half a vector away."""
    most = min(dim, rows // 4, SPECTRUM_COLUMNS)
    if most == dim:
        return np.arange(dim)
    first = np.linspace(0, dim // 2, max(1, most // 2), endpoint=False).astype(np.int64)
    return np.unique(np.concatenate([first, first + dim // 2]))


def spectrum_checks(z: np.ndarray) -> list[Check]:
    """Singular values of N × p standard normals lie within √N ± (√p + t), but for e^(−t²/2) on each side (Gordon)."""
    table = z.reshape(-1, z.shape[2])
    columns = spectrum_columns(table.shape[1], len(table))
    if len(columns) < 2:
        return []
    chosen = table[:, columns]
    values = np.sqrt(np.maximum(np.linalg.eigvalsh((chosen.T @ chosen).astype(np.float64))[[0, -1]], 0.0))
    low, high = math.sqrt(len(table)) - math.sqrt(len(columns)), math.sqrt(len(table)) + math.sqrt(len(columns))
    excess = max(low - values[0], values[1] - high, 0.0)
    least, most = (value**2 / len(table) for value in values)
    found = f"along some direction the noise has {least:.3g} of its planned variance, along another {most:.3g} times it"
    return [Check("variance along every direction", found, min(1.0, 2.0 * math.exp(-0.5 * excess**2)), len(columns))]


def quietest(z: np.ndarray) -> np.ndarray:
    """The direction along which the noise had the least variance, [d]: where an attacker would look."""
    table = z.reshape(-1, z.shape[2])
    columns = spectrum_columns(table.shape[1], len(table))
    direction = np.zeros(table.shape[1])
    if len(columns) < 2:
        direction[int(np.square(table, dtype=np.float64).sum(axis=0).argmin())] = 1.0
        return direction
    chosen = table[:, columns]
    direction[columns] = np.linalg.eigh((chosen.T @ chosen).astype(np.float64))[1][:, 0]
    return direction


def _shape(z: np.ndarray, sums: _Sums, layers: Sequence[Layer]) -> list[Check]:
    """The order of entries, and how many lie far out: binomial counts."""
    flat = z.reshape(-1)
    some = flat[:: max(1, -(-flat.size // ORDERED))]
    rates = np.array([2.0 * float(special.ndtr(-tail)) for tail in TAILS])[:, None]
    repetitions, (rounds, dim) = sums.repetitions, sums.squares.shape
    by_round = checks.binomial(sums.beyond.sum(axis=2), repetitions * dim, rates)
    sizes = np.array([size for _, size in layers])
    by_layer = checks.binomial(_by_layer(sums.beyond.sum(axis=1), layers), repetitions * rounds * sizes, rates)
    p_values = np.concatenate([by_round.ravel(), by_layer.ravel()])
    tail = TAILS[int(np.unravel_index(by_round.argmin(), by_round.shape)[0])]
    return [
        Check("law of the noise", "the noise is not Gaussian", checks.kolmogorov(special.ndtr(some))),
        Check(
            "tails of the noise",
            f"noise beyond {tail:g} standard deviations is not as frequent as Gaussian noise is",
            checks.family(p_values),
            p_values.size,
        ),
        Check(
            "largest noise",
            f"the largest of {flat.size:,} draws is {sums.largest:.3g} standard deviations",
            checks.largest_normal(sums.largest, flat.size),
        ),
    ]
