"""Audits of the simulator itself: below what is booked, and a planted bug is caught."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from airfl import analysis
from airfl.air import EquivalentUplink, SignalUplink, Uplink
from airfl.air.equivalent import EquivalentReceiver
from airfl.analysis.audit import canaries, worlds
from airfl.devices import UpdateBlock, build_model, updates
from airfl.engines import cpu_span
from airfl.errors import InputError
from airfl.privacy import ACCOUNTANTS, PrivacyError
from airfl.report.sentences import audit_sentence
from airfl.rounds import Schedule

#: Twenty different settings: laws of participation, schemes, relations, and everything that touches noise or gains.
VARIANTS = [
    (law, scheme, relation, {})
    for law in ("all", "poisson", "fixed")
    for scheme in ("airfl-dp", "airfl-mimo")
    for relation in ("replace", "zero-out")
] + [
    ("all", "airfl-dp", "zero-out", {"channel.csi_error": 0.05}),
    ("fixed", "airfl-dp", "replace", {"scheme.combiner_columns": "active", "scheme.selection": "strongest"}),
    ("poisson", "airfl-dp", "zero-out", {"scheme.combiner_columns": "active", "scheme.combiner": "auto"}),
    ("poisson", "airfl-dp", "zero-out", {"scheme.combiner_columns": "active", "privacy.accountant": "sampled"}),
    ("all", "airfl-dp", "zero-out", {"learning.domain_diameter": 0.3, "privacy.smoothness": 0.5, "system.rounds": 5}),
    ("all", "airfl-an", "zero-out", {}),
    ("all", "airfl-dp", "zero-out", {"scheme.uplink": "signal"}),
    ("all", "airfl-dp-online", "replace", {"channel.power_w": 1e-7}),
]


def config_of(tiny, law, scheme, relation, seed=0, **more):
    return tiny.replace(
        {
            "system.seed": seed,
            "system.num_devices": 5,
            "system.num_antennas": 8,
            "system.participation": 1.0 if law == "all" else 0.6,
            "system.sampling": "poisson" if law == "poisson" else "fixed",
            "system.rounds": 2,
            "learning.local_steps": 2,
            "scheme.names": [scheme],
            "scheme.combiner": "zero-forcing",
            "scheme.combiner_columns": "all",
            "channel.power_w": 1.0,
            "privacy.neighbours": relation,
            "privacy.epsilon": 2.0,
            "privacy.delta": 1e-2,
            "privacy.accountant": "auto",
            **more,
        }
    )


@pytest.mark.parametrize(("number", "variant"), list(enumerate(VARIANTS)))
def test_the_lower_bound_lies_below_every_valid_upper_bound(tiny, number, variant):
    """Twenty seeded configurations of trained models."""
    law, scheme, relation, more = variant
    config = config_of(tiny, law, scheme, relation, seed=number, **more)
    audit = analysis.audit_run(config, scheme, 400 if "scheme.uplink" not in more else 60)
    for name, upper in audit.epsilon_upper.items():
        if ACCOUNTANTS[name].valid:
            assert audit.bound.epsilon_lower <= upper, name
    assert audit.gaussian.epsilon_lower <= audit.epsilon_upper["gaussian"]
    assert not audit.summary["refuted_proofs"]
    assert not audit.failed
    assert len(audit.checks) > 20
    assert len(VARIANTS) == 20


def test_it_comes_close_where_the_bound_is_exact(tiny):
    audit = analysis.audit_run(config_of(tiny, "all", "airfl-dp", "zero-out"), "airfl-dp", 4000)
    assert audit.epsilon_upper["gaussian"] == pytest.approx(2.0)
    assert audit.gaussian.epsilon_lower >= 0.75 * audit.epsilon_upper["gaussian"]
    assert audit.bound.epsilon_lower > 0.3 * audit.epsilon_upper["gaussian"]


def test_a_planted_bug_is_caught(tiny, monkeypatch):
    """Half of the noise is lost between the ledger and the air."""
    honest = EquivalentUplink.open

    def quieter(self, dim, reception):
        return honest(self, dim, dataclasses.replace(reception, noise_var=reception.noise_var / 2))

    monkeypatch.setattr(EquivalentUplink, "open", quieter)
    audit = analysis.audit_run(config_of(tiny, "all", "airfl-dp", "zero-out"), "airfl-dp", 3000)
    assert "gaussian" in audit.refuted
    assert audit.summary["refuted_proofs"]


@pytest.mark.parametrize("factor", [100.0, float("inf")])
def test_a_broken_clip_is_caught(tiny, monkeypatch, factor):
    from airfl.schemes.encoders import clip as encoders

    honest = encoders.clip_factors
    monkeypatch.setattr(encoders, "clip_factors", lambda rows, norm: honest(rows, min(factor * norm, 1e30)))
    audit = analysis.audit_run(config_of(tiny, "all", "airfl-dp", "zero-out"), "airfl-dp", 200)
    assert audit.summary["refuted_proofs"]


@pytest.mark.parametrize("factor", [1.0, 0.05])
def test_norms_of_updates_that_are_never_written_out_are_audited_too(tiny, monkeypatch, factor):
    """Softmax regression on a CPU keeps coefficients: a canary is planted in the same form, and so meets its clip."""
    planted, honest = [], updates.span_norms
    honest_planted = updates.Spanned.planted

    def plant(self, which, vector):
        planted.append(honest_planted(self, which, vector))
        assert torch.allclose(planted[-1].dense()[which], vector.expand(int(which.sum()), -1), atol=1e-5)
        return planted[-1]

    monkeypatch.setattr(updates.Spanned, "planted", plant)
    for module in (updates, cpu_span):
        monkeypatch.setattr(module, "span_norms", lambda a, gram: factor * honest(a, gram))
    many = {"system.num_devices": 150, "scheme.combiner": "mrc", "learning.samples_per_device": 8}
    epochs = {"learning.local_steps": None, "learning.local_epochs": 3, "system.rounds": 1}
    config = config_of(tiny, "all", "airfl-dp", "zero-out", **many, **epochs)
    audit = analysis.audit_run(config, "airfl-dp", 300)
    assert planted
    assert bool(audit.summary["refuted_proofs"]) == (factor < 1.0)


class TwiceTrained:
    """An engine that hands on one slot's updates twice."""

    def __init__(self, engine, slot):
        self.engine, self.slot = engine, slot

    def train(self, *arguments):
        for block in self.engine.train(*arguments):
            yield block
            mine = block.slot == self.slot
            yield UpdateBlock(block.trial[mine], block.slot[mine], block.trained[mine], block.losses[mine])


