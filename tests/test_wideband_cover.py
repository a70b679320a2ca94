"""Cover in rounds of several blocks and with complex symbols: what is booked is the most that anyone can see."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import airfl
from airfl import analysis
from airfl.air import EquivalentUplink, SignalUplink
from airfl.air.setting import Blocks
from airfl.analysis.audit import covered, mechanism, planted
from airfl.analysis.audit.hearing import hear
from airfl.channel import open_link
from airfl.channel.blocks import Grid, Place, place_of
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.privacy import Ledger, gaussian_mu, make_accountant
from airfl.rounds import Sending, arrange, book
from airfl.rounds.hiding import Problem
from airfl.schemes import SCHEMES
from airfl.transceiver import Cover, base_station_sight, degrees_of, mask_edges, open_radio
from tests.test_participation import simulation_of

DIM = 650
#: Four blocks of frequency, two of time.
BLOCKS = {"channel.coherence_hz": 5e6, "channel.coherence_s": 20e-6}
COMPLEX = {"channel.symbols": "complex"}
COMPLEX_BLOCKS = {**COMPLEX, "channel.coherence_hz": 5e6, "channel.coherence_s": 10e-6}
MASKS = {"scheme.cover": "masks", "scheme.mask_degree": 4}
HER = {
    "eavesdropper.distance_m": 50.0,
    "eavesdropper.antennas": 2,
    "eavesdropper.noise_density_dbm_hz": -174.0,
    "privacy.observer": "eavesdropper",
}
CUTS = {"blocks": BLOCKS, "complex": COMPLEX, "complex blocks": COMPLEX_BLOCKS}


def plan_of(config, name="airfl-shielded", trials=(0, 1), dim=DIM):
    return arrange(config, SCHEMES[name], open_radio(config, trials), dim)


def scenes(setting):
    """The round's blocks, or the round itself."""
    if setting.blocks is None:
        return [setting]
    return [setting.blocks.scene(block) for block in range(setting.blocks.grid.count)]


def stacked(values):
    return np.concatenate([values.real, values.imag], axis=0)


def received(scene, row, here, hears, spread, noise):
    """How one block's symbol reaches an observer: what devices move [R, K, coordinates], and all that covers, [R, s].

    Args:
        hears: complex paths of devices to her, [m, K].
        spread: of who is honest.
        noise: real sources of her receiver, [R, ·].
    """
    own, quadrature, masks = (
        float(part[row]) ** 0.5 for part in (scene.cover.own, scene.cover.quadrature, scene.cover.masks)
    )
    turns = (1.0,) if scene.per_symbol == 1 else (1.0, 1j)
    found = [noise]
    for turn in turns:
        found.append(own * hears[:, spread] * turn)
        for i, j in scene.edges[row]:
            if spread[i] and spread[j]:
                found.append(masks * (hears[:, [i]] - hears[:, [j]]) * turn)
    if scene.per_symbol == 1:
        found.append(1j * quadrature * hears[:, spread])
    return [hears * turn for turn in turns], found


