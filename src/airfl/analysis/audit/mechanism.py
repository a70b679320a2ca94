"""Checks of the mechanism itself, through the run's own plan, clip and uplink: noise, contributions, booking.

Nothing is trained but one round, so thousands of draws are cheap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from airfl.air.energy import normal_scores
from airfl.analysis.audit.canaries import layers_of
from airfl.analysis.audit.contributions import check_contributions
from airfl.analysis.audit.covered import check_covered
from airfl.analysis.audit.worlds import Opener, given_updates, some_of, took_part, with_ideal_converters
from airfl.devices import Samples
from airfl.privacy.checks import Check, certain
from airfl.privacy.noise_tests import noise_checks, quietest
from airfl.randomness import stream
from airfl.simulate import Simulation

#: Draws of noise: entries and repetitions wished for, repetitions at least, entries at most.
NOISE_ENTRIES, NOISE_ROWS, FEWEST_ROWS, MOST_ENTRIES = 4_000_000, 1000, 4, 64_000_000


@dataclass(frozen=True)
class Mechanism:
    """What the checks found.

    Attributes:
        checks: not judged yet.
        tested: what was looked at, in words; left_out: what was not.
        active: who took part in the draws, device numbers [R, T, K].
        quietest: the direction along which the least noise was seen; None without noise.
    """

    checks: list[Check]
    tested: list[str]
    left_out: list[str]
    active: np.ndarray = field(repr=False)
    quietest: np.ndarray | None = field(default=None, repr=False)


def check_mechanism(single: Simulation, samples: Samples, first_key: int, opener: Opener) -> Mechanism:
    """Draw noise, send every device's canary alone, and compare with what is booked.

    Args:
        first_key: keys from here on are nobody else's.
    """
    opener = with_ideal_converters(opener)
    rounds, dim = single.config.system.rounds, single.schedule.dim
    generator = stream(single.config.system.seed, "canaries", 6)
    looked = some_of(generator, rounds, max(2, MOST_ENTRIES // (FEWEST_ROWS * dim)))
    count = max(FEWEST_ROWS, min(NOISE_ROWS, NOISE_ENTRIES // (len(looked) * dim)))
    batch = opener(single, samples, range(first_key, first_key + count))
    noise, planned, white = _draw_noise(batch, looked)
    noisy = (planned > 0).all(axis=(0, 2))
    found, tested, left_out, quiet = [], [], [], None
    if noisy.any():
        z = noise[:, noisy] / np.sqrt(planned[:, noisy]).astype(np.float32)
        # What a rotation mixed is looked at as it was sent; a canary is a direction of the model.
        found += noise_checks(z if white is None else white[:, noisy], layers_of(batch.task.spec))
        quiet = quietest(z)
        tested.append(f"the noise: {count} draws of {int(noisy.sum())} rounds, without training")
    if len(looked) < rounds:
        left_out.append(f"the noise of {rounds - len(looked)} of the {rounds} rounds, which were not drawn")
    if not noisy.all():
        left_out.append("the noise of rounds without any")
        loudest = float(np.abs(noise[:, ~noisy]).max())
        found.append(certain("rounds without noise", "a round without planned noise has some", loudest == 0.0))
    checks, words, missing = check_contributions(single, samples, first_key, opener, looked)
    if single.schedule.over_air and single.scheme.encoder.cover != "nothing":
        more, said, silent = check_covered(single, samples, first_key, opener)
        checks, words, missing = checks + more, words + said, missing + silent
    return Mechanism(found + checks, tested + words, left_out + missing, took_part(batch.schedule), quiet)


def _draw_noise(batch: Simulation, looked: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """What is received while everybody sends zeros, [R, T, d], and the variance that is planned, [R, T, d or 1].

    Where a rotation mixes the noise of blocks, also what it was in them, over its standard deviation there; and where
    energy is measured, what normal numbers would be at the same quantiles.
    """
    noise = np.empty((len(batch.task.trials), len(looked), batch.schedule.dim), dtype=np.float32)
    energy = batch.schedule.detects != "sum"
    mixed = batch.config.channel.rotation and batch.schedule.blocks is not None
    white = np.empty_like(noise) if mixed or energy else None
    planned = []
    for index, t in enumerate(looked):
        setting = batch.schedule.setting(t)
        heard = batch.heard(setting, given_updates(batch, setting, {})).cpu()
        noise[:, index] = heard.numpy()
        if white is not None:
            white[:, index] = (normal_scores(heard, setting) if energy else setting.whitened(heard)).numpy()
        planned.append(setting.planned_var(batch.schedule.dim).numpy())
    return noise, np.stack(planned, axis=1), white
