"""Defects, planted from outside: each wraps the uplink, the clip or the plan of repetitions that are opened.

No flag of the code under audit knows of them. They run on a task of their own that needs no file: ten classes in eight
dimensions, softmax regression with ten biases, six devices, five rounds, ε = 4. Those of what devices hide in run on a
shielded one, with three antennas and two rounds: the sum does not show them. That of interference has some.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np
import torch

from airfl.air import Receiver, Setting, SignalUplink, Uplink
from airfl.analysis.audit.worlds import Noiseless, repeated
from airfl.config import Config, from_mapping
from airfl.devices import Samples, UpdateBlock
from airfl.randomness import Purpose
from airfl.rounds import Schedule
from airfl.schemes import Encoded, Encoder, Public
from airfl.simulate import Simulation

#: What a defect makes of the noise, given the noise [trials, d], the setting and the number of rounds.
NoiseDefect = Callable[[torch.Tensor, Setting, int], torch.Tensor]
#: Plants a defect in repetitions of a run.
Planting = Callable[[Simulation], Simulation]
#: What a round's cover is made of in place of its own setting.
Resetting = Callable[[Setting], Setting]
CoverName = Literal["masks", "quadrature"]
#: The scheme of runs that have a cover.
SHIELDED = "airfl-shielded"
#: Symbols of its signals whose noise is drawn at a time.
BLOCK = 128
#: What others send in a run with interference: ten times the noise of the receiver.
INTERFERENCE_DBM = -90.0
#: Purpose of the noise that devices add themselves.
OWN: Purpose = "device-noise"


@dataclass(frozen=True)
class Defect:
    """A planted bug.

    Attributes:
        sampled: it is one of sampling, so its run claims credit for it.
        cover: it is one of this cover, so its run has it.
        disturbed: it is one of interference, so its run has some.
    """

    name: str
    plant: Planting
    sampled: bool = False
    cover: CoverName | None = None
    disturbed: bool = False

    def open(self, single: Simulation, samples: Samples, keys: Sequence[int]) -> Simulation:
        """See ``worlds.Opener``."""
        return self.plant(repeated(single, samples, keys))


def little_data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Ten clouds in eight dimensions: 120 samples to train on, 20 to test on."""
    generator = np.random.Generator(np.random.Philox(key=11))
    centres, labels = generator.standard_normal((10, 8)), np.arange(140) % 10
    inputs = (centres[labels] + 0.3 * generator.standard_normal((140, 8))).astype(np.float32)
    return inputs[:120], labels[:120], inputs[120:], labels[120:]


def little_config(seed: int, sampled: bool, cover: CoverName | None = None, *, disturbed: bool = False) -> Config:
    """The run that defects are planted in.

    Args:
        cover: what devices hide in, for a run that is shielded.
        disturbed: whether others send too.
    """
    system = {"seed": seed, "num_devices": 6, "num_antennas": 8, "rounds": 5}
    config = from_mapping(
        {
            "name": "self-test",
            "system": {**system, **({"participation": 0.5, "sampling": "poisson"} if sampled else {})},
            "learning": {
                "dataset": f"{__name__}:little_data",
                "num_classes": 10,
                "model": "softmax",
                "local_steps": 1,
                "batch_size": 4,
                "learning_rate": 0.1,
                "clip_norm": 1.0,
            },
            "channel": {"power_w": 1.0, **({"interference_dbm": INTERFERENCE_DBM} if disturbed else {})},
            "privacy": {"epsilon": 4.0, "accountant": "sampled" if sampled else "gaussian"},
            "scheme": {"names": ["airfl-dp"], "combiner": "zero-forcing", "combiner_columns": "all"},
            "engine": {"device": "cpu"},
        }
    )
    if cover is None:
        return config
    shielded = {"scheme.names": [SHIELDED], "scheme.cover": cover, "scheme.mask_degree": 4, "scheme.combiner": "auto"}
    return config.replace({"system.num_antennas": 3, "system.rounds": 2, **shielded})


@dataclass(frozen=True)
class _Altered(Uplink):
    """Another uplink's noise, changed."""

    uplink: Uplink
    change: NoiseDefect
    rounds: int

    def open(self, dim: int, setting: Setting) -> Receiver:
        return _AlteredReceiver(self, dim, setting)


class _AlteredReceiver:
    def __init__(self, uplink: _Altered, dim: int, setting: Setting) -> None:
        self._uplink, self._setting = uplink, setting
        self._silent = Noiseless(uplink.uplink).open(dim, setting)
        self._noisy = uplink.uplink.open(dim, setting)

    def add(self, block: UpdateBlock) -> None:
        self._silent.add(block)
        self._noisy.add(block)

    def finish(self) -> torch.Tensor:
        silent = self._silent.finish()
        noise = self._noisy.finish() - silent
        return silent + self._uplink.change(noise, self._setting, self._uplink.rounds)


