"""A plan in one call, from Python: with channels drawn where the tables of combiners do not cover the link."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

from airfl.catalogue import nearest
from airfl.errors import InputError
from airfl.linkplan import Answer
from airfl.linkplan import plan as answer_to
from airfl.linkplan.combiners import Advance
from airfl.linkplan.law import Drawn
from airfl.linkplan.quantities import FLAGS, WORDS, Quantities, word_of


def plan(
    scenario: str | None = None,
    *,
    solve_for: str | None = None,
    tolerated: float | None = None,
    drops: int | None = None,
    **quantities: Any,
) -> Answer:
    """What a link gives, or what it must be: free ε, the perk margin, noise against update, energy, time on air.

    Args:
        scenario: a scenario of ``airfl plan`` or a TOML file; ``quantities`` come before what it says.
        solve_for: the unknown, by its name; default: the one quantity that is left out.
        tolerated: the noise-to-update ratio for the smallest number of devices.
        drops: draw so many places of the devices with their channels, in place of the tables of combiners.
        quantities: ``devices``, ``active``, ``antennas``, ``power_w`` or ``power_dbm``, ``distance_m``,
            ``bandwidth_hz``, ``parameters``, ``rounds``, ``epsilon`` and the others of ``airfl.linkplan.Quantities``.
    """
    known = [*(field.name for field in fields(Quantities)), "active"]
    for name in quantities:
        if name not in known:
            hint = nearest(name, known) or f"; known: {', '.join(known)}"
            raise InputError(f"a plan has no quantity `{name}`{hint}")
    try:
        wanted = None if solve_for is None else word_of(solve_for)
        return answer_to(scenario, quantities, wanted, tolerated, drops, draw=draw_when_needed)
    except InputError as error:  # which speaks of options
        raise InputError(re.sub(r"--([a-z]+(-[a-z]+)*)", lambda found: _name(found[1]), str(error))) from None


def draw_when_needed(q: Quantities, drops: int | None = None, advance: Advance | None = None) -> Drawn:
    """``draw_law``, which takes PyTorch and seconds to load; a plan from tables does without."""
    from airfl.analysis.drawn_law import draw_law

    return draw_law(q, drops, advance)


def _name(word: str) -> str:
    """A quantity's own name for the word of the command line."""
    own = {flag: name for name, flag in FLAGS.items()} | WORDS
    return f"`{own.get(word, word.replace('-', '_'))}`"