def most_visible(plan, setting, row, observer):
    """λ_max of AᵀΣ⁻¹A for every device: the largest shift that a unit of energy, put anywhere, can make.

    Everything that one round sends is one Gaussian vector: all blocks, two symbols of each.
    """
    link, symbols, per = plan.link, 2, setting.per_symbol
    who = setting.active[row][setting.active[row] >= 0]
    honest = ~link.colluding[row, who]
    parts, covers = [], []
    for number, scene in enumerate(scenes(setting)):
        scaling = scene.tx_scaling[row].numpy()
        paths = (scene.channels[row].numpy() * scaling[:, None]).T
        combiner = scene.combiner[row].numpy()
        if observer == "base-station":
            unit = math.sqrt(link.credited_power / 2.0)
            sees, hers = paths, unit * np.concatenate([np.eye(len(paths)), 1j * np.eye(len(paths))], axis=1)
            moved, covering = received(scene, row, who, sees, honest, hers)
            rows = [stacked(one) for one in moved], np.concatenate([stacked(one) for one in covering], axis=1)
        else:
            place = None if setting.blocks is None else place_of(number, setting.blocks.grid, link.config.channel)
            ears = (link.listener.draw(row, setting.round_index, place)[who] * scaling[:, None]).T
            total = combiner.conj() @ paths  # the sum of the block, which models tell
            at_her, at_base = math.sqrt(link.listener.noise_power / 2.0), math.sqrt(link.noise_power / 2.0)
            sees = np.concatenate([ears, total[None]])
            unit = np.diag([*([at_her] * len(ears)), at_base * np.linalg.norm(combiner)])
            moved, covering = received(scene, row, who, sees, honest, np.concatenate([unit, 1j * unit], axis=1))
            kept = [*range(len(ears)), *range(len(sees), len(sees) + len(ears)), len(ears)]
            kept += [2 * len(sees) - 1] if per == 2 else []  # of real symbols only the real part of the sum is kept
            rows = (
                [stacked(one)[kept] for one in moved],
                np.concatenate([stacked(one) for one in covering], axis=1)[kept],
            )
        parts += [rows[0]] * symbols
        covers += [rows[1]] * symbols
    size, scale = len(covers[0]), max(float(np.abs(one).max()) for one in covers)
    mixing = np.zeros((size * len(covers), sum(one.shape[1] for one in covers)))
    at = 0
    for place, one in enumerate(covers):
        mixing[place * size : (place + 1) * size, at : at + one.shape[1]] = one / scale
        at += one.shape[1]
    sigma = mixing @ mixing.T
    found = []
    for device in range(len(who)):
        data = np.zeros((len(sigma), per * len(covers)))
        for place, moved in enumerate(parts):
            for coordinate, one in enumerate(moved):
                data[place * size : (place + 1) * size, per * place + coordinate] = one[:, device] / scale
        form = data.T @ np.linalg.solve(sigma, data)
        found.append((form, honest[device]))
    return found


@pytest.mark.parametrize("observer", ["base-station", "eavesdropper"])
@pytest.mark.parametrize("hidden", ["quadrature", "masks", "own", "colluding"])
@pytest.mark.parametrize("cut", CUTS)
def test_no_placement_of_energy_shows_a_device_better_than_is_booked(shielded, cut, hidden, observer):
    """The whole round as one dense Gaussian: its best direction is booked, and no other is better."""
    changes = {
        "quadrature": {},
        "masks": MASKS,
        "own": {"scheme.cover": "none", "scheme.cover_price_db": 100.0},
        "colluding": {**MASKS, "privacy.colluding": 0.25},
    }[hidden]
    few = {"system.rounds": 2, "system.num_devices": 8, "privacy.epsilon": 2.0}
    plan = plan_of(shielded.replace({**HER, **few, **CUTS[cut], **changes}), trials=(0, 1))
    mixed = Cover(0.9 * plan.cover.own.clamp(min=0.05), plan.cover.quadrature, 0.01 * plan.cover.masks)
    plan = replace(plan, cover=replace(mixed, quadrature=0.01 * mixed.quadrature))
    rng = np.random.default_rng(0)
    for row, t in ((0, 0), (1, 1)):
        setting = plan.setting(t)
        seen = setting.seen[observer][row].numpy()
        for slot, (form, honest) in enumerate(most_visible(plan, setting, row, observer)):
            best = float(np.linalg.eigvalsh(form)[-1]) if honest else 0.0
            assert seen[slot] ** 2 == pytest.approx(best, rel=1e-6)
            for _ in range(20) if honest else ():
                sent = rng.standard_normal(len(form)) * rng.pareto(1.0, len(form))
                assert sent @ form @ sent <= seen[slot] ** 2 * (sent @ sent) * (1 + 1e-6)


