"""Arithmetic of power control, selection and scaling against grids, convex solvers and brute force."""

from __future__ import annotations

import math

import cvxpy as cp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from airfl.transceiver import KnownLaw, Predictions, allocate, combiner_named
from airfl.transceiver.power_control import error_of_norm, least_error_norm, norms_within
from airfl.transceiver.reachable import dropping, hinge_ascent, reach_most, reached
from airfl.transceiver.regularised import Fleet, amplitudes, best_norms, take_turns
from airfl.transceiver.scaled import level_of, scale_online

AUTO = combiner_named("auto")


def rayleigh(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.complex128, generator=torch.Generator().manual_seed(seed))


def ones(count):
    return torch.ones(count, dtype=torch.float64)


def alike(count):
    return ones(count) / count


# power-mse


@pytest.mark.parametrize(
    ("snr_db", "least", "inverted"), [(-10, 4.70, 72), (0, 1.62, 7.2), (10, 0.45, 0.72), (20, 0.067, 0.072)]
)
def test_median_errors_over_rayleigh_draws(snr_db, least, inverted):
    """K = 10, m = 1, c² = d: medians over 4,000 draws, and never above full inversion."""
    strength = rayleigh(4000, 10).abs() * 10 ** (snr_db / 20)
    norm = least_error_norm(strength, 0.5)
    error = error_of_norm(norm, strength, 0.5)
    full = error_of_norm(1.0 / strength.amin(dim=-1), strength, 0.5)
    assert float(error.median()) == pytest.approx(least, rel=0.05)
    assert float(full.median()) == pytest.approx(inverted, rel=0.05)
    assert bool((error <= full * (1.0 + 1e-12)).all())


@pytest.mark.parametrize("devices", [1, 2, 7])
def test_the_closed_form_is_the_least_on_a_fine_grid(devices):
    """2,000 instances with strengths over five decades; and it is stationary from both sides."""
    generator = torch.Generator().manual_seed(devices)
    strength = 10.0 ** (5.0 * torch.rand(2000, devices, dtype=torch.float64, generator=generator) - 2.5)
    beta = 0.3
    norm = least_error_norm(strength, beta)
    least = error_of_norm(norm, strength, beta)
    for factor in np.geomspace(0.01, 100.0, 61):
        assert bool((error_of_norm(factor * norm, strength, beta) >= least * (1.0 - 1e-12)).all())
    # Those who do not invert pull as much as noise pushes.
    faint = (1.0 - norm.unsqueeze(1) * strength).clamp(min=0.0)
    assert torch.allclose((strength * faint).sum(dim=1), beta * norm, rtol=1e-9)
    assert bool((norm * strength.amin(dim=1) <= 1.0 + 1e-12).all())


def test_a_round_without_anyone_has_some_norm():
    norm, free = norms_within(torch.zeros(1, 2, 3, 1, dtype=torch.float64), 0.5, 4.0, ones(1), ones(2))
    assert bool((norm > 0).all() and torch.equal(norm, free))


def told_of(norm, strength):
    return torch.minimum(1.0 / norm, strength.amax(dim=-2)).square().amax(dim=-1).sum(dim=-1)


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_norms_within_a_budget_are_those_of_a_convex_solver(blocks, seed):
    rounds, devices, beta = 4, 3, 0.5
    strength = 5.0 * rayleigh(1, rounds, devices, blocks, seed=seed).abs() + 0.3
    omega = torch.linspace(0.5, 1.0, rounds, dtype=torch.float64)
    shares = alike(blocks)
    free, _ = norms_within(strength, beta, None, shares, omega)
    total = 0.2 * float(told_of(free, strength))
    found, _ = norms_within(strength, beta, total, shares, omega)
    q, level = cp.Variable((rounds, blocks), pos=True), cp.Variable(rounds, pos=True)
    k = strength[0].numpy()
    cost = sum(
        float(omega[t] * shares[b]) * (cp.sum_squares(cp.pos(1 - k[t, :, b] * q[t, b])) + beta * cp.square(q[t, b]))
        for t in range(rounds)
        for b in range(blocks)
    )
    limits = [
        cp.sum(cp.power(level, -2)) <= total,
        q >= cp.reshape(level, (rounds, 1), order="C") @ np.ones((1, blocks)),
    ]
    problem = cp.Problem(cp.Minimize(cost), limits)
    problem.solve(solver="CLARABEL")
    mine = (error_of_norm(found, strength.mT, beta) * shares).sum(dim=-1) @ omega
    assert float(told_of(found, strength)) <= total
    assert float(mine) == pytest.approx(problem.value, rel=1e-6)
    assert np.allclose(found[0].numpy(), q.value, rtol=2e-3)


