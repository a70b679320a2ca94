"""Planning a link before anything is simulated: free ε, the perk margin, noise against update, energy, time on air.

In: what is known of a link. Out: an answer. Loads no torch: a plan is arithmetic and a look-up, so it answers at once.
"""

from dataclasses import replace

from airfl.linkplan.answer import Answer, answer, free_epsilon, noise_of
from airfl.linkplan.asking import pose
from airfl.linkplan.quantities import WORDS, Quantities, read_scenario, scenario_text
from airfl.linkplan.solving import exception, solve
from airfl.places import scenario_names

__all__ = [
    "WORDS",
    "Answer",
    "Quantities",
    "answer",
    "free_epsilon",
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
) -> Answer:
    """Answer a question in one call: join scenario and options, solve for the unknown, work out the rest."""
    quantities, unknown = pose(scenario, given or {}, solve_for)
    if unknown is not None:
        quantities = solve(quantities, unknown)
    return replace(answer(quantities, unknown, tolerated), not_at=exception(quantities, unknown))