@pytest.mark.parametrize(("per_symbol", "k", "is_enough"), [(2, 5, True), (2, 4, False), (1, 9, True), (1, 5, False)])
def test_masks_of_complex_symbols_take_half_the_devices(per_symbol, k, is_enough):
    """m = 5 antennas: with m devices much masking leaves what the sum tells, where real symbols take 2m − 1."""
    rng = np.random.default_rng(0)
    channels, combiner = (rng.standard_normal(size) + 1j * rng.standard_normal(size) for size in ((k, 5), 5))
    paths = channels * (np.linalg.norm(combiner) / (channels @ combiner.conj()))[:, None]
    edges, honest = mask_edges(rng, k, 20), np.ones(k, dtype=bool)
    sight = base_station_sight(torch.from_numpy(paths), 0.8, edges, honest, per_symbol=per_symbol)
    seen = sight.seen(torch.tensor(2.0, dtype=torch.float64), Cover.of(masks=1e8))
    trusted = 1.0 / math.sqrt(0.4 * 2.0)
    assert bool((seen <= trusted * (1 + 1e-3)).all()) == is_enough


def test_who_hears_every_device_by_itself_sees_the_same_in_every_block(shielded):
    for cut in CUTS.values():
        config = shielded.replace({**cut, "privacy.observer": "everything", "scheme.cover": "masks"})
        plan = plan_of(config)
        for t in (0, 3):
            setting = plan.setting(t)
            own, masks = float(plan.cover.own[0]), float(plan.cover.masks[0])
            laplacian = np.zeros((12, 12))
            for i, j in setting.edges[0]:
                laplacian[[i, j], [i, j]] += 1
                laplacian[i, j] -= 1
                laplacian[j, i] -= 1
            expected = np.sqrt(np.diag(np.linalg.inv(own * np.eye(12) + masks * laplacian)))
            assert np.allclose(setting.seen["everything"][0], expected, rtol=1e-8)


CASES = {
    "blocks": BLOCKS,
    "blocks, masks": {**BLOCKS, **MASKS},
    "blocks, own noise": {**BLOCKS, "scheme.cover": "none"},
    "a delay line": {"channel.delay_spread_s": 100e-9},
    "complex": COMPLEX,
    "complex, own noise": {**COMPLEX, "scheme.cover": "none"},
    "complex blocks": COMPLEX_BLOCKS,
    "more antennas than devices": {**BLOCKS, "system.num_antennas": 16},
    "replace": {**BLOCKS, "privacy.neighbours": "replace"},
    "colluding": {**BLOCKS, "privacy.colluding": 0.25},
    "everything": {**BLOCKS, "privacy.observer": "everything"},
    "everything, complex": {**COMPLEX_BLOCKS, "privacy.observer": "everything"},
    "models": {**BLOCKS, "privacy.observer": "models"},
    "eavesdropper": {**BLOCKS, **HER},
    "eavesdropper, complex": {**COMPLEX_BLOCKS, **HER},
    "eavesdropper without noise": {**BLOCKS, **HER, "eavesdropper.noise_density_dbm_hz": None},
    "little power": {**BLOCKS, "channel.power_w": 1e-5, "scheme.cover_price_db": 100.0},
    "interference": {**BLOCKS, "channel.interference_dbm": -90.0, "scheme.cover": "none"},
}


def mu_of(plan, ledger, observer):
    return make_accountant("gaussian", ledger, plan.promise.neighbours, observer).mu


def booked(plan, row=0):
    ledger = Ledger()
    for t in range(plan.active.shape[1]):
        ledger = book(plan, plan.setting(t), lambda _: None)[row].on(ledger)
    return ledger


