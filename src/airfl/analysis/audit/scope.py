"""What an audit covers: the scheme, whom it promises something, who was heard, and who took part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from airfl.analysis.audit.mechanism import Mechanism
from airfl.analysis.audit.worlds import one_draw
from airfl.catalogue import is_import_path, no_such
from airfl.config import Config
from airfl.errors import InputError
from airfl.privacy import OBSERVERS, SEEING, Ledger, Observer, Sampling
from airfl.privacy.checks import Check
from airfl.privacy.participation_tests import participation_checks
from airfl.schemes import SCHEMES, FillUp, Scheme
from airfl.simulate import Simulation

#: Entries of who took part that are looked at.
PRESENCE_ENTRIES = 2**26
#: Draws of who takes part, where repetitions share one.
PRESENCE_DRAWS = 1000


def check_scheme(scheme: str) -> None:
    """Refuse a scheme that does not exist."""
    if scheme not in SCHEMES and not is_import_path(scheme):
        raise InputError(no_such("scheme", scheme, SCHEMES))


def check_observer(config: Config, scheme: Scheme, observer: Observer | None) -> None:
    """Refuse an observer who has nothing to look at in this run, and a scheme whose noise no ledger can vouch for."""
    if isinstance(scheme.policy, FillUp):
        raise InputError(
            f"scheme `{scheme.name}` chooses its noise by an estimate from updates, so its epsilon is not a proof and "
            "there is no claim to audit; audit `airfl-dp`, which keeps the same budget"
        )
    if observer is None:
        return
    if observer not in OBSERVERS:
        raise InputError(no_such("observer", observer, OBSERVERS))
    if observer in SEEING and not scheme.policy.over_air:
        raise InputError(
            f"scheme `{scheme.name}` has an ideal channel, and so no signals that `{observer}` could hear; audited are "
            "`model` and `models`"
        )
    if observer == "eavesdropper" and config.eavesdropper is None:
        raise InputError("there is no eavesdropper in this run; give a section [eavesdropper]: where is she?")


def listeners(config: Config, scheme: Scheme, observer: Observer | None) -> tuple[Observer, ...]:
    """Who of those that see signals is audited: who is asked for, else whom the scheme promises something."""
    if observer is not None:
        return (observer,) if observer in SEEING else ()
    promised = scheme.observer_in(config) if scheme.keeps_budget else "model"
    return (promised,) if promised in SEEING and scheme.policy.over_air else ()


def check_rotated(single: Simulation, listening: Sequence[Observer]) -> None:
    """Refuse to listen to blocks of rotated updates: the best test of a device lies in one block, and they do not."""
    if listening and single.config.channel.rotation and single.schedule.blocks is not None:
        raise InputError(
            f"an audit of `{listening[0]}` listens to one block, and `channel.rotation` spreads updates over all of "
            "them; audit `model` or `models`, or leave out the rotation, which changes no ε"
        )


def trains(observer: Observer | None) -> bool:
    """Whether models are audited: not where it is signals alone that are asked for."""
    return observer not in SEEING


def promised_to(single: Simulation) -> Observer | None:
    """Whom the scheme promises its ε; None where it promises nothing."""
    return single.scheme.observer_in(single.config) if single.scheme.keeps_budget else None


def unheard(single: Simulation, heard: Sequence[str]) -> list[str]:
    """Observers that were not tested, and what they were promised."""
    words = {
        "model": "someone who sees the final model",
        "models": "someone who sees every round's model",
        "base-station": "the base station",
        "eavesdropper": "the eavesdropper",
        "everything": "someone who sees what every device sends",
    }
    kept: set[str] = set(single.schedule.promise.kept) if single.scheme.keeps_budget else set()
    if "models" in kept:  # anyone who sees the last one only is promised no less
        kept.add("model")
    named = {"model", "models", "base-station", *kept, *(["eavesdropper"] if single.config.eavesdropper else [])}
    return [
        f"{text}, {'to whom the scheme promises its ε' if name in kept else 'to whom this scheme promises nothing'}"
        for name, text in words.items()
        if name in named and name not in heard
    ]


def check_participation(
    mechanism: Mechanism, single: Simulation, ledger: Ledger, active: Sequence[np.ndarray]
) -> tuple[list[Check], list[str], list[str]]:
    """Checks of who took part in all repetitions, what was tested, and what was not."""
    sampling: Sampling = ledger.events[0].sampling
    if single.config.scheme.selection != "all":
        return [], [], ["who took part: devices are selected by their channels, and no credit is claimed for it"]
    parts = [mechanism.active, *active]
    if one_draw(single) and sampling.law != "all":
        keyed = replace(single.schedule.link, participation_keys=tuple(range(PRESENCE_DRAWS)))
        parts = [keyed.active(range(single.config.system.rounds))]
    width = max(part.shape[2] for part in parts)
    table = np.concatenate(
        [np.pad(part, ((0, 0), (0, 0), (0, width - part.shape[2])), constant_values=-1) for part in parts]
    )
    table = table[: max(1, PRESENCE_ENTRIES // (table.shape[1] * sampling.num_devices))]
    words = f"who took part: {len(table)} repetitions of {table.shape[1]} rounds"
    return participation_checks(table, sampling), [words], []
