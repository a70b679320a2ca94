"""The arena: its description, equal tuning, ranks and verdicts, and a small one that survives a kill."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from airfl.arena.description import Arena, Cell, read_arena
from airfl.arena.ranks import Place, difference, places, standings
from airfl.arena.run import Wish, run_arena, show
from airfl.arena.stages import STAGES, Contest, Setting, Tuned, best_of, better_of
from airfl.arena.table import place_text
from airfl.arena.verdicts import judge, verdicts
from airfl.errors import InputError
from airfl.paper.studies import read_notes, read_rows
from airfl.study import make_plan
from airfl.sweeps import find_plan, ledgers_of
from airfl.sweeps.executors import InProcess, Settings
from airfl.traits import SCHEMES

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "experiments" / "results"
PRIVATE = ("airfl-dp", "liu2020")
#: An arena in seconds: digits, a dozen devices, three rounds.
SMALL = """
base = "demo"
seed = 1
tuning_seed = 2
against = "airfl-dp"
questions = [["liu2020", "airfl-mimo"]]
[set]
"learning.dataset" = "digits"
"learning.model" = "softmax"
"learning.local_steps" = 2
"learning.batch_size" = 5
"learning.learning_rate" = 0.1
"learning.clip_norm" = 1.0
"system.num_devices" = 12
"system.num_antennas" = 6
"system.rounds" = 3
"privacy.neighbours" = "zero-out"
"privacy.accountant" = "gaussian"
"engine.eval_every" = 100
[data.even]
"learning.partition" = "iid"
[scales.smoke]
snr_db = [-40.0, -20.0]
epsilon = [8.0]
trials = 3
steps = [1.0, 4.0]
[schemes.fedavg-clip]
[schemes.airfl-mimo]
[schemes.airfl-dp]
[schemes.liu2020]
knob = "scheme.contraction"
values = [0.5, 0.99]
"""


def test_every_scheme_is_in_the_arena_or_excluded_with_a_reason():
    arena = read_arena()
    assert set(arena.schemes) | set(arena.excluded) == set(SCHEMES)
    assert not set(arena.schemes) & set(arena.excluded)
    assert all(len(why.split()) > 4 for why in arena.excluded.values())


@pytest.mark.parametrize("scale", ["full", "middle", "smoke"])
def test_every_scheme_may_be_planned_with_the_same_data_link_and_budget(scale):
    """What schemes do not share is their own keys and what is tuned; and all of them may try as much."""
    arena = read_arena()
    contest = Contest(arena, scale, 2)
    shared, runs = {}, set()
    for name, entry in arena.schemes.items():
        cells, best = arena.cells_of(name, scale), {}
        tried = dict.fromkeys(cells, 0)
        for stage in STAGES:
            pairs = contest.candidates(name, stage, best)
            plan = make_plan(contest.study(name, stage, pairs))
            best = better_of(best, best_of(pairs, [{0: 0.5}] * len(pairs)))
            for point, (cell, _) in enumerate(pairs):
                config = plan.config(point)
                tested = stage == "test"
                assert config.learning.split == ("standard" if tested else "validation")
                assert config.system.seed == (arena.seed if tested else arena.tuning_seed)
                assert config.neighbours == "zero-out"
                assert config.scheme.names == (name,)
                tried[cell] += not tested
                if tested:
                    own = {"learning.server_step", *entry.overrides, *([entry.knob] if entry.knob else [])}
                    flat = config.replace({"scheme.names": ["fedavg"], "name": "x"}).to_mapping()
                    flat = {
                        f"{s}.{k}": v for s, part in flat.items() if isinstance(part, dict) for k, v in part.items()
                    }
                    flat = {k: v for k, v in flat.items() if k not in own and k.partition(".")[0] != "scheme"}
                    for asked in arena.cells(scale):
                        if asked.felt_by(name) == cell:
                            for key, value in flat.items():
                                felt = key != "channel.snr_db" or cell.snr_db is not None
                                felt &= key != "privacy.epsilon" or cell.epsilon is not None
                                if felt and key != "channel.power_w":
                                    assert shared.setdefault((asked, key), value) == value, (name, key)
        runs |= set(tried.values())
    assert runs == {arena.scale(scale).tuning_runs}


def test_a_description_that_makes_no_sense_is_refused_in_words():
    good = read_arena().model_dump(by_alias=True)

    def complaint(**changes):
        with pytest.raises(ValueError, match=r".") as error:
            Arena.model_validate({**good, **changes})
        return str(error.value)

    entry = {"knob": "scheme.contraction", "values": [0.5]}
    assert "the same tuning budget" in complaint(schemes={**good["schemes"], "liu2020": entry})
    assert "both in the arena and excluded" in complaint(excluded={"airfl-dp": "it is not wanted here at all"})
    assert "without a reason" in complaint(excluded={"mine": " "})
    assert "must not be `seed`" in complaint(tuning_seed=good["seed"])
    assert "asked about and not in the arena" in complaint(questions=[["airfl-dp", "mine:scheme"]])
    assert "did you mean" in complaint(set={"learning.batchsize": 3})


def test_cells_of_a_cross_and_who_feels_what():
    arena = read_arena()
    cells = arena.cells("middle")
    assert len(cells) == len(set(cells)) == 2 * 5
    assert len(arena.cells("full")) == 2 * 9
    assert len(arena.cells_of("airfl-dp", "middle")) == 10
    assert len(arena.cells_of("airfl-mimo", "middle")) == 2 * 3
    assert arena.cells_of("fedavg", "middle") == [Cell(data, None, None) for data in arena.data]


def test_the_best_setting_is_the_first_of_the_best():
    cell, other = Cell("a", 1.0, 2.0), Cell("a", 1.0, 3.0)
    pairs = [(cell, Setting(1.0)), (cell, Setting(2.0)), (other, Setting(1.0)), (cell, Setting(3.0))]
    best = best_of(pairs, [{0: 0.3}, {0: 0.5}, {}, {0: 0.5}])
    assert best == {cell: Tuned(Setting(2.0), 0.5), other: Tuned(Setting(1.0), 0.0)}
    later = {cell: Tuned(Setting(9.0), 0.5), other: Tuned(Setting(9.0), 0.1)}
    assert better_of(best, later) == {cell: best[cell], other: later[other]}
    assert better_of({}, later) == later


def test_differences_are_paired_and_judged_by_their_interval():
    one, other = {0: 0.5, 1: 0.7, 2: 0.9}, {0: 0.4, 1: 0.59, 2: 0.8, 3: 0.1}
    gap = difference(one, other)
    paired = stats.ttest_rel([0.5, 0.7, 0.9], [0.4, 0.59, 0.8]).confidence_interval()
    assert (gap.low, gap.high) == pytest.approx((paired.low, paired.high))
    assert gap.outcome == "better"
    assert difference(other, one).outcome == "worse"
    assert difference(one, {0: 0.9, 1: 0.2, 2: 0.8}).outcome == "cannot tell"
    assert difference({0: 0.9}, {0: 0.1}).outcome == "cannot tell"  # a single trial
    assert difference(one, dict(one)).outcome == "the same"


def rows(scheme, means, epsilon, asked=1.0, snr=-50.0, status="done", proven=True):
    """Rows of one cell: accuracies of the trials."""
    shared = {
        "scheme": scheme,
        "data": "i.i.d.",
        "snr_db": snr,
        "epsilon_asked": asked,
        "status": status,
        "proven": proven,
    }
    return [{**shared, "trial": t, "accuracy": a, "epsilon": epsilon} for t, a in enumerate(means)]


@pytest.fixture
def made():
    """Rows of a cross of one cell, by hand: ε of 1 asked for."""
    scale = {"snr_db": [-50.0], "epsilon": [1.0], "trials": 3, "steps": [1.0, 2.0]}
    content = {**read_arena().model_dump(by_alias=True), "scales": {"one": scale}, "data": {"i.i.d.": {}}}
    table = [
        *rows("airfl-dp", [0.70, 0.72, 0.71], 1.0),
        *rows("liu2020", [0.60, 0.62, 0.61], 0.6),
        *rows("airfl-dp-online", [0.70, 0.72, 0.71], 1.0),
        *rows("airfl-an", [0.50, 0.72, 0.99], 0.1),
        *rows("koda2020", [0.80, 0.82, 0.81], 1.0001),
        *rows("airfl-shielded", [0.1, 0.1], 0.2),
        *rows("airfl-mimo", [0.81, 0.82, 0.80], 2.0, asked=None),
        *rows("one-bit", [0.9, 0.9, 0.9], 0.5, proven=False),
        *rows("fedavg", [0.9, 0.9, 0.9], None, asked=None, snr=None),
    ]
    table[-7]["epsilon"] = 3.0
    failed = rows("airfl-shielded", [None], None, status="failed")
    table = [{"epsilon_base_station": None, "step": 1.0, "knob": None, **row} for row in [*table, *failed]]
    return Arena.model_validate(content), table


def test_only_those_are_ranked_that_keep_to_what_was_asked_in_every_trial(made):
    arena, table = made
    found = {place.scheme: place for place in places(arena, "one", table)}
    ranks = {name: place.rank for name, place in found.items() if place.keeps}
    assert ranks == {"airfl-an": 1, "airfl-dp": 2, "airfl-dp-online": 2, "liu2020": 4}
    assert found["koda2020"].rank is None  # above by one in ten thousand
    assert found["airfl-mimo"].epsilon == 3.0  # the worst trial counts
    assert math.isinf(found["fedavg"].epsilon)
    assert not found["one-bit"].keeps  # below what was asked, and not proven
    assert place_text(found["one-bit"]).endswith("; 0.5, no proof)")
    assert found["airfl-shielded"].failed == 1
    assert not found["airfl-shielded"].keeps
    # Nobody can be told to be better than the first three; liu2020 is beaten trial by trial.
    assert {name for name, place in found.items() if place.leads} == {"airfl-an", "airfl-dp", "airfl-dp-online"}
    assert place_text(found["airfl-mimo"]).endswith("; 3)")
    assert place_text(found["fedavg"]).endswith("; ∞)")
    order = [standing.scheme for standing in standings(list(found.values()))]
    assert order[:4] == ["airfl-an", "airfl-dp", "airfl-dp-online", "liu2020"]


def test_verdicts_say_better_the_same_open_or_not_comparable(made):
    arena, table = made
    found = places(arena, "one", table)
    answer = {v.second: v for v in verdicts(arena, found) if v.first == "airfl-dp"}
    assert {name: v.answer for name, v in answer.items()} == {
        "liu2020": "better",
        "airfl-dp-online": "the same",
        "airfl-an": "cannot tell",
        "koda2020": "not comparable",
        "airfl-mimo": "not comparable",
        "airfl-shielded": "not comparable",
        "one-bit": "not comparable",
    }
    assert "by 10.0 points" in answer["liu2020"].found
    assert "71.0 % against 61.0 %" in answer["liu2020"].found
    assert "above what was asked, 3." in answer["airfl-mimo"].caveat
    assert "No ε of One bit" in answer["one-bit"].caveat
    assert "failed in some trial" in answer["airfl-shielded"].caveat
    assert judge(found, "liu2020", "airfl-dp").answer == "worse"


def test_a_verdict_depends_where_one_is_better_here_and_the_other_there():
    def at(scheme, snr, values):
        return Place(scheme, Cell("x", snr, 1.0), dict(enumerate(values)), float(np.mean(values)), 0, 1, 1.0, 9.0)

    found = [
        *(at("airfl-dp", -60.0, [0.5, 0.51, 0.52]), at("liu2020", -60.0, [0.4, 0.41, 0.42])),
        *(at("airfl-dp", -50.0, [0.5, 0.51, 0.52]), at("liu2020", -50.0, [0.6, 0.61, 0.63])),
    ]
    verdict = judge(found, "airfl-dp", "liu2020")
    assert verdict.answer == "depends"
    assert "better in 1 of 2 cells" in verdict.found
    assert "worse in 1 of 2 cells" in verdict.found


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A small arena, run without interruption."""
    out = tmp_path_factory.mktemp("arena")
    (out / "small.toml").write_text(SMALL)
    wish = Wish(out / "a", "smoke", arena=read_arena(out / "small.toml"))
    return wish, run_arena(wish, InProcess(Settings(device="cpu")))


