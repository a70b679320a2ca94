"""Noise powers of every device, found together with combiners: the plain form of Liu et al. 2024.

    minimise mean_t q_t²σ²/2 + Σ_k a_k    subject to    Σ_t S² r_it² ≤ μ*² for all i,    |s_i|²(c²/d + 2a_i) ≤ P.

With combiners given it is convex in (q_t², a_k), and at the optimum what a device's noise does for the others, each at
the price of being seen, over what it costs is the same for all. So powers are multiplied by that ratio, prices by how
visible a device is, and the powers that are found are scaled until the promise is kept; then combiners are found again
for what noise leaves for updates. It starts where all add alike (``airfl-an``), and takes no step that does not lower
the noise of the sum. Who will drop out or collude is not known beforehand: with dropouts all go on adding alike.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

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

#: How often powers and combiners are found in turn; steps of powers in between, and how often a promise is looked at.
TURNS, STEPS, LOOKS = 6, 80, 8
#: Less than that is no progress.
PROGRESS = 1e-4
#: Exponent of a step, and where prices end.
PACE, NEXT_TO_NOTHING = 0.3, 1e-12
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
        if float(shield.cover.own) == 0.0 or config.system.dropout > 0.0:
            return first  # the receiver's noise is enough, or what was planned is not what happens
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
    """Better noise powers with combiners as they are: multiplicative steps, of prices too."""
    devices = problem.config.system.num_devices
    share = torch.ones(devices, dtype=torch.float64) if problem.share is None else problem.share
    rounds = _Rounds.of(_changed(problem, share=None))
    powers, visibility = float(shield.cover.own) * share, torch.ones(devices, dtype=torch.float64)
    weights = torch.ones_like(rounds.reaches)
    for step in range(1, STEPS + 1):
        ratio, seen, asked = rounds.worth(powers, visibility, weights)
        most = seen.max()
        visibility = (visibility * (seen / most).pow(PACE)).clamp(min=NEXT_TO_NOTHING)
        most_asked = asked.amax(dim=1, keepdim=True).clamp(min=1e-300)  # nobody asks where nobody sends
        weights = (weights * (asked / most_asked).pow(PACE)).clamp(min=NEXT_TO_NOTHING)
        powers = powers * ratio.pow(PACE) * (problem.unit * most / problem.target)
        if step % (STEPS // LOOKS) == 0:
            other = _changed(problem, share=(powers / powers.mean()).clamp(min=LEAST_SHARE))
            found = _kept(other)
            if found is not None and found.noise < shield.noise * (1.0 - PROGRESS):
                problem, shield = other, found
    return problem, shield


@dataclass(frozen=True)
class _Rounds:
    """All rounds as the base station sees them, with R real directions and places for K devices.

    Attributes:
        device: numbers, [T, K]; 0 where nobody sends.
        there: whether somebody sends, [T, K].
        signal, turned: p̃_i and Jp̃_i as columns, [T, R, K].
        noise: of the receiver at q = 1, [T, R].
        reaches: the norm that each device asks for without noise, [T, K].
        slope: 2d/c².
        unit: σ²/2.
    """

    device: torch.Tensor
    there: torch.Tensor
    signal: torch.Tensor
    turned: torch.Tensor
    noise: torch.Tensor
    reaches: torch.Tensor
    slope: float
    unit: float

    @staticmethod
    def of(problem: Problem) -> _Rounds:
        """Those of a problem in which all add alike."""
        planned = torch.from_numpy(problem.planned)
        sights = [problem.sights_in(t) for t in range(len(planned))]
        width = max(len(sight.noise) for sight in sights)
        shape = len(sights), width, planned.shape[1]
        signal, turned = (torch.zeros(shape, dtype=torch.float64) for _ in range(2))
        loudest = max(float(sight.noise.max()) for sight in sights if sight.noise.numel())
        noise = torch.full((len(sights), width), loudest, dtype=torch.float64)
        for t, sight in enumerate(sights):
            rows = len(sight.noise)
            real, imaginary = sight.signal.chunk(2)
            here = planned[t] >= 0
            signal[t, :rows, here], turned[t, :rows, here] = sight.signal, torch.cat([-imaginary, real])
            noise[t, :rows] = sight.noise
        slope = 2.0 * problem.grid.symbols / problem.clip_norm**2
        there, unit = planned >= 0, 0.5 * problem.link.noise_power
        return _Rounds(planned.clamp(min=0), there, signal, turned, noise, problem.reaches, slope, unit)

    def worth(
        self, powers: torch.Tensor, visibility: torch.Tensor, weights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What more noise of each device does over what it costs, [n], how visible each is, [n], and q² asked, [T, K].

        Args:
            powers: a_k, [n].
            visibility: prices of being seen, [n].
            weights: how much each device has to do with the norm of its rounds, [T, K].
        """
        adds = powers[self.device] * self.there
        asked = self.reaches.square() * (1.0 + self.slope * adds)
        squared = torch.where(self.there.any(dim=1), asked.amax(dim=1), 1.0)  # any norm does where nobody sends
        covered = (self.signal * adds.unsqueeze(1)) @ self.signal.mT + (
            self.turned * adds.unsqueeze(1)
        ) @ self.turned.mT
        covered = covered + torch.diag_embed(squared.unsqueeze(1) * self.noise)
        solved = torch.linalg.solve(covered, self.signal)
        moved = (self.signal.mT @ solved).square() + (self.turned.mT @ solved).square()
        price = visibility[self.device] * self.there
        by_norm = ((self.noise.unsqueeze(-1) * solved.square()).sum(dim=1) * price).sum(dim=1, keepdim=True)
        share = weights * self.there
        rise = share / share.sum(dim=1, keepdim=True).clamp(min=1e-300) * self.reaches.square() * self.slope
        gain = self._by_device((moved @ price.unsqueeze(-1))[..., 0] + rise * by_norm, len(powers))
        cost = self._by_device(1.0 + rise * self.unit, len(powers))
        ratio = torch.where(cost > 0, gain / cost.clamp(min=1e-300), 1.0)
        mean = float((ratio * powers).sum() / powers.sum())
        seen = self._by_device((self.signal * solved).sum(dim=1), len(powers))
        return (ratio / mean).clamp(1e-3, 1e3), seen, asked

    def _by_device(self, values: torch.Tensor, devices: int) -> torch.Tensor:
        """Values [T, K] added up by device, [n]."""
        found = torch.zeros(devices, dtype=torch.float64)
        return found.index_add_(0, self.device.flatten(), (values * self.there).flatten())


def _combiners(config: Config, radio: Radio, problem: Problem, shield: Shield, factor: float) -> tuple[Problem, Shield]:
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