@dataclass(frozen=True)
class _Resettled(Uplink):
    """An uplink that is given another setting than the one it is asked for."""

    uplink: Uplink
    change: Callable[[Setting], Setting]

    def open(self, dim: int, setting: Setting) -> Receiver:
        return self.uplink.open(dim, self.change(setting))


def _own(setting: Setting) -> Setting:
    return setting


@dataclass(frozen=True)
class _Covering(SignalUplink):
    """The uplink antenna by antenna with the cover of another setting, or other masks."""

    whole: Resetting = _own
    noise: Resetting = _own
    masks: Resetting = _own
    change: Callable[[torch.Tensor], torch.Tensor] = torch.clone

    def _cover(self, row: int, start: int, symbols: torch.Tensor, setting: Setting) -> None:
        super()._cover(row, start, symbols, self.whole(setting))

    def _unit_noise(self, purpose: Purpose, row: int, start: int, shape: torch.Size, setting: Setting) -> torch.Tensor:
        return super()._unit_noise(purpose, row, start, shape, self.noise(setting) if purpose == OWN else setting)

    def _masks(
        self, row: int, first: int, start: int, shape: tuple[int, int], setting: Setting, coordinate: int = 0
    ) -> torch.Tensor:
        return self.change(super()._masks(row, first, start, shape, self.masks(setting), coordinate))


@dataclass(frozen=True)
class _Crediting(Schedule):
    """A plan that books what others send as noise that hides."""

    def setting(self, round_index: int) -> Setting:
        honest = super().setting(round_index)
        squared = honest.combiner.abs().square().sum(dim=1)
        return replace(honest, unknown_var=honest.unknown_var + squared * (honest.interference_power / 2.0))


@dataclass(frozen=True)
class _Twice(Uplink):
    """An uplink that takes one device's updates twice."""

    uplink: Uplink
    active: np.ndarray
    device: int

    def open(self, dim: int, setting: Setting) -> Receiver:
        return _TwiceReceiver(self, self.uplink.open(dim, setting), setting.round_index)


class _TwiceReceiver:
    def __init__(self, uplink: _Twice, inner: Receiver, round_index: int) -> None:
        self._inner = inner
        self._mine = torch.from_numpy(uplink.active[:, round_index] == uplink.device)

    def add(self, block: UpdateBlock) -> None:
        self._inner.add(block)
        others = ~self._mine[block.trial, block.slot]
        if not bool(others.all()):
            self._inner.add(block.without(others))

    def finish(self) -> torch.Tensor:
        return self._inner.finish()


@dataclass(frozen=True)
class _LooseClip(Encoder):
    """An encoder that clips at a multiple of the norm that is booked."""

    honest: Encoder
    factor: float

    @property
    def remembers(self) -> bool:  # type: ignore[override]
        return self.honest.remembers

    def length(self, clip_norm: float) -> float:
        return self.honest.length(clip_norm)

    def encode(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None) -> Encoded:
        return self.honest.encode(block, self.factor * clip_norm, memory)

    def encode_in(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None, public: Public) -> Encoded:
        return self.honest.encode_in(block, self.factor * clip_norm, memory, public)


class _Loud(_LooseClip):
    """An encoder that sends a multiple of what it should, whatever bounds that: what is booked is too short."""

    def encode_in(self, block: UpdateBlock, clip_norm: float, memory: torch.Tensor | None, public: Public) -> Encoded:
        encoded = self.honest.encode_in(block, clip_norm, memory, public)
        return replace(encoded, block=encoded.block.with_updates(self.factor * encoded.block.updates))


def loud(factor: float) -> Planting:
    """Devices that send so many times what is booked, for schemes of any kind."""
    return lambda s: replace(s, scheme=replace(s.scheme, encoder=_Loud(s.scheme.encoder, factor)))


def _clipping(factor: float) -> Planting:
    return lambda s: replace(s, scheme=replace(s.scheme, encoder=_LooseClip(s.scheme.encoder, factor)))


def _noise(change: NoiseDefect) -> Planting:
    return lambda s: replace(s, uplink=_Altered(s.uplink, change, s.config.system.rounds))


def _setting(change: Callable[[Setting], Setting]) -> Planting:
    return lambda s: replace(s, uplink=_Resettled(s.uplink, change))


def _covering(
    whole: Resetting = _own,
    noise: Resetting = _own,
    masks: Resetting = _own,
    change: Callable[[torch.Tensor], torch.Tensor] = torch.clone,
) -> Planting:
    def plant(simulation: Simulation) -> Simulation:
        keys = simulation.uplink.trials  # type: ignore[attr-defined]
        made = _Covering(simulation.config.system.seed, keys, BLOCK, BLOCK, whole, noise, masks, change)
        return replace(simulation, uplink=made)

    return plant


def _first_round(setting: Setting) -> Setting:
    return replace(setting, round_index=0)


def _half_cover(setting: Setting) -> Setting:
    cover = setting.cover
    return replace(setting, cover=replace(cover, quadrature=0.5 * cover.quadrature, masks=0.5 * cover.masks))