@pytest.mark.parametrize("scheme", ["airfl-shielded", "airfl-an"])
@pytest.mark.parametrize("name", CASES)
def test_the_promise_is_kept_and_what_may_be_spent_is_spent(shielded, name, scheme):
    config = shielded.replace({"system.rounds": 1, **CASES[name]})
    if scheme == "airfl-an" and config.privacy.observer != "auto":
        return
    plan = plan_of(config, scheme)
    for row in (0, 1):
        ledger = booked(plan, row)
        plan.promise.check(ledger)
        spent = {observer: mu_of(plan, ledger, observer) for observer in plan.promise.kept}
        assert max(spent.values()) <= gaussian_mu(4.0, 1e-5)
        # With little power the receiver's noise may be more than it takes.
        assert name == "little power" or max(spent.values()) >= 0.97 * gaussian_mu(4.0, 1e-5)
    for t in range(1):
        setting = plan.setting(t)
        assert (setting.power_w <= config.channel.power_w * (1 + 1e-9)).all()
        alone = scenes(setting)
        quietest = torch.stack([one.undisturbed().noise_var for one in alone]).amin(dim=0)
        others = plan.link.honest(setting.active).sum(axis=1) - 1
        known = plan.cover.own * torch.from_numpy(12 - others)
        assert torch.allclose(setting.unknown_var, quietest - known, rtol=1e-9)
        assert torch.allclose(setting.noise_var, torch.stack([one.noise_var for one in alone]).mean(dim=0), rtol=1e-9)
        undisturbed = torch.stack([one.undisturbed().noise_var for one in alone]).mean(dim=0)
        assert torch.allclose(setting.undisturbed().noise_var, undisturbed, rtol=1e-9)


def test_the_budget_is_kept_over_many_draws(shielded):
    """Ways to cut, cover, power, ε, devices and antennas by chance."""
    rng = np.random.default_rng(5)
    for seed in range(24):
        epsilon = float(rng.choice([0.5, 4.0, 30.0]))
        config = shielded.replace(
            {
                **list(CUTS.values())[seed % 3],
                "system.seed": seed,
                "system.rounds": int(rng.integers(1, 4)),
                "system.num_devices": int(rng.integers(7, 15)),
                "system.num_antennas": int(rng.integers(1, 4)),
                "channel.power_w": float(10.0 ** rng.uniform(-6, 0)),
                "privacy.epsilon": epsilon,
                "scheme.cover": str(rng.choice(["auto", "masks", "none"])),
                "scheme.mask_degree": 4,
                "scheme.cover_price_db": 200.0,
            }
        )
        plan = plan_of(config, str(rng.choice(["airfl-shielded", "airfl-an"])), trials=(0,))
        ledger = booked(plan)
        plan.promise.check(ledger)
        assert max(mu_of(plan, ledger, one) for one in ("base-station", "models")) <= gaussian_mu(epsilon, 1e-5)
        assert max(float(plan.setting(0).power_w.max()) / config.channel.power_w, 0.0) <= 1 + 1e-9


def test_masks_of_who_drops_out_leave_every_block(shielded):
    few = {
        "channel.coherence_hz": 5e6,
        "system.dropout": 0.3,
        "system.rounds": 2,
        "scheme.cover_price_db": 100.0,
        **MASKS,
    }
    plan = plan_of(shielded.replace(few), trials=(0,))
    plan.promise.check(booked(plan))
    assert (plan.active < 0).any()
    for t in (0, 1):
        setting = without_receiver(plan.setting(t))
        sent = torch.zeros(1, setting.active.shape[1], DIM)
        block = UpdateBlock(
            torch.zeros(sent.shape[1], dtype=torch.int64), torch.arange(sent.shape[1]), sent[0], sent[0, :, 0]
        )
        left = SignalUplink(3, (0,)).receive([block], DIM, setting)
        assert float(left.abs().max()) < 1e-9 * float(setting.cover.masks) ** 0.5


# Uplinks.


def updates(count, generator, length=1.0):
    drawn = torch.from_numpy(generator.standard_normal((count, DIM)))
    return (length * drawn / torch.linalg.vector_norm(drawn, dim=1, keepdim=True)).float()


def blocks_of(sent):
    trial, slot = np.divmod(np.arange(sent.shape[0] * sent.shape[1]), sent.shape[1])
    return UpdateBlock(torch.from_numpy(trial), torch.from_numpy(slot), sent.reshape(-1, DIM), torch.zeros(len(trial)))


def without_receiver(setting):
    """The round with cover and without any noise of the receiver."""
    quiet = replace(setting, noise_power=0.0, interference_power=0.0)
    blocks = setting.blocks
    return (
        quiet
        if blocks is None
        else replace(quiet, blocks=replace(blocks, scene=lambda b: without_receiver(blocks.scene(b))))
    )