@pytest.mark.parametrize("slot", [0, 3])
def test_a_device_that_is_trained_twice_is_refused(tiny, slot):
    """Before the uplink, so that only a round that is trained shows it."""

    def opener(*arguments):
        made = worlds.repeated(*arguments)
        return dataclasses.replace(made, engine=TwiceTrained(made.engine, slot))

    with pytest.raises(InputError, match="twice in one round"):
        analysis.audit_run(config_of(tiny, "all", "airfl-dp", "zero-out"), "airfl-dp", 30, opener=opener)


@dataclasses.dataclass(frozen=True)
class Forgetful(Uplink):
    """An uplink whose noise is another one every time."""

    uplink: Uplink
    times: list

    def open(self, dim, reception):
        self.times.append(dim)
        keys = tuple(1000 * len(self.times) + key for key in self.uplink.trials)
        return dataclasses.replace(self.uplink, trials=keys).open(dim, reception)


class Boastful(Schedule):
    """A schedule that sets the radio to half of the noise that is booked."""

    def setting(self, round_index):
        setting = super().setting(round_index)
        return dataclasses.replace(setting, noise_var=0.5 * setting.noise_var)


def boastful(simulation):
    honest = simulation.schedule
    values = {item.name: getattr(honest, item.name) for item in dataclasses.fields(honest)}
    return dataclasses.replace(simulation, schedule=Boastful(**values))


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (lambda s: dataclasses.replace(s, uplink=Forgetful(s.uplink, [])), "noise does not depend on what is sent"),
        (boastful, "what is booked"),
    ],
)
@pytest.mark.parametrize("more", [{}, {"channel.interference_dbm": -95.0}])
def test_checks_that_need_no_chance(tiny, plant, name, more):
    config = config_of(tiny, "all", "airfl-dp", "zero-out").replace(more)
    audit = analysis.audit_run(config, "airfl-dp", 30, opener=lambda *rest: plant(worlds.repeated(*rest)))
    assert name in [check.name for check in audit.failed]