@given(st.lists(st.lists(st.floats(1e-12, 1e12) | st.just(0.0), min_size=2, max_size=2), min_size=1, max_size=6),
       st.floats(1e-8, 1e8), st.floats(1e-9, 1e9))  # fmt: skip
def test_a_budget_is_never_exceeded(rows, total, beta):
    """Whatever the channels, zero and over 24 decades."""
    strength = torch.tensor(rows, dtype=torch.float64)[None, :, :, None]
    norm, free = norms_within(strength, beta, total, ones(1), ones(len(rows)))
    assert float(told_of(norm, strength)) <= total
    assert bool((norm >= free).all() and norm.isfinite().all())


def test_trials_do_not_depend_on_each_other():
    strength = rayleigh(5, 6, 4, 2, seed=3).abs() * 4.0
    arguments = (0.5, 3.0, alike(2), ones(6))
    together = norms_within(strength, *arguments)[0]
    alone = torch.cat([norms_within(row.unsqueeze(0), *arguments)[0] for row in strength])
    assert torch.equal(together, alone)


def test_half_of_what_is_told_is_not_free():
    """A smaller budget asks for more, and a large one for nothing."""
    strength = rayleigh(1, 8, 5, 1, seed=5).abs() * 6.0
    errors = []
    for total in (1.0, 3.0, 10.0, 1e9):
        norm, free = norms_within(strength, 0.5, total, ones(1), ones(8))
        errors.append(float(error_of_norm(norm, strength.mT, 0.5).sum()))
    assert errors == sorted(errors, reverse=True)
    assert torch.equal(norm, free)


# power-gap


def fleet(total=None, peak=4.0, seed=0, rounds=12, devices=5, trials=1):
    strength = 1.5 * rayleigh(trials, rounds, devices, 1, seed=seed).abs()
    device = torch.arange(devices).expand(trials, rounds, devices)
    omega = 0.8 ** torch.arange(rounds - 1, -1, -1, dtype=torch.float64)
    return Fleet(strength, device, devices, 0.5, ones(1), omega, peak, total)


@pytest.mark.parametrize("seed", range(3))
def test_amplitudes_are_those_of_a_convex_solver(seed):
    one = fleet(seed=seed)
    norm, _ = norms_within(one.strength, one.beta, None, one.shares, one.omega)
    found = amplitudes(one, norm)
    heard, omega = (norm.unsqueeze(-2) * one.strength)[0, :, :, 0].numpy(), one.omega.numpy()
    r = cp.Variable(heard.shape, nonneg=True)
    cost = cp.sum(cp.multiply(omega[:, None], cp.square(1 - cp.multiply(heard, r))))
    problem = cp.Problem(cp.Minimize(cost), [cp.sum(cp.square(r), axis=0) <= len(omega), r <= one.peak**0.5])
    problem.solve(solver="CLARABEL")
    mine = (one.omega[:, None] * (1.0 - torch.from_numpy(heard) * found[0, :, :, 0]).square()).sum()
    assert float(mine) == pytest.approx(problem.value, rel=1e-6)
    assert float(one.mean_power(found).max()) <= 1.0 + 1e-12
    assert float(found.max()) <= one.peak**0.5