@pytest.mark.parametrize("hidden", ["quadrature", "masks"])
@pytest.mark.parametrize("cut", CUTS)
def test_cover_cancels_in_the_sum_of_every_block(shielded, cut, hidden):
    if hidden == "quadrature" and cut != "blocks":
        return
    setting = plan_of(shielded.replace({**CUTS[cut], "scheme.cover": hidden, "scheme.mask_degree": 4})).setting(1)
    assert float(setting.cover.quadrature.max() + setting.cover.masks.max()) > 100.0 / DIM
    assert float(setting.cover.own.max()) == 0.0
    sent = torch.stack([updates(12, np.random.default_rng(k)) for k in range(2)])
    whole = sent.double().sum(dim=1)
    heard = SignalUplink(0, (0, 1)).receive([blocks_of(sent)], DIM, without_receiver(setting)).double()
    assert float((heard - whole).norm() / whole.norm()) < 1e-6
    plain = EquivalentUplink(0, (0, 1)).receive([blocks_of(sent)], DIM, setting.silenced()).double()
    assert float((heard - plain).norm() / whole.norm()) < 1e-6
    # And yet every antenna hears mostly cover, in every block.
    for scene in scenes(setting):
        symbols = torch.zeros(12, 100, dtype=torch.complex128 if scene.per_symbol == 2 else torch.float32)
        loud = next(SignalUplink(0, (0, 1)).antennas(0, symbols, scene)).abs().square().mean()
        assert float(loud) > 3.0 * scene.noise_power


@pytest.mark.parametrize("scheme", ["airfl-an", "airfl-shielded"])
@pytest.mark.parametrize("cut", CUTS)
def test_own_noise_that_is_booked_is_added_by_both_uplinks(shielded, cut, scheme):
    config = shielded.replace({**CUTS[cut], "privacy.observer": "everything" if "shielded" in scheme else "auto"})
    setting = plan_of(config, scheme).setting(0)
    own = 12 * setting.cover.own
    assert (own > 0.1 * setting.noise_var).all()
    blocks = setting.blocks
    where = torch.zeros(DIM, dtype=torch.int64) if blocks is None else blocks.grid.block_of(DIM)
    planned = setting.noise_var.unsqueeze(1) if blocks is None else blocks.noise_var
    nothing = blocks_of(torch.zeros(2, 12, DIM))
    for uplink in (EquivalentUplink, SignalUplink):
        draws = torch.cat([uplink(seed, (0, 1)).receive([nothing], DIM, setting)[:, None] for seed in range(8)], dim=1)
        for block in range(planned.shape[1]):
            mine = draws[:, :, where == block].double()
            count = 8 * mine.shape[2]
            assert (mine.square().mean(dim=(1, 2)) / planned[:, block] - 1).abs().max() < 5 * math.sqrt(2 / count)


def test_masks_are_new_in_every_block_and_coordinate(shielded):
    setting = plan_of(shielded.replace({**COMPLEX_BLOCKS, **MASKS})).setting(0)
    uplink = SignalUplink(0, (0, 1))
    drawn = [
        uplink._masks(0, 0, 0, (5, 2000), scene, coordinate).flatten()
        for scene in scenes(setting)
        for coordinate in (0, 1)
    ]
    correlation = torch.corrcoef(torch.stack(drawn))
    assert float((correlation - torch.eye(len(drawn))).abs().max()) < 5 / math.sqrt(10_000)


# Power.


