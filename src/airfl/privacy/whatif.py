"""All accountants side by side, for a ledger or for a what-if question."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from airfl.privacy.accountant import ACCOUNTANTS, Accountant, make_accountant, proves
from airfl.privacy.events import (
    OBSERVERS,
    SEEING,
    Domain,
    Neighbours,
    NoiseSource,
    Observer,
    RoundEvent,
    Sampling,
    SamplingLaw,
    check_delta,
    relation_of,
    require,
)
from airfl.privacy.exact import square_over
from airfl.privacy.headline import is_unheard
from airfl.privacy.ledger import Ledger
from airfl.privacy.sampled import SampledAccountant

#: The most rounds that a question may have.
MOST_ROUNDS = 10**6


@dataclass(frozen=True)
class WhatIf:
    """T equal rounds with unit gains, told in a few numbers.

    Attributes:
        clip_norm: c.
        noise_var: v per real coordinate of the received sum.
        rounds: T.
        participation: r.
        poisson: whether each device takes part by its own coin; else K of n are drawn.
        num_devices: n; a domain's bound needs it, and so do the next two.
        diameter: D of an enforced domain; goes with ``smoothness``.
        smoothness: L, as stated.
        learning_rate: η.
        local_steps: Q.
        gradient_var: estimated variance of mini-batch gradients in the received sum.
        received_snr: c²·max_i ‖h_i s_i‖²/σ², what all antennas together hear of one device; for the base station.
    """

    clip_norm: float
    noise_var: float
    rounds: int
    participation: float = 1.0
    poisson: bool = False
    num_devices: int | None = None
    diameter: float | None = None
    smoothness: float | None = None
    learning_rate: float | None = None
    local_steps: int | None = None
    gradient_var: float | None = None
    received_snr: float | None = None

    def check_hearing(self) -> None:
        """Refuse antennas that hear less of a device than the sum shows, which is computed from what they hear."""
        snr, shown = self.received_snr, square_over((self.clip_norm,), self.noise_var, 0.5)
        require(
            snr is None or snr >= shown * (1.0 - 1e-9),
            f"`received_snr` must be at least c²/(2v) = {shown:.4g}, what the sum alone shows of a device, since it is "
            f"made of what the antennas receive; got {snr}",
        )

    @property
    def drawn(self) -> float:
        """How many devices take part in a round, on average; of one where n is not known."""
        share = self.participation * (self.num_devices or 1)
        return share if self.num_devices is None or self.poisson else float(max(1, round(share)))

    @property
    def rounding(self) -> str:
        """Which K of n is meant where r·n is not a whole number; else nothing."""
        n, r = self.num_devices, self.participation
        if n is None or math.isclose(self.drawn, r * n, rel_tol=1e-9):
            return ""
        return f"Each round draws {self.drawn:.0f} of {n} devices: r = {self.drawn / n:g} in place of {r:g}"

    def ledger(self, rounds: int | None = None) -> Ledger:
        """The ledger of such a run; ``rounds`` in place of T."""
        c, v = self.clip_norm, self.noise_var
        require(0 < c <= 1e100, f"`clip_norm` must be positive and at most 1e100; got {c}")
        require(0 <= v < math.inf, f"`noise_var` must be finite and not negative; got {v}")
        require(1 <= self.rounds <= MOST_ROUNDS, f"`rounds` must be 1 to {MOST_ROUNDS:,}; got {self.rounds}")
        require(0.0 < self.participation <= 1.0, f"`participation` must lie in (0, 1]; got {self.participation}")
        n, rate = self.num_devices, self.learning_rate
        require(n is None or n >= 1, f"`devices` must be at least 1; got {n}")
        require(rate is None or 0 < rate < math.inf, f"`learning_rate` must be positive and finite; got {rate}")
        snr = self.received_snr
        require(snr is None or 0 < snr < math.inf, f"`received_snr` must be positive and finite; got {snr}")
        require(
            (self.diameter is None) == (self.smoothness is None),
            "an enforced domain needs both its diameter and a stated smoothness; give both or none",
        )
        require(
            self.diameter is None or None not in (n, rate, self.local_steps),
            "how fast a domain is crossed depends on the devices, the learning rate and the local steps; give them too",
        )
        law: SamplingLaw = "poisson" if self.poisson else "without-replacement"
        # Without n only the rate is known; with it, a whole number of devices is drawn.
        active = self.drawn
        domain = None
        if self.diameter is not None:
            fullest = 1.0 / self.participation if self.poisson else 1.0
            domain = Domain(self.diameter, self.smoothness, rate or 1.0, self.local_steps or 1, fullest)
        source: NoiseSource = "channel" if self.noise_var > 0 else "none"
        template = RoundEvent(
            round=0,
            clip_norm=self.clip_norm,
            gain_bound=1.0,
            noise_var=self.noise_var,
            noise_source=source,
            noise_power=None if snr is None else 1.0,
            sampling=Sampling("all" if active == (n or 1) else law, n or 1, active),
            update_factor=(rate or 1.0) / active,
            domain=domain,
            # The noise of the question is the same in every round, whoever takes part.
            hides_participation=True,
            gradient_var=self.gradient_var,
            base_station=None if snr is None else math.sqrt(2.0 * snr) / self.clip_norm,
        )
        return Ledger.repeated(template, self.rounds if rounds is None else rounds)


def what_if_ledger(clip_norm: float, noise_var: float, rounds: int, participation: float = 1.0) -> Ledger:
    """T equal rounds with unit gains: clip norm c, noise variance v per real coordinate, participation r."""
    return WhatIf(clip_norm, noise_var, rounds, participation).ledger()


def default_neighbours(ledger: Ledger) -> Neighbours:
    """Replace when K of n are drawn (adding a device pushes another out), else zero-out."""
    laws = {event.sampling.law for event, _ in ledger.runs()}
    return "replace" if "without-replacement" in laws else "zero-out"


def own_observer(kind: type[Accountant] | None) -> Observer:
    """Whom an accountant is asked about: anyone who sees every round's model, or else whom it was made for."""
    return "models" if kind is None or "models" in kind.observers else kind.observers[0]