def test_a_small_arena_ranks_by_exact_epsilon(small):
    wish, outcome = small
    assert not outcome.failed
    assert not outcome.missing
    assert {row["scheme"] for row in outcome.rows} == set(wish.arena.schemes)
    assert len(outcome.rows) == 4 * 2
    by = {(row["scheme"], row["snr_db"]): row for row in outcome.rows}
    for snr in (-40.0, -20.0):
        private = by["airfl-dp", snr]
        assert private["epsilon"] <= 8.0 * (1 + 1e-9)
        assert private["ranked"]
        assert not by["fedavg-clip", snr]["ranked"]
        assert by["airfl-mimo", snr]["ranked"] == (by["airfl-mimo", snr]["epsilon"] <= 8.0)
    assert not by["airfl-mimo", -20.0]["ranked"]
    for kind in ("csv", "md", "json", "png", "svg", "pdf"):
        assert (wish.out / f"arena.{kind}").stat().st_size > 500
    notes = read_notes(wish.out / "arena.json")
    assert set(notes["schemes"]) == set(wish.arena.schemes)
    assert {own["runs"] for name, own in notes["schemes"].items() if name in PRIVATE} == {2 * (6 + 3)}


def test_the_epsilon_of_a_row_is_that_of_its_ledger(small):
    wish, _ = small
    table = read_rows(wish.out / "arena_trials.csv")
    plan, _ = find_plan(wish.out / "studies" / "airfl-dp" / "test")
    for point in range(len(plan.points)):
        for trial, ledger in enumerate(ledgers_of(wish.out / "studies" / "airfl-dp" / "test", point, "airfl-dp")):
            snr = plan.points[point]["channel.snr_db"]
            (row,) = [r for r in table if (r["scheme"], r["snr_db"], r["trial"]) == ("airfl-dp", snr, trial)]
            mu2 = sum(event.clip_norm**2 * event.gain_bound**2 / event.noise_var for event in ledger.events)
            mu, delta = math.sqrt(mu2), plan.base.privacy.delta
            # δ(ε) of a Gaussian mechanism, by its definition.
            cdf = stats.norm.cdf
            epsilon = row["epsilon"]
            at = cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * cdf(-mu / 2 - epsilon / mu)
            assert at == pytest.approx(delta, rel=1e-4)


