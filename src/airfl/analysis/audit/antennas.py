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

from airfl.air import Setting, SignalUplink
from airfl.analysis.audit.worlds import LOUD, Advance, Opener, given_updates, random_direction
from airfl.devices import Samples
from airfl.privacy import Ledger
from airfl.randomness import stream
from airfl.rounds import Schedule, book
from airfl.simulate import Simulation
from airfl.transceiver import base_station_sight

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
    plan, rounds = batch.schedule, batch.config.system.rounds
    narrow = replace(batch, schedule=replace(plan, dim=min(SYMBOLS, plan.dim)))
    direction = random_direction(stream(batch.config.system.seed, "canaries", 8), narrow.schedule.dim)
    loud = sign * LOUD * plan.clip_norm * direction
    loudest = _heard_best(plan, rounds, batch.config.system.num_devices)
    scores, energy = np.zeros(len(keys)), np.zeros(len(keys))
    ledgers = [Ledger() for _ in keys]
    for t in range(rounds):
        setting = plan.setting(t)
        here = plan.active_in(t) == loudest[:, None]
        slot = torch.from_numpy(here.argmax(axis=1))
        combiner, seen = _matched(setting, slot)
        there = here.any(axis=1)
        planted = {row: (int(slot[row]), loud) for row in np.flatnonzero(there).tolist()}
        given = given_updates(narrow, setting, planted)
        received = narrow.heard(replace(setting, combiner=combiner), given).double().cpu()
        scores += np.where(there, (received @ direction.double()).numpy(), 0.0)
        energy += np.where(there, seen, 0.0)
        booked = book(plan, setting, batch.task.max_local_steps)
        ledgers = [entry.on(ledger) for ledger, entry in zip(ledgers, booked, strict=True)]
        if advance is not None:
            advance(len(keys))
    # Where the canary's device never takes part there is nothing to be heard.
    return Heard(scores / np.sqrt(np.where(energy > 0, 0.5 * energy, 1.0)), ledgers)


def _heard_best(plan: Schedule, rounds: int, num_devices: int) -> np.ndarray:
    """The device of each row that the antennas hear best over the run, [rows]."""
    total = np.zeros((plan.num_trials, num_devices + 1))
    rows = np.arange(plan.num_trials)[:, None]
    for t in range(rounds):
        setting = plan.setting(t)
        where = np.where(setting.active < 0, num_devices, setting.active)
        total[rows, where] += setting.seen["base-station"].square().numpy() * (setting.active >= 0)
    best: np.ndarray = total[:, :num_devices].argmax(axis=1)
    return best


def _matched(setting: Setting, slot: torch.Tensor) -> tuple[torch.Tensor, np.ndarray]:
    """w̃ = Σ⁻¹p̃ for one slot of each row, as complex numbers [rows, m], and p̃ᵀΣ⁻¹p̃, [rows]."""
    filters, energy = [], []
    for row in range(len(setting.gains)):
        here = setting.heard[row]
        paths = setting.channels[row][here] * setting.tx_scaling[row][here].unsqueeze(-1)
        sight = base_station_sight(paths, setting.noise_power, setting.edges[row], np.ones(len(paths), dtype=bool))
        place = int(here[: slot[row] + 1].sum()) - 1
        covered = sight.covariance(torch.tensor(1.0, dtype=torch.float64), setting.cover[row])
        own = sight.signal[:, place]
        # In units of the noise, lest tiny numbers lose digits.
        scale = 0.5 * setting.noise_power
        solved = torch.linalg.solve(covered / scale, own) / scale
        filters.append(torch.complex(*solved.chunk(2)))
        energy.append(float(own @ solved))
    return torch.stack(filters), np.array(energy)
