"""A share of the devices: what it is given of a round, and what it gives back.

Devices are cut into ``GROUPS`` groups by their numbers, however many machines there are, and each group is trained by
itself. Sums of groups are rounded to multiples of one public number u, so large that sums of all of them have no
rounding: then it does not matter who adds up what, and any number of shards gives the same bits. With n devices whose
contribution is at most C long u is below n·C·2⁻⁵¹, and a device can change a group's rounding by √d·u at most. Clipping
leaves room for that up to n√d = 2·10⁹, and what is booked of signs up to 2·10⁷; more is refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch

from airfl.air import EquivalentUplink, Setting, Summing, Uplink
from airfl.air.setting import NO_EDGES
from airfl.devices import Task
from airfl.engines import Engine
from airfl.errors import InputError
from airfl.parallel import torch_threads
from airfl.rounds import Lane, Member, Training, pass_on
from airfl.schemes.parts import FOR_SHARDS
from airfl.transceiver import Cover

#: Into how many groups devices are cut; at most so many shards have something to do.
GROUPS = 64
#: Of float64's 53: what is left is for sums of groups.
BITS = 52


def groups_of(num_devices: int) -> np.ndarray:
    """The first device of every group, and one beyond the last, [G + 1]."""
    count = min(GROUPS, num_devices)
    return np.arange(count + 1) * num_devices // count


@dataclass(frozen=True)
class Share:
    """Some groups of devices in one round, for all schemes that train together; may travel.

    Attributes:
        active: who of them takes part, [trials, k]; −1 where fewer do.
        bounds: the first device of each of its groups, and one beyond the last.
        quanta: u of every scheme; None where nothing bounds what devices send.
    """

    round_index: int
    active: np.ndarray
    bounds: tuple[int, ...]
    lanes: tuple[Lane, ...]
    models: torch.Tensor
    members: tuple[Member, ...]
    quanta: tuple[float | None, ...]


@dataclass(frozen=True)
class Done:
    """What came of a share, for one scheme.

    Attributes:
        sums: what its receiver has added up, or, where nothing bounds what devices send, that of each group.
        norms, losses, kept: see ``Watch``, [trials, k].
    """

    sums: list[list[torch.Tensor]]
    norms: torch.Tensor
    losses: torch.Tensor
    kept: torch.Tensor


def slots_of(active: np.ndarray, first: int, beyond: int) -> np.ndarray:
    """Places of the devices numbered first to beyond − 1 among those active [trials, K], [trials, k]; −1 fills up."""
    there = (active >= first) & (active < beyond)
    width = max(1, int(there.sum(axis=1).max()))
    order = np.argsort(~there, axis=1, kind="stable")[:, :width]
    found: np.ndarray = np.where(np.take_along_axis(there, order, axis=1), order, -1)
    return found


def taken(values: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Numbers of devices [trials, K] at these places [trials, k]; −1 where there is none."""
    found: np.ndarray = np.where(slots < 0, -1, np.take_along_axis(values, np.maximum(slots, 0), axis=1))
    return found


def part_of(member: Member, slots: np.ndarray, first: int) -> Member:
    """What the devices from number ``first`` on are given of a round: nothing about others, no channels, no memory."""
    places = torch.from_numpy(slots)
    setting = _setting_of(member.setting, slots, places)
    known = member.public
    public = replace(known, active=setting.active, gains=_rows(known.gains, places), counts=known.sending)
    return replace(member, setting=setting, public=public, memory=None, offset=first)


def _setting_of(setting: Setting, slots: np.ndarray, places: torch.Tensor) -> Setting:
    per_device = ("gains", "tx_scaling", "power_w")
    changes: dict[str, Any] = {name: _rows(getattr(setting, name), places) for name in per_device}
    blocks = setting.blocks
    if blocks is not None:
        parts = {item.name: getattr(blocks, item.name) for item in fields(blocks)}
        for name in ("spent", "power_limit", "gains"):
            parts[name] = None if parts[name] is None else _rows(parts[name], places)
        blocks = type(blocks)(**{**parts, "scene": _no_scene})
    return replace(
        setting,
        active=taken(setting.active, slots),
        channels=setting.channels[:, :1].clone(),  # a part of an array travels with all of it
        seen={},
        cover=Cover.of(trials=len(slots)),
        edges=(NO_EDGES,) * len(slots),
        blocks=blocks,
        **changes,
    )


def _no_scene(block: int) -> Setting:
    raise InputError("antennas are not simulated where devices are trained")


