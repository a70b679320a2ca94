"""A run repeated many times, with what some devices send replaced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from airfl.air import EquivalentUplink, Receiver, Setting, SignalUplink, Uplink
from airfl.devices import Samples, UpdateBlock, open_task
from airfl.rounds import Schedule, State, arrange
from airfl.schemes import DesigningPolicy
from airfl.simulate import Simulation
from airfl.transceiver import open_radio

#: How many times the clip norm a canary's update is long: clipping is under audit too.
LOUD = 1000.0
#: Model entries that the repetitions of one batch may hold, and repetitions at most.
BATCH_ENTRIES, BATCH_ROWS = 30_000_000, 4000
#: Numbers of given updates that are held at a time.
BLOCK_ENTRIES = 2_000_000

Advance = Callable[[int], None]
#: Opens repetitions of a trial, one per key.
Opener = Callable[[Simulation, Samples, Sequence[int]], Simulation]
#: Given a block, the device number of each of its updates, and the round: the block with canaries in it.
Plant = Callable[[UpdateBlock, torch.Tensor, int], UpdateBlock]
#: Sees the states before and after a round.
Witness = Callable[[State, State], None]


def repeated(single: Simulation, samples: Samples, keys: Sequence[int]) -> Simulation:
    """A trial once per key, with the same devices, data and channels, and participation and noise keyed anew.

    What devices hide in is found for those who take part, and no credit is claimed for who does: there all repetitions
    share one draw of them.
    """
    config, schedule, rows = single.config, single.schedule, (0,) * len(keys)
    if one_draw(single):
        schedule = schedule.repeated(len(keys))
    else:
        radio = open_radio(config, rows)
        link = replace(radio.link, participation_keys=tuple(keys))
        exact = config.channel.estimation_error == 0.0  # else gain bounds are those of who takes part
        own = isinstance(single.scheme.policy, DesigningPolicy)  # transmit scalars are those of who takes part
        if config.scheme.combiner_columns == "all" and exact and not own:  # the design does not depend on who does
            schedule = schedule.repeated(len(keys), link)
        else:
            steps = single.task.max_local_steps(0)
            local_steps = None if steps is None else [steps] * len(keys)
            schedule = arrange(config, single.scheme, replace(radio, link=link), schedule.dim, local_steps)
    kind = SignalUplink if isinstance(single.uplink, SignalUplink) else EquivalentUplink
    task = open_task(config, rows, samples)
    return replace(
        single, task=task, schedule=schedule, uplink=kind(config.system.seed, tuple(keys)), start=task.initial_models()
    )


def with_ideal_converters(opener: Opener) -> Opener:
    """The same repetitions with numbers as antennas hear them.

    The error of converters is independent of what is sent, but two signals meet two errors: whoever takes differences
    of what is received has to leave it out.
    """

    def opened(single: Simulation, samples: Samples, keys: Sequence[int]) -> Simulation:
        batch = opener(single, samples, keys)
        link = batch.schedule.link
        if link.config.channel.adc_bits is None:
            return batch
        ideal = replace(link, config=link.config.replace({"channel.adc_bits": None}))
        return replace(batch, schedule=replace(batch.schedule, link=ideal))

    return opened


def one_draw(single: Simulation) -> bool:
    """Whether all repetitions of a trial have the same devices in every round."""
    everyone = single.config.system.everyone and single.scheme.policy.sampling(single.config) is None
    return everyone or single.scheme.encoder.cover != "nothing"


def took_part(schedule: Schedule) -> np.ndarray:
    """Who was drawn to take part, [R, T, K]: the law that a ledger states is about these.

    Who drops out, or is left out by its channel, comes later.
    """
    own = isinstance(schedule.scheme.policy, DesigningPolicy)
    return schedule.planned if own or schedule.link.config.system.dropout > 0.0 else schedule.active


def loudest(single: Simulation) -> int | None:
    """The device that is heard best over all rounds of the first trial; None where all are heard alike."""
    schedule = single.schedule
    if schedule.scaling is None:
        return None
    told = np.zeros(single.config.system.num_devices)
    for t in range(single.config.system.rounds):
        setting = schedule.setting(t)
        heard = schedule.public(setting).gains[0].real.abs().amax(dim=-1).square() / setting.unknown_var[0]
        there = setting.active[0] >= 0
        told[setting.active[0][there]] += heard.numpy()[there]
    return int(told.argmax())


def play(simulation: Simulation, plant: Plant, advance: Advance | None, witness: Witness | None = None) -> State:
    """Run all rounds with canaries planted."""
    state = simulation.init()
    for _ in range(simulation.config.system.rounds):
        before, state = state, play_round(simulation, state, plant)
        if witness is not None:
            witness(before, state)
        if advance is not None:
            advance(len(state.models))
    return state


def play_round(simulation: Simulation, state: State, plant: Plant) -> State:
    """Run one round with canaries planted."""
    active, t = torch.from_numpy(simulation.schedule.active_in(state.round)), state.round

    def intervene(block: UpdateBlock) -> UpdateBlock:
        return plant(block, active[block.trial.cpu(), block.slot.cpu()], t)

    return simulation.advance(state, intervene).after


def planting(sent: Mapping[int, torch.Tensor]) -> Plant:
    """What each of some devices sends in place of its update, in every repetition and round."""

    def plant(block: UpdateBlock, devices: torch.Tensor, _: int) -> UpdateBlock:
        for number, vector in sent.items():
            where, own = (part.to(block.trained.device) for part in (devices == number, vector))
            if bool(where.any()):
                block = block.planted(where, own)
        return block

    return plant


def given_updates(
    simulation: Simulation, setting: Setting, loud: Mapping[int, tuple[int, torch.Tensor]]
) -> Iterable[UpdateBlock]:
    """Zeros from every device, but for what some rows' slots send: row -> (slot, update [d]).

    Where antennas are simulated every device has to send; else zeros of one device stand for those of all.
    """
    (rows, width), dim = setting.gains.shape, simulation.schedule.dim
    if not isinstance(simulation.uplink, SignalUplink) and simulation.config.scheme.uplink != "signal":
        width = 1
    size, device = max(1, BLOCK_ENTRIES // (width * dim)), simulation.task.inputs.device
    for first in range(0, rows, size):
        count = min(size, rows - first)
        trained = torch.zeros(count, width, dim)
        slot = torch.arange(width).repeat(count, 1)
        for row in range(first, first + count):
            if row in loud:
                place, update = loud[row]
                if width == 1:
                    slot[row - first, 0] = place
                trained[row - first, 0 if width == 1 else place] = update
        trial = torch.arange(first, first + count).repeat_interleave(width)
        parts = (trial, slot.flatten(), trained.flatten(0, 1), torch.zeros(count * width))
        yield UpdateBlock(*(part.to(device) for part in parts))


@dataclass(frozen=True)
class Noiseless(Uplink):
    """The uplink without any noise."""

    uplink: Uplink

    def open(self, dim: int, setting: Setting) -> Receiver:
        """See ``Uplink.open``."""
        return self.uplink.open(dim, setting.silenced())


@dataclass(frozen=True)
class Undisturbed(Uplink):
    """The uplink without interference."""

    uplink: Uplink

    def open(self, dim: int, setting: Setting) -> Receiver:
        """See ``Uplink.open``."""
        return self.uplink.open(dim, setting.undisturbed())


def undisturbed(simulation: Simulation) -> Simulation:
    """A run as its attacker meets it: whoever knows what others send takes it off, so none of it hides anybody.

    An estimate of the gradients' noise takes off all noise that was planned; there interference stays.
    """
    config = simulation.config
    if simulation.schedule.link.interference_power == 0.0 or config.privacy.estimate_gradient_noise:
        return simulation
    return replace(simulation, uplink=Undisturbed(simulation.uplink))


def random_direction(generator: np.random.Generator, dim: int) -> torch.Tensor:
    """A random direction of length 1."""
    draw = generator.standard_normal(dim)
    return torch.from_numpy(draw / np.linalg.norm(draw)).float()


def some_of(generator: np.random.Generator, number: int, most: int) -> list[int]:
    """All of the first numbers, or the first, the last and a draw of the others."""
    if number <= most:
        return list(range(number))
    middle = generator.choice(np.arange(1, number - 1), most - 2, replace=False)
    return sorted({0, number - 1, *middle.tolist()})
