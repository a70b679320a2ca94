"""From a configuration and a scheme to the schedule of all rounds: draw, design, promise, norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from airfl.catalogue import NEEDS_ANTENNAS
from airfl.channel import Link
from airfl.channel.blocks import Grid, check_rotation, grid_of
from airfl.channel.impairments import check_bands
from airfl.config import Config
from airfl.errors import InputError, listed
from airfl.imports import calling, is_outside
from airfl.participation import expected_senders, sampling_of
from airfl.privacy import RoundEvent
from airfl.rounds.each import find_powers
from airfl.rounds.estimated import with_room
from airfl.rounds.hardware import check_hardware
from airfl.rounds.hiding import Kind, Shield
from airfl.rounds.own import arrange_own
from airfl.rounds.promise import Promise, longest, make_promise, unit_of
from airfl.rounds.schedule import Schedule, trimmed
from airfl.rounds.shield import cover_kind, find_shields
from airfl.rounds.wideband import plan_blocks, with_levels, with_norms
from airfl.schemes import DesigningPolicy, FillUp, Outlook, Scheme
from airfl.traits import conflicts
from airfl.transceiver import Cover, Design, Radio, last_round_factor
from airfl.transceiver.design import better_of, least_gain
from airfl.transceiver.wideband import design_blocks


def arrange_rounds(
    config: Config,
    scheme: Scheme,
    radio: Radio,
    dim: int,
    local_steps: Sequence[int] | None = None,
    before: tuple[RoundEvent, ...] = (),
) -> Schedule:
    """Design all rounds of all trials: combiner direction, minimum norm π_t, and the norm q_t the scheme asks for.

    How many devices transmit is settled by then (``share.arrange``).

    Args:
        local_steps: Q of each trial; only a bound that uses an enforced domain needs it.
        before: what was released before the first round.
    """
    link, grid = radio.link, grid_of(config, dim) if scheme.policy.over_air else None
    require_compatible(config, scheme, grid)
    clip_norm = unit_of(scheme, config, dim)
    rounds = range(config.system.rounds)
    promise = make_promise(
        config,
        dim,
        link.noise_power if scheme.policy.over_air else None,
        local_steps,
        scheme,
        before,
    )
    if grid is None:
        return _ideal(config, scheme, promise, link, dim, clip_norm)
    check_hardware(config, scheme)
    check_bands(config.channel, grid)
    check_rotation(config.channel, grid)
    link.law.check_grid(grid)
    if isinstance(scheme.policy, DesigningPolicy):
        return arrange_own(config, scheme, scheme.policy, radio, promise, clip_norm, dim, grid)
    if grid.count > 1:
        return _arrange_blocks(config, scheme, radio, promise, clip_norm, dim, grid)
    design, active, gain_bound = radio.rounds(config, rounds)
    length = longest(scheme, clip_norm)
    factor = least_gain(length, grid.symbols, link.power_limit)
    active = trimmed(active)

    def law(count: int) -> torch.Tensor:
        _require_law(config)
        # Rounds after the last one: the same positions and the same law, but never the run's own draws.
        later, _, bound = radio.rounds(config, range(len(rounds), len(rounds) + count))
        return later.norm * factor / bound

    def outlook_of(promise: Promise) -> Outlook:
        def spent(norms: torch.Tensor, weights: torch.Tensor) -> float:
            return promise.spent(promise.ledger_at(norms, weights))

        factors = _last_factors(config, promise, clip_norm, active.shape[2], local_steps)
        return Outlook(
            design.norm * factor,
            gain_bound.square(),
            promise.budget,
            spent,
            promise.epsilon,
            law,
            factors,
            config,
            link.trials,
            noise_share=_noise_share(link, grid, length),
        )

    hides = [promise.template.hides_participation] * len(link.trials)
    norms_of = _checked_norms(scheme)
    if config.scheme.combiner_columns == "all" or not any(hides):
        norm = norms_of(outlook_of(promise))
    else:
        design, hides = _cover_every_set(config, radio, design, promise, factor)
        norm = norms_of(outlook_of(promise.without_credit() if promise.accountant == "sampled" else promise))
        if promise.accountant == "sampled" and any(hides):
            credited = norms_of(outlook_of(promise))
            norm = torch.where(torch.tensor(hides).unsqueeze(1), credited, norm)
    cover, shields = Cover.of(trials=len(link.trials)), list[Shield]()
    if scheme.encoder.cover != "nothing":
        kind = _kind(config, scheme, link, active)
        if scheme.encoder.cover == "each":
            shields, design = find_powers(config, radio, promise, design, factor, gain_bound, active, dim)
            norm = design.norm * factor
        else:
            shields = find_shields(config, link, promise, kind, design, design.norm * factor, gain_bound, active, dim)
        cover = Cover.stacked([shield.cover for shield in shields])
        norm = torch.maximum(norm, torch.stack([shield.norms for shield in shields]))
    needed = None
    if isinstance(scheme.policy, FillUp):
        norm, needed = with_room(config, link, promise, norm, active, dim)
    combiner = design.combiner * (norm / design.norm).unsqueeze(-1)
    return Schedule(
        scheme,
        promise,
        link,
        dim,
        clip_norm,
        _normaliser(config, active),
        link.sending(active),
        active,
        design.norm * factor,
        norm,
        gain_bound,
        cover,
        combiner,
        tuple(hides),
        promise.budget if needed is None else None,  # norms alone do not keep it
        shields=tuple(shields),
        needed=needed,
    )


def _arrange_blocks(
    config: Config, scheme: Scheme, radio: Radio, promise: Promise, clip_norm: float, dim: int, grid: Grid
) -> Schedule:
    """The same where a round is several blocks: policies choose levels, and blocks below them are raised."""
    link, plan = radio.link, plan_blocks(config, scheme, radio, clip_norm, grid)
    # Combiners, loads and so noise of all n devices are the same whoever takes part, and what a device sends to keep to
    # its power is a matter of its own update: a Gaussian mechanism on the sum of those who were drawn. Else they tell.
    hides = config.scheme.combiner_columns == "all" and promise.template.hides_participation
    if promise.accountant == "sampled" and not hides:
        promise = promise.without_credit()
    # The quietest block: noise that had to be raised is not free.
    least, active = plan.least.amin(dim=-1), trimmed(plan.design.active)

    def law(count: int) -> torch.Tensor:
        _require_law(config)
        later = design_blocks(config, radio, range(config.system.rounds, config.system.rounds + count), grid)
        factor = least_gain(longest(scheme, clip_norm), grid.symbols, link.power_limit)
        return (later.norm * later.load.sqrt().unsqueeze(-1) / later.gain_bound).amin(dim=-1) * factor

    def spent(norms: torch.Tensor, weights: torch.Tensor) -> float:
        return promise.spent(promise.ledger_at(norms, weights))

    outlook = Outlook(
        least,
        plan.gain_bound.square(),
        promise.budget,
        spent,
        promise.epsilon,
        law,
        None,
        config,
        link.trials,
        blocks=plan.least,
        ratios=plan.ratios,
        noise_share=_noise_share(link, grid, longest(scheme, clip_norm)),
    )
    plan = with_levels(plan, _checked_norms(scheme)(outlook))
    cover, shields = Cover.of(trials=len(link.trials)), list[Shield]()
    if scheme.encoder.cover != "nothing":
        kind = _kind(config, scheme, link, active)
        shields = find_shields(config, link, promise, kind, plan.design, plan.minimum, plan.gain_bound, active, dim)
        cover = Cover.stacked([shield.cover for shield in shields])
        plan = with_norms(plan, torch.stack([shield.norms for shield in shields]))
    return Schedule(
        scheme,
        promise,
        link,
        dim,
        clip_norm,
        _normaliser(config, active),
        link.sending(active),
        active,
        least,
        (plan.norm / plan.ratios).amin(dim=-1),
        plan.gain_bound,
        cover,
        plan.design.combiner[:, :, 0],
        (hides,) * len(link.trials),
        promise.budget,
        shields=tuple(shields),
        blocks=plan,
    )


def require_compatible(config: Config, scheme: Scheme, grid: Grid | None) -> None:
    """Refuse what a scheme's parts do not work with, as a configuration does for schemes of ours that it can name.

    Args:
        grid: how a round is cut; None without a radio link.
    """
    on = config.axes() if grid is None else config.axes(grid.count, grid.bands)
    found = conflicts([(f"scheme `{scheme.name}`", scheme.traits)], on)
    if scheme.encoder.cover != "nothing" and isinstance(scheme.policy, DesigningPolicy | FillUp):
        found.append(
            f"scheme `{scheme.name}` has an encoder that hides devices in noise of their own, and a policy that "
            "leaves no room for them; leave one of them out"
        )
    if found:
        raise InputError(listed("the configuration", found))


def _kind(config: Config, scheme: Scheme, link: Link, active: np.ndarray) -> Kind:
    """What a scheme's devices hide in."""
    if scheme.encoder.cover == "zero-sum":
        return "zero-sum"
    if scheme.encoder.cover in ("circular", "each"):
        return "circular"
    return cover_kind(config, int(link.honest(active).sum(axis=2).min()))


