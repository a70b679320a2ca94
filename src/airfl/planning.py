"""The transceiver setting of every round: who transmits, with what combiner, scalars and noise."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

import numpy as np
import torch

from airfl.air import Reception
from airfl.channel import Link
from airfl.config import Config
from airfl.errors import InputError
from airfl.privacy import Budget, Ledger, RoundEvent, smallest
from airfl.promise import MAX_DEVICE_NORMS, Promise, can_hide_participation, make_promise, sampling_of
from airfl.randomness import stream
from airfl.schemes import Outlook, Scheme
from airfl.transceiver import (
    COMBINERS,
    SELECTIONS,
    Design,
    Perk,
    Transmission,
    Visibility,
    last_round_factor,
    norm_growth,
    perk,
    transmit,
    visibility,
    zero_forcing,
)
from airfl.transceiver.combiners import NEEDS_ANTENNAS
from airfl.transceiver.design import Status, better_of, reach, received_gains

T = TypeVar("T")

#: Channel coefficients held at a time while the rounds are designed.
DESIGN_CHUNK = 4_000_000


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
    def noise_var(self) -> torch.Tensor:
        """v_t = q_t² σ²/2 + ν K_t/2 per real coordinate, [trials, T]."""
        if self.norm is None:
            return torch.zeros(self.active.shape[:2], dtype=torch.float64)
        own = torch.zeros(())
        if self.artificial is not None:
            heard = torch.from_numpy((self.active >= 0).sum(axis=2))
            own = self.artificial.unsqueeze(1) * heard / 2.0
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
        channels = _served(self.link.channels([round_index]), active)[:, 0]
        known = _served(self.link.estimates([round_index]), active)[:, 0]
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
        """The perk test of every trial; empty without a budget or over an ideal channel.

        For an accountant that has no A, the threshold is that of rounds which are all alike.
        """
        if self.minimum is None or self.budget is None or self.gain_bound is None:
            return []
        power, total = self.link.config.channel.power_w, self.budget.equivalent_total
        return [
            perk(row, total, power, self.link.weakest_path_gain(index), self.link.noise_power)
            for index, row in enumerate(self.minimum / self.gain_bound)
        ]


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
    design, active, gain_bound = _design(config, link, rounds)
    factor = reach(clip_norm, dim, config.channel.power_w)
    active = _trimmed(active)
    # No round has a larger Σ|gain_i|/K than this: what is booked never exceeds what was planned with.
    fullest = int((active >= 0).sum(axis=2).max()) / _normaliser(config, active)
    promise = promise.with_mean_gain(float(gain_bound.max()) * fullest)

    def law(count: int) -> torch.Tensor:
        if config.channel.fading == "trace":
            raise InputError('measured channels have no law to draw from; use scheme.online = "estimate"')
        # Rounds after the last one: the same positions and the same law, but never the run's own draws.
        later, _, bound = _design(config, link, range(len(rounds), len(rounds) + count))
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
    widest, _, _ = _design(everyone, link, range(config.system.rounds))
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
            channels = _served(link.channels([t])[row : row + 1], devices)[0, 0]
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


def _design(config: Config, link: Link, rounds: range) -> tuple[Design, np.ndarray, torch.Tensor]:
    """Design chunks of rounds and join them: the designs, who transmits, and the gain bounds, [trials, T, ...]."""
    per_round = len(link.trials) * config.system.num_devices * config.system.num_antennas
    size = max(1, DESIGN_CHUNK // per_round)
    parts = [_design_chunk(config, link, rounds[start : start + size]) for start in range(0, len(rounds), size)]
    designs = [part[0] for part in parts]
    joined = Design(
        torch.cat([design.combiner for design in designs], dim=1),
        torch.cat([design.norm for design in designs], dim=1),
        torch.cat([design.lower_bound for design in designs], dim=1),
        torch.cat([design.iterations for design in designs], dim=1),
        tuple(word for design in designs for word in design.status),
    )
    return joined, np.concatenate([part[1] for part in parts], axis=1), torch.cat([part[2] for part in parts], dim=1)


def _design_chunk(config: Config, link: Link, rounds: range) -> tuple[Design, np.ndarray, torch.Tensor]:
    system, scheme = config.system, config.scheme
    known, active = link.estimates(rounds), link.active(rounds)
    if system.is_poisson and scheme.combiner_columns == "active":
        return _design_ragged(config, link, rounds, known, active)
    if scheme.selection != "all":
        keep = max(1, round(scheme.selection_keep * system.num_active))
        chosen = SELECTIONS[scheme.selection](_served(known, active), keep).numpy()
        active = np.take_along_axis(active, chosen, axis=2)
    everyone = np.broadcast_to(np.arange(system.num_devices), (*active.shape[:2], system.num_devices))
    served = everyone if scheme.combiner_columns == "all" else active
    channels = _served(known, served)
    if scheme.combiner == "zero-forcing":
        design = zero_forcing(channels, _phases(config, link, rounds, served.shape[2]))
    else:
        design = COMBINERS[scheme.combiner](channels)
    design.require_ok()
    return design, active, _gain_bound(config, link, design, _served(known, active), active)


def _design_ragged(
    config: Config, link: Link, rounds: range, known: np.ndarray, active: np.ndarray
) -> tuple[Design, np.ndarray, torch.Tensor]:
    """Rounds with different numbers of active devices: those with the same number are designed together.

    For a round without any, a combiner for the first device stands in: something has to be received.
    """
    shape = active.shape[:2]
    counts = np.maximum((active >= 0).sum(axis=2), 1)
    combiner = torch.zeros(*shape, config.system.num_antennas, dtype=torch.complex128)
    norm = torch.zeros(shape, dtype=torch.float64)
    for count in np.unique(counts).tolist():
        where = np.nonzero(counts == count)
        served = np.maximum(active[where][:, :count], 0)
        channels = torch.from_numpy(np.take_along_axis(known[where], served[..., None], axis=1))
        if config.scheme.combiner == "zero-forcing":
            phases = _phases(config, link, rounds, count)
            part = zero_forcing(channels, None if phases is None else phases[where])
        else:
            part = COMBINERS[config.scheme.combiner](channels)
        part.require_ok()
        combiner[where], norm[where] = part.combiner, part.norm
    nothing = torch.zeros(shape, dtype=torch.float64)
    status: tuple[Status, ...] = tuple("ok" for _ in range(norm.numel()))
    design = Design(combiner, norm, nothing, nothing.to(torch.int64), status)
    # Places that are not taken are looked up as the row's first device, which is served: the bound is unchanged.
    return design, active, _gain_bound(config, link, design, _served(known, active), _filled(active))


def _gain_bound(config: Config, link: Link, design: Design, known: torch.Tensor, active: np.ndarray) -> torch.Tensor:
    """G_t that no |wᴴ h_i|/|wᴴ ĥ_i| exceeds, but for a chance of ``channel.csi_outage`` over a whole trial.

    Given ĥ_i, wᴴ(h_i − ĥ_i) is CN(0, τ Λ_i ‖w‖²), whose modulus exceeds √(τ Λ_i) ‖w‖ √log(N/p) with probability p/N;
    N = K·T events share the outage p. The bound does not change when w is scaled.
    """
    channel = config.channel
    if channel.csi_error == 0.0:
        return torch.ones_like(design.norm)
    events = active.shape[2] * config.system.rounds
    spread = torch.from_numpy(link.error_std(active)) * math.sqrt(math.log(events / channel.csi_outage))
    heard = received_gains(design.combiner, known).abs()
    return 1.0 + (spread * design.norm.unsqueeze(-1) / heard).amax(dim=-1)


def _last_factors(
    config: Config, promise: Promise, clip_norm: float, num_active: int, local_steps: Sequence[int] | None
) -> tuple[float, ...] | None:
    """B of P3 per trial; None unless the published bound, with its domain, its smoothness and unit gains, applies."""
    learning, privacy = config.learning, config.privacy
    applies = promise.accountant == "paper" and learning.server_step == 1.0 and config.channel.csi_error == 0.0
    if learning.domain_diameter is None or privacy.smoothness is None or local_steps is None or not applies:
        return None
    if num_active != config.system.num_active:  # silent devices change the normaliser that the bound assumes
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


def _served(channels: np.ndarray, served: np.ndarray) -> torch.Tensor:
    """Of channels [trials, rounds, n, m], those of the devices numbered in served [trials, rounds, K]."""
    return torch.from_numpy(np.take_along_axis(channels, _filled(served)[..., None], axis=2))


def _filled(active: np.ndarray) -> np.ndarray:
    """Places where nobody transmits, −1, looked up as the first device of their row, or of all."""
    first = np.maximum(active[..., :1], 0)
    return np.where(active < 0, first, active)


def _phases(config: Config, link: Link, rounds: Sequence[int], count: int) -> torch.Tensor | None:
    if config.scheme.phases == "ones":
        return None
    angles = [
        [stream(config.system.seed, "phases", trial, t).uniform(-np.pi, np.pi, count) for t in rounds]
        for trial in link.trials
    ]
    return torch.from_numpy(np.exp(1j * np.asarray(angles)))
