"""What a scheme promises about privacy: how much, to whom, by whose arithmetic; and what that lets it spend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from airfl.accounting import accountant_named
from airfl.catalogue import is_import_path
from airfl.channel.blocks import grid_of
from airfl.config import Config
from airfl.errors import InputError
from airfl.imports import calling
from airfl.participation import expected_senders, sampling_of
from airfl.privacy import (
    SEEING,
    Budget,
    BudgetError,
    Domain,
    Ledger,
    Neighbours,
    Observer,
    RoundEvent,
    epsilon_of,
    release,
    smallest,
)
from airfl.rounds.credit import earns_sampling_credit, facts_of
from airfl.schemes import Scheme
from airfl.schemes.parts import LEAST_ROOM
from airfl.traits import Axis


@dataclass(frozen=True)
class Promise:
    """(ε, δ) for some neighbours and an observer, as one accountant counts.

    Attributes:
        accountant: its name; never ``auto``.
        epsilon: None where nothing is promised and ε is only reported.
        template: a round of the run, but for its noise.
        rounds: T.
        before: what was released before the first round; rounds may spend what it leaves.
    """

    accountant: str
    neighbours: Neighbours
    observer: Observer
    epsilon: float | None
    delta: float
    template: RoundEvent
    rounds: int
    before: tuple[RoundEvent, ...] = ()

    @cached_property
    def budget(self) -> Budget | None:
        """What combiner norms keep the promise; None where nothing is promised."""
        if self.epsilon is None or self.observer in SEEING:
            return None
        whole = accountant_named(self.accountant).budget(
            self.epsilon, self.delta, self.template, self.neighbours, self.rounds
        )
        return self._left_of(whole) if self.before else whole

    def _left_of(self, whole: Budget) -> Budget:
        """A less what was released before: Σ S²/v adds up, and A is σ²/(2S²) of what is left."""
        noise_power, reached = self.template.noise_power, self.template.sensitivity(self.neighbours)
        assert whole.total is not None
        assert noise_power is not None
        spent = sum(event.sensitivity(self.neighbours) ** 2 / event.noise_var for event in self.before)
        left = whole.total - spent * noise_power / (2.0 * reached**2) * (1.0 + 1e-12)
        if left <= 1e-9 * whole.total:
            raise BudgetError(
                f"`learning.standardise_epsilon` leaves nothing of the budget, epsilon = {self.epsilon:g}, for "
                "training; lower it, or raise `privacy.epsilon`"
            )
        return Budget.of_total(left * (1.0 - 1e-12), self.rounds)

    @property
    def opened(self) -> Ledger:
        """A ledger before the first round."""
        ledger = Ledger()
        for event in self.before:
            ledger = ledger.append(event)
        return ledger

    @property
    def kept(self) -> tuple[Observer, ...]:
        """Who is kept to the budget: whom it was promised to, and whoever sees models where that is someone else."""
        return (self.observer, "models") if self.observer in SEEING else (self.observer,)

    def spent(self, ledger: Ledger) -> float:
        """ε of a ledger."""
        return epsilon_of(ledger, accountant_named(self.accountant), self.neighbours, self.observer, self.delta)

    def check(self, ledger: Ledger) -> None:
        """Refuse with ``BudgetError`` what exceeds the promise."""
        if self.epsilon is not None:
            for observer in self.kept:
                release(ledger, accountant_named(self.accountant), self.neighbours, self.epsilon, self.delta, observer)

    def ledger_at(self, norms: torch.Tensor, weights: torch.Tensor) -> Ledger:
        """What rounds with norms q, [T], and gain bounds √a would book, as far as accountants of models look at it."""
        noise_power = self.template.noise_power or 0.0
        pairs = zip(norms.tolist(), weights.tolist(), strict=True)
        return Ledger(
            self.before
            + tuple(
                replace(self.template, round=t, noise_var=q * q * noise_power / 2.0, gain_bound=math.sqrt(a))
                for t, (q, a) in enumerate(pairs)
            )
        )

    def enough(self, minimum: torch.Tensor, weights: torch.Tensor) -> float:
        """The smallest s at which norms s·π keep the promise, for accountants without an A; 1 or less if π does."""

        def spent(scale: float) -> float:
            return self.spent(self.ledger_at(scale * minimum, weights))

        assert self.epsilon is not None
        scale = smallest(spent, self.epsilon, 1.0, 1e-6)
        return min(1.0, scale) if spent(1.0) <= self.epsilon else scale

    def without_credit(self) -> Promise:
        """The same promise kept without credit for sampling."""
        return replace(self, accountant="gaussian", template=replace(self.template, hides_participation=False))


def make_promise(
    config: Config,
    dim: int,
    noise_power: float | None,
    local_steps: Sequence[int] | None,
    scheme: Scheme,
    before: tuple[RoundEvent, ...] = (),
) -> Promise:
    """Join a configuration's privacy section with what a scheme fixes itself.

    Args:
        local_steps: Q of each trial, if a domain is enforced; the largest counts.
        scheme: whom it promises to, and by whose arithmetic; where it does not say, as configured, and ``auto`` is the
            tightest that is proven for the run.
        before: released before the first round; only the exact accountant shares its budget with that.
    """
    learning, privacy = config.learning, config.privacy
    own = scheme.policy.sampling(config)
    sampling = own or sampling_of(config)
    senders: float = sampling.num_active
    if config.system.varies:
        senders = expected_senders(config)
    elif scheme.policy.over_air:
        senders = config.num_transmitting
    domain = None
    if (
        learning.domain_diameter is not None
        and local_steps
        and learning.plain_server
        and _contracts(config, scheme, dim)
    ):
        domain = Domain(
            learning.domain_diameter,
            privacy.smoothness,
            learning.learning_rate,
            max(local_steps),
            # If all n took part. A plan that looked at the draws would tell about them through its noise.
            mean_gain=config.system.num_devices / senders if config.system.varies else 1.0,
        )
    template = RoundEvent(
        round=0,
        clip_norm=longest(scheme, unit_of(scheme, config, dim)),
        gain_bound=1.0,
        noise_var=0.0,
        noise_source="channel",
        noise_power=noise_power,
        sampling=sampling,
        update_factor=learning.server_step * learning.learning_rate / senders,
        domain=domain,
        hides_participation=earns_sampling_credit(facts_of(config, scheme)),
    )
    epsilon = privacy.epsilon_for(dim) if scheme.keeps_budget else None
    name = scheme.accountant or privacy.accountant
    if privacy.accountant == "convergent" and not _contracts(config, scheme, dim):
        raise InputError(
            f"accountant `convergent` does not hold for scheme `{scheme.name}`: it counts on clipped updates of plain "
            "local training, without memory, in one block of time and frequency, and on the received sum itself; leave "
            "out parts from outside, or book by another accountant"
        )
    promise = Promise(
        "gaussian",
        config.neighbours,
        scheme.observer_in(config),
        epsilon,
        privacy.delta,
        template,
        config.system.rounds,
        before,
    )
    if before:
        return promise
    if name == "auto":
        return _tightest(config, promise)
    if name == "convergent" and domain is None:
        raise InputError(
            "accountant `convergent` needs an enforced domain and a public number of local steps; book by another "
            "accountant"
        )
    return replace(promise, accountant=name)


def unit_of(scheme: Scheme, config: Config, dim: int) -> float:
    """c, or what the scheme's encoder has in its place."""
    encoder = scheme.encoder
    with calling(encoder, "encoder"):
        unit = float(encoder.unit(config.learning.clip_norm_for(dim), dim))
        length = float(encoder.length(unit))
        room = float(encoder.room)
    if not LEAST_ROOM <= room < 1.0:
        raise InputError(
            f"encoder `{type(encoder).__name__}` must leave a share of its `length` for rounding, `room`, of at least "
            f"{LEAST_ROOM:g} and below 1; got {room:g}"
        )
    if not (0.0 < unit < math.inf and length > 0.0):
        raise InputError(
            f"encoder `{type(encoder).__name__}` must have a finite `unit` and a `length` above 0; got {unit:g} and "
            f"{length:g}"
        )
    return unit


