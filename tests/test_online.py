from __future__ import annotations

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from airfl.errors import InputError
from airfl.transceiver.allocation import allocate
from airfl.transceiver.combiners.zero_forcing import zero_forcing
from airfl.transceiver.online import (
    Knowledge,
    KnownLaw,
    MovingEstimate,
    Predictions,
    allocate_online,
    next_norm,
    noisy_predictions,
)

ROUNDS = 50


def tensor(values) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


def policies(minimum: torch.Tensor, seed: int = 0) -> dict[str, Knowledge]:
    """Every kind of knowledge, right and grossly wrong."""
    rng = np.random.default_rng(seed)
    law = minimum.flatten()[torch.from_numpy(rng.integers(0, minimum.numel(), 16))]
    return {
        "law": KnownLaw(law),
        "law far too small": KnownLaw(law * 1e-6),
        "law far too large": KnownLaw(law * 1e6, reserve=1e-6),
        "one value": KnownLaw(tensor([1.0])),
        "beyond the floats": KnownLaw(tensor([1e-200, 1.0, 1e200])),
        "equal shares": KnownLaw(law, reserve=1.0),
        "moving": MovingEstimate(),
        "perfect": Predictions.made_at_start(minimum, 1.0),
        "sure and wrong": Predictions.made_at_start(1.0 / minimum, 1.0),
        "noisy": Predictions.made_at_start(noisy_predictions(minimum, 0.9, rng), 0.9),
        "blind": Predictions.made_at_start(noisy_predictions(minimum, 0.0, rng), 0.0),
    }


def assert_kept(minimum: torch.Tensor, budget: float, knowledge: Knowledge) -> torch.Tensor:
    """The hard promises: q ≥ π, finite, Σ 1/q² ≤ A in every order tried, and no round far above an equal share."""
    q = allocate_online(minimum, budget, knowledge)
    assert q.shape == minimum.shape
    assert q.dtype == torch.float64
    assert bool(torch.isfinite(q).all())
    assert bool((q >= minimum).all())
    spent = 1.0 / q.square()
    ascending = spent.sort(dim=-1).values
    for order in (spent, spent.flip(-1), ascending, ascending.flip(-1)):
        one_by_one = order.cumsum(-1)[..., -1]
        assert bool((one_by_one <= budget).all())
        assert bool((order.sum(-1) <= budget).all())
    relative = minimum.shape[-1] / knowledge.reserve  # of A over the share that every round keeps
    slack = 1.0 + 1e-9 + 16 * relative * torch.finfo(torch.float64).eps  # what is left of A is known to a few ulp of A
    assert bool((q.square() <= torch.maximum(minimum.square(), tensor(relative / budget)) * slack).all())
    return q


def adversarial(count: int, rounds: int) -> torch.Tensor:
    """Sequences [count, rounds] that mislead: trends, jumps, spikes and heavy tails, at scales from 1e-6 to 1e6."""
    rng = np.random.default_rng(1)
    t, each = np.linspace(-1, 1, rounds), count // 8
    steep = 10 ** rng.uniform(-2, np.log10(6), (each, 1))  # decades over the run
    spikes = np.where(rng.random((each, rounds)) < 0.1, 10.0 ** rng.uniform(-6, 6, (each, 1)), 1.0)
    jump = np.where(t[None] < rng.uniform(-1, 1, (each, 1)), 1.0, 10.0 ** rng.uniform(-6, 6, (each, 1)))
    last = np.where(np.arange(rounds) == rounds - 1, 10.0 ** rng.uniform(-6, 6, (each, 1)), 1.0)
    families = [
        10 ** (steep * t),
        10 ** (-steep * t),
        np.ones((each, rounds)),
        spikes,
        jump,
        last,
        np.abs(rng.standard_cauchy((each, rounds))) + 1e-6,
        10.0 ** rng.uniform(-6, 6, (each, rounds)),
    ]
    scale = 10.0 ** rng.uniform(-6, 6, (8, each, 1))
    return tensor((np.stack(families) * scale).reshape(8 * each, rounds))


