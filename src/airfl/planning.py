"""The transceiver setting of every round: who transmits, with what combiner, scalars and noise."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch

from airfl.air import Reception
from airfl.channel import Link
from airfl.config import Config
from airfl.designing import design_rounds, served_channels
from airfl.errors import InputError
from airfl.privacy import Budget, Ledger, RoundEvent, smallest
from airfl.promise import MAX_DEVICE_NORMS, Promise, can_hide_participation, make_promise, sampling_of
from airfl.schemes import Outlook, Scheme
from airfl.transceiver import (
    Design,
    Perk,
    Transmission,
    Visibility,
    last_round_factor,
    norm_growth,
    perk,
    perk_at,
    transmit,
    visibility,
)
from airfl.transceiver.combiners import NEEDS_ANTENNAS
from airfl.transceiver.design import better_of, reach

T = TypeVar("T")


@dataclass(frozen=True)
class RadioPlan:
    """The transceiver setting of every round, for all trials of a batch.

    Attributes:
        promise: what is promised, and whose arithmetic is reported.
        active: who transmits, [trials, T, K]; −1 fills up rows where fewer do.
        normaliser: K of the update η_g η/K; public, and fixed before anyone is drawn.
        gain_bound: G_t, no device is heard with a larger gain, [trials, T]; None over an ideal channel.
        minimum: π_t, [trials, T]; None over an ideal channel.
        norm: q_t = ‖w_t‖, [trials, T]; None over an ideal channel.
        budget: what norms keep the promise; None without one, or where it is not kept by the norms.
        hides_participation: whether the noise would have been the same whoever took part, [trials].
        artificial: ν of the devices' own noise, [trials]; None without.
    """

    scheme: Scheme
    promise: Promise
    link: Link
    dim: int
    clip_norm: float
    normaliser: float
    active: np.ndarray = field(repr=False)
    minimum: torch.Tensor | None = None
    norm: torch.Tensor | None = None
    budget: Budget | None = None
    gain_bound: torch.Tensor | None = None
    hides_participation: tuple[bool, ...] = ()
    artificial: torch.Tensor | None = None
    _combiner: torch.Tensor | None = field(default=None, repr=False)
    _copies: int = 1

    @property
    def num_trials(self) -> int:
        """Trials of the batch."""
        return len(self.active)

    @property
    def copies(self) -> int:
        """How many rows in a row are copies of one trial, with the same devices and channels."""
        return self._copies

    @cached_property
    def noise_var(self) -> torch.Tensor:
        """v_t = q_t² σ²/2 + ν K_t/2 per real coordinate, [trials, T]."""
        return self._noise_of(self.sending)

    @cached_property
    def unknown_var(self) -> torch.Tensor:
        """What of v_t nobody knows, and so what is booked, [trials, T].

        A device that looks at the model knows its own noise, and K_t − 1 others cover whom it is curious about. A lone
        sender covers itself from everybody else, and has nobody to be curious about.
        """
        return self._noise_of(torch.where(self.sending > 1, self.sending - 1, self.sending))

    @cached_property
    def sending(self) -> torch.Tensor:
        """K_t, how many transmit, [trials, T]."""
        return torch.from_numpy((self.active >= 0).sum(axis=2))

    def _noise_of(self, adding: torch.Tensor) -> torch.Tensor:
        if self.norm is None:
            return torch.zeros(self.active.shape[:2], dtype=torch.float64)
        own = torch.zeros(())
        if self.artificial is not None:
            own = self.artificial.unsqueeze(1) * adding / 2.0
        return self.norm.square() * (self.link.noise_power / 2.0) + own

    def active_in(self, round_index: int) -> np.ndarray:
        """Who transmits in one round, [trials, K]; no wider than it has to be."""
        active = self.active[:, round_index]
        return active[:, : max(1, int((active >= 0).sum(axis=1).max()))]

    def reception(self, round_index: int) -> tuple[Reception, Transmission | None]:
        """The setting of one round; channels are drawn again from their keys rather than kept."""
        noise_var = self.noise_var[:, round_index]
        active = self.active_in(round_index)
        if self._combiner is None:
            gains = torch.from_numpy(active >= 0).to(torch.complex128)
            return Reception(round_index, gains, noise_var, self.link.noise_power), None
        config = self.link.config
        # Copies of a trial share its channels, and so the whole setting.
        active = active[:: self._copies, None]
        silent = torch.from_numpy(active[:, 0] < 0)
        channels = served_channels(self.link.channels([round_index]), active)[:, 0]
        known = served_channels(self.link.estimates([round_index]), active)[:, 0]
        combiner = self._combiner[:, round_index]
        artificial = None if self.artificial is None else self.artificial[:: self._copies]
        sent = transmit(
            combiner,
            known,
            self.clip_norm,
            self.dim,
            config.channel.power_w,
            channels,
            silent=silent,
            artificial=artificial,
            noise_power=self.link.noise_power,
        )
        reception = Reception(
            round_index, sent.gains, noise_var, self.link.noise_power, channels, sent.tx_scaling, combiner, artificial
        )
        if self._copies == 1:
            return reception, sent
        return _repeated(reception, self._copies), _repeated(sent, self._copies)

    def repeated(self, copies: int, link: Link | None = None) -> RadioPlan:
        """The same trials ``copies`` times each, one after another: for audits, which repeat a run with new noise.

        Args:
            link: draws participation anew for every copy; only for designs that do not depend on who takes part.
        """

        def stretch(value: torch.Tensor | None) -> torch.Tensor | None:
            return None if value is None else value.repeat_interleave(copies, dim=0)

        same = link is None
        return replace(
            self,
            link=self.link if link is None else link,
            active=np.repeat(self.active, copies, axis=0)
            if link is None
            else _trimmed(link.active(range(self.active.shape[1]))),
            minimum=stretch(self.minimum),
            norm=stretch(self.norm),
            gain_bound=stretch(self.gain_bound),
            hides_participation=tuple(np.repeat(self.hides_participation, copies).tolist()),
            artificial=stretch(self.artificial),
            _combiner=self._combiner if same else stretch(self._combiner),
            _copies=self._copies * copies if same else 1,
        )

    def never_heard(self) -> list[int]:
        """How many devices do not transmit in any round of a trial: the bias of participation and selection."""
        total = self.link.config.system.num_devices
        return [total - len(np.unique(row[row >= 0])) for row in self.active]

    def perks(self) -> list[Perk]:
        """The perk test of every trial; empty without a budget or over an ideal channel."""
        if self.minimum is None or self.budget is None or self.gain_bound is None:
            return []
        config, promise = self.link.config, self.promise
        if promise.accountant == "sampled" and config.scheme.combiner_columns != "all":
            promise = promise.without_credit()  # noise that is not lifted tells who took part
        power, budget = config.channel.power_w, promise.budget
        assert budget is not None
        found = []
        for index, (minimum, bound) in enumerate(zip(self.minimum, self.gain_bound, strict=True)):
            where = power, self.link.weakest_path_gain(index), self.link.noise_power
            if budget.total is not None:
                found.append(perk(minimum / bound, budget.total, *where))
            else:
                found.append(perk_at(power / _enough(promise, minimum, bound.square()) ** 2, *where))
        return found


def plan_rounds(
    config: Config, scheme: Scheme, link: Link, dim: int, local_steps: Sequence[int] | None = None
) -> RadioPlan:
    """Design all rounds of all trials: combiner direction, minimum norm π_t, and the norm q_t the scheme asks for.

    Args:
        local_steps: Q of each trial; only a bound that uses an enforced domain needs it.
    """
    clip_norm = config.learning.clip_norm_for(dim)
    rounds = range(config.system.rounds)
    promise = make_promise(
        config,
        dim,
        None if scheme.norms is None else link.noise_power,
        local_steps,
        accountant=scheme.accountant,
        observer=scheme.observer,
        keeps_budget=scheme.keeps_budget,
    )
    if scheme.norms is None:
        active = _trimmed(link.active(rounds))
        return RadioPlan(scheme, promise, link, dim, clip_norm, _normaliser(config, active), active)
    design, active, gain_bound = design_rounds(config, link, rounds)
    factor = reach(clip_norm, dim, config.channel.power_w)
    active = _trimmed(active)

    def law(count: int) -> torch.Tensor:
        if config.channel.fading == "trace":
            raise InputError('measured channels have no law to draw from; use scheme.online = "estimate"')
        # Rounds after the last one: the same positions and the same law, but never the run's own draws.
        later, _, bound = design_rounds(config, link, range(len(rounds), len(rounds) + count))
        return later.norm * factor / bound

    def outlook_of(promise: Promise) -> Outlook:
        def spent(norms: torch.Tensor, weights: torch.Tensor) -> float:
            return promise.spent(_ledger_at(promise, norms, weights))

        factors = _last_factors(config, promise, clip_norm, active.shape[2], local_steps)
        return Outlook(
            design.norm * factor,
            gain_bound.square(),
            promise.budget,
            spent,
            promise.epsilon,
            law,
            factors,
            config,
            link.trials,
        )

    # With noise of their own, the number of devices and their positions show in the sum's noise.
    hides = [can_hide_participation(config) and not scheme.artificial] * len(link.trials)
    norms_of = scheme.norms
    if config.scheme.combiner_columns == "all" or not any(hides):
        norm = norms_of(outlook_of(promise))
    else:
        design, hides = _cover_every_set(config, link, design, promise, factor)
        norm = norms_of(outlook_of(promise.without_credit() if promise.accountant == "sampled" else promise))
        if promise.accountant == "sampled" and any(hides):
            credited = norms_of(outlook_of(promise))
            norm = torch.where(torch.tensor(hides).unsqueeze(1), credited, norm)
    artificial = None
    if scheme.artificial:
        artificial = _artificial(config, link, promise, design, active, factor, clip_norm, dim)
        growth = [norm_growth(float(power), clip_norm, dim) for power in artificial]
        norm = norm * torch.tensor(growth, dtype=torch.float64).unsqueeze(1)
    combiner = design.combiner * (norm / design.norm).unsqueeze(-1)
    return RadioPlan(
        scheme,
        promise,
        link,
        dim,
        clip_norm,
        _normaliser(config, active),
        active,
        design.norm * factor,
        norm,
        promise.budget,
        gain_bound,
        tuple(hides),
        artificial,
        combiner,
    )


def _enough(promise: Promise, minimum: torch.Tensor, weights: torch.Tensor) -> float:
    """The smallest s at which norms s·π keep the promise, for accountants that have no A; 1 or less if π does."""

    def spent(scale: float) -> float:
        return promise.spent(_ledger_at(promise, scale * minimum, weights))

    assert promise.epsilon is not None
    scale = smallest(spent, promise.epsilon, 1.0, 1e-6)
    return min(1.0, scale) if spent(1.0) <= promise.epsilon else scale


def _normaliser(config: Config, active: np.ndarray) -> float:
    """K of the update: how many transmit, or would on average."""
    return sampling_of(config).num_active if config.system.is_poisson else float(active.shape[2])


def _trimmed(active: np.ndarray) -> np.ndarray:
    """Rows no wider than the fullest of them."""
    return active[:, :, : max(1, int((active >= 0).sum(axis=2).max()))]


def _repeated(setting: T, copies: int) -> T:
    """Every tensor field with its rows repeated, but for ``noise_var``, which is a row per copy already."""
    changes = {
        item.name: value.repeat_interleave(copies, dim=0)
        for item in fields(setting)  # type: ignore[arg-type]
        if isinstance(value := getattr(setting, item.name), torch.Tensor) and item.name != "noise_var"
    }
    return replace(setting, **changes)  # type: ignore[type-var]


def _ledger_at(promise: Promise, norms: torch.Tensor, weights: torch.Tensor) -> Ledger:
    """What rounds with norms q, [T], and gain bounds √a would book, as far as accountants of models look at it."""
    noise_power = promise.template.noise_power or 0.0
    pairs = zip(norms.tolist(), weights.tolist(), strict=True)
    return Ledger(
        tuple(
            replace(promise.template, round=t, noise_var=q * q * noise_power / 2.0, gain_bound=math.sqrt(a))
            for t, (q, a) in enumerate(pairs)
        )
    )


def _cover_every_set(
    config: Config, link: Link, design: Design, promise: Promise, factor: float
) -> tuple[Design, list[bool]]:
    """Which trials' noise would be the same for every set of active devices, when the combiner serves the active ones.

    A combiner for all n devices serves any of them, so where it is better it is taken; then no set has a larger π_t
    than all n together. If that is below the floor in every round, every set gets the floor.
    """
    budget = promise.budget
    limited = config.scheme.combiner in NEEDS_ANTENNAS and config.system.num_devices > config.system.num_antennas
    if promise.accountant != "sampled" or budget is None or limited:
        return design, [False] * len(link.trials)
    everyone = config.replace({"scheme.combiner_columns": "all"})
    widest, _, _ = design_rounds(everyone, link, range(config.system.rounds))
    covered = (widest.norm * factor <= budget.floor).all(dim=1)
    return better_of(design, widest), covered.tolist()


def _artificial(
    config: Config,
    link: Link,
    promise: Promise,
    design: Design,
    active: np.ndarray,
    factor: float,
    clip_norm: float,
    dim: int,
) -> torch.Tensor:
    """ν of each trial: the least artificial noise with which the base station is kept to the promise."""
    if promise.epsilon is None:
        raise InputError("this scheme keeps a privacy budget; give `privacy.epsilon` or `privacy.epsilon_tilde`")
    found = []
    for row in range(len(link.trials)):
        views = []
        for t in range(config.system.rounds):
            devices = active[row : row + 1, t : t + 1]
            channels = served_channels(link.channels([t])[row : row + 1], devices)[0, 0]
            sent = transmit(design.combiner[row, t] * factor, channels, clip_norm, dim, config.channel.power_w)
            heard = torch.from_numpy(devices[0, 0] >= 0).unsqueeze(1)
            views.append(visibility(channels * sent.tx_scaling.unsqueeze(1) * heard, link.noise_power))

        def spent(power: float, views: list[Visibility] = views, row: int = row) -> float:
            growth = norm_growth(power, clip_norm, dim)
            events = [
                heard_event(promise.template, t, view.norms(power, growth), active[row, t])
                for t, view in enumerate(views)
            ]
            return promise.spent(Ledger(tuple(events)))

        enough = spent(0.0) <= promise.epsilon
        # What is booked is computed again from the paths as they are sent: leave room for its rounding.
        found.append(0.0 if enough else smallest(spent, promise.epsilon, clip_norm**2) * (1.0 + 1e-9))
    return torch.tensor(found, dtype=torch.float64)


def heard_event(event: RoundEvent, t: int, norms: torch.Tensor, active: np.ndarray) -> RoundEvent:
    """The event with what the antennas hear of each device, norms [K] of the devices numbered in active [K]."""
    heard = active >= 0
    values = norms.numpy()[heard]
    total = event.sampling.num_devices
    by_device = None
    if total <= MAX_DEVICE_NORMS:
        by_device = np.zeros(total)
        by_device[active[heard]] = values
    largest = float(values.max(initial=0.0))
    return replace(
        event,
        round=t,
        # A round in which nobody transmits tells nothing; the smallest positive number stands for it.
        received_norm=largest or sys.float_info.min,
        device_norms=None if by_device is None else tuple(by_device.tolist()),
    )


def _last_factors(
    config: Config, promise: Promise, clip_norm: float, num_active: int, local_steps: Sequence[int] | None
) -> tuple[float, ...] | None:
    """B of P3 per trial; None unless the published bound, with its domain, its smoothness and unit gains, applies."""
    learning, privacy = config.learning, config.privacy
    applies = promise.accountant == "paper" and learning.server_step == 1.0 and config.channel.csi_error == 0.0
    applies = applies and learning.plain_server
    if learning.domain_diameter is None or privacy.smoothness is None or local_steps is None or not applies:
        return None
    # Silent devices change the normaliser that the bound assumes; so does a number that is drawn.
    if config.system.is_poisson or num_active != config.system.num_active:
        return None
    return tuple(
        last_round_factor(
            learning_rate=learning.learning_rate,
            smoothness=privacy.smoothness,
            local_steps=steps,
            participation=sampling_of(config).rate,
            diameter=learning.domain_diameter,
            num_devices=config.system.num_devices,
            clip_norm=clip_norm,
        )
        for steps in local_steps
    )
