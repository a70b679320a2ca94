"""How long the accountants take, and how that grows: ``python -m benchmarks.accounting [--json]``.

Ratios are times for twice as many rounds over times for once as many: about 2 where the work is linear.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from airfl.privacy import (
    ACCOUNTANTS,
    Domain,
    Ledger,
    Observer,
    RoundEvent,
    Sampling,
    WhatIf,
    gaussian_epsilon,
    make_accountant,
)


def ledger(rounds: int, law: str = "all", rate: float = 1.0, *, domain: Domain | None = None) -> Ledger:
    """Rounds whose noise is all different."""
    variances = np.exp(np.random.default_rng(0).uniform(0.0, 4.0, rounds))
    sampling = Sampling(law, 50, 50 * rate)  # type: ignore[arg-type]
    return Ledger(
        tuple(
            RoundEvent(
                t, 1.0, 1.0, float(v), "channel", 1.0, sampling, 0.1, domain, hides_participation=True, base_station=1.0
            )
            for t, v in enumerate(variances)
        )
    )


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times)


def grow(accountant: str, rounds: int, observer: str = "model", devices: int = 0) -> float:
    """A run that looks at ε after every round; first that the last one is what all rounds at once give."""
    gaussian_epsilon.cache_clear()
    everyone = Sampling("all", devices, devices) if devices else None
    events = [replace(event, sampling=everyone or event.sampling) for event in ledger(rounds).events]
    seen: dict[Observer, np.ndarray] = {"base-station": np.linspace(0.0, 1.0, devices)} if devices else {}
    book, spent = Ledger(), 0.0
    for event in events:
        book = book.append(event, seen)
        spent = make_accountant(accountant, book, "replace", observer).epsilon(1e-5)  # type: ignore[arg-type]
    afresh = make_accountant(accountant, Ledger(events, book.devices), "replace", observer)  # type: ignore[arg-type]
    assert spent == afresh.epsilon(1e-5)
    return spent


def ask(rounds: int, rate: float, poisson: bool) -> None:
    """All that `airfl epsilon` computes."""
    book = WhatIf(1.0, 1e6, rounds, rate, poisson).ledger()
    for name, kind in ACCOUNTANTS.items():
        make_accountant(name, book, "zero-out", kind.observers[0]).epsilon(1e-5)


def floor(rate: float) -> None:
    """What `airfl-dp` asks for before it begins, with rare participation."""
    sampling = Sampling("poisson", 10**9, rate * 10**9)
    template = RoundEvent(0, 1.0, 1.0, 1.0, "channel", 2.0, sampling, 0.1, hides_participation=True)
    ACCOUNTANTS["sampled"].budget(1.0, 1e-5, template, "zero-out", 10)


def ratios() -> dict[str, float]:
    """Time for twice the rounds over time for once the rounds."""
    cases: dict[str, tuple[Callable[[int], object], int]] = {
        "every round of a run, gaussian, T = 4,000 → 8,000": (lambda t: grow("gaussian", t), 4000),
        "every round of a run, liu2020, T = 4,000 → 8,000": (lambda t: grow("liu2020", t), 4000),
        "every round of a run, base station, T = 4,000 → 8,000": (
            lambda t: grow("gaussian", t, "base-station"),
            4000,
        ),
        "every round of a run, base station and 6,000 devices, T = 4,000 → 8,000": (
            lambda t: grow("gaussian", t, "base-station", 6000),
            4000,
        ),
        "what-if, all accountants, T = 500,000 → 1,000,000": (lambda t: ask(t, 1.0, False), 500_000),
    }
    found = {}
    for name, (work, rounds) in cases.items():
        once, twice = (seconds(partial(work, count), 2) for count in (rounds, 2 * rounds))
        found[name] = twice / once
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    domain = Domain(diameter=3.0, smoothness=1.0, learning_rate=0.005, local_steps=5, mean_gain=1.0)
    cases = {
        "gaussian, T = 10,000": ("gaussian", ledger(10_000), "replace"),
        "convergent, T = 5,000": ("convergent", ledger(5_000, domain=domain), "replace"),
        "sampled, Poisson r = 0.1, T = 500": ("sampled", ledger(500, "poisson", 0.1), "zero-out"),
        "sampled, Poisson r = 0.9, T = 500": ("sampled", ledger(500, "poisson", 0.9), "zero-out"),
        "sampled, 5 of 50, T = 500": ("sampled", ledger(500, "without-replacement", 0.1), "replace"),
    }
    results = {}
    for name, (accountant, book, neighbours) in cases.items():
        make_accountant(accountant, ledger(2, "poisson", 0.5), "zero-out").epsilon(1e-5)  # imports do not count

        def work(accountant: str = accountant, book: Ledger = book, neighbours: str = neighbours) -> float:
            return make_accountant(accountant, book, neighbours).epsilon(1e-5)  # type: ignore[arg-type]

        results[name] = seconds(work, repeat=1)  # answers are kept: one call counts
    results["what-if, all accountants, T = 1,000,000"] = seconds(lambda: ask(10**6, 1.0, False), 1)
    results["what-if, Poisson r = 0.1, T = 1,000,000"] = seconds(lambda: ask(10**6, 0.1, True), 1)
    for rate in (1e-6, 1e-9):
        results[f"floor of a budget, Poisson r = {rate:g}"] = seconds(partial(floor, rate), 1)
    doubled = ratios()
    if asked.json:
        print(json.dumps({**results, "ratios": doubled}))
        return
    for name, value in results.items():
        print(f"{name:<72} {1e3 * value:10.1f} ms")
    for name, value in doubled.items():
        print(f"{name:<72} {value:10.2f} times")


if __name__ == "__main__":
    main()