def _noise_share(link: Link, grid: Grid, length: float) -> float:
    """β of ``Outlook``."""
    return grid.symbols * grid.per_symbol * (link.noise_power + link.interference_power) / (2.0 * length**2)


def _require_law(config: Config) -> None:
    """Refuse to draw rounds that were not measured."""
    if config.channel.fading == "trace":
        raise InputError('measured channels have no law to draw from; use scheme.online = "estimate"')


def _checked_norms(scheme: Scheme) -> Callable[[Outlook], torch.Tensor]:
    """The policy's norms; what one from outside returns is checked first."""
    policy = scheme.policy
    if not is_outside(policy):
        return policy.norms

    def norms(outlook: Outlook) -> torch.Tensor:
        with calling(policy, "policy"):
            made = torch.as_tensor(policy.norms(outlook)).to(torch.float64)
        shape = outlook.minimum.shape
        if made.shape != shape or not bool((made >= outlook.minimum * (1.0 - 1e-12)).all() and made.isfinite().all()):
            raise InputError(
                f"policy `{type(policy).__name__}` must return finite norms of shape {tuple(shape)}, none below the "
                f"least that the power allows (`outlook.minimum`); got shape {tuple(made.shape)}"
            )
        return torch.maximum(made, outlook.minimum)

    return norms