@pytest.mark.parametrize("name", policies(torch.ones(1)).keys())
def test_ten_thousand_adversarial_sequences_never_overspend(name):
    minimum = adversarial(10_000, 20)
    assert minimum.shape == (10_000, 20)
    for budget in (1e-6, 1.0, 1e6):
        assert_kept(minimum, budget, policies(minimum)[name])


@given(
    st.lists(st.floats(-6, 6), min_size=1, max_size=30),
    st.floats(-8, 8),
    st.sampled_from(sorted(policies(torch.ones(1)))),
)
def test_never_overspends(decades, budget_decades, name):
    minimum = 10.0 ** tensor(decades)
    q = assert_kept(minimum, 10.0**budget_decades, policies(minimum)[name])
    assert math.fsum(1.0 / value**2 for value in q.tolist()) <= 10.0**budget_decades


@given(st.integers(0, 10**6), st.integers(0, 19), st.sampled_from(sorted(policies(torch.ones(1)))))
def test_the_future_changes_nothing_before(seed, t, name):
    rng = np.random.default_rng(seed)
    minimum = tensor(np.exp(rng.standard_normal((3, 20))))
    budget = float((1 / minimum.square()).sum(-1).mean()) * 0.5
    knowledge = policies(minimum)[name]  # what is predicted stays the same
    other = minimum.clone()
    other[:, t + 1 :] = tensor(10.0 ** rng.uniform(-6, 6, (3, 19 - t)))
    before, after = (allocate_online(pi, budget, knowledge)[:, : t + 1] for pi in (minimum, other))
    assert torch.equal(before, after)


@given(st.integers(0, 10**6), st.integers(1, 30), st.floats(0.05, 1.2))
def test_perfect_predictions_give_the_offline_optimum(seed, rounds, part):
    rng = np.random.default_rng(seed)
    minimum = tensor(np.exp(rng.uniform(0.01, 1.5) * rng.standard_normal((4, rounds))))
    minimum = torch.cat([minimum, minimum.sort(-1).values, minimum.sort(-1, descending=True).values])
    budget = part * float((1 / minimum.square()).sum(-1).mean())
    online = allocate_online(minimum, budget, Predictions.made_at_start(minimum, 1.0)).square().sum(-1)
    offline = allocate(minimum, budget).square().sum(-1)
    assert torch.allclose(online, offline, rtol=1e-7)


@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(1, 40))
def test_the_level_solves_its_equation(seed, rounds_left, size):
    """q_t with π_t out of the way, against bisection."""
    rng = np.random.default_rng(seed)
    law = np.exp(rng.standard_normal(size))
    budget = float(rng.uniform(0.05, 1.5) * rounds_left * (1 / law**2).mean())
    low, high = 1e-6, math.sqrt(rounds_left / budget)
    for _ in range(200):
        mid = math.sqrt(low * high)
        planned = 1 / mid**2 + (rounds_left - 1) * float((1 / np.maximum(law, mid) ** 2).mean())
        low, high = (mid, high) if planned > budget else (low, mid)
    nothing_spent = torch.zeros((), dtype=torch.float64)
    q = next_norm(tensor([1e-9]), nothing_spent, rounds_left, budget, KnownLaw(tensor(law), reserve=1e-7))
    assert float(q) == pytest.approx(high, rel=1e-5)


def test_enough_for_everyone_is_a_perk():
    """If the channel alone pays, also in what the law expects, nothing is held back."""
    minimum = tensor(np.exp(0.1 * np.random.default_rng(0).standard_normal((5, ROUNDS))))
    for knowledge in (KnownLaw(minimum.flatten()), MovingEstimate()):
        assert torch.equal(allocate_online(minimum, 10.0 * ROUNDS, knowledge), minimum)


