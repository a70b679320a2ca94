"""How many of the active devices transmit, where the configuration leaves the choice: ``selection_keep = "best"``.

The server takes the mean of k of K updates, each at most c long, and what it gets differs from the mean of all K by

    E(k) = d·v/k²  +  c²(1/k − 1/K)(1 + (T − 1)·(K/n)·r)      per round, averaged over T rounds.

First term: the noise, v per coordinate of the sum, after the scheme's policy lifted it to what the promise asks for.
Where that binds, v does not fall with k and everyone transmits. Second term: a mean over a sample without replacement
of updates whose spread is at most c². r is the correlation between two rounds of being heard: devices that fade are
left out in turns, and their absence averages out (r = 0); far ones are left out again and again (r = 1), and the error
adds up over rounds. With r it takes data for independent of positions; nothing known to the server could tell more.
Where noise rules, k/√v is largest: served devices against noise.

Only the law of the channels and the configuration are looked at, never data, so the choice costs no privacy. What is
booked are the rounds as they are sent: the promise does not rest on this choice being good.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from airfl.catalogue import SHARES
from airfl.config import Config
from airfl.privacy import RoundEvent
from airfl.rounds.arrange import arrange_rounds
from airfl.rounds.schedule import Schedule
from airfl.schemes import Scheme
from airfl.transceiver import FewRounds, Radio, few_rounds

#: Shares in a row that are worse than the best so far, and end the search.
PATIENCE = 2


def arrange(
    config: Config,
    scheme: Scheme,
    radio: Radio,
    dim: int,
    local_steps: Sequence[int] | None = None,
    before: tuple[RoundEvent, ...] = (),
) -> Schedule:
    """Design all rounds of all trials, after choosing how many devices transmit where that is left open.

    Args:
        local_steps: Q of each trial; only a bound that uses an enforced domain needs it.
        before: what was released before the first round.
    """
    chosen = config.scheme
    if scheme.policy.over_air and chosen.selection != "all" and chosen.share == "best":
        few = few_rounds(radio, config)
        steps = None if local_steps is None else [max(local_steps)] * len(few.link.trials)
        # A price is looked at when all rounds are known; a share that costs much loses here anyhow.
        anyhow = {"scheme.cover_price_db": 1000.0}
        rungs = [config.replace({"scheme.selection_keep": share, **anyhow}) for share in reversed(SHARES)]
        ladder = {rung.num_transmitting: rung for rung in rungs}  # different shares may leave the same number
        best = _best([ladder[keep] for keep in sorted(ladder, reverse=True)], scheme, few, dim, steps)
        config = config.replace({"scheme.selection_keep": best.scheme.selection_keep})
    return arrange_rounds(config, scheme, radio, dim, local_steps, before)


def _best(
    ladder: Sequence[Config], scheme: Scheme, few: FewRounds, dim: int, local_steps: Sequence[int] | None
) -> Config:
    """The configuration with the least error, most devices first; looks on until it gets worse."""
    errors: list[float] = []
    for config in ladder:
        errors.append(error_of_mean(arrange_rounds(config, scheme, few, dim, local_steps), few.link.period))
        if len(errors) - 1 - int(np.argmin(errors)) >= PATIENCE:
            break
    return ladder[int(np.argmin(errors))]


def error_of_mean(schedule: Schedule, period: int) -> float:
    """E(k) of a schedule that repeats its first ``period`` rounds; see the module's first lines."""
    system, keep, length = schedule.link.config.system, schedule.normaliser, schedule.promise.template.clip_norm
    noise = schedule.dim * float(schedule.noise_var.mean()) / keep**2
    heard = schedule.planned[:, :period]
    again = persistence(heard, schedule.link.active(range(heard.shape[1])))
    rounds = 1.0 + (system.rounds - 1) * system.num_active / system.num_devices * again
    return noise + length**2 * (1.0 / keep - 1.0 / system.num_active) * rounds


def persistence(heard: np.ndarray, active: np.ndarray) -> float:
    """Correlation between two rounds of being heard, given that a device is active in both; 0 where none can be seen.

    Args:
        heard: who transmits, [trials, rounds, k].
        active: who might, [trials, rounds, K].
    """
    total, share = int(active.max()) + 1, heard.shape[2] / active.shape[2]
    both_heard, both_active = (_pairs(who, total) for who in (heard, active))
    if both_active == 0 or share == 1.0:
        return 0.0
    again = both_heard / both_active
    return max(0.0, float((again - share**2) / (share * (1.0 - share))))


def _pairs(who: np.ndarray, total: int) -> int:
    """How often a device is there in two rounds of a trial, over all pairs of rounds."""
    counts = np.stack([np.bincount(row.ravel(), minlength=total) for row in who])
    return int((counts * (counts - 1)).sum())
