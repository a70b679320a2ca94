"""Our accountants behind Flower's protocol, beside Flower's own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("flwr")

from flwr.serverapp import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyAccountant,
    PrivacyConfig,
    RdpAccountant,
    SamplingMethod,
)
from flwr.serverapp.exception import PrivacyBudgetExhausted
from flwr.serverapp.strategy import DifferentialPrivacyServerSideFixedClipping, FedAvg

from airfl.flower import AirAccountant, AirPrivacyConfig
from airfl.privacy import PrivacyError, gaussian_epsilon
from tests.oracles.flower import FakeGrid, moved, softmax_arrays

ADD, REPLACE = NeighboringRelation.ADD_OR_REMOVE_ONE, NeighboringRelation.REPLACE_ONE
ALL, POISSON, FIXED = SamplingMethod.NO_AMPLIFICATION, SamplingMethod.POISSON, SamplingMethod.WITHOUT_REPLACEMENT


def config(method=ALL, relation=ADD, limit=None, size=100):
    return PrivacyConfig(1e-5, size, relation, method, limit)


def event(multiplier=4.0, sample=100, size=100):
    return GaussianPrivacyEvent(multiplier, sample, size)


def test_it_has_all_that_the_protocol_asks_for():
    asked = [name for name in dir(PrivacyAccountant) if not name.startswith("_")]
    assert asked
    assert all(hasattr(AirAccountant, name) for name in asked)


@settings(max_examples=25)
@given(st.floats(0.5, 50.0), st.integers(1, 30), st.floats(1e-8, 0.1))
def test_without_amplification_it_is_exact_and_below_flowers_own(multiplier, count, delta):
    ours, theirs = AirAccountant(config()), RdpAccountant(config())
    for accountant in (ours, theirs):
        accountant.compose(event(multiplier), count)
    assert ours.num_releases == theirs.num_releases == count
    assert ours.get_epsilon(delta) == pytest.approx(
        gaussian_epsilon(delta, count**0.5 / multiplier), rel=1e-9, abs=1e-12
    )
    assert ours.get_epsilon(delta) <= theirs.get_epsilon(delta) + 1e-9
    assert ours.get_delta(ours.get_epsilon(delta)) <= delta * (1 + 1e-9)


def test_poisson_sampling_earns_credit_and_stays_below_flowers_own():
    ours, theirs = AirAccountant(config(POISSON)), RdpAccountant(config(POISSON))
    for accountant in (ours, theirs):
        accountant.compose(event(1.0, 5), 20)
    assert ours.get_epsilon(1e-5) <= theirs.get_epsilon(1e-5) * (1 + 1e-6)
    assert ours.get_epsilon(1e-5) < 0.2 * gaussian_epsilon(1e-5, 20**0.5)


def test_another_contribution_is_twice_as_far_as_none():
    """z counts clip norms, and a node whose update becomes any other one moves the sum by two of them."""
    ours = AirAccountant(AirPrivacyConfig(1e-5, 100, REPLACE, ALL))
    ours.compose(event(4.0))
    assert ours.get_epsilon(1e-5) == pytest.approx(gaussian_epsilon(1e-5, 0.5))
    drawn = AirAccountant(config(FIXED, REPLACE))
    drawn.compose(event(4.0, 100))
    assert drawn.get_epsilon(1e-5) == pytest.approx(gaussian_epsilon(1e-5, 0.5))


def test_what_would_exceed_is_not_booked():
    ours = AirAccountant(config(limit=2.0))
    allowed = 0
    while not ours.would_exceed(event()):
        ours.compose(event())
        allowed += 1
    assert ours.get_epsilon(1e-5) <= 2.0 < gaussian_epsilon(1e-5, (allowed + 1) ** 0.5 / 4.0)
    assert ours.would_exceed(event(), 100.0) is False
    assert ours.num_releases == allowed
    with pytest.raises(PrivacyError, match="max_epsilon"):
        AirAccountant(config()).would_exceed(event())


def test_state_goes_round_and_damage_is_refused():
    ours = AirAccountant(config(limit=3.0))
    ours.compose(event(5.0), 3)
    state, again = ours.state_dict(), AirAccountant(config(limit=3.0))
    again.load_state_dict(state)
    assert again.get_privacy_spent() == ours.get_privacy_spent()
    with pytest.raises(PrivacyError, match="config"):
        AirAccountant(config(limit=9.0)).load_state_dict(state)
    with pytest.raises(PrivacyError, match="accountant"):
        AirAccountant(config(limit=3.0), "sampled").load_state_dict(state)
    state["ledger"]["events"][0]["noise_var"] *= 2.0
    with pytest.raises(PrivacyError, match="changed"):
        again.load_state_dict(state)
    with pytest.raises(PrivacyError):
        again.load_state_dict({})
    assert again.num_releases == 3


@pytest.mark.parametrize("bad", [lambda a: a.compose(event(), 0), lambda a: a.compose(event(size=99, sample=9))])
def test_events_of_other_fleets_are_refused(bad):
    ours = AirAccountant(config())
    with pytest.raises(PrivacyError):
        bad(ours)
    assert ours.num_releases == 0


def test_flowers_own_wrapper_takes_it_and_stops():
    """Flower's FedAvg with clipping and noise at the server, booked by airfl."""
    ours = AirAccountant(config(limit=4.0, size=6))
    wrapped = DifferentialPrivacyServerSideFixedClipping(FedAvg(fraction_evaluate=0.0), 3.0, 1.0, 6, accountant=ours)
    torch.manual_seed(0)
    with pytest.raises(PrivacyBudgetExhausted):
        wrapped.start(FakeGrid(6, moved(0.1)), softmax_arrays(), 50)
    spent = ours.get_privacy_spent()
    assert spent.epsilon <= 4.0 < gaussian_epsilon(1e-5, (spent.num_releases + 1) ** 0.5 / 3.0)
    assert spent.accounting_method == "airfl gaussian"
