"""Noise powers of every device, found together with combiners: the plain form of Liu et al. 2024.

    minimise mean_t q_t²σ²/2 + Σ_k a_k    subject to    Σ_t S² r_it² ≤ μ*² for all i,    |s_i|²(c²/d + 2a_i) ≤ P.

With combiners given it is convex in (q_t², a_k), and what a device's noise does for the most visible ones, over what it
costs, is the same for all at the optimum. So powers are multiplied by that ratio, and scaled until the promise is
kept; then combiners are found again for the powers that are left for updates. It starts where all add alike
(``airfl-an``), and takes no step that does not lower the noise of the sum.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from airfl.config import Config
from airfl.errors import InputError
from airfl.parallel import one_per_thread
from airfl.rounds.enough import CHECKS
from airfl.rounds.hiding import Problem, Shield
from airfl.rounds.promise import Promise
from airfl.transceiver import Cover, Design, Radio
from airfl.transceiver.radio import designed_by_count
from airfl.transceiver.sight import Sight

#: How often powers and combiners are found in turn; steps of powers in between, and exponents that are tried.
TURNS, STEPS, EXPONENTS = 6, 8, (1.0, 0.5, 0.25)
#: Less than that is no progress.
PROGRESS = 1e-4
#: How sharply the most visible devices, and those that ask for most power, are told from the others.
SHARPNESS = 30.0
#: No device adds less than so much of the mean.
LEAST_SHARE = 1e-9
#: How well a level has to be known.
WELL = 1e-7


def find_powers(
    config: Config,
    radio: Radio,
    promise: Promise,
    design: Design,
    factor: float,
    gain_bound: torch.Tensor,
    active: np.ndarray,
    dim: int,
) -> tuple[list[Shield], Design]:
    """Noise powers and norms of every trial, and the combiners that go with them.

    Args:
        factor: the reach g of an update that is sent without noise.
    """
    if promise.epsilon is None:
        raise InputError("this scheme keeps a privacy budget; give `privacy.epsilon` or `privacy.epsilon_tilde`")
    link = radio.link
    unit = design.combiner / design.norm.unsqueeze(-1)

    # Nobody knows beforehand who will hand over what it knows.
    blind = link if not link.colluding.any() else replace(link, config=config.replace({"privacy.colluding": 0.0}))

    def start(index: int) -> tuple[Problem, Shield]:
        heard = torch.from_numpy((active[index] >= 0).any(axis=1))
        rows = design.norm[index] * factor, gain_bound[index] * heard, active[index], unit[index]
        problem = Problem(config, link, index, promise, *rows, dim)
        problem.follow(["circular"])
        return problem, _found(problem)

    def find(index: int) -> tuple[Problem, Shield]:
        problem, shield = first = start(index)
        if float(shield.cover.own) == 0.0:
            return first  # the receiver's noise is enough
        if blind is not link:
            problem = _changed(problem, link=blind)
            shield = _found(problem)
        for _ in range(TURNS):
            before = shield.noise
            problem, shield = _powers(problem, shield)
            problem, shield = _combiners(config, radio, problem, shield, factor)
            if shield.noise > before * (1.0 - PROGRESS):
                break
        if blind is link:
            return problem, shield
        problem = _changed(problem, link=link)
        shield = _found(problem)
        return (problem, shield) if shield.noise < first[1].noise else first

    found = one_per_thread(find, range(len(link.trials)))
    combiner = torch.stack([problem.combiner for problem, _ in found])
    minimum = torch.stack([problem.minimum for problem, _ in found]) / factor
    shares = [_with_share(shield.cover, config.system.num_devices) for _, shield in found]
    shields = [replace(shield, cover=cover) for (_, shield), cover in zip(found, shares, strict=True)]
    changed = replace(design, combiner=combiner * minimum.unsqueeze(-1), norm=minimum)
    return shields, changed


def _with_share(cover: Cover, devices: int) -> Cover:
    """A cover that says of every device what it adds, also where all add alike."""
    share = torch.ones(1, devices, dtype=torch.float64) if cover.share is None else cover.share
    return replace(cover, share=share)


def _kept(problem: Problem) -> Shield | None:
    """The shield with these shares, with all devices looked at."""
    for _ in range(CHECKS):
        shield = problem.with_own_noise("circular", 0.0, WELL)
        if shield is None or problem.check(shield):
            return shield
    return None


def _found(problem: Problem) -> Shield:
    shield = _kept(problem)
    if shield is None:
        raise InputError("no amount of noise keeps this promise; raise `privacy.epsilon` or `privacy.delta`")
    return shield


def _changed(problem: Problem, **changes: object) -> Problem:
    """The problem with something else, and nothing kept that would not hold any more."""
    followed = {name: who.copy() for name, who in problem._followed.items()}
    return replace(problem, **changes, _kept={}, _followed=followed, _starts={})  # type: ignore[arg-type]


def _powers(problem: Problem, shield: Shield) -> tuple[Problem, Shield]:
    """Steps of the noise powers with combiners as they are."""
    devices = problem.config.system.num_devices
    for _ in range(STEPS):
        share = torch.ones(devices, dtype=torch.float64) if problem.share is None else problem.share
        ratio = _worth(problem, shield, share)
        for exponent in EXPONENTS:
            wanted = share * ratio.pow(exponent)
            wanted = (wanted / wanted.mean()).clamp(min=LEAST_SHARE)
            other = _changed(problem, share=wanted)
            found = _kept(other)
            if found is not None and found.noise < shield.noise * (1.0 - PROGRESS):
                problem, shield = other, found
                break
        else:
            break
    return problem, shield


def _worth(problem: Problem, shield: Shield, share: torch.Tensor) -> torch.Tensor:
    """What more noise of each device would do for the most visible ones, over what it would cost, [n]; about 1."""
    devices, rounds = len(share), len(shield.norms)
    own = float(shield.cover.own)
    seen, helps = torch.zeros(devices, dtype=torch.float64), torch.zeros(devices, devices, dtype=torch.float64)
    costs, louder = torch.zeros(devices, dtype=torch.float64), torch.zeros(devices, devices, dtype=torch.float64)
    symbols = problem.grid.symbols
    for t in range(rounds):
        planned = torch.from_numpy(problem.planned[t])
        sight, who = problem.sights_in(t)
        here = torch.from_numpy(who)
        moved, by_receiver = _moves(sight, shield.norms[t], shield.cover)
        seen[here] += moved.diagonal(dim1=-2, dim2=-1)[0]
        helps[here.unsqueeze(1), here] += moved.square().sum(dim=0)  # of k's noise for i
        # The norm follows from who asks for most.
        reaches = torch.zeros(devices, dtype=torch.float64)
        reaches[planned[planned >= 0]] = problem.reaches[t, planned >= 0]
        asks = reaches[here].square()
        wished = asks * (1.0 + 2.0 * symbols * own * share[here] / problem.clip_norm**2)
        binding = torch.softmax(SHARPNESS * (wished / wished.max()).log(), dim=0)
        slope = binding * asks * 2.0 * symbols / problem.clip_norm**2
        costs[here] += 1.0 + slope * (0.5 * problem.link.noise_power)
        louder[here.unsqueeze(1), here] += slope.unsqueeze(1) * by_receiver.unsqueeze(0)
    most = torch.softmax(SHARPNESS * (seen / seen.max().clamp(min=1e-300)).clamp(min=1e-300).log(), dim=0)
    gain = (helps + louder) @ most
    ratio = torch.where(costs > 0, gain / costs.clamp(min=1e-300), 1.0)
    mean = float((ratio * share).sum() / share.sum())
    return (ratio / mean).clamp(1e-3, 1e3)


def _moves(sight: Sight, norm: torch.Tensor, cover: Cover) -> tuple[torch.Tensor, torch.Tensor]:
    """(p̃_kᵀΣ⁻¹p̃_i and (Jp̃_k)ᵀΣ⁻¹p̃_i, [2, K, K]), and by how much more of the receiver's noise helps, [K]."""
    covered = sight.covariance(norm.square(), cover)
    solved = torch.cholesky_solve(sight.signal, torch.linalg.cholesky(covered))
    real, imaginary = sight.signal.chunk(2)
    turned = torch.cat([-imaginary, real])
    moved = torch.stack([sight.signal.mT @ solved, turned.mT @ solved])
    return moved, (sight.noise.unsqueeze(-1) * solved.square()).sum(dim=0)


