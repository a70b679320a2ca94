"""The setting of one round: the uplink adds what is said here, and the ledger books what is said here."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import torch

from airfl.air.hardware import Hardware
from airfl.air.rotation import Rotation, chunk_means
from airfl.channel.blocks import Grid
from airfl.privacy import Observer
from airfl.schemes import Detection
from airfl.transceiver import Cover

#: Amplifiers and converters without limits.
IDEAL = Hardware()
#: Nobody shares a mask.
NO_EDGES = np.zeros((0, 2), dtype=np.int64)

#: Noise over all of v, below which too few digits of it are left in v: ulps of float64 are 2e-16.
FORGOTTEN = 1e-12


@dataclass(frozen=True)
class Blocks:
    """A round of several blocks of time and frequency.

    Attributes:
        grid: which coordinate is sent in which block.
        noise_var: of all noise in the sum of each block, per real coordinate, [trials, B].
        spent: |s_ib|², [trials, K, B]; 0 where nobody sends.
        power_limit: of a symbol on average over the round, what is left of P for the update of each device when its
            cover is paid, [trials, K].
        scene: one block as a round of its own, for an uplink that simulates antennas.
        ratios: of each block's gain bound to the round's, [trials, B]; at most one.
        gains: of each device in each block, [trials, K, B], complex128; None where they are those of the round.
        rotation: of what is sent in them; None: coordinates are sent as they are.
    """

    grid: Grid
    noise_var: torch.Tensor
    spent: torch.Tensor
    power_limit: torch.Tensor
    scene: Callable[[int], Setting]
    ratios: torch.Tensor
    gains: torch.Tensor | None = None
    rotation: Rotation | None = None

    def energies(self, updates: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """What updates [n, d] of these rows [n] spend in each block, [n, B], float64."""
        if self.rotation is not None:
            updates = self.rotation.forth(updates, rows)
        return self.grid.energies(updates)

    def repeated(self, copies: int) -> Blocks:
        """Every trial ``copies`` times."""
        return replace(
            self,
            noise_var=self.noise_var.repeat_interleave(copies, dim=0),
            spent=self.spent.repeat_interleave(copies, dim=0),
            power_limit=self.power_limit.repeat_interleave(copies, dim=0),
            scene=lambda block: self.scene(block).repeated(copies),
            ratios=self.ratios.repeat_interleave(copies, dim=0),
            gains=None if self.gains is None else self.gains.repeat_interleave(copies, dim=0),
            rotation=None if self.rotation is None else self.rotation.repeated(copies),
        )

    def undisturbed(self, share: float, own: torch.Tensor) -> Blocks:
        """The same without interference, which leaves so much of the noise but for what devices add, [trials]."""
        added = own.unsqueeze(1)
        left = (self.noise_var - added) * share + added
        return replace(self, noise_var=left, scene=lambda block: self.scene(block).undisturbed())

    def silenced(self) -> Blocks:
        """The same without any noise."""
        quiet = torch.zeros_like(self.noise_var)
        return replace(self, noise_var=quiet, scene=lambda block: self.scene(block).silenced())


@dataclass(frozen=True)
class Setting:
    """One round of a batch of trials. An ideal channel is values too: one antenna, gains of one, no noise.

    Attributes:
        round_index: t.
        active: who sends, [trials, K]; −1 where fewer do.
        clip_norm: how long what a device sends can be, before its own noise; infinite where nothing bounds it.
        gains: wᴴ h_i s_i, what device i's signal is multiplied with in the sum, [trials, K], complex128.
        gain_bound: G, no device is heard with a larger gain, [trials], float64.
        noise_var: v, the variance of all noise in the sum per real coordinate, [trials], float64.
        unknown_var: what of v nobody knows who only sees the models, and so what is booked, [trials].
        noise_power: σ², whole complex power per antenna; 0 over an ideal channel.
        interference_power: I, the same of what others send; in v, and not in what is booked.
        cover: variances of what devices hide in, [trials].
        edges: who shares masks with whom, places of devices, [E, 2] for each trial.
        channels: h_i, [trials, K, m], complex128.
        tx_scaling: s_i, [trials, K], complex128; 0 where nobody sends.
        combiner: w, [trials, m], complex128.
        seen: how visible each device is to observers of signals (``transceiver.sight``), [trials, K]; infinite where
            nothing hides it, 0 for one that is silent or hands over what it knows.
        power_w: mean transmit power of each device at full clip, [trials, K].
        hides_participation: whether v would have been the same whoever took part, [trials].
        per_symbol: coordinates that a symbol carries.
        blocks: what differs over the round; None where channels stand still. Then the above are of all blocks together:
            the noise is their mean, what is booked the least of them (over the squared ratio of gain bounds), and
            devices are seen as in the worst.
        block: the number of this block, where this is one of several.
        hardware: amplifiers and converters.
        estimate: of the spread of updates, as a variance of the sum, that the noise was chosen by, [trials]; None: it
            was not.
        power_limit: P, what a device's own update may cost; infinite where transmit scalars see to that.
        detects: what the base station makes of its antennas: the sum Re(wᴴy), or energy (``air.energy``).
    """

    round_index: int
    active: np.ndarray
    clip_norm: float
    gains: torch.Tensor
    gain_bound: torch.Tensor
    noise_var: torch.Tensor
    unknown_var: torch.Tensor
    noise_power: float
    interference_power: float
    cover: Cover
    edges: tuple[np.ndarray, ...]
    channels: torch.Tensor
    tx_scaling: torch.Tensor
    combiner: torch.Tensor
    seen: Mapping[Observer, torch.Tensor]
    power_w: torch.Tensor
    hides_participation: tuple[bool, ...]
    per_symbol: int = 1
    blocks: Blocks | None = None
    block: int | None = None
    hardware: Hardware = IDEAL
    estimate: torch.Tensor | None = None
    detects: Detection = "sum"
    power_limit: float = math.inf

    @staticmethod
    def ideal(round_index: int, active: np.ndarray, clip_norm: float) -> Setting:
        """A round that everyone is heard in as they are."""
        heard = torch.from_numpy(active >= 0)
        gains, trials = heard.to(torch.complex128), len(active)
        nothing = torch.zeros(trials, dtype=torch.float64)
        return Setting(
            round_index,
            active,
            clip_norm,
            gains,
            torch.ones_like(nothing),
            nothing,
            nothing,
            0.0,
            0.0,
            Cover.of(trials=trials),
            (NO_EDGES,) * trials,
            torch.ones(*active.shape, 1, dtype=torch.complex128),
            gains,
            torch.ones(trials, 1, dtype=torch.complex128),
            {},
            torch.zeros(active.shape, dtype=torch.float64),
            (False,) * trials,
        )

    @property
    def over_air(self) -> bool:
        """Whether there is a radio link, and so a receiver with noise."""
        return self.noise_power > 0.0

    @property
    def floor(self) -> torch.Tensor:
        """σ²q², what noise alone adds to a measured energy, [trials]."""
        return self.noise_power * self.combiner.abs().square().sum(dim=1)

    @property
    def heard(self) -> torch.Tensor:
        """Places where somebody sends, [trials, K], bool."""
        return torch.from_numpy(self.active >= 0)

    @property
    def loudest(self) -> torch.Tensor:
        """The largest gain, [trials]; of blocks beside the noise that is booked of the round.

        Of real symbols that is the real part's modulus: the imaginary part of the sum is thrown away.
        """
        if self.blocks is None or self.blocks.gains is None:
            return self._heard_as(self.gains).amax(dim=1)
        return (self._heard_as(self.blocks.gains).amax(dim=1) / self.blocks.ratios).amax(dim=1)

    def _heard_as(self, gains: torch.Tensor) -> torch.Tensor:
        return gains.real.abs() if self.per_symbol == 1 and self.detects == "sum" else gains.abs()

    def undisturbed(self) -> Setting:
        """The same without interference: for whoever knows it, or hears the devices where it is not.

        v − ‖w‖²I/2; beside an interference so loud that v forgets the noise, not less than ‖w‖²σ²/2.
        """
        if self.blocks is not None:
            share = self.noise_power / (self.noise_power + self.interference_power)
            own = self.cover.own * self.heard.sum(dim=1)
            noise = (self.noise_var - own) * share + own
            return replace(self, noise_var=noise, interference_power=0.0, blocks=self.blocks.undisturbed(share, own))
        squared = self.combiner.abs().square().sum(dim=1)
        left = (self.noise_var - squared * (self.interference_power / 2.0)).clamp(min=0.0)
        least = squared * (self.noise_power / 2.0)
        forgotten = least < FORGOTTEN * self.noise_var
        return replace(self, noise_var=torch.where(forgotten, left.maximum(least), left), interference_power=0.0)

    def planned_var(self, dim: int) -> torch.Tensor:
        """Of all noise on each coordinate, [trials, d or 1]; where a rotation mixes blocks they are correlated."""
        if self.detects != "sum":  # of a mean of m exponentials
            return (self.floor.square() / self.channels.shape[-1]).unsqueeze(1)
        if self.blocks is None:
            return self.noise_var.unsqueeze(1)
        sent = self.blocks.noise_var[:, self.blocks.grid.block_of(dim)]
        return sent if self.blocks.rotation is None else chunk_means(sent)

    def whitened(self, noise: torch.Tensor) -> torch.Tensor:
        """Noise [trials, d] over its planned standard deviation, coordinate by coordinate as they are sent.

        There they are independent, whatever mixes them afterwards.
        """
        if self.blocks is None or self.blocks.rotation is None:
            return noise / self.planned_var(noise.shape[1]).sqrt()
        sent = self.blocks.rotation.forth(noise, torch.arange(len(noise)))
        return sent / self.blocks.noise_var[:, self.blocks.grid.block_of(noise.shape[1])].sqrt()

    def silenced(self) -> Setting:
        """The same without any noise, also that of converters."""
        nothing = torch.zeros_like(self.noise_var)
        return replace(
            self,
            noise_var=nothing,
            unknown_var=nothing,
            noise_power=0.0,
            interference_power=0.0,
            blocks=None if self.blocks is None else self.blocks.silenced(),
            cover=Cover.of(trials=len(nothing)),
            hardware=self.hardware.ideal_converters(),
        )

    def repeated(self, copies: int) -> Setting:
        """Every trial ``copies`` times, one after another."""
        changes: dict[str, object] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, torch.Tensor):
                changes[item.name] = value.repeat_interleave(copies, dim=0)
            elif isinstance(value, np.ndarray):
                changes[item.name] = value.repeat(copies, axis=0)
        changes["hardware"] = self.hardware.repeated(copies)
        changes["cover"] = self.cover.repeated(copies)
        changes["blocks"] = None if self.blocks is None else self.blocks.repeated(copies)
        changes["seen"] = {name: values.repeat_interleave(copies, dim=0) for name, values in self.seen.items()}
        for name in ("edges", "hides_participation"):
            changes[name] = tuple(value for value in getattr(self, name) for _ in range(copies))
        return replace(self, **changes)  # type: ignore[arg-type]