@pytest.mark.parametrize("scheme", ["airfl-an", "airfl-shielded"])
@pytest.mark.parametrize("cut", ["blocks", "complex blocks"])
def test_update_and_cover_keep_to_the_power_whatever_the_update_is(shielded, cut, scheme):
    """All energy in the block that costs most, in one coordinate, or anywhere; the noise is never scaled."""
    power = {"channel.power_w": 3e-5, "scheme.cover_price_db": 100.0}
    config = shielded.replace({**CUTS[cut], **power})
    schedule = plan_of(config, scheme)
    assert not schedule.cover.is_nothing()
    setting, generator = schedule.setting(0), np.random.default_rng(0)
    blocks = setting.blocks
    assert isinstance(blocks, Blocks)
    grid, where = blocks.grid, blocks.grid.block_of(DIM)
    counts = torch.bincount(torch.arange(grid.symbols) % grid.count)
    assert grid.shares == pytest.approx((counts / grid.symbols).tolist())
    degrees = torch.stack([torch.from_numpy(degrees_of(edges, 12)) for edges in setting.edges])
    cover = grid.per_symbol * setting.cover.power(degrees.double())
    spent_on_cover = (blocks.spent * counts).sum(dim=-1) / grid.symbols * cover
    assert torch.allclose(blocks.power_limit, config.channel.power_w - spent_on_cover, rtol=1e-6)
    is_all_used = float(setting.power_w.max()) > 0.999999 * config.channel.power_w
    assert is_all_used or scheme != "airfl-an"
    worst, scaled = blocks.spent.argmax(dim=2), 0
    for kind in ("anywhere", "one block", "one coordinate"):
        sent = torch.stack([updates(12, generator), updates(12, generator)])
        if kind == "one block":
            sent = sent * (where == worst.unsqueeze(-1))
        if kind == "one coordinate":
            sent = (torch.cumsum(where == worst.unsqueeze(-1), dim=-1) == 1) * (where == worst.unsqueeze(-1)) * 1.0
        sending = Sending(schedule.scheme.encoder, setting, schedule.clip_norm, None, schedule.public(setting))
        encoded = sending.encode(blocks_of(sent * 50.0)).updates.reshape(2, 12, DIM)
        assert (torch.linalg.vector_norm(encoded.double(), dim=2) <= 1.0 + 1e-6).all()
        for trial in range(2):
            update = (grid.energies(encoded[trial]) * blocks.spent[trial]).sum(dim=1) / grid.symbols
            assert (update + spent_on_cover[trial] <= config.channel.power_w * (1 + 1e-9)).all()
        scaled += int((sending.watch.kept < 0.99).sum())
    assert scaled > 0 or not is_all_used


def test_cover_takes_the_power_that_is_counted(shielded):
    """What is drawn for every block, times |s|²."""
    setting = plan_of(shielded.replace({**COMPLEX_BLOCKS, **MASKS}), "airfl-shielded").setting(2)
    setting = replace(setting, cover=replace(setting.cover, own=0.3 * setting.cover.masks))
    uplink = SignalUplink(1, (0, 1))
    degrees = torch.from_numpy(degrees_of(setting.edges[0], 12)).double()
    for scene in scenes(setting)[:3]:
        scene, drawn = replace(scene, cover=setting.cover), torch.zeros(12, 2048, dtype=torch.complex128)
        uplink._cover(0, 0, drawn, scene)
        expected = 2 * setting.cover[0].power(degrees)[0]
        assert torch.allclose(drawn.abs().square().mean(dim=1), expected, rtol=0.15)


# The search.


def test_the_search_with_blocks_knows_what_is_booked(shielded):
    plan = plan_of(shielded.replace({**BLOCKS, "privacy.epsilon": 2.0}), trials=(0,))
    blocks = plan.blocks
    direction = blocks.design.combiner[0] / blocks.design.norm[0].unsqueeze(-1)
    rows = (
        blocks.minimum[0].flatten(),
        plan.gain_bound[0].repeat_interleave(8),
        plan.planned[0],
        direction.flatten(0, 1),
    )
    problem = Problem(plan.link.config, plan.link, 0, plan.promise, *rows, plan.dim)
    problem.follow(["quadrature"])
    (shield,) = plan.shields
    told = problem.spent(shield.norms, shield.cover)
    ledger = booked(plan)
    assert told == pytest.approx(max(mu_of(plan, ledger, one) for one in plan.promise.kept) ** 2, rel=1e-9)
    assert problem.check(shield)
    assert shield.norms.tolist() == blocks.norm[0].flatten().tolist()
    trusting = plan_of(plan.link.config, "airfl-dp", trials=(0,))
    assert shield.trusted == pytest.approx(float(trusting.noise_var.mean()), rel=1e-4)
    # With a little less noise the promise would not be kept.
    assert problem.spent(0.999 * shield.norms, shield.cover) > problem.target
    for factor in (0.25, 4.0):
        other = problem.held_back("quadrature", factor * shield.used.quadrature)
        assert other is None or other.noise >= 0.97 * shield.noise