@given(st.integers(0, 10**6), st.floats(1e-4, 1e4))
def test_scale_invariance_and_batching(seed, scale):
    minimum = tensor(np.exp(np.random.default_rng(seed).standard_normal((3, 2, 12))))
    for name, knowledge in policies(minimum).items():
        if name in ("one value", "beyond the floats", "sure and wrong"):
            continue
        q = allocate_online(minimum, 3.0, knowledge)
        scaled = allocate_online(minimum * scale, 3.0 / scale**2, policies(minimum * scale)[name])
        assert torch.allclose(q * scale, scaled, rtol=1e-6)
    alone = allocate_online(minimum[2, 1], 3.0, MovingEstimate())
    assert torch.allclose(allocate_online(minimum, 3.0, MovingEstimate())[2, 1], alone, rtol=1e-13)


# How close to the offline optimum: i.i.d. fading, at budgets where 20, 50 and 80 % of the offline rounds sit at π_t.


def zero_forcing_norms(rng: np.random.Generator, distances_m: np.ndarray) -> np.ndarray:
    """π of Rayleigh channels with free-space path loss, K = 45 devices at these distances [..., K], m = 100."""
    shape = (*distances_m.shape, 100)
    fading = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return zero_forcing(torch.from_numpy(fading / distances_m[..., None])).require_ok().norm.numpy()