def test_canaries_are_of_many_kinds_and_any_device(tiny):
    config = config_of(tiny, "all", "airfl-dp", "zero-out")
    spec = build_model("softmax", (1, 8, 8), 10)
    quiet = np.eye(spec.dim)[5]
    drawn = canaries.draw_canaries(config, spec, quiet, 600)
    kinds = dict(zip(drawn.names, drawn.directions.numpy(), strict=True))
    assert list(kinds) == [
        "any direction",
        "one round",
        "least noise seen",
        "smallest layer",
        "one coordinate",
        "two coordinates",
    ]
    assert np.allclose(np.linalg.norm(drawn.directions.numpy(), axis=1), 1.0, atol=1e-6)
    assert np.count_nonzero(kinds["one coordinate"]) == 1
    first, second = np.flatnonzero(kinds["two coordinates"])
    assert second - first == spec.dim // 2
    assert kinds["two coordinates"].sum() == 0.0
    assert np.flatnonzero(kinds["smallest layer"]).tolist() == list(range(640, 650))
    assert np.array_equal(kinds["least noise seen"], quiet)
    assert set(drawn.devices.tolist()) == set(range(5))
    single = drawn.kinds == 1
    assert set(drawn.rounds[single].tolist()) == {0, 1}
    assert (drawn.rounds[~single] == -1).all()
    again = canaries.draw_canaries(config, spec, quiet, 600)
    assert np.array_equal(again.devices, drawn.devices)
    assert canaries.draw_canaries(config, spec, quiet, 20).names == ("any direction",)


def test_one_look_sees_what_the_others_do_not(tiny, monkeypatch):
    """No noise on the biases: the canary that hides there stands out of the model itself."""
    honest = EquivalentReceiver._unit_noise
    monkeypatch.setattr(EquivalentReceiver, "_unit_noise", lambda self, row: no_bias(honest(self, row)))
    audit = analysis.audit_run(config_of(tiny, "all", "airfl-dp", "zero-out"), "airfl-dp", 1000)
    looks = {look["name"]: look["epsilon_lower_gaussian"] for look in audit.summary["looks"]}
    assert looks["smallest layer"] > audit.epsilon_upper["gaussian"] > looks["any direction"]
    assert looks["least noise seen"] > audit.epsilon_upper["gaussian"]
    assert "noise variance by layer" in audit.summary["failed_checks"]


def no_bias(noise):
    noise[-10:] = 0.0
    return noise


def test_the_base_station_is_audited_where_it_is_promised_something(tiny, monkeypatch):
    config = config_of(tiny, "all", "airfl-an", "zero-out")
    audit = analysis.audit_run(config, "airfl-an", 600)
    found = audit.summary["base_station"]
    assert audit.summary["promised_to"] == found["observer"] == "base-station"
    assert found["epsilon_upper"]["gaussian"] == pytest.approx(2.0)
    assert 0.5 * 2.0 < found["epsilon_lower_gaussian"] <= 2.0
    assert not audit.findings
    assert any("base station" in line for line in audit.summary["tested"])

    honest = SignalUplink._unit_noise
    monkeypatch.setattr(
        SignalUplink,
        "_unit_noise",
        lambda self, purpose, *rest: honest(self, purpose, *rest) * (0.2 if purpose == "device-noise" else 1.0),
    )
    leaky = analysis.audit_run(config, "airfl-an", 600)
    assert leaky.summary["base_station"]["refuted"][0] == "gaussian"
    assert "gaussian" in leaky.summary["refuted_proofs"]
    assert leaky.view.refuted == []


@pytest.mark.parametrize("law", ["poisson", "fixed"])
def test_the_base_station_with_sampling(tiny, law):
    relation = "replace" if law == "fixed" else "zero-out"
    audit = analysis.audit_run(config_of(tiny, law, "airfl-an", relation), "airfl-an", 300)
    assert not audit.findings
    assert audit.summary["base_station"]["epsilon_lower_gaussian"] > 0.2


def test_what_was_not_tested_is_said(tiny):
    config = config_of(tiny, "all", "airfl-dp", "zero-out")
    assert analysis.audit_run(config, "airfl-dp", 200).not_tested == (
        "the base station, to whom this scheme promises nothing",
    )
    alone = analysis.audit_one_run(config_of(tiny, "all", "airfl-an", "zero-out"), "airfl-an", 4)
    assert "the base station, to whom the scheme promises its ε" in alone.not_tested
    assert alone.checks
    asked = analysis.audit_run(config, "airfl-dp", 60, observer="base-station").not_tested
    assert asked[0] == "someone who sees the final model, to whom the scheme promises its ε"
    assert analysis.audit_linear(1.0, 1000).not_tested == ("any run of airfl",)


@pytest.mark.parametrize("scheme", ["fedavg", "fedavg-clip"])
def test_schemes_without_noise(tiny, scheme):
    audit = analysis.audit_run(config_of(tiny, "all", scheme, "zero-out"), scheme, 40)
    assert not audit.findings
    assert "the noise of rounds without any" in audit.not_tested
    assert any("does not clip" in line for line in audit.not_tested) == (scheme == "fedavg")