def test_one_round_of_one_block_is_a_round(shielded):
    """A stated coherence that the whole round lies in changes no bit."""
    plain, cut = (plan_of(config) for config in (shielded, shielded.replace({"channel.coherence_hz": 20e6})))
    assert torch.equal(plain.norm, cut.norm)
    assert torch.equal(plain.cover.quadrature, cut.cover.quadrature)
    assert torch.equal(plain.setting(1).seen["base-station"], cut.setting(1).seen["base-station"])


def test_repeated_trials_share_what_is_planned(shielded):
    plan = plan_of(shielded.replace({**COMPLEX_BLOCKS, **MASKS}))
    once, thrice = plan.setting(1), plan.repeated(3).setting(1)
    for name, values in once.seen.items():
        assert torch.equal(values.repeat_interleave(3, dim=0), thrice.seen[name])
    assert torch.equal(once.blocks.noise_var.repeat_interleave(3, dim=0), thrice.blocks.noise_var)
    assert torch.equal(once.blocks.power_limit.repeat_interleave(3, dim=0), thrice.blocks.power_limit)
    assert len(thrice.edges) == 6


def test_shares_of_symbols():
    assert Grid(4, 2, 650, 1).shares == pytest.approx([82 / 650] * 2 + [81 / 650] * 6)
    assert Grid(5, 2, 7850, 1).shares == (0.1,) * 10


def test_an_eavesdropper_hears_every_block_anew(shielded):
    listener = open_link(shielded.replace(HER), [0, 1]).listener
    assert np.array_equal(listener.draw(1, 3), listener.draw(1, 3, Place(0, 0, -5e6)))
    drawn = np.stack([listener.draw(0, 3, Place(band, span, 0.0)) for band in (0, 1) for span in (0, 1)])
    alike = np.corrcoef((drawn / listener.amplitude[0][:, None]).reshape(4, -1))
    assert float(np.abs(alike - np.eye(4)).max()) < 0.75
    assert np.array_equal(listener.draw(0, 3, Place(1, 1, 0.0)), drawn[3])


def test_a_scheme_without_cover_is_seen_by_an_eavesdropper_as_in_its_worst_block(shielded):
    config = shielded.replace({**BLOCKS, **HER, "scheme.names": ["airfl-dp"], "privacy.observer": "models"})
    plan = plan_of(config, "airfl-dp")
    setting = plan.setting(0)
    for slot, (form, _) in enumerate(most_visible(plan, setting, 0, "eavesdropper")):
        best = float(np.linalg.eigvalsh(form)[-1])
        assert float(setting.seen["eavesdropper"][0, slot]) ** 2 == pytest.approx(best, rel=1e-6)


# Runs and audits.


@pytest.mark.parametrize("uplink", ["equivalent", "signal"])
@pytest.mark.parametrize("cut", ["blocks", "complex blocks"])
def test_a_run_keeps_its_promise(shielded, cut, uplink):
    config = shielded.replace({**CUTS[cut], "scheme.uplink": uplink, "system.rounds": 2, "system.trials": 1})
    entry = airfl.run(config).summary["schemes"]["airfl-shielded"]
    assert entry["status"] == "done"
    told = entry["epsilon_by_observer"]
    assert told["base-station"]["gaussian"] == pytest.approx(4.0, rel=1e-4)
    assert told["base-station"]["gaussian"] <= 4.0
    assert told["models"]["gaussian"] <= 4.0


