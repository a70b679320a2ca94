"""One training with many canary devices, each in or out by its own coin."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from airfl.analysis.audit.found import Audit, View, uppers
from airfl.analysis.audit.mechanism import check_mechanism
from airfl.analysis.audit.scope import check_participation, check_scheme, promised_to, unheard
from airfl.analysis.audit.worlds import LOUD, Advance, Noiseless, planting, play, repeated, undisturbed
from airfl.config import Config
from airfl.devices import load_samples, open_task
from airfl.errors import InputError
from airfl.privacy import GaussianAccountant
from airfl.privacy.auditing import best_guesses, one_run_bound
from airfl.privacy.checks import judged
from airfl.privacy.events import check_delta
from airfl.randomness import stream
from airfl.rounds import State
from airfl.runs.execute import pick_device
from airfl.schemes import scheme_named
from airfl.simulate import Simulation, open_simulation
from airfl.wording import counted


def audit_one_run(
    config: Config,
    scheme: str = "airfl-dp",
    canaries: int | None = None,
    *,
    delta: float | None = None,
    confidence: float = 0.95,
    advance: Advance | None = None,
) -> Audit:
    """One training, many canary devices, each in or out by its own coin (Steinke, Nasr & Jagielski 2023).

    Args:
        canaries: how many devices are canaries; default half of them.
    """
    check_scheme(scheme)
    total = config.system.num_devices
    if total < 2:
        raise InputError("one run with many canaries needs at least 2 devices; use repetitions instead")
    count = max(2, total // 2) if canaries is None else canaries
    if not 2 <= count <= total:
        raise InputError(f"`canaries` must be 2 to {total}, the number of devices; got {count}")
    delta = config.privacy.delta if delta is None else delta
    check_delta(delta)
    samples = load_samples(config, pick_device(config.engine.device))
    simulation = open_simulation(config, scheme, open_task(config, (0,), samples))
    if count > simulation.schedule.dim:
        raise InputError(f"`canaries` = {count} need as many parameters; the model has {simulation.schedule.dim}")
    state, scores, included = _scores(simulation, count, advance)
    mu = GaussianAccountant(state.ledgers[0], "zero-out").mu
    if math.isinf(mu):
        raise InputError(f"scheme `{scheme}` adds no noise: there is nothing to audit, every canary shows")
    guesses = best_guesses(mu, count, delta, confidence)
    bound = one_run_bound(scores, included, guesses, delta, confidence)
    mechanism = check_mechanism(simulation, samples, 1, repeated)
    checks, more, left_out = check_participation(mechanism, simulation, state.ledgers[0], [])
    return Audit(
        f"{scheme_named(scheme).title}, {counted(config.system.rounds, 'round')}, one training with {count} canaries",
        config.neighbours,
        View("model", bound, None, uppers(state.ledgers, config.neighbours, delta)),
        count,
        scores[included],
        scores[~included],
        checks=judged(mechanism.checks + checks),
        tested=("the final model: one training", *mechanism.tested, *more),
        not_tested=tuple(mechanism.left_out + left_out + unheard(simulation, ["model"])),
        promised_to=promised_to(simulation),
    )


def _scores(simulation: Simulation, count: int, advance: Advance | None) -> tuple[State, np.ndarray, np.ndarray]:
    """Train once: the state after it, how far the model moved along each canary, and which were in, [canaries]."""
    generator = stream(simulation.config.system.seed, "canaries", 2)
    directions = torch.from_numpy(
        np.linalg.qr(generator.standard_normal((simulation.schedule.dim, count)))[0].T
    ).float()
    included = generator.random(count) < 0.5
    loudest = LOUD * simulation.schedule.clip_norm
    sent = {j: loudest * bool(included[j]) * directions[j] for j in range(count)}
    state = play(undisturbed(simulation), planting(sent), advance)
    # Who audits knows everything but the coins and the noise, and so where the others alone would have led.
    quiet = replace(simulation, uplink=Noiseless(simulation.uplink))
    others = play(quiet, planting({j: 0.0 * directions[j] for j in range(count)}), advance)
    moved = (state.released - others.released)[0].double().cpu()
    return state, -(directions.double() @ moved).numpy(), included