def _ideal(config: Config, scheme: Scheme, promise: Promise, link: Link, dim: int, clip_norm: float) -> Schedule:
    """Everyone who takes part is heard as they are."""
    active = trimmed(link.active(range(config.system.rounds)))
    nothing = torch.zeros(active.shape[:2], dtype=torch.float64)
    ones = torch.ones(*active.shape[:2], 1, dtype=torch.complex128)
    silent = (False,) * len(active)
    k = _normaliser(config, active)
    return Schedule(
        scheme,
        promise,
        link,
        dim,
        clip_norm,
        k,
        link.sending(active),
        active,
        nothing,
        nothing,
        torch.ones_like(nothing),
        Cover.of(trials=len(active)),
        ones,
        silent,
    )


def _normaliser(config: Config, active: np.ndarray) -> float:
    """K of the update: how many transmit, or would on average."""
    return expected_senders(config) if config.system.varies else float(active.shape[2])


def _cover_every_set(
    config: Config, radio: Radio, design: Design, promise: Promise, factor: float
) -> tuple[Design, list[bool]]:
    """Which trials' noise would be the same for every set of active devices, when the combiner serves the active ones.

    A combiner for all n devices serves any of them, so where it is better it is taken; then no set has a larger π_t
    than all n together. If that is below the floor in every round, every set gets the floor.
    """
    budget = promise.budget
    limited = config.scheme.combiner in NEEDS_ANTENNAS and config.system.num_devices > config.system.num_antennas
    if promise.accountant != "sampled" or budget is None or limited:
        return design, [False] * len(radio.link.trials)
    everyone = config.replace({"scheme.combiner_columns": "all"})
    widest, _, _ = radio.rounds(everyone, range(config.system.rounds))
    covered = (widest.norm * factor <= budget.floor).all(dim=1)
    return better_of(design, widest), covered.tolist()


def _last_factors(
    config: Config, promise: Promise, clip_norm: float, num_active: int, local_steps: Sequence[int] | None
) -> tuple[float, ...] | None:
    """B of P3 per trial; None unless the published bound, with its domain, its smoothness and unit gains, applies."""
    learning, privacy = config.learning, config.privacy
    applies = promise.accountant == "paper" and learning.server_step == 1.0 and promise.template.domain is not None
    applies = applies and config.channel.estimation_error == 0.0
    if learning.domain_diameter is None or privacy.smoothness is None or local_steps is None or not applies:
        return None
    # Silent devices change the normaliser that the bound assumes; so does a number that is drawn.
    if config.system.varies or num_active != config.system.num_active:
        return None
    return tuple(
        last_round_factor(
            learning_rate=learning.learning_rate,
            smoothness=privacy.smoothness,
            local_steps=steps,
            participation=sampling_of(config).rate,
            diameter=learning.domain_diameter,
            num_devices=config.system.num_devices,
            clip_norm=clip_norm,
        )
        for steps in local_steps
    )
