"""What a single device can contribute: sent alone, through the run's own clip and uplink, and in a trained round.

Noise is keyed: what is sent can change, and the difference of two settings with the same keys is what was sent, to
the last bits. So no statistics are needed, and a clip that is one percent too loose shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from airfl.air import Setting
from airfl.analysis.audit.worlds import LOUD, Opener, Plant, given_updates, play_round, random_direction
from airfl.devices import Samples, UpdateBlock
from airfl.privacy import RoundEvent
from airfl.privacy.checks import Check, certain
from airfl.randomness import stream
from airfl.rounds import book, update_factor
from airfl.schemes import Mean
from airfl.simulate import Simulation

#: Entries of updates that are sent alone to see what they contribute, and replicas of the round that is trained.
SENT_ENTRIES, TRAINED_REPLICAS = 2**30, 4096
#: Half an ulp of float32, relative.
ROUNDING = 2.0**-24
#: What is left of the noise where interference is taken off, over all of it: some ulps of float64.
ROUNDED = 1e-14


def check_contributions(
    single: Simulation, samples: Samples, first_key: int, opener: Opener, looked: Sequence[int]
) -> tuple[list[Check], list[str], list[str]]:
    """How far each device alone can move what is received, and the model: G·c at most, as booked.

    Returns:
        The checks, what was tested, and what was not.
    """
    if not math.isfinite(single.scheme.encoder.length(1.0)):
        return [], [], ["what a device can contribute: the scheme does not clip, and no bound is booked"]
    system, dim = single.config.system, single.schedule.dim
    generator = stream(system.seed, "canaries", 7)
    most = max(8, SENT_ENTRIES // (dim * len(looked)))
    wanted = generator.permutation(system.num_devices)[:most].tolist()
    # Where devices are drawn, each has to find a row in which it is there; in one row more nobody sends.
    spare = 1 if system.everyone else 4
    batch = opener(single, samples, range(first_key, first_key + min(most, spare * len(wanted)) + 1))
    sent = _send_each(batch, wanted, looked, generator)
    heard, looks = len(sent.heard), len(sent.heard) * len(looked)
    checks = [
        certain("what is booked", "noise, gain or clip norm of the ledger are not those of the radio", sent.booked),
        certain("noise does not depend on what is sent", "the same keys gave other noise", sent.same, looks),
        certain(
            "contribution of each device",
            f"{sent.where} moved the sum by {sent.worst:.4g} of what is booked",
            sent.worst <= 1.0,
            looks,
        ),
    ]
    left_out = []
    if single.schedule.detects == "sum":
        trained, ratio, who = _in_training(single, samples, first_key, opener, generator)
        found = f"device {who} moved the model by {ratio:.4g} of what is booked"
        checks.append(certain("contribution in training", found, ratio <= 1.0, trained))
    else:
        left_out.append("what a device contributes in training: energies of several devices do not add up")
    tested = [f"what {heard} of {system.num_devices} devices contribute, each alone, in {len(looked)} rounds"]
    if heard < system.num_devices:
        left_out.append(f"what {system.num_devices - heard} of the {system.num_devices} devices contribute")
    return checks, tested, left_out


@dataclass(frozen=True)
class _Sent:
    """What came of devices that sent alone: the largest contribution over what is booked, and whose."""

    worst: float
    where: str
    same: bool
    booked: bool
    heard: frozenset[int]


def _send_each(
    batch: Simulation, wanted: Sequence[int], looked: Sequence[int], generator: np.random.Generator
) -> _Sent:
    worst, where, same, booked, heard = 0.0, "nobody", True, True, set()
    for t in looked:
        events = _book(batch, t)
        booked = booked and _booked(batch, t, events)
        for device, ratio in _alone(batch, t, wanted, events, generator):
            if device < 0:
                same = same and ratio <= 1.0
                continue
            heard.add(device)
            if ratio > worst:
                worst, where = ratio, f"device {device} in round {t + 1}"
    return _Sent(worst, where, same, booked, frozenset(heard))


def _book(batch: Simulation, t: int) -> list[RoundEvent]:
    setting = batch.schedule.setting(t)
    return [entry.event for entry in book(batch.schedule, setting, batch.task.max_local_steps)]


def _booked(batch: Simulation, t: int, events: Sequence[RoundEvent]) -> bool:
    """Whether the ledger claims no more noise than the radio has without interference, and no smaller gains."""
    setting = batch.schedule.setting(t)
    clip_norm = batch.schedule.clip_norm
    slack, link = 1.0 + 1e-8, batch.schedule.link
    if setting.over_air and not (
        setting.noise_power <= link.budget.noise_w * slack and setting.interference_power == link.interference_power
    ):
        return False
    unknown = _unknown(batch, setting) * slack + ROUNDED * setting.noise_var
    loudest = setting.loudest.tolist()
    return all(
        event.noise_var <= most
        and gain <= event.gain_bound * slack
        and event.clip_norm >= batch.scheme.encoder.length(clip_norm)
        for event, most, gain in zip(events, unknown.tolist(), loudest, strict=True)
    )


def _unknown(batch: Simulation, setting: Setting) -> torch.Tensor:
    """What of the planned noise may be booked at most, [trials], by another way than the schedule's.

    Neither interference nor own noise of whoever looks or colludes, nor, unless it is credited, what leaks: any of it
    would leave room for more of another.
    """
    link, planned, own = batch.schedule.link, setting.undisturbed().noise_var, setting.cover.own
    squares = setting.gains.real.square() * setting.cover.weights(setting.active)
    honest = torch.from_numpy(link.honest(setting.active))
    everyone, mine = squares.sum(dim=1), squares * honest
    kept = mine.sum(dim=1) - mine.amax(dim=1) * (honest.sum(dim=1) > 1)
    if setting.blocks is not None:  # a neighbour may be in the quietest block alone
        share = setting.noise_power / (setting.noise_power + setting.interference_power)
        receiver = setting.blocks.noise_var - (own * everyone).unsqueeze(1)
        return (receiver / setting.blocks.ratios.square()).amin(dim=1) * share + own * kept
    if link.config.privacy.credit_leak:
        return planned - own * (everyone - kept)
    receiver = setting.combiner.abs().square().sum(dim=1) * (setting.noise_power / 2.0)
    return torch.minimum(planned, receiver + own * kept)


def _alone(
    batch: Simulation, t: int, wanted: Sequence[int], events: Sequence[RoundEvent], generator: np.random.Generator
) -> Iterator[tuple[int, float]]:
    """(device, how far it moved the sum over what is booked); device −1 for rows in which all sent zeros."""
    plan = batch.schedule
    setting = plan.setting(t) if plan.detects == "sum" else plan.setting(t).silenced()
    active, waiting = plan.active_in(t), list(wanted)
    # Beside the noise that is booked of the round: what is said in a quieter block counts for more.
    ratios = 1.0 if setting.blocks is None else setting.blocks.ratios[:, setting.blocks.grid.block_of(plan.dim)]
    quiet = batch.heard(setting, given_updates(batch, setting, {})).double().cpu() / ratios
    while waiting:
        chosen = _rows_of(active, waiting)
        if not chosen:
            return
        loud = {
            row: (slot, LOUD * plan.clip_norm * _direction(generator, plan.dim)) for row, (slot, _) in chosen.items()
        }
        moved = batch.heard(setting, given_updates(batch, setting, loud)).double().cpu() / ratios
        lengths = (moved - quiet).norm(dim=1)
        if plan.detects != "sum":  # of energies that nothing else adds to
            lengths = (moved - quiet).abs().sum(dim=1).sqrt()
        rounding = ROUNDING * (moved.norm(dim=1) + quiet.norm(dim=1))
        for row, event in enumerate(events):
            allowed = event.clip_norm * event.gain_bound if row in chosen else 0.0
            length, slack = float(lengths[row]), float(rounding[row])
            yield chosen[row][1] if row in chosen else -1, length / (allowed + slack) if length else 0.0
        heard = {number for _, number in chosen.values()}
        waiting = [number for number in waiting if number not in heard]


def _rows_of(active: np.ndarray, devices: Sequence[int]) -> dict[int, tuple[int, int]]:
    """row -> (slot, device): a row of its own for as many of the devices as there are rows in which they take part."""
    found: dict[int, tuple[int, int]] = {}
    for number in devices:
        if len(found) == len(active):
            break
        rows, slots = np.nonzero(active == number)
        for row, slot in zip(rows.tolist(), slots.tolist(), strict=True):
            if row not in found:
                found[row] = (slot, number)
                break
    return found


def _direction(generator: np.random.Generator, dim: int) -> torch.Tensor:
    """A random direction, or a single coordinate."""
    if generator.random() < 0.5:
        return random_direction(generator, dim)
    sparse = torch.zeros(dim)
    sparse[int(generator.integers(dim))] = 1.0
    return sparse


def _in_training(
    single: Simulation, samples: Samples, first_key: int, opener: Opener, generator: np.random.Generator
) -> tuple[int, float, int]:
    """How many devices were looked at, and the largest of what one moved the model by over what is booked, and whose.

    One round is trained twice with the same keys: row i with a canary in place of device i's update, and with zeros.
    """
    system, plan, t = single.config.system, single.schedule, int(generator.integers(single.config.system.rounds))
    count = max(1, min(system.num_devices, TRAINED_REPLICAS // plan.active.shape[2]))
    batch = opener(single, samples, range(first_key, first_key + count))
    # What a decoder makes of the sum is post-processing; through the plain mean the model shows the sum itself.
    batch = replace(batch, scheme=replace(batch.scheme, decoder=Mean()))
    # Rows may share a device where not everyone takes part: any who is there will do.
    there = [row[row >= 0] for row in batch.schedule.active_in(t)]
    devices = [int(row[i % len(row)]) if len(row) else -1 for i, row in enumerate(there)]
    vector = LOUD * plan.clip_norm * random_direction(generator, plan.dim)
    state = replace(batch.init(), round=t)
    ends = [play_round(batch, state, _in_row(devices, sent)) for sent in (vector, 0.0 * vector)]
    after = [end.models.double().cpu() for end in ends]
    factor = update_factor(batch.config, batch.schedule, t)
    lengths = (after[0] - after[1]).norm(dim=1)
    slack = 4.0 * ROUNDING * (after[0].norm(dim=1) + after[1].norm(dim=1) + batch.start.double().cpu().norm(dim=1))
    worst, who = 0.0, -1
    for row, ledger in enumerate(ends[0].ledgers):
        event = ledger.events[-1]
        ratio = float(lengths[row] / (factor * event.clip_norm * event.gain_bound * (1.0 + 1e-6) + slack[row]))
        if ratio > worst:
            worst, who = ratio, devices[row]
    return len(set(devices) - {-1}), worst, who


def _in_row(devices: Sequence[int], vector: torch.Tensor) -> Plant:
    """One device of each row sends this vector."""
    wanted = torch.tensor(devices)

    def plant(block: UpdateBlock, numbers: torch.Tensor, _: int) -> UpdateBlock:
        where = (numbers == wanted[block.trial.cpu()]) & (numbers >= 0)
        where, own = where.to(block.trained.device), vector.to(block.trained.device)
        return block.planted(where, own) if bool(where.any()) else block

    return plant