def _combiners(
    config: Config, radio: Radio, problem: Problem, shield: Shield, factor: float
) -> tuple[Problem, Shield]:
    """Combiners for the power that noise leaves for updates: those for channels h_i/κ_i; kept if they are better."""
    share = torch.ones(config.system.num_devices, dtype=torch.float64) if problem.share is None else problem.share
    own = float(shield.cover.own)
    larger = (1.0 + 2.0 * problem.grid.symbols * own * share / problem.clip_norm**2).sqrt()
    places = np.maximum(problem.planned, 0)
    known = [problem.link.known(problem.index, t)[row] for t, row in enumerate(places)]
    channels = torch.from_numpy(np.stack(known)) / larger[places].unsqueeze(-1)
    counts = (problem.planned >= 0).sum(axis=1)
    keys = [(t,) for t in range(len(places))]
    design = designed_by_count(config, radio, channels.unsqueeze(0), counts[None], keys)
    unit = (design.combiner / design.norm.unsqueeze(-1))[0]
    other = _changed(problem, combiner=unit, share=share)
    other = _changed(other, minimum=torch.maximum(other.reaches.amax(dim=1), problem.minimum * 1e-12))
    other._followed.update({name: who.copy() for name, who in problem._followed.items()})
    found = _kept(other)
    if found is not None and found.noise < shield.noise * (1.0 - PROGRESS):
        return other, found
    return problem, shield