def test_norms_for_given_amplitudes_are_those_of_a_convex_solver():
    one = fleet(total=3.0, seed=4, rounds=5)
    amplitude = amplitudes(one, norms_within(one.strength, one.beta, None, one.shares, one.omega)[0])
    found = best_norms(one, amplitude, torch.ones(1, 5, 1, dtype=torch.float64))
    a, q = (one.strength * amplitude)[0, :, :, 0].numpy(), cp.Variable(5, pos=True)
    cost = sum(float(one.omega[t]) * (cp.sum_squares(1 - a[t] * q[t]) + one.beta * cp.square(q[t])) for t in range(5))
    problem = cp.Problem(cp.Minimize(cost), [cp.sum(cp.power(q, -2)) <= 3.0])
    problem.solve(solver="CLARABEL")
    assert float(one.error(found, amplitude)) == pytest.approx(problem.value, rel=1e-6)
    assert float(found.reciprocal().square().sum()) <= 3.0


@pytest.mark.parametrize("total", [None, 2.0])
def test_turns_lower_the_error_and_keep_every_limit(total):
    one = fleet(total=total, seed=7, trials=3)
    norm, amplitude, first = take_turns(one)
    assert bool((one.error(norm, amplitude) < one.error(first, amplitudes(one, first))).all())
    assert float(one.mean_power(amplitude).max()) <= 1.0 + 1e-12
    assert float(amplitude.max()) <= 2.0
    gains = norm.unsqueeze(-2) * one.strength * amplitude
    assert float(gains.max()) <= 1.0 + 1e-12
    if total is not None:
        assert float((gains / norm.unsqueeze(-2)).amax(dim=-2).square().sum(dim=(1, 2)).max()) <= total
    alone = fleet(total=total, seed=7, trials=3)
    for row in range(3):
        part = Fleet(alone.strength[row : row + 1], alone.device[:1], 5, 0.5, ones(1), alone.omega, 4.0, total)
        assert torch.equal(take_turns(part)[0][0], norm[row])


def test_with_a_limit_in_every_round_only_it_is_the_control_of_single_rounds():
    """R = 1: the mean binds nowhere, and weights drop out."""
    one = fleet(peak=1.0, seed=2)
    norm, amplitude, _ = take_turns(one)
    best = least_error_norm(one.strength.mT, one.beta)
    assert torch.allclose(norm, best, rtol=1e-6)
    assert torch.allclose(amplitude, (1.0 / (best.unsqueeze(-2) * one.strength)).clamp(max=1.0), rtol=1e-6)


def test_power_that_may_move_between_rounds_is_worth_something():
    """The published ordering: with the same mean power, less error the more a single round may have."""
    errors = []
    for peak in (1.0, 2.0, 8.0):
        one = fleet(peak=peak, seed=9)
        errors.append(float(one.error(*take_turns(one)[:2])))
    assert errors[0] > 1.01 * errors[1] > 1.01 * errors[2]


# select-mse


@pytest.mark.parametrize(
    ("gamma_db", "anyone", "ascent", "dropped"),
    [(-4, 4.9, 14.0, 11.9), (0, 22.1, 38.1, 28.2), (4, 40.3, 55.2, 55.0), (8, 51.2, 59.4, 60.0)],
)
def test_how_many_are_reached(gamma_db, anyone, ascent, dropped):
    """m = 6, K = 60, unit Rayleigh: a random direction, and ours in the mean over draws."""
    channels = rayleigh(20, 60, 6, seed=1) * 10 ** (gamma_db / 20)
    random = rayleigh(2000, 6, seed=2)
    random = random / torch.linalg.vector_norm(random, dim=1, keepdim=True)
    share = reached(random, channels.repeat(100, 1, 1)).double().mean() * 60
    assert float(share) == pytest.approx(anyone, rel=0.05)
    assert anyone == pytest.approx(60 * math.exp(-(10 ** (-gamma_db / 10))), abs=0.06)
    _, found = reach_most(channels, AUTO)
    assert float(found.sum(dim=1).double().mean()) > max(ascent, dropped) - 0.5