def longest(scheme: Scheme, clip_norm: float) -> float:
    """How long what a device sends can be, for power and noise; c where nothing bounds it."""
    length = scheme.encoder.length(clip_norm)
    return length if math.isfinite(length) else clip_norm


def _contracts(config: Config, scheme: Scheme, dim: int) -> bool:
    """Whether a round is what bounds with a hidden state count on: plain SGD, clipped, and the mean of it.

    In several blocks it is not: an update that lies where it is dear is scaled down by a norm that weighs blocks, and
    two of these may come to lie further apart than they were.
    """
    if scheme.policy.over_air and grid_of(config, dim).count > 1:
        return False
    plain = Axis.CONVERGENT in scheme.traits.works_with and scheme.policy.sampling(config) is None
    return plain and not is_import_path(config.engine.backend) and not config.channel.impairments


def _tightest(config: Config, promise: Promise) -> Promise:
    """The proven accountant that asks for the least noise; the exact one where none asks for less."""
    template = promise.template
    names = []
    smooth = template.domain is not None and template.domain.smoothness is not None
    if smooth and config.channel.estimation_error == 0.0:
        names.append("convergent")
    # Where the combiner serves who is active, its noise tells who that was, unless the floor covers every set.
    if template.hides_participation:
        names.append("sampled")
    if not names:
        return promise
    if promise.epsilon is None or template.noise_power is None:
        return replace(promise, accountant=names[0])
    if promise.budget is None:  # a promise to the base station is not kept by norms
        return promise
    best, floor = promise, promise.budget.floor * (1.0 - 1e-6)
    for name in names:
        candidate = replace(promise, accountant=name)
        budget = candidate.budget
        if budget is not None and budget.floor < floor:
            best, floor = candidate, budget.floor
    return best
