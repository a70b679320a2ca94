"""Sampling credit: one function of stated facts, every yes with an argument, and nobody else decides it."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant
from scipy.stats import norm

from airfl.channel.blocks import grid_of
from airfl.errors import InputError
from airfl.privacy.events import SAMPLING_LAWS
from airfl.rounds import arrange
from airfl.rounds.arrange import _arrange_blocks
from airfl.rounds.credit import ARGUMENTS, Facts, earns_sampling_credit, facts_of
from airfl.rounds.promise import make_promise
from airfl.schemes import SCHEMES
from airfl.testing.small import small_config
from airfl.transceiver import open_radio

ROOT = Path(__file__).parents[1]
TELLING = [one.name for one in fields(Facts) if one.name not in ("law", "remembers")]
DUE = {("poisson", False), ("poisson", True), ("without-replacement", False), ("binomial", False)}


@pytest.mark.parametrize("law", SAMPLING_LAWS)
@pytest.mark.parametrize("remembers", [False, True])
def test_credit_is_due_for_four_laws_and_with_no_fact_that_tells(law, remembers):
    """All 5 × 2 × 2⁸ combinations of facts."""
    for told in product([False, True], repeat=len(TELLING)):
        facts = Facts(law, remembers, **dict(zip(TELLING, told, strict=True)))
        assert earns_sampling_credit(facts) == ((law, remembers) in DUE and not any(told))


def test_every_yes_has_its_argument_in_the_docs():
    pages = (ROOT / "docs" / "privacy.md").read_text()
    assert ARGUMENTS.keys() == DUE
    for argument in ARGUMENTS.values():
        assert f"- *{argument}*" in pages


def test_one_file_decides_it():
    """Others carry the answer on; nobody else makes it out of a law, a cover or a policy."""
    code = {path: path.read_text() for path in (ROOT / "src" / "airfl" / "rounds").glob("*.py")}
    assert [path.name for path, text in code.items() if "Facts(" in text] == ["credit.py"]
    asking = {path.name for path, text in code.items() if "earns_sampling_credit(facts" in text}
    assert asking == {"credit.py", "promise.py"}


@pytest.mark.parametrize(("std", "rate"), [(0.7, 0.3), (2.0, 0.6)])
def test_independent_coins_by_brute_force(std, rate):
    """δ of N(0, v) against the mixture, on a grid, is what the library composes."""
    grid = np.linspace(-12.0, 13.0, 400_001)
    without, within = norm.pdf(grid, 0.0, std), (1 - rate) * norm.pdf(grid, 0.0, std) + rate * norm.pdf(grid, 1.0, std)
    accountant = PLDAccountant()
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(std)))
    for epsilon in (0.2, 1.0):
        brute = max(
            float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum() * (grid[1] - grid[0]))
            for one, other in ((within, without), (without, within))
        )
        assert accountant.get_delta(epsilon) == pytest.approx(brute, rel=1e-3)


def several_blocks(scheme, **changes):
    config = small_config(
        {"system.sampling": "poisson", "system.participation": 0.6, "scheme.combiner_columns": "all", **changes}
    )
    return config.replace({"channel.coherence_hz": 5e6}), SCHEMES[scheme]


def test_devices_that_add_noise_earn_no_credit_whatever_checks_are_in_the_way():
    """`airfl-an` with Poisson sampling in several blocks: refused, and without credit where the refusal is left out."""
    config, scheme = several_blocks("airfl-an", **{"channel.power_w": 10.0, "channel.cell_radius_m": 200.0})
    radio = open_radio(config, [0])
    with pytest.raises(InputError, match="hides devices in noise or masks"):
        arrange(config, scheme, radio, 18)
    promise = make_promise(config, 18, radio.link.noise_power, None, scheme)
    assert not promise.template.hides_participation
    schedule = _arrange_blocks(config, scheme, radio, promise, 1.0, 18, grid_of(config, 18))
    assert schedule.hides_participation == (False,)
    plain, other = several_blocks("airfl-dp")
    assert arrange(plain, other, open_radio(plain, [0]), 18).hides_participation == (True,)  # so that it can fail


def test_facts_of_schemes():
    config = small_config({"system.sampling": "poisson", "system.participation": 0.5})
    assert facts_of(config, SCHEMES["airfl-dp"]) == Facts("poisson")
    assert facts_of(config, SCHEMES["one-bit-memory"]) == Facts("poisson", remembers=True)
    assert facts_of(config, SCHEMES["tci"]).follows_draws
    assert facts_of(config, SCHEMES["tci"]).looks
    assert facts_of(config, SCHEMES["park2023"]).follows_data
    assert replace(facts_of(config, SCHEMES["airfl-an"]), adds_noise=False) == Facts("poisson")