def check_names(observer: str | None, accountant: str, known: Iterable[str] = ACCOUNTANTS) -> None:
    """Refuse an observer or an accountant that nobody has heard of."""
    require(
        observer is None or observer in OBSERVERS, f"`observer` must be one of {', '.join(OBSERVERS)}; got {observer!r}"
    )
    require(
        accountant in ("all", *known),
        f"no accountant named {accountant!r}; known: {', '.join(ACCOUNTANTS)}, all",
    )


def check_heard(ledgers: Sequence[Ledger], observer: str | None) -> None:
    """Refuse an observer of signals about whom the ledgers say nothing."""
    require(
        not (observer in SEEING and is_unheard(ledgers)),
        f"observer `{observer}` needs what antennas receive; give "
        + ("--received-snr, or --ledger of a run" if observer == "base-station" else "--ledger of a run"),
    )
    unseen = all(e.eavesdropper is None for ledger in ledgers for e, _ in ledger.runs())
    require(
        not (unseen and observer == "eavesdropper"),
        "no eavesdropper was there; give the run a section [eavesdropper]",
    )


def compare(
    ledgers: Sequence[Ledger],
    delta: float,
    neighbours: str | None,
    observer: str | None,
    accountant: str = "all",
    outside: Mapping[str, type[Accountant]] = MappingProxyType({}),
) -> dict[str, dict[str, Any]]:
    """ε by every accountant, the worst of several ledgers; null where it is infinite, or where ``known`` is false.

    Args:
        observer: only accountants that cover it; None: each for those who see every model, or whom it was made for.
        outside: accountants of others, by the names that they go by here.
    """
    check_delta(delta)
    kinds = {**ACCOUNTANTS, **outside}
    named = None if neighbours is None else relation_of(neighbours)
    check_names(observer, accountant, kinds)
    require(len(ledgers) > 0, "there is no ledger to account for")
    check_heard(ledgers, observer)
    unheard = is_unheard(ledgers)
    relation = named or default_neighbours(ledgers[0])
    answers = {}
    for name in kinds if accountant == "all" else [accountant]:
        kind = kinds[name]
        view: Observer = observer or own_observer(kind)  # type: ignore[assignment]
        if accountant == "all" and view not in kind.observers:
            continue
        made = [make_accountant(kind, ledger, relation, view) for ledger in ledgers]
        epsilon = max(one.epsilon(delta) for one in made)
        answers[name] = {
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "known": not (unheard and view in SEEING),
            "delta": delta,
            "observer": view,
            # The published bound has its own relation built in.
            "neighbours": "replace" if name == "paper" else relation,
            "valid": proves(kind, ledgers),
            "assumptions": kind.assumptions,
        }
        words = [word for one in made if isinstance(one, SampledAccountant) and (word := one.note(delta))]
        if words:
            answers[name]["note"] = words[0]
        if not answers[name]["known"]:
            answers[name]["note"] = "what the antennas receive is not known here; give --received-snr"
        if any(ledger.noise_follows_data for ledger in ledgers):
            answers[name]["note"] = "the noise was chosen by an estimate from updates"
    return answers
