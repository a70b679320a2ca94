"""Does the audit see? Every planted defect must be caught, and runs without any must pass."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from airfl.analysis.audit.planted import DEFECTS, SHIELDED, CoverName, little_config
from airfl.analysis.audit.run import audit_run
from airfl.analysis.audit.worlds import repeated
from airfl.errors import InputError
from airfl.privacy import ACCOUNTANTS

#: Audits of runs without a defect, every how many of them claims credit for sampling, every how many is shielded, and
#: every how many, of whatever kind, has interference.
CLEAN, SAMPLED_EVERY, SHIELDED_EVERY, DISTURBED_EVERY = 300, 4, 5, 7


@dataclass(frozen=True)
class SelfTest:
    """What became of the planted defects and of the clean audits.

    Attributes:
        bugs: defect -> what caught it; empty if it was missed.
        alarms: what each clean audit found, in the order of their seeds; empty where nothing.
    """

    bugs: dict[str, list[str]]
    alarms: tuple[list[str], ...]

    @property
    def missed(self) -> list[str]:
        """Defects that no audit saw."""
        return [name for name, caught in self.bugs.items() if not caught]

    @property
    def summary(self) -> dict[str, Any]:
        """The object that ``airfl audit --self-test --json`` prints."""
        return {
            "planted": len(self.bugs),
            "missed": len(self.missed),
            "clean": len(self.alarms),
            "false_alarms": sum(bool(alarm) for alarm in self.alarms),
            "bugs": [
                {"name": name, "caught": bool(caught), "by": caught[0] if caught else None, "all_by": caught}
                for name, caught in self.bugs.items()
            ],
            "alarms": [{"seed": seed, "by": alarm} for seed, alarm in enumerate(self.alarms) if alarm],
        }


def self_test(
    clean: int = CLEAN,
    repetitions: int = 1000,
    *,
    workers: int = 1,
    advance: Callable[[int], None] | None = None,
) -> SelfTest:
    """Audit every planted defect once, and so many runs without any, each with a seed of its own.

    Args:
        repetitions: as of any audit.
        workers: audits at a time, each in a process; 1: in this one.
    """
    if clean < 0:
        raise InputError(f"`clean` must not be negative; got {clean}")
    jobs = [(which, which, repetitions) for which in range(len(DEFECTS))]
    jobs += [(-1, seed, repetitions) for seed in range(clean)]
    found = []
    for answer in _worked_off(jobs, workers):
        found.append(answer)
        if advance is not None:
            advance(1)
    bugs = {defect.name: caught for defect, caught in zip(DEFECTS, found, strict=False)}
    return SelfTest(bugs, tuple(found[len(DEFECTS) :]))


def _worked_off(jobs: list[tuple[int, int, int]], workers: int) -> Iterator[list[str]]:
    if workers <= 1:
        yield from map(_audit, jobs)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, torch.set_num_threads, (1,)) as pool:
        yield from pool.map(_audit, jobs)


def _audit(job: tuple[int, int, int]) -> list[str]:
    """What speaks against one run: checks that failed and proofs that are refuted, by name."""
    which, seed, repetitions = job
    sampled, cover = (DEFECTS[which].sampled, DEFECTS[which].cover) if which >= 0 else _kind(seed)
    disturbed = DEFECTS[which].disturbed if which >= 0 else seed % DISTURBED_EVERY == DISTURBED_EVERY - 1
    opener = DEFECTS[which].open if which >= 0 else repeated
    scheme = "airfl-dp" if cover is None else SHIELDED
    audit = audit_run(little_config(seed, sampled, cover, disturbed=disturbed), scheme, repetitions, opener=opener)
    refuted = [f"ε of {name} refuted" for name in audit.refuted if ACCOUNTANTS[name].valid]
    return [check.name for check in audit.failed] + refuted


def _kind(seed: int) -> tuple[bool, CoverName | None]:
    """Whether a run without a defect is sampled, and what its devices hide in."""
    if seed % SHIELDED_EVERY == SHIELDED_EVERY - 1:
        return False, "masks" if seed // SHIELDED_EVERY % 2 else "quadrature"
    return seed % SAMPLED_EVERY == SAMPLED_EVERY - 1, None
