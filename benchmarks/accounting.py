"""How long the accountants take: ``python -m benchmarks.accounting [--json]``."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np

from airfl.privacy import Domain, Ledger, RoundEvent, Sampling, make_accountant


def ledger(rounds: int, law: str = "all", rate: float = 1.0, *, domain: Domain | None = None) -> Ledger:
    """Rounds whose noise is all different."""
    variances = np.exp(np.random.default_rng(0).uniform(0.0, 4.0, rounds))
    sampling = Sampling(law, 50, 50 * rate)  # type: ignore[arg-type]
    return Ledger(
        tuple(
            RoundEvent(
                t, 1.0, 1.0, float(v), "channel", 1.0, 1.0, sampling, 0.1, domain=domain, hides_participation=True
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    domain = Domain(diameter=3.0, smoothness=1.0, learning_rate=0.005, local_steps=5, mean_gain=1.0)
    cases = {
        "gaussian, T = 10,000": ("gaussian", ledger(10_000), "replace"),
        "convergent, T = 5,000": ("convergent", ledger(5_000, domain=domain), "replace"),
        "sampled, Poisson r = 0.1, T = 500": ("sampled", ledger(500, "poisson", 0.1), "add-remove"),
        "sampled, Poisson r = 0.9, T = 500": ("sampled", ledger(500, "poisson", 0.9), "add-remove"),
        "sampled, 5 of 50, T = 500": ("sampled", ledger(500, "without-replacement", 0.1), "replace"),
    }
    results = {}
    for number, (name, (accountant, book, neighbours)) in enumerate(cases.items()):
        make_accountant(accountant, ledger(2, "poisson", 0.5), "add-remove").epsilon(1e-5)  # imports do not count

        def work(accountant: str = accountant, book: Ledger = book, neighbours: str = neighbours) -> float:
            return make_accountant(accountant, book, neighbours).epsilon(1e-5)  # type: ignore[arg-type]

        # The library's compositions are cached: one call counts.
        results[name] = seconds(work, repeat=3 if number < 2 else 1)
    if asked.json:
        print(json.dumps(results))
        return
    for name, value in results.items():
        print(f"{name:<36} {1e3 * value:10.1f} ms")


if __name__ == "__main__":
    main()