def test_both_ways_reach_whom_they_say_and_the_larger_set_is_taken():
    channels = rayleigh(6, 12, 3, seed=3)
    w, found = reach_most(channels, AUTO)
    assert torch.allclose(torch.linalg.vector_norm(w, dim=1), ones(6))
    heard = (channels.conj() * w.unsqueeze(1)).sum(dim=2).abs()
    assert bool((heard[found] >= 1.0 - 1e-9).all())
    assert bool((heard[~found] < 1.0).all())
    nothing = torch.zeros(6, dtype=torch.int64)
    for other in (hinge_ascent(channels), dropping(channels, AUTO, nothing)):
        assert bool((reached(other, channels).sum(dim=1) <= found.sum(dim=1)).all())


@pytest.mark.parametrize("seed", range(3))
def test_nearly_as_many_as_brute_force_finds(seed):
    """Two antennas, eight devices: all directions on a fine grid."""
    channels = rayleigh(6, 8, 2, seed=seed) * 0.9
    angle = torch.linspace(0.0, math.pi / 2, 91, dtype=torch.float64)
    phase = torch.linspace(0.0, 2 * math.pi, 181, dtype=torch.float64)
    first, second = (part.flatten() for part in torch.meshgrid(angle, phase, indexing="ij"))
    grid = torch.stack([first.cos().to(torch.complex128), torch.polar(first.sin(), second)], dim=1)
    most = ((channels.conj() @ grid.mT).abs() >= 1.0).sum(dim=1).amax(dim=1)
    found = reach_most(channels, AUTO)[1].sum(dim=1)
    assert bool((found >= most - 1).all())
    assert float((found - most).double().mean()) > -0.4