def test_prior_work_is_refuted_by_measurement(tiny):
    """Per-round accounting of many rounds claims less than what leaks."""
    config = config_of(tiny, "all", "koda2020", "zero-out", **{"system.rounds": 12})
    audit = analysis.audit_run(config, "koda2020", 2000)
    assert "koda2020" in audit.refuted
    assert not audit.summary["refuted_proofs"]


def test_one_run_with_many_canaries(tiny, monkeypatch):
    many = {"system.num_devices": 300, "scheme.combiner": "mrc", "learning.batch_size": 2}
    config = config_of(tiny, "all", "airfl-dp", "zero-out", **many)
    audit = analysis.audit_one_run(config, "airfl-dp", 250, delta=1e-5)
    upper = audit.epsilon_upper["gaussian"]
    assert 0.0 <= audit.bound.epsilon_lower <= upper
    assert audit.bound.canaries == 250
    assert audit.bound.epsilon_lower < audit.summary["epsilon_ceiling"]
    assert audit.summary["epsilon_ceiling_gaussian"] is None
    assert "With 250 canaries this audit could not have refuted a claim above ε = " in audit_sentence(audit.summary)
    assert not audit.refuted

    honest = EquivalentUplink.open
    monkeypatch.setattr(
        EquivalentUplink,
        "open",
        lambda self, dim, reception: honest(
            self, dim, dataclasses.replace(reception, noise_var=reception.noise_var / 1e4)
        ),
    )
    leaky = analysis.audit_one_run(config, "airfl-dp", 250, delta=1e-5)
    assert leaky.bound.epsilon_lower > audit.bound.epsilon_lower
    assert leaky.bound.epsilon_lower > 2.0


def test_every_view_says_what_it_could_have_seen(tiny):
    """Without noise every canary shows: what is measured is the ceiling. With noise no view gets beyond its own."""
    bare = analysis.audit_run(config_of(tiny, "all", "fedavg-clip", "zero-out"), "fedavg-clip", 300)
    private = analysis.audit_run(config_of(tiny, "all", "airfl-an", "zero-out"), "airfl-an", 300)
    assert bare.bound.epsilon_lower == bare.bound.epsilon_ceiling > 3.0
    assert bare.gaussian.epsilon_lower == bare.gaussian.epsilon_ceiling > bare.bound.epsilon_ceiling
    views = {view["observer"]: view for view in private.summary["views"]}
    assert set(views) == {"model", "models", "base-station"}
    for view in views.values():
        assert 0 <= view["epsilon_lower"] <= view["epsilon_ceiling"]
        assert 0 <= view["epsilon_lower_gaussian"] <= view["epsilon_ceiling_gaussian"]
    # Fewer repetitions, and a smaller share of what may go wrong.
    assert (
        views["models"]["epsilon_ceiling"]
        < views["model"]["epsilon_ceiling"]
        < views["base-station"]["epsilon_ceiling"]
    )
    assert private.summary["epsilon_ceiling"] == views["model"]["epsilon_ceiling"]
    assert bare.summary["epsilon_ceiling_gaussian"] == bare.gaussian.epsilon_ceiling


def test_the_sentence_names_the_largest_ceiling():
    audit = analysis.audit_linear(8.0, 2000)
    assert audit.bound.epsilon_ceiling == pytest.approx(5.889, abs=1e-3)
    said = audit_sentence(audit.summary)
    assert "With 2,000 repetitions in each world this audit could not have refuted a claim above ε = 5.9 (38.4" in said
    assert said.endswith("the proven bound is beyond its reach.")
    assert "beyond" not in audit_sentence(analysis.audit_linear(1.0, 2000).summary)


def test_linear_mechanism_reaches_most_of_epsilon():
    audit = analysis.audit_linear(1.0, 2_000_000, delta=1e-3)
    assert 0.85 * audit.epsilon_upper["gaussian"] <= audit.bound.epsilon_lower <= audit.epsilon_upper["gaussian"]


