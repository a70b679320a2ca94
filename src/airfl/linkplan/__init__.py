"""Planning a link before anything is simulated: free ε, the perk margin, noise against update, energy, time on air.

In: what is known of a link. Out: an answer. Loads no torch: a plan is arithmetic and a look-up, so it answers at once.
Channels are drawn, by whom a caller hands in, only for links that the tables of combiners do not cover, and for those
who ask for drops.
"""

from dataclasses import replace

from airfl.linkplan.answer import Answer, answer, free_epsilon, noise_of
from airfl.linkplan.asking import pose
from airfl.linkplan.combiners import Advance, Draw, law_of
from airfl.linkplan.quantities import WORDS, Quantities, read_scenario, scenario_text
from airfl.linkplan.solving import UNDRAWN, exception, refuse_drawn, solve
from airfl.places import scenario_names

__all__ = [
    "WORDS",
    "Answer",
    "Quantities",
    "answer",
    "free_epsilon",
    "law_of",
    "noise_of",
    "plan",
    "pose",
    "read_scenario",
    "scenario_names",
    "scenario_text",
    "solve",
]


def plan(
    scenario: str | None = None,
    given: dict[str, object] | None = None,
    solve_for: str | None = None,
    tolerated: float | None = None,
    drops: int | None = None,
    advance: Advance | None = None,
    draw: Draw | None = None,
) -> Answer:
    """Answer a question in one call: join scenario and options, solve for the unknown, work out the rest.

    Args:
        drops: how many channels' worth of places to draw, in place of the tables of combiners.
        advance: hears of every drop.
        draw: who draws channels, ``analysis.drawn_law.draw_law``; default: nobody, and only tables answer.
    """
    quantities, unknown = pose(scenario, given or {}, solve_for)
    if drops is not None and unknown in ("devices", "antennas"):
        refuse_drawn(unknown, "--drops")
    law = None if unknown in UNDRAWN else law_of(quantities, drops, advance, draw)
    if unknown is not None:  # then over as many rounds as were found, too: a few are luckier for the loudest device
        quantities = solve(quantities, unknown, law)
        law = law_of(quantities, drops, advance, draw)
    return replace(answer(quantities, unknown, tolerated, law=law), not_at=exception(quantities, unknown))