def _rows(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Of values [trials, K, ...] those at places [trials, k]; 0 where there is none."""
    index = places.clamp(min=0).view(*places.shape, *(1,) * (values.ndim - 2)).expand(*places.shape, *values.shape[2:])
    found = values.gather(1, index)
    return found.masked_fill((places < 0).view(*places.shape, *(1,) * (values.ndim - 2)), 0)


def quantum(member: Member, num_devices: int) -> float | None:
    """u of a scheme: a power of two that follows from public numbers; None where nothing bounds what devices send.

    Who was drawn may be nobody's business: all n devices count.
    """
    setting = member.setting
    length, gain = setting.clip_norm, float(torch.maximum(setting.gain_bound, setting.loudest).max())
    if not math.isfinite(length):
        return None
    # The sum of what is sent, or of energies.
    longest = length * (gain or 1.0) if setting.detects == "sum" else length**2
    unit = 2.0 ** (math.ceil(math.log2(num_devices * longest)) - BITS)
    if math.sqrt(member.dim) * unit > FOR_SHARDS * member.encoder.room * longest:
        raise InputError(
            f"with {num_devices:,} devices and {member.dim:,} parameters rounding would move what shards add up by "
            "more than the privacy ledger has room for; leave out --shards, or train fewer devices"
        )
    return unit


def require_sums(uplink: Uplink) -> None:
    """Refuse an uplink whose antennas hear all devices at once."""
    if not isinstance(uplink, EquivalentUplink):
        raise InputError('shards add up what devices send, which is scheme.uplink = "equivalent"; leave out --shards')


def cut(training: Training, shards: int) -> list[Share]:
    """The shares of a round; fewer than asked for where there are not so many groups."""
    if training.intervene is not None:
        raise InputError("updates are not replaced in shards; run it without")
    for member in training.members:
        require_sums(member.uplink)
    num_devices = training.task.config.system.num_devices
    bounds = groups_of(num_devices)
    count = len(bounds) - 1
    quanta = tuple(quantum(member, num_devices) for member in training.members)
    shares = []
    for number in range(min(shards, count)):
        groups = range(number * count // min(shards, count), (number + 1) * count // min(shards, count))
        first, beyond = int(bounds[groups[0]]), int(bounds[groups[-1] + 1])
        slots = slots_of(training.active, first, beyond)
        shares.append(
            Share(
                training.round_index,
                taken(training.active, slots),
                tuple(bounds[groups[0] : groups[-1] + 2].tolist()),
                tuple(training.lanes),
                training.models,
                tuple(part_of(member, slots, first) for member in training.members),
                quanta,
            )
        )
    return shares


def work(share: Share, memories: Sequence[torch.Tensor | None], engine: Engine, task: Task) -> list[Done]:
    """Train a share, group by group, and add up what its devices send; on one thread, whose bits are everybody's.

    Args:
        memories: of every scheme what the share's devices remember, [trials, n, d]; changed in place.
    """
    with torch_threads(1):
        return _work(share, memories, engine, task)


def _work(share: Share, memories: Sequence[torch.Tensor | None], engine: Engine, task: Task) -> list[Done]:
    training = Training(engine, task, share.round_index, share.active, share.lanes, share.models, share.members)
    batches = training.batches(share.active)
    done = [_nothing(member, share.active.shape) for member in share.members]
    rows = torch.tensor([row for lane in share.lanes for row in range(lane.first, lane.last)])
    for first, beyond in zip(share.bounds[:-1], share.bounds[1:], strict=True):
        slots = slots_of(share.active, first, beyond)
        if not (slots >= 0).any():
            continue
        places = torch.from_numpy(slots)
        group = slice(first - share.bounds[0], beyond - share.bounds[0])
        own = [None if memory is None else memory[:, group] for memory in memories]
        members = [
            replace(part_of(member, slots, first), memory=memory)
            for member, memory in zip(share.members, own, strict=True)
        ]
        index = places[rows].clamp(min=0)[..., None, None].expand(-1, -1, *batches.shape[2:]).to(batches.device)
        mine = batches.gather(1, index).masked_fill((places[rows] < 0)[..., None, None].to(batches.device), -1)
        sendings = [member.sending() for member in members]
        receivers = [member.uplink.open(member.dim, member.setting) for member in members]
        pass_on(training, mine, sendings, receivers)
        for number, (sending, receiver) in enumerate(zip(sendings, receivers, strict=True)):
            assert isinstance(receiver, Summing)
            _add(done[number], receiver.sums(), share.quanta[number])
            where = torch.nonzero(places >= 0, as_tuple=True)
            target = where[0], places[where]
            for name in ("norms", "losses", "kept"):
                getattr(done[number], name)[target] = getattr(sending.watch, name)[where]
            before = own[number]
            if before is not None and sending.memory is not None:
                before.copy_(sending.memory)
    return done


def _nothing(member: Member, shape: Sequence[int]) -> Done:
    zeros = torch.zeros(*shape, dtype=torch.float64)
    return Done([], zeros, zeros.clone(), zeros + 1.0)


def _add(done: Done, sums: list[torch.Tensor], unit: float | None) -> None:
    """Add a group's sums: exact, or side by side where nothing bounds them."""
    if unit is None:
        done.sums.append([one.cpu() for one in sums])
        return
    whole = [(one / unit).round() * unit for one in sums]
    if not done.sums:
        done.sums.append([one.cpu() for one in whole])
        return
    for total, one in zip(done.sums[0], whole, strict=True):
        total += one.cpu()