def test_a_second_call_trains_nothing_and_a_scheme_alone_is_shown_beside_the_others(small):
    wish, before = small
    parts = {path: path.stat().st_mtime_ns for path in wish.out.rglob("parts/*")}
    again = run_arena(replace(wish, schemes=("airfl-dp",)), InProcess(Settings(device="cpu")))
    assert {path: path.stat().st_mtime_ns for path in wish.out.rglob("parts/*")} == parts
    assert again.summary == before.summary


def test_what_lies_there_of_another_arena_is_refused(small):
    wish, _ = small
    with pytest.raises(InputError, match="another arena, scale or number of trials"):
        run_arena(replace(wish, trials=2), InProcess(Settings(device="cpu")))


def test_a_killed_arena_goes_on_to_the_same_bits(small, tmp_path):
    wish, outcome = small
    (tmp_path / "small.toml").write_text(SMALL)
    words = ["arena", "--scale", "smoke", "--description", "small.toml", "--out", "b", "--json", "--device", "cpu"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "airfl.cli", *words, "--scheme", "airfl-dp", "--scheme", "liu2020"]
    begun = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    studies = tmp_path / "b" / "studies"
    for _ in range(1200):  # killed in the middle: one stage is done, the last is not
        if (studies / "airfl-dp" / "coarse" / "results.parquet").exists() or begun.poll() is not None:
            break
        time.sleep(0.02)
    begun.send_signal(signal.SIGKILL)
    begun.wait()
    assert begun.returncode == -signal.SIGKILL
    assert not (studies / "liu2020" / "test" / "results.parquet").exists()
    mine = replace(wish, out=tmp_path / "b")
    after = run_arena(mine, InProcess(Settings(device="cpu")))
    assert after.summary == outcome.summary
    assert (tmp_path / "b" / "arena_trials.csv").read_text() == (wish.out / "arena_trials.csv").read_text()


