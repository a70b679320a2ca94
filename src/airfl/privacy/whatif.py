"""All accountants side by side, for a ledger or for a what-if question."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from airfl.privacy.accountant import ACCOUNTANTS, OBSERVERS, make_accountant
from airfl.privacy.events import (
    NEIGHBOURS,
    Neighbours,
    NoiseSource,
    Observer,
    PrivacyError,
    RoundEvent,
    Sampling,
    check_delta,
    require,
)
from airfl.privacy.ledger import Ledger


def what_if_ledger(clip_norm: float, noise_var: float, rounds: int, participation: float = 1.0) -> Ledger:
    """T equal rounds with unit gains: clip norm c, noise variance v per real coordinate, participation r."""
    require(0 < clip_norm <= 1e100, f"`clip_norm` must be positive and finite; got {clip_norm}")
    require(0 <= noise_var <= 1e200, f"`noise_var` must be finite and not negative; got {noise_var}")
    require(rounds >= 1, f"`rounds` must be at least 1; got {rounds}")
    require(0.0 < participation <= 1.0, f"`participation` must lie in (0, 1]; got {participation}")
    sampling = Sampling("all" if participation == 1.0 else "without-replacement", 1, participation)
    source: NoiseSource = "channel" if noise_var > 0 else "none"
    return Ledger(
        tuple(
            RoundEvent(t, clip_norm, 1.0, noise_var, source, None, None, sampling, update_factor=1.0)
            for t in range(rounds)
        )
    )


def default_neighbours(ledger: Ledger) -> Neighbours:
    """Replace when K of n are drawn (adding a device pushes another out), else add-remove."""
    laws = {event.sampling.law for event in ledger.events}
    return "replace" if "without-replacement" in laws else "add-remove"


def compare(
    ledgers: Sequence[Ledger], delta: float, neighbours: str | None, observer: str, accountant: str = "all"
) -> dict[str, dict[str, Any]]:
    """ε by every accountant that covers the observer, the worst of several ledgers; null where it is infinite."""
    check_delta(delta)
    require(
        neighbours is None or neighbours in NEIGHBOURS,
        f"`neighbours` must be one of {', '.join(NEIGHBOURS)}; got {neighbours!r}",
    )
    require(observer in OBSERVERS, f"`observer` must be one of {', '.join(OBSERVERS)}; got {observer!r}")
    require(
        accountant == "all" or accountant in ACCOUNTANTS,
        f"no accountant named {accountant!r}; known: {', '.join(ACCOUNTANTS)}, all",
    )
    require(len(ledgers) > 0, "there is no ledger to account for")
    if observer == "base-station" and any(
        event.noise_power is None and event.noise_source != "none" for ledger in ledgers for event in ledger.events
    ):
        raise PrivacyError(
            "observer `base-station` needs the received powers that only a run's ledger has; give --ledger"
        )
    names = list(ACCOUNTANTS) if accountant == "all" else [accountant]
    answers = {}
    for name in names:
        kind = ACCOUNTANTS[name]
        if accountant == "all" and observer not in kind.observers:
            continue
        relation: Neighbours = neighbours or default_neighbours(ledgers[0])  # type: ignore[assignment]
        view: Observer = observer  # type: ignore[assignment]
        epsilon = max(make_accountant(name, ledger, relation, view).epsilon(delta) for ledger in ledgers)
        answers[name] = {
            "epsilon": epsilon if math.isfinite(epsilon) else None,
            "delta": delta,
            "observer": observer,
            # The published bound has its own relation built in.
            "neighbours": "replace" if name == "paper" else relation,
            "assumptions": kind.assumptions,
        }
    return answers