def test_command_line(call, tmp_path):
    code, out, _ = call("audit", "--mu", "0.5", "--repetitions", "200000", "--delta", "1e-2", "--json")
    answer = json.loads(out)
    assert code == 0
    assert {"epsilon_lower", "confidence", "epsilon_upper"} <= set(answer)
    assert 0 < answer["epsilon_lower"] <= answer["epsilon_upper"]["gaussian"]
    code, out, _ = call("audit", "--mu", "2", "--repetitions", "5000", "--out", "figures")
    assert code == 0
    assert "Nothing speaks against it" in out
    assert "measurable, at most" in out
    assert (tmp_path / "figures" / "audit.png").is_file()
    for arguments, word in (
        ([], "--mu"),
        (["demo", "--mu", "1"], "one of the two"),
        (["--mu", "-1"], "positive"),
        (["--mu", "1", "--repetitions", "3"], "at least 10"),
        (["--mu", "1", "--confidence", "2"], "confidence"),
        (["demo", "--one-run", "--repetitions", "100"], "--one-run"),
        (["demo", "--canaries", "5"], "--one-run"),
        (["demo", "--scheme", "hope"], "no scheme named"),
        (["demo", "--observer", "spy"], "no observer named"),
        (["demo", "--observer", "base-stations"], "did you mean `base-station`?"),
        (["demo", "--observer", "eavesdropper"], "section [eavesdropper]"),
        (["demo", "--observer", "everything", "--scheme", "fedavg"], "ideal channel"),
        (["demo", "--observer", "models", "--one-run"], "--observer"),
        (["--mu", "1", "--observer", "model"], "--observer"),
    ):
        code, _, err = call("audit", *arguments)
        assert code == 2, arguments
        assert word in err, arguments


def test_command_line_trains_and_reports(call, tmp_path, tiny):
    (tmp_path / "small.toml").write_text(config_of(tiny, "all", "airfl-dp", "zero-out").to_toml())
    code, out, _ = call("audit", "small.toml", "--repetitions", "300", "--json")
    assert code == 0
    answer = json.loads(out.splitlines()[-1])
    assert set(answer["epsilon_upper"]) == {n for n, kind in ACCOUNTANTS.items() if "model" in kind.observers}
    assert answer["failed_checks"] == answer["findings"] == []
    assert {"name", "p_value", "threshold", "passed"} <= set(answer["checks"][0])
    assert [view["observer"] for view in answer["views"]] == ["model", "models"]
    assert answer["base_station"] is None
    code, out, _ = call("audit", "small.toml", "--observer", "base-station", "--repetitions", "100", "--json")
    assert code == 0
    curious = json.loads(out.splitlines()[-1])
    assert set(answer) == set(curious)
    assert curious["observer"] == curious["base_station"]["observer"] == "base-station"
    assert curious["epsilon_upper"]["gaussian"] > 2 * answer["epsilon_upper"]["gaussian"]
    code, out, _ = call("audit", "small.toml", "--observer", "base-station", "--repetitions", "20", "--out", "heard")
    assert code == 0
    assert "curious base station" in " ".join(out.split())
    assert (tmp_path / "heard" / "audit.png").is_file()
    code, out, _ = call("audit", "small.toml", "--one-run", "--canaries", "4", "--delta", "1e-2")
    assert code == 0
    assert "Not tested: the base station" in " ".join(out.split())
    code, _, err = call("audit", "small.toml", "--one-run", "--canaries", "400")
    assert code == 2
    assert "canaries" in err


def test_a_failed_check_fails_the_command(call, tmp_path, tiny, monkeypatch):
    """Uniform noise of the right variance: no ε is refuted, and one sentence says what was found."""
    (tmp_path / "small.toml").write_text(config_of(tiny, "all", "airfl-dp", "zero-out").to_toml())
    honest = EquivalentReceiver._unit_noise
    monkeypatch.setattr(
        EquivalentReceiver,
        "_unit_noise",
        lambda self, row: (2.0 * torch.special.ndtr(honest(self, row)) - 1.0) * 3.0**0.5,
    )
    code, out, err = call("audit", "small.toml", "--repetitions", "40", "--json")
    answer = json.loads(out.splitlines()[-1])
    assert code == 1
    assert answer["refuted_proofs"] == []
    assert "law of the noise" in answer["failed_checks"]
    assert err.strip().splitlines()[-1].startswith("airfl: check `")
    code, out, _ = call("audit", "small.toml", "--repetitions", "40")
    assert code == 1
    assert "Something is wrong" in out
    assert "Nothing speaks against it" not in out


def test_bad_questions(tiny):
    with pytest.raises(InputError, match="scheme"):
        analysis.audit_run(tiny, "nothing")
    with pytest.raises(InputError, match="at least 10"):
        analysis.audit_run(tiny, "airfl-dp", 1)
    for audit in (analysis.audit_run, analysis.audit_one_run):
        with pytest.raises(PrivacyError, match="delta"):
            audit(tiny, "airfl-dp", delta=float("nan"))