def test_a_study_that_cannot_be_run_leaves_the_others(tmp_path):
    text = SMALL.replace(
        "[schemes.liu2020]", '[schemes.airfl-shielded]\nset = {"scheme.cover_price_db" = 0.0}\n[schemes.liu2020]'
    )
    (tmp_path / "other.toml").write_text(text)
    arena = read_arena(tmp_path / "other.toml")
    wish = Wish(tmp_path / "o", "smoke", ("airfl-dp", "airfl-shielded"), 2, arena=arena)
    outcome = run_arena(wish, InProcess(Settings(device="cpu")))
    assert list(outcome.failed) == ["airfl-shielded"]
    assert {row["scheme"] for row in outcome.rows} == {"airfl-dp"}
    assert outcome.missing == ("fedavg-clip", "airfl-mimo", "airfl-shielded", "liu2020")


def test_the_committed_results_are_shown_without_training(call, tmp_path):
    code, out, error = call("arena", "--from-results", "--out", "o", "--json")
    assert code == 0, error
    summary = json.loads(out.splitlines()[-1])
    arena, notes = read_arena(), read_notes(RESULTS / "arena.json")
    assert notes["trials"] >= 3
    assert {row["scheme"] for row in summary["rows"]} | set(summary["missing"]) == set(arena.schemes)
    ours, there = ({item["scheme"] for item in found["standings"]} for found in (summary, notes))
    assert ours <= there
    if ours == there:  # else a version before the schemes that results are there for
        assert summary["verdicts"] == notes["verdicts"]
        assert (tmp_path / "o" / "arena.md").read_text() == (RESULTS / "arena.md").read_text()
    for row in summary["rows"]:
        if row["ranked"]:
            assert row["epsilon"] <= row["epsilon_asked"] * (1 + 1e-9)