def drop(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return 1000.0 * np.sqrt(rng.random((*shape, 45)))


@pytest.fixture(scope="module")
def fading() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Runs [batch, T] and, drawn apart from them, samples of their law."""
    rng = np.random.default_rng(2)
    moving = np.stack([zero_forcing_norms(rng, drop(rng, ROUNDS)) for _ in range(40)])
    moving_law = np.concatenate([zero_forcing_norms(rng, drop(rng, 64)) for _ in range(4)])
    # A geometry per run, kept for all its rounds, in units of that run's own scale so that one budget suits all.
    still = np.stack([zero_forcing_norms(rng, np.repeat(drop(rng, 1), ROUNDS + 64, axis=0)) for _ in range(40)])
    still /= still.mean(-1, keepdims=True)
    quantiles = torch.special.ndtri((torch.arange(256, dtype=torch.float64) + 0.5) / 256)
    return {
        "new drop every round": (tensor(moving), tensor(moving_law)),
        "one drop": (tensor(still[:, :ROUNDS]), tensor(still[:, ROUNDS:])),
        "lognormal": (tensor(np.exp(0.5 * rng.standard_normal((1000, ROUNDS)))), torch.exp(0.5 * quantiles)),
    }


def budget_for(minimum: torch.Tensor, at_minimum: float) -> float:
    """The budget at which this fraction of the offline rounds sits at π_t."""
    low, high = -6.0, 1.0
    base = float((1 / minimum.square()).sum(-1).mean())
    for _ in range(50):
        mid = 0.5 * (low + high)
        fraction = float((allocate(minimum, base * 10**mid) <= minimum).double().mean())
        low, high = (mid, high) if fraction < at_minimum else (low, mid)
    return base * 10**high


@pytest.mark.parametrize("at_minimum", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("setting", ["new drop every round", "one drop", "lognormal"])
def test_close_to_the_offline_optimum(fading, setting, at_minimum):
    """Means in %, worst setting: known law 0.7, moving estimate 1.2, predictions (ρ = 0.9) 0.3, (ρ = 0.5) 0.6."""
    minimum, law = fading[setting]
    budget = budget_for(minimum, at_minimum)
    offline = allocate(minimum, budget)
    assert float((offline <= minimum).double().mean()) == pytest.approx(at_minimum, abs=0.02)
    cases: list[tuple[Knowledge, float]] = [(KnownLaw(law), 0.01), (MovingEstimate(), 0.015)]
    for correlation, bound in ((1.0, 1e-9), (0.9, 0.005), (0.5, 0.01)):
        predicted = noisy_predictions(minimum, correlation, np.random.default_rng(3))
        cases.append((Predictions.made_at_start(predicted, correlation), bound))
    for knowledge, bound in cases:
        q = assert_kept(minimum, budget, knowledge)
        excess = q.square().sum(-1) / offline.square().sum(-1) - 1.0
        assert float(excess.mean()) <= bound
        assert float(excess.min()) >= -1e-12
        assert float(excess.max()) <= 0.1


def test_a_thousand_runs_of_fifty_rounds_are_quick():
    minimum = tensor(np.exp(0.5 * np.random.default_rng(4).standard_normal((1000, ROUNDS))))
    noisy = noisy_predictions(minimum, 0.9, np.random.default_rng(5))
    for knowledge in (
        KnownLaw(minimum.flatten()[:256]),
        MovingEstimate(),
        Predictions.made_at_start(noisy, 0.9),
    ):
        start = time.process_time()
        allocate_online(minimum, 20.0, knowledge)
        assert time.process_time() - start < 2.0


def test_noisy_predictions_have_the_correlation_asked_for():
    minimum = tensor(np.exp(0.3 * np.random.default_rng(6).standard_normal((4, 20_000)) - 2.0))
    for correlation in (0.0, 0.5, 0.9, 1.0):
        predicted = noisy_predictions(minimum, correlation, np.random.default_rng(7))
        assert torch.equal(predicted, noisy_predictions(minimum, correlation, np.random.default_rng(7)))
        for truth, guess in zip(minimum.log(), predicted.log(), strict=True):
            assert float(torch.corrcoef(torch.stack([truth, guess]))[0, 1]) == pytest.approx(correlation, abs=0.03)
            assert float(guess.mean()) == pytest.approx(float(truth.mean()), abs=0.01)
            assert float(guess.std()) == pytest.approx(float(truth.std()), rel=0.03)
    assert torch.allclose(noisy_predictions(minimum, 1.0, np.random.default_rng(0)), minimum, rtol=1e-13)


def test_predictions_may_be_revised():
    """A forecast that knows the truth of the next round only has to be asked again in every round."""
    minimum = tensor([2.0, 0.5, 1.0, 3.0])
    asked: list[int] = []

    def forecast(t: int) -> torch.Tensor:
        asked.append(t)
        return minimum[t + 1 :]

    q = allocate_online(minimum, 1.0, Predictions(forecast, 1.0))
    assert asked == [0, 1, 2]
    assert torch.allclose(q, allocate(minimum, 1.0), rtol=1e-6)


def test_bad_input():
    ones = torch.ones(3, dtype=torch.float64)
    for budget in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(InputError, match="budget"):
            allocate_online(ones, budget, MovingEstimate())
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="positive and finite"):
            allocate_online(tensor([1.0, bad]), 1.0, MovingEstimate())
        with pytest.raises(InputError, match="samples of the fading law must be positive"):
            KnownLaw(tensor([1.0, bad]))
        with pytest.raises(InputError, match="predicted minimum norms must be positive"):
            allocate_online(ones, 1.0, Predictions.made_at_start(tensor([1.0, bad, 1.0]), 0.9))
        with pytest.raises(InputError, match="every minimum norm"):
            noisy_predictions(tensor([1.0, bad]), 0.9, np.random.default_rng(0))
    for shape in ((), (0,), (4, 0)):
        with pytest.raises(InputError, match="at least one round"):
            allocate_online(torch.ones(shape), 1.0, MovingEstimate())
    with pytest.raises(InputError, match="at least one value"):
        KnownLaw(tensor([]))
    for reserve in (0.0, 1.1, math.nan):
        with pytest.raises(InputError, match="reserve"):
            KnownLaw(ones, reserve=reserve)
        with pytest.raises(InputError, match="reserve"):
            MovingEstimate(reserve=reserve)
    for correlation in (-0.1, 1.1, math.nan):
        with pytest.raises(InputError, match="correlation"):
            Predictions.made_at_start(ones, correlation)
        with pytest.raises(InputError, match="correlation"):
            noisy_predictions(ones, correlation, np.random.default_rng(0))
    with pytest.raises(InputError, match="2 predictions are needed"):
        allocate_online(ones, 1.0, Predictions.made_at_start(torch.ones(2), 0.9))
    for spent, rounds in ((1.0, 5), (0.0, 2)):
        with pytest.raises(InputError, match="nothing is left"):
            next_norm(ones, tensor(spent), rounds, 1.0, MovingEstimate())
