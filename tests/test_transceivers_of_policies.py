"""Policies that find combiners and transmit scalars themselves: what is sent, what is booked, what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from airfl.air import EquivalentUplink, SignalUplink
from airfl.devices import UpdateBlock
from airfl.errors import InputError
from airfl.schemes import SCHEMES, Clip, DesigningPolicy, Mean, Scene, Scheme, Transceiver
from airfl.simulate import open_simulation
from airfl.testing.small import small_config, small_task
from airfl.transceiver.design import received_gains
from airfl.transceiver.wideband import design_blocks

WIDE = {"channel.coherence_hz": 5e6, "channel.rotation": True}


@dataclass(frozen=True)
class Inverts(DesigningPolicy):
    """What airfl-mimo does, in its own words: s = share/(wᴴh)."""

    share: float = 1.0
    scale: float = 1.0

    def transceiver(self, scene: Scene) -> Transceiver:
        if scene.grid.count == 1:
            design, active, _ = scene.radio.rounds(scene.config, scene.rounds)
            unit, norm = design.combiner.unsqueeze(2), design.norm.unsqueeze(-1) * scene.reach
            unit = unit / design.norm[..., None, None]
        else:
            blocks = design_blocks(scene.config, scene.radio, scene.rounds, scene.grid)
            active, norm = blocks.active, blocks.norm * scene.reach  # each block keeps to P: no power over the round
            unit = blocks.combiner / blocks.norm.unsqueeze(-1)
        combiner = unit * (norm * self.scale).unsqueeze(-1)
        heard = torch.stack(
            [
                torch.stack(
                    [
                        received_gains(combiner[:, t, b], scene.channels(t, b, active[:, t]))
                        for b in range(scene.grid.count)
                    ],
                    dim=-1,
                )
                for t in scene.rounds
            ],
            dim=1,
        )
        return Transceiver(active, combiner, self.share / heard, norm.amin(dim=-1))


def scheme(policy, promises=None):
    return Scheme("own", "Own", "A policy under test.", Clip(), policy, Mean(), promises_to=promises)


def opened(policy, overrides=None, promises=None):
    config = small_config(overrides)
    return open_simulation(config, scheme(policy, promises), small_task(config))


def finished(simulation):
    *_, (state, _) = simulation.rounds()
    return state


def test_the_usual_inversion_gives_the_usual_run():
    config = small_config()
    usual = finished(open_simulation(config, "airfl-mimo", small_task(config)))
    own = finished(opened(Inverts()))
    assert torch.allclose(usual.models, own.models, rtol=1e-5, atol=1e-7)
    for one, other in zip(usual.ledgers, own.ledgers, strict=True):
        for before, after in zip(one.events, other.events, strict=True):
            assert after.noise_var == pytest.approx(before.noise_var, rel=1e-9)
            assert after.base_station == pytest.approx(before.base_station, rel=1e-9)
            assert after.gain_bound == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("overrides", [{}, WIDE])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_both_uplinks_hear_the_gains_that_are_booked(overrides, share):
    simulation = opened(Inverts(share=share), overrides)
    setting = simulation.schedule.setting(1)
    trials, places = setting.active.shape
    dim = simulation.schedule.dim
    sent = torch.randn(trials, places, dim, generator=torch.Generator().manual_seed(1)) * 0.1
    blocks = UpdateBlock(
        torch.arange(trials).repeat_interleave(places),
        torch.arange(places).repeat(trials),
        sent.flatten(0, 1),
        torch.zeros(trials * places),
    )
    for uplink in (EquivalentUplink, SignalUplink):
        heard = uplink(5, (0, 1)).receive([blocks], dim, setting.silenced())
        assert torch.allclose(heard, share * sent.sum(dim=1), atol=1e-5)
    step = simulation.advance(simulation.init())
    for ledger in step.after.ledgers:
        assert ledger.events[0].gain_bound == pytest.approx(share, rel=1e-9)
    assert torch.equal(step.setting.unknown_var, simulation.schedule.unknown_var[:, 0])


def test_a_small_gain_costs_less():
    """Half the gain beside the same noise: half as far apart, and the ledger says so."""
    whole, half = (finished(opened(Inverts(share=share))).ledgers[0].events[0] for share in (1.0, 0.5))
    assert half.noise_var == whole.noise_var
    assert half.sensitivity("zero-out") == pytest.approx(0.5 * whole.sensitivity("zero-out"), rel=1e-9)
    assert half.base_station == pytest.approx(0.5 * whole.base_station, rel=1e-9)


@dataclass(frozen=True)
class Broken(Inverts):
    what: str = ""

    def transceiver(self, scene: Scene) -> Transceiver:
        found = super().transceiver(scene)
        if self.what == "power":
            return replace(found, scaling=2.0 * found.scaling)
        if self.what == "shape":
            return replace(found, scaling=found.scaling[:, :1])
        if self.what == "zero":
            return replace(found, combiner=0.0 * found.combiner)
        return replace(found, scaling=found.scaling * float("nan"))


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (Broken(what="power"), "lets a device send with"),
        (Broken(what="shape"), "must return combiners"),
        (Broken(what="zero"), "finite combiners of positive norm"),
        (Broken(what="nan"), "finite combiners of positive norm"),
    ],
)
def test_what_a_policy_answers_is_checked(policy, words):
    with pytest.raises(InputError, match=words):
        opened(policy)


def test_a_budget_is_checked_before_anyone_sends():
    loud = {"channel.power_w": 1e-2}
    with pytest.raises(InputError, match=r"spends .* of a privacy budget"):
        opened(Inverts(), loud, promises="model")
    opened(Inverts(scale=1e5), loud, promises="model")


@pytest.mark.parametrize(
    "overrides",
    [
        {"channel.csi_error": 0.01},
        {"channel.phase_error_rad": 0.1},
        {"channel.symbols": "complex"},
        {"channel.csi_age_s": 1e-4, "channel.speed_m_s": 3.0},
        {"scheme.selection": "strongest", "scheme.selection_keep": 0.5},
    ],
)
def test_what_is_not_worked_out_is_refused(overrides):
    with pytest.raises(InputError, match="has transmit scalars of its own"):
        opened(Inverts(), overrides)


def test_nobody_in_the_table_is_asked_both_ways():
    for entry in SCHEMES.values():
        assert isinstance(entry.policy, DesigningPolicy) or type(entry.policy).norms is not DesigningPolicy.norms


class Divides(Mean):
    """By how many sent: that tells who was there."""

    def decode_in(self, received, clip_norm, senders, public):
        return received * (senders / public.senders(received.shape[1]).clamp(min=1.0)).to(received)


class Looks(Clip):
    def encode_in(self, block, clip_norm, memory, public):
        return self.encode(block, clip_norm, memory)


@pytest.mark.parametrize(
    ("encoder", "decoder", "hides"), [(Clip, Mean, True), (Clip, Divides, False), (Looks, Mean, False)]
)
@pytest.mark.parametrize("overrides", [{}, {"channel.coherence_hz": 5e6}])
def test_parts_that_look_at_who_takes_part_earn_no_sampling_credit(encoder, decoder, hides, overrides):
    drawn = {"system.sampling": "poisson", "system.participation": 0.3, "scheme.combiner_columns": "all"}
    config = small_config({**drawn, "privacy.accountant": "sampled", **overrides})
    looking = Scheme("looks", "Looks", "Parts under test.", encoder(), SCHEMES["airfl-dp"].policy, decoder(), "model")
    simulation = open_simulation(config, looking, small_task(config))
    event = simulation.advance(simulation.init()).after.ledgers[0].events[0]
    assert event.hides_participation is hides
    assert simulation.schedule.promise.template.hides_participation is hides


@dataclass(frozen=True)
class Liar(Inverts):
    what: str = ""

    def transceiver(self, scene: Scene) -> Transceiver:
        if self.what == "raises":
            raise ValueError("no idea")
        if self.what == "nothing":
            return None
        found = super().transceiver(scene)
        active = found.active.copy()
        if self.what == "twice":
            active[..., 1] = active[..., 0]
        elif self.what == "gap":
            active[..., 0] = -1
            scaling = found.scaling.clone()
            scaling[:, :, 0] = 0.0
            return replace(found, active=active, scaling=scaling)
        elif self.what == "unknown":
            active[..., 0] = 99
        elif self.what == "rounds":
            active = active[:, :1]
        else:
            return replace(found, detects=self.what, bound=torch.full(found.combiner.shape[:-1], 0.5))
        return replace(found, active=active)


@pytest.mark.parametrize(
    ("what", "overrides", "words"),
    [
        ("raises", {}, "failed: .*no idea"),
        ("nothing", {}, "must return a Transceiver"),
        ("twice", {}, "each once in a round"),
        ("gap", {}, "after the last"),
        ("unknown", {}, "that take part"),
        ("rounds", {}, "2 trials and 3 rounds"),
        ("fresh energy", {}, "even out path gains"),
        ("energy", {}, "what `scheme.fresh_fading` says"),
        ("energy", {"scheme.fresh_fading": False}, "no scalar form with"),
    ],
)
def test_nobody_sends_twice_or_tells_less_than_is_heard(what, overrides, words):
    """A device at two places would be in the sum twice and in the ledger once."""
    with pytest.raises(InputError, match=words):
        opened(Liar(what=what), overrides)


def test_blocks_with_gains_of_their_own_earn_no_credit_for_a_hidden_state():
    hidden = {"learning.domain_diameter": 5.0, "privacy.smoothness": 1.0, **WIDE}
    with pytest.raises(InputError, match="accountant `convergent`"):
        opened(Inverts(), {**hidden, "privacy.accountant": "convergent"})
    simulation = opened(Inverts(), {**hidden, "privacy.accountant": "auto"})
    assert simulation.schedule.promise.accountant == "gaussian"
    assert simulation.advance(simulation.init()).after.ledgers[0].events[0].domain is None


def test_an_eavesdropper_hears_gains_as_they_are():
    """She hears nothing herself, and the models show a device as loud as the sum has it."""
    far = {"eavesdropper.distance_m": 1e6, "eavesdropper.noise_density_dbm_hz": -100.0}
    for share in (1.0, 2.0):
        simulation = opened(Inverts(share=share, scale=4.0), far)
        event = simulation.advance(simulation.init()).after.ledgers[0].events[0]
        assert event.eavesdropper >= event.gain_bound / event.noise_var**0.5 * (1.0 - 1e-9)


@dataclass(frozen=True)
class Odd(Clip):
    what: str = ""
    remembers = True

    def configured(self, config):
        return None if self.what == "configured" else self

    def unit(self, clip_norm, dim):
        return {"unit": float("nan"), "name": "a"}.get(self.what, clip_norm)

    def length(self, clip_norm):
        return -1.0 if self.what == "length" else clip_norm

    def encode(self, block, clip_norm, memory):
        memory = memory[:1] if self.what == "memory" else memory
        return replace(super().encode(block, clip_norm, memory), memory=memory)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("configured", "once configured; got NoneType"),
        ("unit", "finite `unit`"),
        ("name", "failed: .*could not convert"),
        ("length", "`length` above 0"),
        ("memory", "memories of shape"),
    ],
)
def test_encoders_that_answer_nonsense_are_one_sentence(what, words):
    config = small_config({"scheme.encoder": Odd(what=what)})
    with pytest.raises(InputError, match=words):
        finished(open_simulation(config, "airfl-dp", small_task(config)))


def test_scaling_by_blocks_may_move_updates_apart_and_earns_no_credit_for_a_hidden_state():
    """x min(1, r/‖Ax‖) is no projection: with blocks that cost 1 and 100 it stretches some differences five times."""
    weights = torch.tensor([10.0, 1.0], dtype=torch.float64)

    def kept(x):
        return x * min(1.0, 1.0 / float((weights * x).norm()))

    angles = torch.linspace(0.0, torch.pi / 2, 500, dtype=torch.float64)
    edge = 1.0001 * torch.stack([angles.sin() / 10.0, angles.cos()], dim=1)
    step = torch.tensor([1e-6, 0.0], dtype=torch.float64)
    assert max(float((kept(x + step) - kept(x)).norm() / 1e-6) for x in edge) > 4.0
    hidden = {"learning.domain_diameter": 5.0, "privacy.smoothness": 1.0}
    for more, credited in (({}, "convergent"), (WIDE, "gaussian")):
        config = small_config({**hidden, **more, "privacy.accountant": "auto"})
        simulation = open_simulation(config, "airfl-mimo", small_task(config))
        assert simulation.schedule.promise.accountant == credited
    config = small_config({**hidden, **WIDE, "privacy.accountant": "convergent"})
    with pytest.raises(InputError, match="one gain for a whole round"):
        open_simulation(config, "airfl-mimo", small_task(config))