@pytest.mark.parametrize("observer", ["base-station", "eavesdropper", "everything"])
@pytest.mark.parametrize("cut", CUTS)
def test_the_attack_is_as_good_as_what_is_booked(shielded, cut, observer):
    config = shielded.replace({**HER, **CUTS[cut], "privacy.observer": "everything", "system.rounds": 2})
    plan = plan_of(config)
    setting = plan.setting(1)
    for slot in (0, 7):
        hearing = hear(plan, setting, observer, np.array([slot, slot]))
        assert hearing.setting.blocks is None
        assert np.allclose(hearing.energy, setting.seen[observer][:, slot].square(), rtol=1e-6)
        # Through the uplink: the outcome has mean r² for an update of one, and variance r².
        sent = torch.zeros(12, 64)
        loud = sent.clone()
        loud[slot] = 1.0
        uplink = SignalUplink(0, (0, 1))
        heard = [uplink.received(0, one, hearing.setting) for one in (sent, loud)]
        assert np.allclose(heard[1] - heard[0], hearing.energy[0], rtol=1e-3)
        silence = uplink.received(0, torch.zeros(12, 8192), hearing.setting).double()
        assert float(silence.square().mean()) == pytest.approx(hearing.energy[0], rel=0.1)


@pytest.mark.parametrize("cut", ["blocks", "complex blocks"])
def test_an_audit_of_shielded_devices_in_blocks(monkeypatch, cut):
    monkeypatch.setattr(mechanism, "NOISE_ROWS", 50)
    monkeypatch.setattr(covered, "RECEPTIONS", 100)
    small = planted.little_config(0, sampled=False, cover="masks", disturbed=True)
    channel = {"channel.coherence_hz": 5e6, **(COMPLEX if cut == "complex blocks" else {})}
    audit = analysis.audit_run(small.replace({**channel, "scheme.combiner_columns": "active"}), "airfl-shielded", 60)
    assert [view.observer for view in (audit.view, *audit.others)] == ["model", "models", "base-station"]
    assert not audit.findings
    assert any("of the cover: " in line and "8 blocks" in line for line in audit.tested)


def test_masks_that_come_again_in_the_next_block_are_found(shielded):
    """A uplink that forgets the block when it draws masks; looked at as audits do."""

    class Forgetful(SignalUplink):
        def _masks(self, row, first, start, shape, setting, coordinate=0):
            return super()._masks(row, first, start, shape, replace(setting, block=0), coordinate)

    config = shielded.replace(
        {"channel.coherence_hz": 10e6, **MASKS, "system.num_devices": 6, "system.rounds": 1, "system.trials": 1}
    )
    single = simulation_of(config, "airfl-shielded", trials=(0,))

    def opener(kind):
        def opened(simulation, samples, keys):
            return replace(
                simulation,
                schedule=simulation.schedule.repeated(len(keys)),
                uplink=kind(0, tuple(keys), noise_block=64),
            )

        return opened

    for kind, is_found in ((SignalUplink, False), (Forgetful, True)):
        checks, _, _ = covered.check_covered(single, None, 0, opener(kind))
        least = min(check.p_value for check in checks)
        assert (least < 1e-6) == is_found


# Refusals.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({**COMPLEX, "scheme.cover": "quadrature"}, "carries data"),
        ({**BLOCKS, "channel.csi_error": 1e-4}, "together with `channel.csi_error`"),
        ({**COMPLEX, "channel.csi_error": 1e-4}, "together with `channel.csi_error`"),
    ],
)
def test_what_cannot_be_is_one_sentence(shielded, changes, message):
    with pytest.raises(InputError, match=message) as refused:
        plan_of(shielded.replace(changes))
    assert "\n" not in str(refused.value)


def test_more_blocks_than_can_be_looked_at_are_refused(shielded, monkeypatch):
    monkeypatch.setattr("airfl.rounds.hiding.STACKED", 1000)
    plan_of(shielded)  # a round of one block is looked at whatever its size
    with pytest.raises(InputError, match="8 blocks in each of 4 rounds with 3 antennas take") as refused:
        plan_of(shielded.replace(BLOCKS))
    assert "\n" not in str(refused.value)
