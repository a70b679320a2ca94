"""`airfl epsilon`: the sentence is true, the table fits, and the inverse question is answered to the last round."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import dp_accounting as dp
import numpy as np
import pytest
from dp_accounting.mechanism_calibration import calibrate_dp_mechanism
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

import airfl
from airfl.privacy import (
    ACCOUNTANTS,
    PrivacyError,
    Target,
    WhatIf,
    convergent,
    keep,
    least_noise,
    make_accountant,
    most_rounds,
    noise_for,
    proven,
    rounds_for,
)
from airfl.wording import rounded_up

FULL = ("--clip-norm", "83.5722", "--noise-var", "10726", "--rounds", "50")
POISSON = ("--participation", "0.1", "--poisson")
DOMAIN = ("--devices", "100", "--diameter", "0.002", "--smoothness", "1", "--learning-rate", "0.005")
DOMAIN += ("--local-steps", "1")
UNKNOWN = "Against the base station: not known from these numbers; --received-snr would tell."


def asked(call, *arguments):
    code, out, error = call("epsilon", *arguments, "--json")
    assert code == 0, error
    return json.loads(out)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            (*FULL, "--neighbours", "replace"),
            "ε ≤ 112.94 at δ = 1e-5 (exact, one device's data replaced by any other, against anyone who sees the "
            f"models). {UNKNOWN}",
        ),
        (  # K of n, and no credit for it: no longer exact
            (*FULL, "--participation", "0.9"),
            "ε ≤ 112.94 at δ = 1e-5 (an upper bound, one device's data replaced by any other, against anyone who sees "
            f"the models). {UNKNOWN}",
        ),
        (
            (*FULL, "--observer", "model"),
            "ε ≤ 39.87 at δ = 1e-5 (an upper bound, one device's contribution set to zero, against anyone who sees "
            "only the final model).",
        ),
        (
            (*FULL, *POISSON),
            "ε ≤ 3.4732 at δ = 1e-5 (an upper bound if who takes part stays hidden, one device's contribution set to "
            f"zero, against anyone who sees the models). {UNKNOWN}",
        ),
        (
            ("--clip-norm", "1", "--noise-var", "4", "--rounds", "200", *DOMAIN),
            "ε ≤ 54.377 at δ = 1e-5 (an upper bound, one device's contribution set to zero, against anyone who sees "
            "the models). Against anyone who sees only the final model: ε ≤ 49.612 (an upper bound that rests on the "
            f"stated smoothness, which nobody checks). {UNKNOWN}",
        ),
        (
            ("--clip-norm", "1", "--noise-var", "4", "--rounds", "2", "--received-snr", "0.5"),
            "ε ≤ 2.9433 at δ = 1e-5 (exact, one device's contribution set to zero, against anyone who sees the "
            "models). Against the base station: ε ≤ 6.573 (an upper bound).",
        ),
        (
            ("--clip-norm", "1", "--noise-var", "0", "--rounds", "3"),
            "ε = ∞ at δ = 1e-5: no protection (one device's contribution set to zero, against anyone who sees the "
            "models). Against the base station: no protection, ε = ∞.",
        ),
        (
            ("--clip-norm", "1", "--noise-var", "1e15", "--rounds", "1"),
            f"ε = 0 at δ = 1e-5 (exact, one device's contribution set to zero, against anyone who sees the models). "
            f"{UNKNOWN}",
        ),
        (
            (*FULL, "--accountant", "paper"),
            "`paper` gives ε = 83.148 at δ = 1e-5 (one device's data replaced by any other, against anyone who sees "
            "only the final model). That is not a proof: the true ε may be larger.",
        ),
        ((*FULL, "--accountant", "liu2024"), UNKNOWN),
        (  # no domain: the hidden state is not used, and nothing rests on a smoothness
            (*FULL, "--accountant", "convergent"),
            "ε ≤ 39.87 at δ = 1e-5 (an upper bound, one device's contribution set to zero, against anyone who sees "
            "only the final model).",
        ),
        (
            ("--epsilon", "1", "--clip-norm", "2", "--rounds", "40"),
            "ε ≤ 1 at δ = 1e-5 over 40 rounds is kept by noise of variance 2226.82 or more, std 47.19, noise "
            "multiplier 23.595 (exact, one device's contribution set to zero, against anyone who sees the models). "
            f"{UNKNOWN}",
        ),
        (
            ("--epsilon", "1", "--clip-norm", "1", "--noise-var", "100"),
            "This noise keeps ε ≤ 1 at δ = 1e-5 for up to 7 rounds (exact, one device's contribution set to zero, "
            f"against anyone who sees the models). {UNKNOWN}",
        ),
        (
            ("--epsilon", "1", "--clip-norm", "1", "--noise-var", "1e9"),
            "This noise keeps ε ≤ 1 at δ = 1e-5 for up to 1,000,000 rounds, the most that can be asked about (exact, "
            f"one device's contribution set to zero, against anyone who sees the models). {UNKNOWN}",
        ),
        (
            ("--epsilon", "1", "--clip-norm", "1", "--noise-var", "1"),
            "This noise does not keep ε ≤ 1 for one round: ε ≤ 4.3772 at δ = 1e-5 (exact, one device's contribution "
            f"set to zero, against anyone who sees the models). {UNKNOWN}",
        ),
        (
            ("--epsilon", "1", "--clip-norm", "1", "--noise-var", "600", "--rounds", "40"),
            "Kept: ε ≤ 0.95973 at δ = 1e-5 (exact, one device's contribution set to zero, against anyone who sees the "
            "models). The target is 1; a noise variance of 556.705 or more, or up to 43 rounds, would keep it. "
            f"{UNKNOWN}",
        ),
        (
            ("--epsilon", "1", "--clip-norm", "1", "--noise-var", "500", "--rounds", "40"),
            "Not kept: ε ≤ 1.0608 at δ = 1e-5 (exact, one device's contribution set to zero, against anyone who sees "
            "the models). The target is 1; a noise variance of 556.705 or more, or up to 35 rounds, would keep it. "
            f"{UNKNOWN}",
        ),
        (
            ("--epsilon", "2", "--clip-norm", "1", "--rounds", "20", "--accountant", "paper"),
            "`paper` gives ε = 2 at δ = 1e-5 (one device's data replaced by any other, against anyone who sees only "
            "the final model) for 20 rounds with noise of variance 250.259, std 15.82, noise multiplier 15.82, the "
            "least for the target of 2. That is not a proof: the true ε may be larger.",
        ),
        (
            ("--epsilon", "1", "--clip-norm", "1", "--noise-var", "4", "--accountant", "koda2020"),
            "`koda2020` gives ε = 2.4225 at δ = 1e-5 (one device's contribution set to zero, against anyone who sees "
            "the models) for 1 round, above the target of 1 by this count. That is not a proof: the true ε may be "
            "larger.",
        ),
        (
            ("--epsilon", "11", "--clip-norm", "1", "--noise-var", "4", "--rounds", "2", "--accountant", "park2023"),
            "`park2023` gives ε = 2.9433 at δ = 1e-5 (one device's contribution set to zero, against anyone who sees "
            "the models) for 2 rounds, within the target of 11; a noise variance of 0.42841 or more, or up to 18 "
            "rounds, would keep it by this count. That is not a proof: the true ε may be larger.",
        ),
        (
            ("--epsilon", "11", "--clip-norm", "1", "--noise-var", "4", "--accountant", "park2023"),
            "`park2023` gives ε = 10.752 at δ = 1e-5 (one device's contribution set to zero, against anyone who sees "
            "the models) for 18 rounds, the most for the target of 11. That is not a proof: the true ε may be larger.",
        ),
        (  # one round is too many, so that only noise would help
            ("--epsilon", "0.1", "--clip-norm", "1", "--noise-var", "4", "--rounds", "30"),
            "Not kept: ε ≤ 14.83 at δ = 1e-5 (exact, one device's contribution set to zero, against anyone who sees "
            f"the models). The target is 0.1; a noise variance of 28366.1 or more would keep it. {UNKNOWN}",
        ),
        (  # 1.4 devices cannot be drawn
            ("--clip-norm", "1", "--noise-var", "3", "--rounds", "2", "--participation", "0.14", "--devices", "10"),
            "ε ≤ 3.6956 at δ = 1e-5 (an upper bound if who takes part stays hidden, one device's data replaced by any "
            f"other, against anyone who sees the models). {UNKNOWN} Each round draws 1 of 10 devices: r = 0.1 in place "
            "of 0.14.",
        ),
    ],
)
def test_the_answer_comes_first(call, monkeypatch, arguments, sentence):
    assert asked(call, *arguments)["answer"] == sentence
    monkeypatch.setenv("COLUMNS", "1000")
    assert call("epsilon", *arguments)[1].splitlines()[0].rstrip() == sentence


@pytest.mark.parametrize("columns", [80, 60])
@pytest.mark.parametrize("size", ["1", "1e5", "1e-5"])
def test_the_table_fits_and_cuts_no_number(call, monkeypatch, columns, size):
    monkeypatch.setenv("COLUMNS", str(columns))
    question = ("--clip-norm", size, "--noise-var", "0.7", "--rounds", "321", "--neighbours", "replace")
    code, out, _ = call("epsilon", *question)
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= columns
    assert "…" not in out
    lines = [line.split() for line in out.splitlines()]
    rows = {words[0]: words[1] for words in lines if words and words[0] in ACCOUNTANTS}
    answers = asked(call, *question)["accountants"]
    order = [name for valid in (True, False) for name in answers if answers[name]["valid"] is valid]
    assert list(rows) == order  # what is proven comes first
    for name, shown in rows.items():
        epsilon = answers[name]["epsilon"]
        assert (shown == "?") if epsilon is None else float(shown) == pytest.approx(epsilon, rel=1e-4)
        assert epsilon is None or not answers[name]["valid"] or float(shown) >= epsilon


@pytest.mark.parametrize("target", ["0.1", "8.860022573334675", "1.00000001"])
def test_a_target_is_rounded_as_what_keeps_it(call, target):
    asked_for = ("--epsilon", target, "--clip-norm", "1", "--rounds", "3", "--accountant", "gaussian")
    noise = json.loads(call("epsilon", *asked_for, "--json")[1])["inverse"]["noise_var"]
    told = " ".join(call("epsilon", *asked_for, "--noise-var", repr(noise))[1].split())
    spent, limit = re.search(r"Kept: ε ≤ ([\d.]+) at .* The target is ([\d.]+);", told).groups()
    assert spent == limit == rounded_up(float(target))


def test_assumptions_are_behind_explain(call):
    assert "assum" not in call("epsilon", *FULL)[1]
    out = " ".join(call("epsilon", *FULL, "--explain")[1].split())
    for kind in ACCOUNTANTS.values():
        assert f"{kind.name}: {kind.assumptions}" in out


@given(st.floats(1e-300, 1e300), st.integers(2, 6))
def test_a_bound_is_never_rounded_down(value, digits):
    shown = float(rounded_up(value, digits))
    assert value <= shown <= value * (1 + 10.0 ** (1 - digits))


def test_null_means_infinite_unless_it_is_not_known(call):
    known = asked(call, *FULL)
    assert (known["accountant"], known["observer"], known["exact"], known["scheme"]) == (
        "gaussian",
        "models",
        True,
        None,
    )
    assert known["epsilon"] == known["accountants"]["gaussian"]["epsilon"] == known["against"]["models"]["epsilon"]
    for answer in (known["accountants"]["liu2024"], known["against"]["base-station"]):
        assert (answer["epsilon"], answer["known"]) == (None, False)
    silent = asked(call, "--clip-norm", "1", "--noise-var", "0", "--rounds", "1")
    for answer in (*silent["accountants"].values(), *silent["against"].values(), silent):
        assert (answer["epsilon"], answer["known"]) == (None, True)
    unproven = asked(call, *FULL, "--accountant", "koda2020")
    assert (unproven["epsilon"], unproven["known"], unproven["accountant"]) == (None, False, None)
    assert unproven["against"] == {}
    assert unproven["accountants"]["koda2020"]["epsilon"] > 0


def test_what_an_unproven_bound_says_is_never_a_bound(call):
    for name in (name for name, kind in ACCOUNTANTS.items() if not kind.valid):
        for target in ((), ("--epsilon", "30")):
            answer = asked(call, *FULL, "--accountant", name, *target)["answer"]
            assert "≤" not in answer
            assert "not a proof" in answer


def test_the_inverse_as_json(call):
    found = asked(call, "--epsilon", "1", "--clip-norm", "2", "--rounds", "40")
    inverse = found["inverse"]
    assert (inverse["target"], inverse["solved_for"], inverse["kept"], inverse["rounds"]) == (
        1.0,
        "noise_var",
        True,
        None,
    )
    assert inverse["noise_std"] == math.sqrt(inverse["noise_var"])
    assert inverse["noise_multiplier"] == pytest.approx(inverse["noise_std"] / 2)
    assert 0.999999 < found["epsilon"] <= 1.0
    found = asked(call, "--epsilon", "1", "--clip-norm", "2", "--noise-var", "400")
    assert (found["inverse"]["solved_for"], found["inverse"]["rounds"], found["inverse"]["noise_var"]) == (
        "rounds",
        7,
        None,
    )
    found = asked(call, "--epsilon", "1", "--clip-norm", "2", "--noise-var", "400", "--rounds", "8")
    assert (found["inverse"]["solved_for"], found["inverse"]["kept"]) == (None, False)
    assert found["inverse"]["rounds"] == 7
    assert found["inverse"]["noise_var"] > 400
    assert asked(call, *FULL)["inverse"] is None


def test_what_is_printed_can_be_asked_back(call):
    """The noise in the sentence is rounded up, so that typing it in keeps the target."""
    answer = asked(call, "--epsilon", "0.7", "--clip-norm", "3", "--rounds", "11")["answer"]
    variance = answer.split("variance ")[1].split()[0]
    assert asked(call, "--clip-norm", "3", "--noise-var", variance, "--rounds", "11")["epsilon"] <= 0.7


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rounds", "3"), "--clip-norm, --noise-var missing; --epsilon needs --clip-norm"),
        (("--clip-norm", "1"), "--noise-var, --rounds missing; --epsilon finds one of them"),
        (("--clip-norm", "1", "--rounds", "3", "--received-snr", "1"), "--received-snr"),
        (("--clip-norm", "1", "--rounds", "3", "--observer", "base-station"), "airfl plan --observer base-station"),
        (("--clip-norm", "1", "--noise-var", "3", "--observer", "base-station"), "needs what antennas receive"),
        (("--clip-norm", "1", "--noise-var", "3", "--observer", "god"), "no observer named"),
        (("--clip-norm", "1", "--rounds", "3", "--accountant", "mine"), "no accountant named"),
        (("--clip-norm", "1", "--rounds", "3", "--accountant", "paper", "--observer", "models"), "says nothing about"),
        (("--clip-norm", "1", "--rounds", "3", "--delta", "0"), "delta"),
        (("--clip-norm", "0", "--rounds", "3"), "clip_norm"),
        (("--clip-norm", "1e-200", "--rounds", "3"), "other units"),
        (("--ledger", "run"), "give one of them"),
        (("--clip-norm", "1", "--rounds", "3", "--epsilon", "0"), "`epsilon` must be positive"),
        (("--clip-norm", "1", "--rounds", "3", "--epsilon", "inf"), "`epsilon` must be positive"),
        (("--clip-norm", "1", "--rounds", "3", "--epsilon", "nan"), "`epsilon` must be positive"),
    ],
)
def test_questions_without_an_answer(call, arguments, words):
    code, out, error = call("epsilon", "--epsilon", "1", *arguments)
    assert (code, out) == (2, "")
    assert words in error
    assert len(error.strip().splitlines()) == 1


def test_antennas_hear_no_less_than_the_sum_shows(call):
    question = ("--clip-norm", "1", "--noise-var", "1", "--rounds", "1", "--received-snr")
    assert asked(call, *question, "0.5")["against"]["base-station"]["known"]
    code, _, error = call("epsilon", *question, "0.49")
    assert code == 2
    assert "at least c²/(2v) = 0.5" in error


def test_rounds_against_the_base_station():
    question = WhatIf(1.0, 100.0, 1, received_snr=0.02)
    target = Target(1.0, observer="base-station")
    rounds = most_rounds(question, target)
    epsilons = [
        make_accountant("gaussian", question.ledger(t), "zero-out", "base-station").epsilon(1e-5) for t in (1, 2)
    ]
    assert (rounds, epsilons[0] < 1.0 < epsilons[1]) == (1, True)
    with pytest.raises(PrivacyError, match="who sees signals"):
        least_noise(question, target)


targets = st.builds(
    Target,
    epsilon=st.floats(0.01, 100.0),
    delta=st.floats(-10, -2).map(lambda x: 10.0**x),
    neighbours=st.sampled_from(["zero-out", "replace"]),
    accountant=st.sampled_from(["all", "gaussian", "liu2020", "koda2020", "park2023"]),
)


@given(targets, st.floats(1e-3, 1e3), st.integers(1, 10_000))
def test_the_noise_that_is_found_is_the_least(target, clip_norm, rounds):
    question = WhatIf(clip_norm, 1.0, rounds)
    found = keep(question, target, "noise_var")
    assert found.kept
    assert target.spent(found.question) <= target.epsilon
    assert target.spent(WhatIf(clip_norm, 0.999 * found.question.noise_var, rounds)) > target.epsilon


@given(targets, st.floats(1e-3, 1e3), st.floats(0.1, 300.0))
def test_the_rounds_that_are_found_are_the_most(target, clip_norm, multiplier):
    question = WhatIf(clip_norm, (multiplier * clip_norm) ** 2, 1)
    rounds = most_rounds(question, target)
    if rounds > 0:
        assert target.spent(WhatIf(clip_norm, question.noise_var, rounds)) <= target.epsilon
    if rounds < 10**6:
        assert target.spent(WhatIf(clip_norm, question.noise_var, rounds + 1)) > target.epsilon


@settings(max_examples=8)
@given(st.floats(0.3, 5.0), st.floats(0.02, 0.6), st.booleans(), st.integers(2, 300))
def test_the_noise_with_sampling_credit_is_the_least(epsilon, rate, poisson, rounds):
    v = noise_for(epsilon, 1e-5, 1.0, rounds, participation=rate, poisson=poisson)
    target = Target(epsilon)
    assert target.spent(WhatIf(1.0, v, rounds, rate, poisson)) <= epsilon
    assert target.spent(WhatIf(1.0, 0.999 * v, rounds, rate, poisson)) > epsilon
    assert v <= noise_for(epsilon, 1e-5, 1.0, rounds, neighbours="zero-out" if poisson else "replace") * (1 + 1e-6)


def test_a_domain_needs_less_noise_for_the_final_model_alone():
    question = WhatIf(
        1.0, 1.0, 200, num_devices=100, diameter=0.002, smoothness=1.0, learning_rate=0.005, local_steps=1
    )
    every, last = (least_noise(question, Target(1.0, observer=observer)) for observer in ("models", "model"))
    assert every == pytest.approx(noise_for(1.0, 1e-5, 1.0, 200), rel=1e-12)
    assert last < 0.95 * every
    target = Target(1.0, observer="model")
    assert target.spent(WhatIf(**{**vars(question), "noise_var": last})) <= 1.0
    assert target.spent(WhatIf(**{**vars(question), "noise_var": 0.999 * last})) > 1.0


@pytest.mark.parametrize("rounds", [1, 40])
@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_noise_agrees_with_the_library(epsilon, rounds):
    def event(multiplier):
        return dp.SelfComposedDpEvent(dp.GaussianDpEvent(multiplier), rounds)

    ours = math.sqrt(noise_for(epsilon, 1e-5, 3.0, rounds)) / 3.0
    near = dp.ExplicitBracketInterval(0.95 * ours, 1.05 * ours)
    theirs = calibrate_dp_mechanism(PLDAccountant, event, epsilon, 1e-5, near, tol=1e-4 * ours)
    # Their grid errs to the safe side, by a little.
    assert ours <= theirs * (1 + 1e-4)
    assert ours == pytest.approx(theirs, rel=2e-3)


@pytest.mark.parametrize(("rate", "rounds", "epsilon"), [(0.1, 50, 1.0), (0.01, 1000, 2.0)])
def test_noise_with_sampling_agrees_with_the_library(rate, rounds, epsilon):
    def poisson(multiplier):
        return dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(multiplier)), rounds)

    def fixed(multiplier):
        drawn = dp.SampledWithoutReplacementDpEvent(1000, round(1000 * rate), dp.GaussianDpEvent(multiplier))
        return dp.SelfComposedDpEvent(drawn, rounds)

    def near(multiplier):
        return dp.ExplicitBracketInterval(0.9 * multiplier, 1.1 * multiplier)

    ours = math.sqrt(noise_for(epsilon, 1e-5, 1.0, rounds, participation=rate, poisson=True))
    theirs = calibrate_dp_mechanism(PLDAccountant, poisson, epsilon, 1e-5, near(ours), tol=1e-4 * ours)
    assert ours == pytest.approx(theirs, rel=1e-3)

    def renyi():
        return RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)

    ours = math.sqrt(noise_for(epsilon, 1e-5, 1.0, rounds, participation=rate, devices=1000)) / 2.0  # in units of 2c
    theirs = calibrate_dp_mechanism(renyi, fixed, epsilon, 1e-5, near(ours), tol=1e-4 * ours)
    assert ours == pytest.approx(theirs, rel=2e-2)  # they try other orders


def test_rounds_invert_noise():
    for more in ({}, {"participation": 0.1, "poisson": True}):
        v = noise_for(1.0, 1e-5, 1.0, 40, **more)
        assert rounds_for(1.0, 1e-5, 1.0, v, **more) == 40
        assert rounds_for(1.0, 1e-5, 1.0, v * 0.99, **more) == 39


def test_exact_is_said_only_where_it_is():
    whole = WhatIf(1.0, 4.0, 3)
    for question, observer, exact in [
        (whole, "models", True),
        (whole, "model", False),
        (WhatIf(1.0, 4.0, 1), "model", True),
        (WhatIf(1.0, 4.0, 3, received_snr=1.0), "base-station", False),
        (WhatIf(1.0, 4.0, 3, 0.9), "models", False),
        (WhatIf(1.0, 4.0, 3, 1.0, False, 9, 2.0, 1.0, 0.1, 1), "models", False),
    ]:
        (found,) = proven([question.ledger()], 1e-5, "zero-out", observer, as_stated=True)
        assert (found.exact, found.accountant) == (exact, "gaussian")
    (found,) = proven([whole.ledger()], 1e-5, "zero-out", "models")
    assert not found.exact  # of a run nobody knows whether every device sent in every round


def test_a_run_answers_for_everyone_who_looks(call, tiny, shielded, monkeypatch):
    airfl.save(airfl.run(tiny.replace({"scheme.names": ["fedavg", "airfl-dp"]})), "p")
    found = asked(call, "--ledger", "p")
    assert found["answer"].startswith(f"airfl-dp: ε ≤ {rounded_up(found['epsilon'])} at δ = 1e-5 (an upper bound, one ")
    assert "against anyone who sees the models; the worst of 2 trials)." in found["answer"]
    heard = found["against"]["base-station"]["epsilon"]
    assert found["answer"].endswith(f"Against the base station: ε ≤ {rounded_up(heard)} (an upper bound).")
    assert (found["scheme"], found["epsilon"] <= 50.0) == ("airfl-dp", True)
    assert asked(call, "--ledger", "p", "--scheme", "fedavg")["answer"].startswith("fedavg: ε = ∞ at δ = 1e-5: no prot")
    near = {"eavesdropper.antennas": 4, "eavesdropper.distance_m": 50.0}
    airfl.save(airfl.run(shielded.replace({"system.rounds": 2, "system.trials": 1, **near})), "s")
    found = asked(call, "--ledger", "s")
    assert list(found["against"]) == ["models", "base-station", "eavesdropper"]
    assert f"Against the eavesdropper: ε ≤ {rounded_up(found['against']['eavesdropper']['epsilon'])}" in found["answer"]
    assert "trials" not in found["answer"]


def test_an_unproven_answer_for_a_run_says_whose_it_is(call, tiny):
    airfl.save(airfl.run(tiny), "p")
    answer = asked(call, "--ledger", "p", "--accountant", "koda2020")["answer"]
    assert answer.startswith("airfl-dp: `koda2020` gives ε = ")
    assert "; the worst of 2 trials)" in answer


def test_any_number_of_rounds_is_answered_without_walking_through_them(call, monkeypatch):
    """Within a domain ε stops growing; only the rounds until then are looked at."""
    walked = []
    honest = convergent._mu

    def counting(shift, noise):
        walked.append(len(shift))
        return honest(shift, noise)

    monkeypatch.setattr(convergent, "_mu", counting)
    domain = ("--devices", "10", "--diameter", "0.1", "--smoothness", "1", "--learning-rate", "0.05")
    question = ("--clip-norm", "1", *domain, "--local-steps", "1", "--observer", "model", "--noise-var", "1000")
    found = asked(call, *question, "--epsilon", "2")
    assert found["inverse"]["is_most_asked"]
    assert found["epsilon"] == pytest.approx(1.3445, abs=1e-4)
    assert asked(call, *question, "--epsilon", "1.3")["inverse"]["rounds"] == 115
    assert max(walked, default=0) < 1000


@given(
    st.floats(-4, 1), st.floats(-3, 2), st.one_of(st.just(0.0), st.floats(1e-12, 50.0)), st.floats(-2, 3),
    st.integers(1, 300),
)  # fmt: skip
def test_equal_rounds_are_counted_as_any_others(shift, noise, growth, diameter, rounds):
    s, n = 10.0**shift, 10.0**noise
    every = (np.full(rounds, value) for value in (s, n, growth))
    slow = convergent.best_shifts(*every, s * 10.0**diameter).mu
    assert convergent.equal_rounds(s, n, growth, s * 10.0**diameter, rounds) == pytest.approx(slow, rel=1e-9)


def test_numbers_that_are_equal_look_equal(call):
    rows = [
        line.split()
        for line in call("epsilon", "--clip-norm", "1", "--noise-var", "4", "--rounds", "2")[1].splitlines()
    ]
    shown = {words[0]: words[1] for words in rows if words and words[0] in ACCOUNTANTS}
    assert shown["park2023"] == shown["gaussian"] == "2.9433"


def test_the_largest_noise_is_named(call):
    code, _, error = call("epsilon", "--clip-norm", "1", "--noise-var", "1e200", "--rounds", "2")
    assert (code, "`noise_var` must be at most 1e150" in error) == (2, True)


def test_a_figure_replaces_nothing_but_itself(call, tmp_path):
    question = ("epsilon", "--clip-norm", "1", "--noise-var", "4", "--rounds", "3", "--out")
    assert call(*question, "f")[0] == call(*question, "f")[0] == 0
    assert {path.name for path in (tmp_path / "f").iterdir()} == {"privacy.png", "privacy.pdf", "privacy.svg"}
    ElementTree.parse(tmp_path / "f" / "privacy.svg")
    for folder in ("f", "mine"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "privacy.png").write_text("mine")
        code, out, error = call(*question, folder)
        assert (code, out, "privacy.png` is in the way" in error) == (2, "", True)
        assert (tmp_path / folder / "privacy.png").read_text() == "mine"
    assert len([*(tmp_path / "mine").iterdir()]) == 1


def test_a_figure_is_not_put_into_a_run(call, tiny, tmp_path):
    airfl.save(airfl.run(tiny.replace({"system.rounds": 1, "system.trials": 1})), "run")
    before = {path.name for path in (tmp_path / "run").iterdir()}
    code, _, error = call("epsilon", "--clip-norm", "1", "--noise-var", "4", "--rounds", "3", "--out", "run")
    assert (code, "holds a run or a study" in error) == (2, True)
    assert {path.name for path in (tmp_path / "run").iterdir()} == before


HEAVY = (
    "torch",
    "matplotlib",
    "pyarrow",
    "airfl.analysis",
    "airfl.runs.execute",
    "airfl.config",
)
CREDITED = ("dp_accounting", "scipy.stats", "scipy.optimize")


@pytest.mark.parametrize(
    "question",
    [
        FULL,
        (*FULL, "--participation", "0.9"),
        ("--epsilon", "1", *FULL[:4]),
        (*FULL, *POISSON),
        ("--ledger", "run"),
    ],
)
def test_a_question_loads_nothing_heavy(question, tiny, tmp_path):
    """dp-accounting, and much of SciPy with it, only where devices are drawn and that may earn credit."""
    if "--ledger" in question:
        airfl.save(airfl.run(tiny.replace({"system.rounds": 1, "system.trials": 1})), tmp_path / "run")
    credited = "--poisson" in question
    script = (
        f"import sys; sys.argv = {['airfl', 'epsilon', *question]!r}\n"
        "from airfl.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        f"print(*(name for name in {(*HEAVY, *CREDITED)!r} if name in sys.modules))"
    )
    paths = os.pathsep.join([str(Path(airfl.__file__).parents[1]), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == (" ".join(CREDITED) if credited else "")


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--accountant gausian", "gaussian"),
        ("--observer base-staton", "base-station"),
        ("--neighbours zero", "zero-out"),
    ],
)
def test_a_name_that_is_nearly_right_is_answered_with_the_nearest(call, option, meant):
    code, _, error = call("epsilon", "--clip-norm", "1", "--noise-var", "1", "--rounds", "3", *option.split())
    assert code == 2
    assert f"did you mean `{meant}`?" in error