def by_differences_of_convex(channels, steps=12):
    """Yang et al.: M = wwᴴ, differences of convex functions, one semidefinite program per step."""
    count, antennas = channels.shape

    def solved(build, start):
        matrix, value = start, None
        for _ in range(steps):
            vectors = np.linalg.eigh(matrix)[1]
            top = np.outer(vectors[:, -1], vectors[:, -1].conj())
            variable = cp.Variable((antennas, antennas), hermitian=True)
            problem = build(variable, top)
            problem.solve(solver="CLARABEL")
            if variable.value is None:
                return None
            matrix = variable.value
            if value is not None and abs(value - problem.value) < 1e-7:
                break
            value = problem.value
        return matrix

    slack, gaps = np.zeros(count), cp.Variable(count, nonneg=True)

    def first(variable, top):
        signs = np.zeros(count)
        signs[np.argsort(-slack)[: count // 2]] = 1.0
        heard = [cp.real(h.conj() @ variable @ h) for h in channels]
        cost = cp.sum(gaps) - signs @ gaps + cp.real(cp.trace(variable)) - cp.real(cp.trace(top @ variable))
        limits = [variable >> 0, cp.real(cp.trace(variable)) >= 1]
        limits += [cp.real(cp.trace(variable)) - one <= gap for one, gap in zip(heard, gaps, strict=True)]
        return cp.Problem(cp.Minimize(cost), limits)

    solved(first, np.eye(antennas))
    order = np.argsort(gaps.value)
    for keep in range(count, 0, -1):

        def second(variable, top, keep=keep):
            trace = cp.real(cp.trace(variable))
            cost = trace - cp.real(cp.trace(top @ variable))
            limits = [variable >> 0, trace >= 1]
            limits += [trace <= cp.real(channels[i].conj() @ variable @ channels[i]) for i in order[:keep]]
            return cp.Problem(cp.Minimize(cost), limits)

        matrix = solved(second, np.eye(antennas))
        if matrix is not None:
            w = np.linalg.eigh(matrix)[1][:, -1]
            if (np.abs(channels[order[:keep]].conj() @ w) >= 1.0 - 1e-4).all():
                return keep
    return 0


def test_no_fewer_than_differences_of_convex_functions():
    """The published algorithm as an oracle, on two small draws."""
    for seed in range(2):
        channels = rayleigh(5, 2, seed=20 + seed)
        published = by_differences_of_convex(channels.numpy())
        assert 1 <= published <= int(reach_most(channels.unsqueeze(0), AUTO)[1].sum())


def test_nobody_within_reach_is_nobody():
    _, found = reach_most(rayleigh(3, 4, 2) * 1e-6, AUTO)
    assert not bool(found.any())


# random-orth


@pytest.mark.parametrize(("antennas", "variance", "largest"), [(100, 0.255, 2.13), (1000, 0.0255, 1.35)])
def test_gains_of_random_orthogonalisation(antennas, variance, largest):
    """K = 50: mean one, variance (K + 1)/(2m), and someone is always heard too loudly."""
    fading = rayleigh(60, 50, antennas, seed=6)
    gains = ((fading.sum(dim=1, keepdim=True).conj() * fading).sum(dim=2) / antennas).real
    assert variance == pytest.approx(51 / (2 * antennas))
    assert float(gains.mean()) == pytest.approx(1.0, abs=0.02)
    assert float(gains.var()) == pytest.approx(variance, rel=0.08)
    assert float(gains.amax(dim=1).mean()) == pytest.approx(largest, rel=0.03)


# adascale


def told_and_noise(norms):
    return float(norms.square().reciprocal().sum()), float(norms.square().sum())


def test_a_level_solves_its_equation():
    generator = torch.Generator().manual_seed(4)
    future = torch.rand(50, 9, dtype=torch.float64, generator=generator).sort(dim=-1).values + 0.1
    left = torch.rand(50, dtype=torch.float64, generator=generator) * 20.0
    for rounds in (2, 7, 30):
        level = level_of(left, rounds, future)
        used = level.square() + (rounds - 1) * torch.maximum(future, level.unsqueeze(1)).square().mean(dim=1)
        enough = left > (rounds - 1) * future.square().mean(dim=1)
        assert torch.allclose(used[enough], left[enough], rtol=1e-12)
        assert bool((level[~enough] == 0).all())
    assert float(level_of(torch.tensor(4.0, dtype=torch.float64), 1, future[0, :0])) == 2.0


@pytest.mark.parametrize("seed", range(3))
def test_true_predictions_give_the_offline_optimum(seed):
    """Convex in x = q²; and the same curve as the least noise within a budget, for another parameter."""
    minimum = (rayleigh(1, 15, seed=seed).abs() + 0.1) ** -1
    limit = 1.5 * float(minimum.square().sum())
    norms = scale_online(minimum, limit, Predictions.made_at_start(minimum, 1.0))
    told, noise = told_and_noise(norms)
    x = cp.Variable(15, pos=True)
    problem = cp.Problem(cp.Minimize(cp.sum(cp.inv_pos(x))), [cp.sum(x) <= limit, x >= minimum[0].numpy() ** 2])
    problem.solve(solver="CLARABEL")
    assert noise == pytest.approx(limit, rel=1e-9)
    assert told == pytest.approx(problem.value, rel=1e-6)
    assert torch.allclose(allocate(minimum, told), norms, rtol=1e-9)


def test_a_known_law_keeps_the_limit_nearly_and_bad_channels_break_it():
    law = (rayleigh(256, seed=8).abs() + 0.2) ** -1
    minimum = (rayleigh(20, 40, seed=9).abs() + 0.2) ** -1
    limit = 1.3 * 40 * float(law.square().mean())
    norms = scale_online(minimum, limit, KnownLaw(law))
    assert bool((norms >= minimum).all())
    used = norms.square().sum(dim=1) / limit
    assert float(used.median()) == pytest.approx(1.0, abs=0.02)
    poor = minimum.clone()
    poor[:, -5:] = 3.0 * poor.amax()
    over = scale_online(poor, limit, KnownLaw(law))
    assert float(over.square().sum(dim=1).min()) > limit
    assert torch.equal(over[:, :35], norms[:, :35])
    assert torch.equal(over[:, -4:], poor[:, -4:])