def test_on_a_narrow_terminal_there_are_tables_of_ranks_and_needs_and_a_sentence_for_every_verdict(call, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, error = call("arena", "--from-results", "--out", "o")
    assert code == 0, error
    lines, verdicts = out.splitlines(), read_notes(RESULTS / "arena.json")["verdicts"]
    schemes = [
        line.split()[0] for line in lines if line.startswith("  ") and line.split() and line.split()[0] in SCHEMES
    ]
    assert len(schemes) == 2 * len(set(schemes)) > 30  # a line in each of two tables
    assert sum(line.startswith("• Is ") for line in lines) == len(verdicts) > 0


def test_the_page_has_the_committed_tables_and_verdicts():
    page = (ROOT / "docs" / "arena.md").read_text().splitlines()
    missing = [line for line in (RESULTS / "arena.md").read_text().splitlines() if line not in page]
    assert not missing


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--scale smok", "did you mean `smoke`?"),
        ("--scheme airfl-pd", "did you mean `airfl-dp`?"),
        ("--trials 0", "`trials` must be at least 1"),
        ("--from-results --scale smoke", "shows what was committed"),
        ("--description nowhere.toml", "there is no such file"),
    ],
)
def test_what_is_wrong_is_one_sentence(call, words, said):
    code, out, error = call("arena", *words.split(), "--out", "o")
    assert (code, out) == (2, "")
    assert said in error
    assert len(error.splitlines()) == 1


def test_show_refuses_rows_of_other_cells(tmp_path):
    wish = Wish(tmp_path / "o", "smoke")
    (tmp_path / "arena_trials.csv").write_text(
        "scheme,data,snr_db,epsilon_asked,trial,accuracy,epsilon,epsilon_base_station,step,knob,validation_accuracy,proven,status\n"
        "airfl-dp,elsewhere,1.0,1.0,0,0.5,1.0,2.0,1.0,,0.5,True,done\n"
    )
    (tmp_path / "arena.json").write_text('{"scale": "smoke"}')
    with pytest.raises(InputError, match="another arena"):
        show(wish, tmp_path)
