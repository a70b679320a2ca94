"""Who sends in every round, with what combiner, scalars and noise, for all trials of a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch

from airfl.air import Setting
from airfl.air.setting import NO_EDGES
from airfl.channel import Link
from airfl.channel.blocks import symbols_of
from airfl.privacy import Budget
from airfl.rounds.hardware import equipped, turned
from airfl.rounds.hiding import Shield
from airfl.rounds.loud import measuring
from airfl.rounds.observed import graph, leaks_of, seen_by_all
from airfl.rounds.promise import Promise, longest
from airfl.rounds.wideband import BlockPlan, block_setting, repeated_plan
from airfl.schemes import Detection, PowerRule, Public, Scheme
from airfl.transceiver import (
    Cover,
    Perk,
    degrees_of,
    perk,
    perk_at,
    served_channels,
    transmit,
    transmitted,
    unknown_to_all,
)


@dataclass(frozen=True)
class Schedule:
    """All rounds; ``setting(t)`` is one of them. An ideal channel is values: norms of zero, gains of one.

    Attributes:
        promise: what is promised, and whose arithmetic is reported.
        active: who transmits, [trials, T, K]; −1 fills up rows where fewer do.
        planned: who was to: all of these, and devices that drop out.
        normaliser: K of the update η_g η/K; public, and fixed before anyone is drawn.
        minimum: π_t, [trials, T].
        norm: q_t = ‖w_t‖, [trials, T].
        gain_bound: G_t, no device is heard with a larger gain, [trials, T].
        cover: variances of what devices hide in, [trials].
        combiner: w_t, [trials, T, m]; one row per trial that copies share.
        hides_participation: whether the noise would have been the same whoever took part, [trials].
        budget: what norms keep the promise; None without one, or where it is not kept by the norms.
        shields: how the cover was found, per trial; empty for schemes without.
        blocks: of rounds that are several blocks of time and frequency; then the norm is the level that is booked.
        copies: how many repetitions of a trial share its channels and combiners.
        scaling: s_t, [trials, T, K], where the policy found them itself; one row per trial that copies share.
        rule: how devices keep to their power.
        needed: v that the promise asks for, [trials, T], where devices add what the channel, and the spread of updates
            in the round before, leave to be added; else None.
        detects: what the base station makes of its antennas.
    """

    scheme: Scheme
    promise: Promise
    link: Link
    dim: int
    clip_norm: float
    normaliser: float
    active: np.ndarray = field(repr=False)
    planned: np.ndarray = field(repr=False)
    minimum: torch.Tensor
    norm: torch.Tensor
    gain_bound: torch.Tensor
    cover: Cover
    combiner: torch.Tensor = field(repr=False)
    hides_participation: tuple[bool, ...]
    budget: Budget | None = None
    copies: int = 1
    shields: tuple[Shield, ...] = ()
    blocks: BlockPlan | None = None
    scaling: torch.Tensor | None = field(default=None, repr=False)
    rule: PowerRule = "peak"
    needed: torch.Tensor | None = None
    detects: Detection = "sum"

    @property
    def over_air(self) -> bool:
        """Whether there is a radio link."""
        return self.scheme.policy.over_air

    @property
    def num_trials(self) -> int:
        """Trials of the batch."""
        return len(self.active)

    @cached_property
    def noise_var(self) -> torch.Tensor:
        """v_t = q_t² (σ² + I)/2 + K_t a² per real coordinate, without what leaks, [trials, T]."""
        if self.blocks is not None:
            return self.blocks.noise_var().mean(dim=-1) + self.cover.own.unsqueeze(1) * self._adding
        return self.undisturbed_var + self.norm.square() * (self.link.interference_power / 2.0)

    @cached_property
    def undisturbed_var(self) -> torch.Tensor:
        """The same without interference, q_t² σ²/2 + K_t a²: all that may ever cover a device in the sum.

        Of several blocks that is the noise of the quietest.
        """
        return self._noise_of(self._adding)

    @cached_property
    def unknown_var(self) -> torch.Tensor:
        """What of v_t nobody knows, and so what is booked, [trials, T].

        That is q_t²σ²/2 and the own noise that ``unknown_to_all`` leaves. Nobody promises that interference stays, so
        none of it counts.
        """
        honest = torch.from_numpy(self.link.honest(self.active))
        return self._noise_of(unknown_to_all(self.cover.weights(self.active), honest))

    @cached_property
    def sending(self) -> torch.Tensor:
        """K_t, how many transmit, [trials, T]."""
        return torch.from_numpy((self.active >= 0).sum(axis=2))

    @cached_property
    def _adding(self) -> torch.Tensor:
        """Own noise of all who transmit, in units of a², [trials, T]: K_t where all add alike."""
        return self.cover.weights(self.active).sum(dim=2)

    def _noise_of(self, adding: torch.Tensor) -> torch.Tensor:
        own = self.cover.own.unsqueeze(1) * adding
        return self.norm.square() * (self.link.noise_power / 2.0) + own

    def active_in(self, round_index: int) -> np.ndarray:
        """Who transmits in one round, [trials, K]; no wider than it has to be."""
        active = self.active[:, round_index]
        return active[:, : max(1, int((active >= 0).sum(axis=1).max()))]

    def setting(self, round_index: int) -> Setting:
        """One round; channels are drawn again from their keys rather than kept."""
        active, length = self.active_in(round_index), self.scheme.encoder.length(self.clip_norm)
        if not self.over_air:
            return Setting.ideal(round_index, active, length)
        if self.blocks is not None:
            return block_setting(self, self.blocks, round_index)
        # Copies of a trial share its channels, and so all but the noise.
        apart = slice(None, None, self.copies)
        devices = active[apart, None]
        channels = served_channels(self.link.channels([round_index]), devices)[:, 0]
        channels = turned(self.link, round_index, active[apart], channels)
        known = served_channels(self.link.estimates([round_index]), devices)[:, 0]
        combiner, cover = self.combiner[:, round_index], self.cover[apart]
        per_symbol = 1 if self.link.config.channel.symbols == "real" else 2
        edges = self.edges(round_index, active[apart], cover)
        degrees = np.stack([degrees_of(one, active.shape[1]) for one in edges])
        symbols = longest(self.scheme, self.clip_norm), symbols_of(self.link.config.channel, self.dim)
        if self.scaling is None:
            sent = transmit(
                combiner,
                known,
                *symbols,
                self.link.power_limit,
                channels,
                silent=torch.from_numpy(devices[:, 0] < 0),
                cover_power=per_symbol * cover.power(torch.from_numpy(degrees).double(), active[apart]),
            )
        else:
            scaling = self.scaling[:, round_index, : active.shape[1]]
            sent = transmitted(combiner, channels, scaling, *symbols, self.allowed_w)
            if self.rule == "spread":
                sent = replace(sent, power_w=sent.power_w.clamp(max=self.link.power_limit))
        once = Setting(
            round_index,
            active[apart],
            length,
            sent.gains,
            self.gain_bound[apart, round_index],
            self.noise_var[apart, round_index],
            self.unknown_var[apart, round_index],
            self.link.noise_power,
            self.link.interference_power,
            cover,
            edges,
            channels,
            sent.tx_scaling,
            combiner,
            seen_by_all(
                self.link,
                round_index,
                active[apart],
                known,
                channels,
                sent,
                edges,
                cover,
                combiner,
                self.norm[apart, round_index],
                own=self.scaling is not None,
            ),
            sent.power_w,
            self.hides_participation[apart],
            per_symbol,
            power_limit=self.link.power_limit if self.rule == "spread" else math.inf,
        )
        once = equipped(self.link, self._with_leak(measuring(once, self.detects, self.link.credited_power)))
        return once if self.copies == 1 else once.repeated(self.copies)

    @property
    def allowed_w(self) -> float:
        """The power that no scalar may ask for at full length; none where devices keep to it otherwise."""
        return self.link.power_limit if self.rule == "peak" else math.inf

    def public(self, setting: Setting) -> Public:
        """What everybody knows of a round."""
        blocks = setting.blocks
        gains = setting.gains.unsqueeze(-1) if blocks is None or blocks.gains is None else blocks.gains
        return Public(
            self.link.config.system.seed,
            tuple(trial for trial in self.link.trials for _ in range(self.copies)),
            setting.round_index,
            setting.active,
            gains,
            None if gains.shape[-1] == 1 or blocks is None else blocks.grid,
            setting.noise_var,
        )

    def edges(self, round_index: int, active: np.ndarray, cover: Cover) -> tuple[np.ndarray, ...]:
        """Who shares masks in each trial; nobody where there are none."""
        planned = self.planned[:: self.copies, round_index]
        return tuple(
            graph(self.link, index, round_index, whole[whole >= 0], row[row >= 0], pairs=cover.circular)
            if float(masks) > 0
            else NO_EDGES
            for index, (whole, row, masks) in enumerate(zip(planned, active, cover.masks, strict=True))
        )

    def _with_leak(self, setting: Setting) -> Setting:
        """The round with the noise that is really in its sum, where gains are not what they were meant to be."""
        if self.link.config.channel.estimation_error == 0.0 or setting.cover.is_nothing():
            return setting
        total, unknown = setting.noise_var.clone(), setting.unknown_var.clone()
        honest = torch.from_numpy(self.link.honest(setting.active))
        for row, edges in enumerate(setting.edges):
            here = setting.heard[row]
            gains, cover = setting.gains[row], setting.cover[row]
            own = cover.own * gains.real.square() * here
            squared = self.norm[row * self.copies, setting.round_index].square()
            receiver = squared * (self.link.noise_power / 2.0)
            turned, masks = leaks_of(gains[here], edges, cover)
            disturbed = receiver + squared * (self.link.interference_power / 2.0)
            total[row] = disturbed + own.sum() + turned.sum() + masks.sum()
            if self.link.config.privacy.credit_leak:
                own[here] += turned
                places = torch.from_numpy(edges)
                kept = masks * honest[row][here][places].all(dim=1)
                by_device = torch.bincount(places.flatten(), kept.repeat_interleave(2), len(turned) + 1)
                # Whoever looks knows its masks and those of devices that collude.
                receiver = receiver + kept.sum() - by_device.max()
            unknown[row] = receiver + unknown_to_all(own, honest[row])
        return replace(setting, noise_var=total, unknown_var=unknown)

    def repeated(self, copies: int, link: Link | None = None) -> Schedule:
        """The same trials ``copies`` times each, one after another: for audits, which repeat a run with new noise.

        Args:
            link: draws participation anew for every copy; only for designs that do not depend on who takes part.
        """

        def stretch(value: torch.Tensor) -> torch.Tensor:
            return value.repeat_interleave(copies, dim=0)

        same = link is None
        drawn = None if link is None else trimmed(link.active(range(self.active.shape[1])))
        left = drawn if link is None or drawn is None else link.sending(drawn)
        return replace(
            self,
            link=self.link if link is None else link,
            active=np.repeat(self.active, copies, axis=0) if left is None else left,
            minimum=stretch(self.minimum),
            norm=stretch(self.norm),
            gain_bound=stretch(self.gain_bound),
            cover=self.cover.repeated(copies),
            planned=np.repeat(self.planned, copies, axis=0) if drawn is None else drawn,
            hides_participation=tuple(np.repeat(self.hides_participation, copies).tolist()),
            combiner=self.combiner if same else stretch(self.combiner),
            copies=self.copies * copies if same else 1,
            blocks=None if self.blocks is None else repeated_plan(self.blocks, copies, link),
            scaling=self.scaling if same or self.scaling is None else stretch(self.scaling),
            needed=None if self.needed is None else stretch(self.needed),
        )

    def never_heard(self) -> list[int]:
        """How many devices do not transmit in any round of a trial: the bias of participation and selection."""
        total = self.link.config.system.num_devices
        return [total - len(np.unique(row[row >= 0])) for row in self.active]

    def perks(self) -> list[Perk]:
        """The perk test of every trial; empty without a budget or over an ideal channel."""
        if not self.over_air or self.budget is None:
            return []
        config, promise = self.link.config, self.promise
        if promise.accountant == "sampled" and config.scheme.combiner_columns != "all":
            promise = promise.without_credit()  # noise that is not lifted tells who took part
        power, budget = self.link.power_limit, promise.budget
        assert budget is not None
        found = []
        for index, (minimum, bound) in enumerate(zip(self.minimum, self.gain_bound, strict=True)):
            where = power, self.link.weakest_path_gain(index), self.link.noise_power
            if budget.total is not None:
                found.append(perk(minimum / bound, budget.total, *where))
            else:
                found.append(perk_at(power / promise.enough(minimum, bound.square()) ** 2, *where))
        return found


def trimmed(active: np.ndarray) -> np.ndarray:
    """Rows no wider than the fullest of them."""
    return active[:, :, : max(1, int((active >= 0).sum(axis=2).max()))]
