"""The base station's view: every antenna, and a filter matched to one device's path, whitened against what covers it.

With p = h s of the canary's device and C = σ²I + ν Σ_k p_k p_kᴴ, the base station cannot do better than w = C⁻¹p: the
score Σ_t Re(w_tᴴ Y_t u) has mean c Σ_t p_tᴴC_t⁻¹p_t with the canary in, and variance ½ Σ_t p_tᴴC_t⁻¹p_t, so that
μ² = 2c² Σ_t p_tᴴC_t⁻¹p_t is what the ledger books. The run's own uplink is opened with w for its combiner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from airfl.air import Reception, SignalUplink
from airfl.bookkeeping import book_round
from airfl.devices import Samples
from airfl.planning import RadioPlan
from airfl.privacy import Ledger
from airfl.randomness import stream
from airfl.runs.audit.worlds import LOUD, Advance, Opener, given_updates, random_direction
from airfl.simulate import Simulation

#: Symbols that are sent; the law of every symbol is the same, and a canary may choose a few.
SYMBOLS = 64
#: Numbers that covariances and paths of one batch may hold.
BATCH_NUMBERS = 2_000_000


@dataclass(frozen=True)
class Heard:
    """Scores of the base station in one world, [R], and what was booked."""

    scores: np.ndarray = field(repr=False)
    ledgers: list[Ledger] = field(repr=False)


def listen(
    single: Simulation, samples: Samples, keys: Sequence[int], sign: float, opener: Opener, advance: Advance | None
) -> Heard:
    """Send a canary of the device that is heard best, times ``sign``, and nothing else; a repetition per key."""
    system = single.config.system
    size = max(1, BATCH_NUMBERS // (system.num_antennas * (system.num_antennas + system.num_devices)))
    parts = [_listen(single, samples, keys[i : i + size], sign, opener, advance) for i in range(0, len(keys), size)]
    return Heard(np.concatenate([part.scores for part in parts]), [book for part in parts for book in part.ledgers])


def _listen(
    single: Simulation, samples: Samples, keys: Sequence[int], sign: float, opener: Opener, advance: Advance | None
) -> Heard:
    batch = opener(single, samples, keys)
    if not isinstance(single.uplink, SignalUplink):  # the scalar form has no antennas
        batch = replace(batch, uplink=SignalUplink(batch.config.system.seed, tuple(keys)))
    plan, rounds = batch.plan, batch.config.system.rounds
    narrow = replace(batch, plan=replace(plan, dim=min(SYMBOLS, plan.dim)))
    direction = random_direction(stream(batch.config.system.seed, "canaries", 8), narrow.plan.dim)
    loud = sign * LOUD * plan.clip_norm * direction
    loudest = _heard_best(plan, rounds, batch.config.system.num_devices)
    scores, energy = np.zeros(len(keys)), np.zeros(len(keys))
    ledgers = [Ledger() for _ in keys]
    for t in range(rounds):
        reception, sent = plan.reception(t)
        here = plan.active_in(t) == loudest[:, None]
        slot = torch.from_numpy(here.argmax(axis=1))
        combiner, seen = _matched(reception, slot)
        there = here.any(axis=1)
        planted = {row: (int(slot[row]), loud) for row in np.flatnonzero(there).tolist()}
        given = given_updates(narrow, reception, planted)
        received = narrow.heard(replace(reception, combiner=combiner), given).double().cpu()
        scores += np.where(there, (received @ direction.double()).numpy(), 0.0)
        energy += np.where(there, seen, 0.0)
        events = book_round(batch.config, plan, t, reception.gains, sent, batch.task.max_local_steps)
        ledgers = [book.append(event) for book, event in zip(ledgers, events, strict=True)]
        if advance is not None:
            advance(len(keys))
    # Where the canary's device never takes part there is nothing to be heard.
    return Heard(scores / np.sqrt(np.where(energy > 0, 0.5 * energy, 1.0)), ledgers)


def _heard_best(plan: RadioPlan, rounds: int, num_devices: int) -> np.ndarray:
    """The device of each row that the antennas hear best over the run, [rows]."""
    total = np.zeros((plan.num_trials, num_devices + 1))
    rows = np.arange(plan.num_trials)[:, None]
    for t in range(rounds):
        _, sent = plan.reception(t)
        assert sent is not None
        active = plan.active_in(t)
        total[rows, np.where(active < 0, num_devices, active)] += sent.received_norms.square().numpy() * (active >= 0)
    best: np.ndarray = total[:, :num_devices].argmax(axis=1)
    return best


def _matched(reception: Reception, slot: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
    """w = C⁻¹p for one slot of each row, [rows, m], and pᴴC⁻¹p, [rows]."""
    assert reception.channels is not None
    assert reception.tx_scaling is not None
    paths = reception.channels * reception.tx_scaling.unsqueeze(-1)
    own = paths[torch.arange(len(paths)), slot]
    cover = reception.noise_power * torch.eye(paths.shape[2], dtype=paths.dtype).expand(len(paths), -1, -1)
    if reception.artificial is not None:
        cover = cover + reception.artificial[:, None, None] * torch.einsum("rki,rkj->rij", paths, paths.conj())
    # In units of σ², lest tiny numbers lose digits.
    filtered = torch.linalg.solve(cover / reception.noise_power, own) / reception.noise_power
    return filtered, (own.conj() * filtered).sum(dim=1).real.numpy()
