"""What an audit covers: the scheme, whom it promises something, who was heard, and who took part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from airfl.analysis.audit.mechanism import Mechanism
from airfl.catalogue import is_import_path, nearest
from airfl.errors import InputError
from airfl.privacy import Ledger, Observer, Sampling
from airfl.privacy.checks import Check
from airfl.privacy.participation_tests import participation_checks
from airfl.schemes import SCHEMES
from airfl.simulate import Simulation

#: Entries of who took part that are looked at.
PRESENCE_ENTRIES = 2**26


def check_scheme(scheme: str) -> None:
    """Refuse a scheme that does not exist."""
    if scheme not in SCHEMES and not is_import_path(scheme):
        raise InputError(f"no scheme named `{scheme}`{nearest(scheme, list(SCHEMES))}; known: {', '.join(SCHEMES)}")


def promised_to(single: Simulation) -> Observer | None:
    """Whom the scheme promises its ε; None where it promises nothing."""
    return single.scheme.observer if single.scheme.keeps_budget else None


def unheard(single: Simulation, heard: Sequence[str]) -> list[str]:
    """Observers that were not tested, and what they were promised."""
    words = {"models": "someone who sees every round's model", "base-station": "the base station"}
    promised = promised_to(single)
    return [
        f"{text}, {'to whom the scheme promises its ε' if promised == name else 'to whom this scheme promises nothing'}"
        for name, text in words.items()
        if name not in heard
    ]


def check_participation(
    mechanism: Mechanism, single: Simulation, ledger: Ledger, active: Sequence[np.ndarray]
) -> tuple[list[Check], list[str], list[str]]:
    """Checks of who took part in all repetitions, what was tested, and what was not."""
    sampling: Sampling = ledger.events[0].sampling
    if single.config.scheme.selection != "all":
        return [], [], ["who took part: devices are selected by their channels, and no credit is claimed for it"]
    parts = [mechanism.active, *active]
    width = max(part.shape[2] for part in parts)
    table = np.concatenate(
        [np.pad(part, ((0, 0), (0, 0), (0, width - part.shape[2])), constant_values=-1) for part in parts]
    )
    table = table[: max(1, PRESENCE_ENTRIES // (table.shape[1] * sampling.num_devices))]
    words = f"who took part: {len(table)} repetitions of {table.shape[1]} rounds"
    return participation_checks(table, sampling), [words], []