def _edge_missing(setting: Setting) -> Setting:
    return replace(setting, edges=tuple(edges[:-1] for edges in setting.edges))


def _first_twice(masks: torch.Tensor) -> torch.Tensor:
    return torch.cat([masks[:1], masks[:1], masks[2:]])


def _sent_twice(device: int) -> Planting:
    return lambda s: replace(s, uplink=_Twice(s.uplink, s.schedule.active, device))


def _one_noise_for_all(simulation: Simulation) -> Simulation:
    uplink = replace(simulation.uplink, trials=(0,) * len(simulation.task.trials))  # type: ignore[type-var]
    return replace(simulation, uplink=uplink)


def _crediting(simulation: Simulation) -> Simulation:
    plan = simulation.schedule
    return replace(simulation, schedule=_Crediting(**{item.name: getattr(plan, item.name) for item in fields(plan)}))


def _always_in(simulation: Simulation) -> Simulation:
    """Device 0 takes part in every round, whatever was drawn."""
    active = simulation.schedule.active
    missing = ~(active == 0).any(axis=2, keepdims=True)
    widened = np.concatenate([np.where(missing, 0, -1), active], axis=2)
    # −1 comes last, as where it was drawn.
    ordered = np.sort(np.where(widened < 0, np.iinfo(np.int64).max, widened), axis=2)
    active = np.where(ordered > active.max(), -1, ordered)
    return replace(simulation, schedule=replace(simulation.schedule, active=active))


def _negated(uplink: Uplink) -> Uplink:
    """Every second round has the noise of the round before, negated."""
    before = _Resettled(uplink, lambda r: replace(r, round_index=r.round_index - r.round_index % 2))
    return _Altered(before, lambda noise, r, _: -noise if r.round_index % 2 else noise, 0)


def _rank_one(noise: torch.Tensor, *_: object) -> torch.Tensor:
    signs: torch.Tensor = 1.0 - 2.0 * (torch.arange(noise.shape[1], device=noise.device) * 7 % 5 % 2)
    return noise[:, :1] * signs


def _halves(noise: torch.Tensor, *_: object) -> torch.Tensor:
    half = noise.shape[1] // 2
    return torch.cat([noise[:, :half], noise[:, :half], noise[:, 2 * half :]], dim=1)


def _uniform(noise: torch.Tensor, setting: Setting, _: int) -> torch.Tensor:
    std = setting.noise_var.sqrt().unsqueeze(1).to(noise.device)
    shares = torch.special.ndtr(noise.double() / std)
    changed: torch.Tensor = 3.0**0.5 * std * (2.0 * shares - 1.0)
    return changed.float()


def _without(part: slice) -> NoiseDefect:
    def change(noise: torch.Tensor, *_: object) -> torch.Tensor:
        changed = noise.clone()
        changed[:, part] = 0.0
        return changed

    return change


DEFECTS: tuple[Defect, ...] = (
    Defect("noise std halved", _noise(lambda noise, *_: noise / 2.0)),
    Defect("noise variance halved", _noise(lambda noise, *_: noise / 2.0**0.5)),
    Defect("clip × 2", _clipping(2.0)),
    Defect("gains × 1.5", _setting(lambda r: replace(r, gains=1.5 * r.gains))),
    Defect("device 0 sent twice", _sent_twice(0)),
    Defect("clip × 1.1", _clipping(1.1)),
    Defect("first round noiseless", _noise(lambda noise, r, _: 0.0 * noise if r.round_index == 0 else noise)),
    Defect("noise negated between rounds", lambda s: replace(s, uplink=_negated(s.uplink))),
    Defect("the same noise in every repetition", _one_noise_for_all),
    Defect("a device always in while sampling credit is claimed", _always_in, sampled=True),
    Defect("noise of rank one", _noise(_rank_one)),
    Defect("the same noise in every round", _setting(lambda r: replace(r, round_index=0))),
    Defect("noise repeated in both halves of the coordinates", _noise(_halves)),
    Defect("no noise on the ten biases", _noise(_without(slice(-10, None)))),
    Defect("device 3 sent twice", _sent_twice(3)),
    Defect("last round noiseless", _noise(lambda noise, r, T: 0.0 * noise if r.round_index == T - 1 else noise)),
    Defect("uniform instead of Gaussian noise", _noise(_uniform)),
    Defect("the same masks in every round", _covering(masks=_first_round), cover="masks"),
    Defect("a mask missing", _covering(whole=_edge_missing), cover="masks"),
    Defect("masks of half the variance", _covering(whole=_half_cover), cover="masks"),
    Defect("the same mask for two pairs", _covering(change=_first_twice), cover="masks"),
    Defect("the same noise in quadrature in every round", _covering(noise=_first_round), cover="quadrature"),
    Defect("noise in quadrature of half the variance", _covering(whole=_half_cover), cover="quadrature"),
    Defect("interference credited as privacy", _crediting, disturbed=True),
)
