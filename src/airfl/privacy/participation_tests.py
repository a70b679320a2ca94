"""Does participation follow the law that the ledger states? Credit for sampling rests on nothing else.

All take who was there, [R, T, n]: repetitions × rounds × devices. Counts of independent draws are binomial.
"""

from __future__ import annotations

import numpy as np

from airfl.privacy import checks
from airfl.privacy.checks import Check, certain
from airfl.privacy.events import Sampling

#: Devices up to which every two of them are compared.
PAIRED_DEVICES = 2000


def presence(active: np.ndarray, num_devices: int) -> tuple[np.ndarray, bool]:
    """Who was there, [R, T, n] bool, of device numbers [R, T, K], −1 for nobody; and whether nobody was there twice."""
    there = np.zeros((*active.shape[:2], num_devices + 1), dtype=bool)
    np.put_along_axis(there, np.where(active < 0, num_devices, active), True, axis=2)
    once = bool(((active >= 0).sum(axis=2) == there[..., :num_devices].sum(axis=2)).all())
    return there[..., :num_devices], once


def participation_checks(active: np.ndarray, sampling: Sampling) -> list[Check]:
    """All checks of who took part, device numbers [R, T, K]."""
    number = sampling.num_devices
    there, once = presence(active, number)
    found = [certain("each device once in a round", "a device takes part twice in one round", once)]
    if sampling.law == "all":
        found.append(certain("everyone takes part", "a device was missing though all take part", bool(there.all())))
        return found
    if sampling.law == "without-replacement":
        right = bool((there.sum(axis=2) == sampling.num_active).all())
        found.append(certain("number of devices", f"a round had other than {sampling.num_active:g} devices", right))
    repetitions, rounds, _ = there.shape
    rate = sampling.rate
    totals = there.sum(axis=(0, 1))
    found.append(_family("participation of each device", totals, repetitions * rounds, rate, "took part in"))
    by_round = there.sum(axis=0).ravel()
    words = "in one of the rounds took part in"
    found.append(_family("participation by round", by_round, repetitions, rate, words, number))
    words = "took part twice in a row in"
    for name, first, second in (
        ("participation in two rounds", there[:, 0 : rounds - 1 : 2], there[:, 1:rounds:2]),
        ("participation in two repetitions", there[0 : repetitions - 1 : 2], there[1:repetitions:2]),
    ):
        if first.size:
            both = (first & second).sum(axis=(0, 1))
            found.append(_family(name, both, first.shape[0] * first.shape[1], rate**2, words))
    if 2 <= number <= PAIRED_DEVICES:
        found.append(_together(there, sampling))
    return found


def _family(name: str, counts: np.ndarray, trials: int, rate: float, words: str, number: int | None = None) -> Check:
    p_values = checks.binomial(np.array([counts.min(), counts.max()]), trials, rate)
    device = int((counts.argmin(), counts.argmax())[int(np.argmin(p_values))])
    text = f"{words} {counts[device] / trials:.3g} of the draws, and the ledger states {rate:.3g}"
    return Check(
        name, f"device {device % (number or len(counts))} {text}", checks.family(p_values, counts.size), counts.size
    )


def _together(there: np.ndarray, sampling: Sampling) -> Check:
    """Two devices meet with probability r² where each has coins of its own, K(K−1)/(n(n−1)) where K are drawn at once,
    and 2r − 1 + (1 − 2/n)^K where they are drawn one by one and may be drawn again."""
    number, active = sampling.num_devices, sampling.num_active
    rate = (
        sampling.rate**2 if sampling.law in ("poisson", "binomial") else active * (active - 1) / (number * (number - 1))
    )
    if sampling.law == "multinomial":  # neither of them is in none of the draws
        rate = 2.0 * sampling.rate - 1.0 + ((number - 2) / number) ** active
    table = there.reshape(-1, number).astype(np.float32)
    met = (table.T @ table)[np.triu_indices(number, 1)].round()
    p_values = checks.binomial(np.array([met.min(), met.max()]), len(table), rate)
    odd = float((met.min(), met.max())[int(np.argmin(p_values))]) / len(table)
    found = f"two devices take part together in {odd:.3g} of the draws, and the ledger states {rate:.3g}"
    return Check("participation of two devices", found, checks.family(p_values, met.size), met.size)
