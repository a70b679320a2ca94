"""Fuzzers: seeded odd inputs, each of which must work, or be refused in one sentence, and never lie.

``FUZZERS`` names each with the number of inputs of a whole run; the suite takes a few of them.
"""

from collections.abc import Callable
from pathlib import Path

from tests.fuzz.configurations import configurations
from tests.fuzz.epsilons import epsilons
from tests.fuzz.flips import flips
from tests.fuzz.odd import odd_studies
from tests.fuzz.plans import plans
from tests.fuzz.promises import promises
from tests.fuzz.studies import damaged_studies, study_flips
from tests.fuzz.tally import Tally

FUZZERS: dict[str, tuple[Callable[[int, int, Path], Tally], int]] = {
    "configurations": (configurations, 500),
    "epsilons": (epsilons, 400),
    "plans": (plans, 300),
    "promises": (promises, 800),
    "flips": (flips, 360),
    "study-flips": (study_flips, 200),
    "studies": (lambda count, seed, folder: damaged_studies(count, seed), 130),
    "odd-studies": (lambda count, seed, folder: odd_studies(count, seed), 45),
}
