"""The schedule of a policy that finds combiners and transmit scalars itself.

What is booked follows from what it found: G_tb, the largest gain of a device in block b, and G_t = max_b G_tb; a block
that nobody sends in tells nothing. v_t = min_b v_tb (G_t/G_tb)², as in ``wideband``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from airfl.channel import Link
from airfl.channel.blocks import Grid
from airfl.config import Config
from airfl.errors import InputError
from airfl.imports import calling, is_outside
from airfl.participation import expected_senders
from airfl.rounds.promise import Promise, longest
from airfl.rounds.schedule import Schedule
from airfl.rounds.wideband import BlockPlan
from airfl.schemes import DesigningPolicy, Scene, Scheme, Transceiver
from airfl.schemes.policies.energy import check_energies
from airfl.schemes.transceivers import gains_in
from airfl.transceiver import Cover, Radio
from airfl.transceiver.design import TOLERANCE
from airfl.transceiver.wideband import BlockDesign


def arrange_own(
    config: Config,
    scheme: Scheme,
    policy: DesigningPolicy,
    radio: Radio,
    promise: Promise,
    clip_norm: float,
    dim: int,
    grid: Grid,
) -> Schedule:
    """Ask the policy for all rounds, check what it found, and see what that books."""
    hides = promise.template.hides_participation
    if promise.accountant == "sampled" and not hides:
        promise = promise.without_credit()  # who sends, and so the noise, may follow from who takes part
    link = radio.link
    scene = Scene(config, radio, grid, longest(scheme, clip_norm), promise.budget)
    with calling(policy, "policy"):
        found = policy.transceiver(scene)
        if is_outside(policy):
            _check_answer(scene, scheme, found)
    _check(scene, scheme, found)
    if promise.accountant == "sampled" and not found.ignores_participation:
        raise InputError(
            f"policy `{type(policy).__name__}` has combiners that follow who takes part, and accountant `sampled` "
            'counts on those that do not; set privacy.accountant = "gaussian"'
        )
    hides = hides and found.ignores_participation
    if found.detects != "sum":
        promise = _without_hidden_state(config, scheme, promise)
    bound = _gain_bounds(scene, found) if found.bound is None or found.detects == "sum" else found.bound
    if hides:
        # As often as the law lets a device count: a round is booked as any other, whoever was drawn in it.
        bound = bound.clamp(min=float(promise.template.sampling.most))
    # A law that draws devices several times counts that itself.
    loud = torch.ones_like(bound) if hides and promise.template.sampling.replaces else bound
    _check_budget(scene, scheme, found, loud)
    norm, widest = found.norm, bound.amax(dim=-1)
    planned, found = found.active, _without_dropouts(link, found)
    plan = None
    if grid.count > 1:
        ones = torch.ones(norm.shape[:2], dtype=torch.float64)
        # A block without a sender counts as loud as the loudest, and so do rounds without: nothing is divided by 0.
        filled = torch.where(bound > 0, bound, torch.where(widest > 0, widest, 1.0).unsqueeze(-1))
        design = BlockDesign(found.combiner, norm, ones, filled, found.active)
        plan = BlockPlan(grid, design, norm, norm, radio, found.scaling, found.rule)
    return Schedule(
        scheme,
        promise,
        link,
        dim,
        clip_norm,
        expected_senders(config) if config.system.varies else float(config.num_transmitting),
        found.active,
        planned if policy.sampling(config) is not None else link.active(scene.rounds),
        found.minimum,
        norm[..., 0] if plan is None else (plan.norm / plan.ratios).amin(dim=-1),
        widest,
        Cover.of(trials=len(link.trials)),
        found.combiner[:, :, 0],
        (hides,) * len(link.trials),
        blocks=plan,
        scaling=found.scaling[..., 0],
        rule=found.rule,
        detects=found.detects,
    )


def _without_dropouts(link: Link, found: Transceiver) -> Transceiver:
    """What is left of an answer by those who were to send and do: what is booked covers all who were to."""
    places = link.left(found.active)
    there = torch.from_numpy(places >= 0).unsqueeze(-1)
    kept = torch.from_numpy(np.maximum(places, 0)).unsqueeze(-1).expand(found.scaling.shape)
    scaling = torch.where(there, found.scaling.gather(2, kept), 0.0)
    return replace(found, active=link.sending(found.active), scaling=scaling)


def _without_hidden_state(config: Config, scheme: Scheme, promise: Promise) -> Promise:
    """The same promise kept without credit for a model that nobody sees until the end.

    That counts on sums, and energies are not linear in updates.
    """
    if promise.accountant == "convergent":
        if (scheme.accountant or config.privacy.accountant) == "convergent":
            raise InputError(
                f"accountant `convergent` does not hold for scheme `{scheme.name}`: it counts on one gain for a whole "
                'round, and on sums; set privacy.accountant = "gaussian"'
            )
        promise = replace(promise, accountant="gaussian")
    return replace(promise, template=replace(promise.template, domain=None))


def _gain_bounds(scene: Scene, found: Transceiver) -> torch.Tensor:
    """G_tb = max_i |Re wᴴ h_i s_i|, [trials, T, B]; 0 where nobody sends.

    A symbol that carries two coordinates is turned as a whole, and lengthened by |wᴴ h_i s_i|.
    """
    bound = torch.zeros(found.combiner.shape[:-1], dtype=torch.float64)
    for t in scene.rounds:
        for number in range(bound.shape[2]):
            gains = gains_in(scene, found.active, found.combiner, found.scaling, t, number)
            bound[:, t, number] = (gains.real if scene.grid.per_symbol == 1 else gains).abs().amax(dim=-1)
    return bound


def _check_answer(scene: Scene, scheme: Scheme, found: Transceiver) -> None:
    """Who sends, as a policy from outside has it: some of those who take part, each once, as is booked."""
    name, planned = type(scheme.policy).__name__, scene.active()
    tensors = isinstance(found, Transceiver) and all(
        isinstance(part, torch.Tensor) for part in (found.combiner, found.scaling, found.minimum)
    )
    if not tensors or not isinstance(found.active, np.ndarray) or found.active.dtype.kind != "i":
        raise InputError(f"policy `{name}` must return a Transceiver of tensors, and who sends as an array of integers")
    active, total = found.active, scene.config.system.num_devices
    if active.ndim != 3 or active.shape[:2] != planned.shape[:2] or found.minimum.shape != planned.shape[:2]:
        raise InputError(
            f"policy `{name}` must say who sends in {planned.shape[0]} trials and {planned.shape[1]} rounds"
        )
    there = active >= 0
    row = np.arange(planned[..., 0].size).reshape(*planned.shape[:2], 1) * total
    numbers, known = (row + active)[there], (row + planned)[planned >= 0]
    once = len(np.unique(numbers)) == len(numbers) and bool(np.isin(numbers, known).all() and (active < total).all())
    if not once or bool((~there[..., :-1] & there[..., 1:]).any()):
        raise InputError(
            f"policy `{name}` must let devices send that take part, each once in a round, with −1 after the last"
        )
    if found.detects != "sum":
        check_energies(scene, found)


def _check(scene: Scene, scheme: Scheme, found: Transceiver) -> None:
    """What a policy answers is taken at nobody's word: shapes, numbers, power."""
    name, silent = type(scheme.policy).__name__, torch.from_numpy(found.active < 0)
    trials, rounds, places = found.active.shape
    blocks, antennas = scene.grid.count, scene.config.system.num_antennas
    if found.combiner.shape != (trials, rounds, blocks, antennas) or found.scaling.shape != (*silent.shape, blocks):
        raise InputError(
            f"policy `{name}` must return combiners [trials, T, B, m] and transmit scalars [trials, T, K, B] for "
            f"{trials} trials, {rounds} rounds, {places} places, {blocks} blocks and {antennas} antennas; got "
            f"{tuple(found.combiner.shape)} and {tuple(found.scaling.shape)}"
        )
    norm, spent = found.norm, found.scaling.abs().square()
    if not bool(norm.isfinite().all() and (norm > 0).all() and spent.isfinite().all()):
        raise InputError(f"policy `{name}` must return finite combiners of positive norm and finite transmit scalars")
    if bool((spent.amax(dim=-1)[silent] > 0).any()):
        raise InputError(f"policy `{name}` lets a place send where nobody takes part")
    limit = 1.0 / scene.reach**2 * (1.0 + TOLERANCE)
    if found.rule == "peak" and not float(spent.max()) <= limit:
        raise InputError(
            f"policy `{name}` lets a device send with |s|² = {float(spent.max()):.3g}, above P·symbols/C² = {limit:.3g}"
        )


def _check_budget(scene: Scene, scheme: Scheme, found: Transceiver, bound: torch.Tensor) -> None:
    """Σ_t max_b G_tb²/q_tb² ≤ A."""
    if scene.budget is None:
        return
    total = scene.budget.total
    if total is None:  # an accountant that has a floor alone
        least = float((found.norm / bound.clamp(min=1e-300)).min())
        if not least >= scene.budget.floor * (1.0 - 1e-9):
            raise InputError(
                f"policy `{type(scheme.policy).__name__}` has combiners of norm {least:.6g} beside the gains, below "
                f"the {scene.budget.floor:.6g} that the budget asks for; they must be larger"
            )
        return
    told = float((bound / found.norm).square().amax(dim=-1).sum(dim=-1).max())
    if not told <= total * (1.0 + 1e-9):
        raise InputError(
            f"policy `{type(scheme.policy).__name__}` spends {told:.6g} of a privacy budget of {total:.6g}; its "
            "combiners must be larger"
        )
