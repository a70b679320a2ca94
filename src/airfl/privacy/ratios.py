"""What rounds tell together: Σ S²/v for those who see models, and the device seen best for those who see signals."""

from __future__ import annotations

import math
from collections.abc import Callable

from airfl.privacy.events import Neighbours, Observer, RoundEvent, reach
from airfl.privacy.exact import Exact, square_over
from airfl.privacy.ledger import Ledger


def squared_ratio(event: RoundEvent, neighbours: Neighbours) -> float:
    """S²/v of one round; infinite without noise, 0 where nobody is heard."""
    return square_over((event.clip_norm, event.gain_bound), event.noise_var, reach(neighbours) ** 2)


def squared_sum(ledger: Ledger, neighbours: Neighbours) -> float:
    """Σ_t S_t²/v_t, rounded once."""
    return exact_sum(ledger, ("squared", neighbours), lambda event: squared_ratio(event, neighbours))


def exact_sum(ledger: Ledger, key: tuple[str, ...], value: Callable[[RoundEvent], float]) -> float:
    """Σ_t value(round t), rounded once; ``key`` is a name for it under which the ledger keeps what it has added."""
    return ledger.fold(key, Exact(), lambda total, event, count: total.plus(value(event), count)).value


def seen_mu(ledger: Ledger, neighbours: Neighbours, observer: Observer) -> float:
    """μ of the device that an observer of signals sees best: μ_i² = Σ_t (c′ r_it)² over its own rounds.

    c′ = c or 2c; r_it is how visible the device is (``RoundEvent.base_station``). The ledger keeps a sum per device;
    where it does not, the most visible device of each round counts, which is never less.
    """
    if ledger.fold(("unbounded", observer), False, lambda found, e, _: found or e.visibility(observer) is None):
        return math.inf
    totals = ledger.devices.get(observer)
    if totals is not None:
        # T squares and their sum, each rounded, are a few more than T roundings too small at most.
        slack = 1.0 + (len(ledger.events) + 2) * 2.0**-52
        return reach(neighbours) * math.sqrt(totals.max(initial=0.0)) * slack
    return math.sqrt(exact_sum(ledger, ("seen", observer, neighbours), lambda e: _seen(e, neighbours, observer)))


def _seen(event: RoundEvent, neighbours: Neighbours, observer: Observer) -> float:
    return square_over((event.clip_norm, event.visibility(observer) or 0.0), 1.0, reach(neighbours) ** 2)
