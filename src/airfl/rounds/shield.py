"""The least noise in the sum that keeps whoever sees signals, and whoever sees models, to the budget.

Unknown are the cover of a trial (a², and e² or b²) and the norms q_t. The noise of the sum is v_t = q_t²σ²/2 + K_t a²;
the power limit asks for q_t ≥ π_t κ_t with κ_t² = 1 + d(a² + e² + k b²)/c². Two ways to more noise are tried at every
level of the cover: power held back (larger q_t, a = 0), and own noise (a > 0, q_t as small as the power allows).
Everything is monotone, so each way is a bisection, and the level is found by climbing a ladder. Own noise is the last
resort: it is taken only where it saves a decibel, or keeps the run from being refused.

Where a run's rounds will differ from what is planned with (imperfect channel knowledge, dropouts), the plan looks at a
few draws of the same law that are not the run's own, and leaves some room. What is booked is what happens.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from airfl.channel import Link
from airfl.config import Config
from airfl.errors import InputError
from airfl.parallel import one_per_thread
from airfl.rounds.enough import CHECKS, NEARLY, levels, missing_sentence
from airfl.rounds.hiding import Kind, Problem, Shield
from airfl.rounds.promise import Promise
from airfl.transceiver import Design
from airfl.transceiver.wideband import BlockDesign

#: Own noise is taken where all else takes so many times the noise.
WORTH_OWN_NOISE = 10.0**0.1
#: Devices that zero-sum perturbations are worked out for: every pair shares one.
MOST_PAIRED = 300
#: How well the level that is taken has to be known.
WELL = 1e-7


def find_shields(
    config: Config,
    link: Link,
    promise: Promise,
    kind: Kind,
    design: Design | BlockDesign,
    minimum: torch.Tensor,
    gain_bound: torch.Tensor,
    planned: np.ndarray,
    dim: int,
) -> list[Shield]:
    """The shield of every trial.

    Args:
        minimum: π_t, [trials, T]; of rounds that are several blocks π_tb, [trials, T, B].
    """
    if promise.epsilon is None:
        raise InputError("this scheme keeps a privacy budget; give `privacy.epsilon` or `privacy.epsilon_tilde`")
    if kind == "zero-sum" and planned.shape[2] > MOST_PAIRED:
        raise InputError(
            f"zero-sum perturbations take a seed for every pair of devices, and {planned.shape[2]:,} send together; at "
            f"most {MOST_PAIRED} do here, so lower `system.participation`, or take `airfl-shielded`, whose devices "
            "share masks with a few others"
        )
    combiner = design.combiner / design.norm.unsqueeze(-1)

    def find(index: int) -> Shield:
        heard = torch.from_numpy((planned[index] >= 0).any(axis=1))
        bound = (gain_bound[index] * heard).repeat_interleave(minimum[index, 0].numel())
        rows = minimum[index].flatten(), bound, planned[index], combiner[index].flatten(0, -2)
        problem = Problem(config, link, index, promise, *rows, dim, pairs=kind == "zero-sum")
        problem.follow(["none" if kind == "circular" else kind])
        shield, limit = _checked(problem, lambda p: _least(p, kind)), config.scheme.cover_price_db
        if kind == "quadrature" and config.scheme.cover == "auto" and shield.price_db > limit:
            # With hardly more devices than directions some of these are hardly covered; masks have no such edge.
            masked = _checked(problem, lambda p: _least(p, "masks"))
            shield = masked if masked.price_db <= limit else shield
        if kind in ("quadrature", "masks") and shield.price_db > limit:
            raise InputError(missing_sentence(problem, kind, shield))
        return shield

    return one_per_thread(find, range(len(link.trials)))


def cover_kind(config: Config, senders: int) -> Kind:
    """What ``scheme.cover`` comes to for so many honest senders."""
    chosen = config.scheme.cover
    if chosen != "auto":
        return chosen
    if config.channel.symbols == "complex":
        return "masks"  # the imaginary part carries data
    enough = senders >= 2 * config.system.num_antennas - 1
    return "quadrature" if enough and config.privacy.observer != "everything" else "masks"


def _checked(problem: Problem, find: Callable[[Problem], Shield]) -> Shield:
    """What is found with the followed devices, once all others keep to it too."""
    for _ in range(CHECKS):
        shield = find(problem)
        if problem.check(shield):
            return shield
    raise InputError("no cover was found that hides every device; lower `channel.csi_error` or raise `privacy.epsilon`")


def _least(problem: Problem, kind: Kind) -> Shield:
    """The shield with the least noise; of nearly equal ones that with the least power."""
    if kind == "circular":
        return _some(problem.with_own_noise(kind, 0.0, WELL))
    if kind == "zero-sum":
        return _some(_zero_sum(problem))
    held = _climb(problem.held_back, kind)
    least = None if held is None else problem.held_back(kind, held, WELL)
    if least is not None and least.noise <= WORTH_OWN_NOISE * least.trusted:
        return least
    level = _climb(problem.with_own_noise, kind)
    other = None if level is None else problem.with_own_noise(kind, level, WELL)
    limit = problem.config.scheme.cover_price_db
    if least is None or (other is not None and WORTH_OWN_NOISE * other.noise < least.noise):
        return _some(other)
    return other if other is not None and other.price_db <= limit < least.price_db else least


def _zero_sum(problem: Problem) -> Shield | None:
    """The level that is asked for, or the one with the least noise; without own noise, so power is held back."""
    asked = problem.config.scheme.zero_sum_power
    level = asked / problem.grid.symbols if asked is not None else _climb(problem.held_back, "zero-sum")
    return None if level is None else problem.held_back("zero-sum", level, WELL)


def _climb(find: Callable[[Kind, float], Shield | None], kind: Kind) -> float | None:
    """The lowest level of cover with nearly the least noise; None where no level keeps the promise."""
    tried: dict[float, float] = {}

    def look(level: float) -> None:
        shield = find(kind, level)
        if shield is not None:
            tried[level] = shield.noise

    for level in levels(kind):
        look(level)
        last = list(tried.values())[-3:]
        if len(last) == 3 and last[0] < last[1] < last[2]:
            break
    if not tried:
        return None
    best = min(tried, key=lambda level: tried[level])
    if best > 0.0:
        look(0.5 * best)
        look(2.0 * best)
    least = min(tried.values())
    return min(level for level, noise in tried.items() if noise <= NEARLY * least)


def _some(shield: Shield | None) -> Shield:
    if shield is None:
        raise InputError("no amount of noise keeps this promise; raise `privacy.epsilon` or `privacy.delta`")
    return shield
