from __future__ import annotations

import json
import re
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

import airfl
from airfl import runs, sweeps
from airfl.errors import InputError
from airfl.privacy import ACCOUNTANTS
from airfl.report import headline, write_report
from airfl.report.figures import render_figures
from airfl.report.sentences import epsilon_meaning, epsilon_text, percent, perk_sentence
from airfl.sweeps import planfile
from airfl.wording import at_most_text, rounded_up


@pytest.fixture
def result(tiny):
    return airfl.run(tiny)


def test_a_run_comes_back(result, tmp_path):
    saved = airfl.save(result, tmp_path / "run")
    back = airfl.load(tmp_path / "run")
    assert back.config == result.config
    assert back.summary == saved.summary
    assert back.provenance == result.provenance
    for name, scheme in result.schemes.items():
        assert torch.equal(back.schemes[name].models, scheme.models)
        assert back.schemes[name].ledgers == scheme.ledgers
        assert repr(back.schemes[name].records) == repr(scheme.records)
        assert back.schemes[name].perks == scheme.perks


def test_files_of_a_run(result, tmp_path):
    airfl.save(result, tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        "config.toml",
        "rounds.parquet",
        "ledger.json",
        "summary.json",
        "provenance.json",
        "model.safetensors",
        "manifest.json",
    }
    table = pq.read_table(tmp_path / "rounds.parquet")
    assert table.num_rows == 4 * 2 * 4
    assert {"scheme", "trial", "round", "accuracy", "loss", "epsilon", "noise_var"} <= set(table.column_names)
    assert load_file(tmp_path / "model.safetensors")["airfl-dp"].shape == (2, 650)
    summary = json.loads(
        (tmp_path / "summary.json").read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON")
    )
    entry = summary["schemes"]["airfl-dp"]
    assert {"accuracy_mean", "accuracy_std", "epsilon", "epsilon_by_observer", "noise_var_mean", "seconds"} <= set(
        entry
    )
    assert set(entry["epsilon_by_observer"]) == {"model", "models", "base-station", "everything"}
    assert entry["epsilon_by_observer"]["everything"] == dict.fromkeys(entry["epsilon_by_observer"]["everything"])
    assert summary["schemes"]["fedavg"]["epsilon"] == dict.fromkeys(set(ACCOUNTANTS) - {"liu2024"})
    assert airfl.read(str(tmp_path / "config.toml")) == result.config


def test_what_is_not_a_run_is_refused(result, tmp_path):
    with pytest.raises(InputError, match="not a finished run"):
        airfl.load(tmp_path)
    airfl.save(result, tmp_path)
    (tmp_path / "rounds.parquet").write_bytes(b"PAR1 broken")
    with pytest.raises(InputError, match="not a finished run"):
        airfl.load(tmp_path)


def test_output_folder(tmp_path):
    assert runs.prepare_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert not (tmp_path / "a").exists()  # nothing is left until there is something to keep
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        runs.prepare_folder(tmp_path / "full")
    runs.prepare_folder(tmp_path / "full", force=True)
    with pytest.raises(InputError, match="is a file"):
        runs.prepare_folder(tmp_path / "full" / "x")
    with pytest.raises(InputError, match="not writable"):
        runs.prepare_folder(tmp_path / "full" / "x" / "below")
    with pytest.raises(InputError, match="not writable"):
        runs.prepare_folder("/proc/airfl")


def test_report_is_whole_and_self_contained(result, tmp_path):
    page = write_report(result, tmp_path).read_text(encoding="utf-8")
    for word in ("Vanilla FL", "AirFL-DP", "curious base station", "pseudo-random", "Resolved configuration", "∞"):
        assert word in page
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "nan" not in re.sub(r"base64,[^\"]*", "", page).lower().replace("finance", "")
    for name in ("accuracy", "loss", "noise", "budget"):
        assert (tmp_path / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (tmp_path / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.filterwarnings("ignore:scheme `airfl")
def test_report_of_an_unfinished_run(tiny, tmp_path):
    config = tiny.replace({"learning.learning_rate": 1e38})
    page = write_report(airfl.run(config), tmp_path).read_text(encoding="utf-8")
    assert "did not finish" in page
    assert "diverged" in page


def test_nothing_of_an_older_run_passes_for_a_newer_one(tiny, tmp_path):
    write_report(airfl.save(airfl.run(tiny), tmp_path), tmp_path)
    assert (tmp_path / "figures" / "budget.png").is_file()
    failed = airfl.run(tiny.replace({"learning.learning_rate": 1e38, "scheme.names": ["fedavg"]}))
    write_report(airfl.save(failed, tmp_path), tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    assert not (tmp_path / "figures" / "budget.png").exists()
    assert airfl.load(tmp_path).schemes["fedavg"].models is None


def test_rounds_count_all_and_accuracy_the_last_test(tiny):
    class Stop:
        def start(self, scheme, rounds):
            pass

        def round(self, scheme, records):
            if records[0].round == 3:
                raise KeyboardInterrupt

    result = airfl.run(tiny.replace({"engine.eval_every": 2, "scheme.names": ["fedavg"]}), progress=Stop())
    entry = result.summary["schemes"]["fedavg"]
    assert entry["rounds"] == 3
    assert entry["accuracy_mean"] is not None


def test_report_of_ideal_schemes_only(tiny, tmp_path):
    config = tiny.replace({"scheme.names": ["fedavg"], "privacy.epsilon": None})
    write_report(airfl.run(config), tmp_path)
    assert not (tmp_path / "figures" / "noise.png").exists()


def test_report_of_an_interrupted_run_with_trials_of_unequal_length(tiny, tmp_path):
    class Stop:
        def start(self, scheme, rounds):
            pass

        def round(self, scheme, records):
            if records[0].trial == 1 and records[0].round == 2:
                raise KeyboardInterrupt

    result = airfl.run(tiny.replace({"scheme.names": ["airfl-dp"]}), progress=Stop(), trials_per_batch=1)
    assert result.schemes["airfl-dp"].column("accuracy").shape == (2, 4)
    write_report(airfl.save(result, tmp_path), tmp_path)
    assert (tmp_path / "figures" / "accuracy.png").is_file()


def test_words(result):
    text = " ".join(headline(result))
    assert "AirFL-DP reached" in text
    assert "ε = 50" in text
    assert "protects nobody in practice" in text
    assert "P·Λ_min/σ²" in text  # an SNR is never printed without its definition
    assert epsilon_text(None) == epsilon_text(float("inf")) == "∞"
    assert epsilon_text(2.3456) == "2.35"
    assert epsilon_meaning(0.9) == "strong protection"
    assert epsilon_meaning(None) == "no protection"
    assert percent(0.8123, 0.004, 3) == "81.2 ± 0.4 %"
    assert percent(None) == "–"


def test_whom_to_trust_is_always_said(result, tiny):
    """With a promise, without one, and over an ideal channel: whether the base station learns more."""

    def last(names):
        return " ".join(headline(airfl.run(tiny.replace({"scheme.names": names}))))

    assert "The base station is trusted" in " ".join(headline(result))
    curious = result.summary["schemes"]["airfl-dp"]["epsilon_by_observer"]["base-station"]["gaussian"]
    assert f"looks at every antenna learns up to ε = {epsilon_text(curious)}" in " ".join(headline(result))
    assert "keeps no budget" in last(["airfl-mimo"])
    assert "sees every update" in last(["fedavg", "fedavg-clip"])


def test_every_private_scheme_is_spoken_of(tiny):
    """Not only the first: each promise with its ε, and who trusts the base station by name."""
    words = headline(airfl.run(tiny.replace({"scheme.names": ["airfl-an", "airfl-dp", "koda2020"]})))
    for title in ("AirFL with artificial noise", "AirFL-DP", "Per-round budget (Koda 2020)"):
        assert any(sentence.startswith(f"{title} reached") for sentence in words)
    assert any(sentence.startswith("AirFL-DP trusts the base station") for sentence in words)
    assert any("booked by `koda2020`" in sentence for sentence in words)


def test_the_published_bound_is_held_against_its_own_relation(tiny):
    """It counts a replaced device: the proven figure for that is larger than what it booked, and is named."""
    config = tiny.replace(
        {"privacy.accountant": "paper", "privacy.neighbours": "zero-out", "scheme.names": ["airfl-dp"]}
    )
    result = airfl.run(config)
    replaced = result.epsilon(neighbours="replace")
    assert replaced > result.epsilon()
    assert f"is {at_most_text(replaced)} for one device's data replaced" in " ".join(headline(result))


def test_a_scheme_that_did_not_finish_is_not_said_to_keep_no_budget(result):
    entry = {**result.summary["schemes"]["airfl-dp"], "status": "diverged", "message": "NaN"}
    cut = replace(result, kept={**result.summary, "schemes": {"airfl-dp": entry}})
    words = headline(replace(cut, schemes={"airfl-dp": result.schemes["airfl-dp"]}))
    assert words[0].startswith("AirFL-DP did not finish")
    assert "keeps no budget" not in " ".join(words)


def test_perks_of_some_trials_only(result):
    scheme = result.schemes["airfl-dp"]
    first = scheme.perks[0]
    mixed = (replace(first, is_perk=True, margin_db=9.0), replace(first, is_perk=False, margin_db=-1.0))
    words = perk_sentence(replace(scheme, perks=mixed), 1e-3)
    assert words.startswith("DP was a perk in 1 of 2 trials only")
    assert "up to 1.0 dB too good" in words


@given(st.floats(1e-6, 1e9))
def test_what_is_said_to_be_the_most_is_never_less(epsilon):
    shown = float(at_most_text(epsilon).replace(",", ""))
    assert shown >= epsilon * (1 - 2e-9)
    assert shown <= epsilon * 1.1


@given(st.floats(1e-6, 1e9), st.floats(0.0, 1e-3))
def test_what_keeps_a_budget_never_looks_overspent(budget, left):
    for text in (at_most_text, rounded_up):
        shown = [float(text(value).replace(",", "")) for value in (budget * (1.0 - left), budget)]
        assert shown[0] <= shown[1]
    assert at_most_text(8.860022573334675) == at_most_text(8.860022573334119) == "8.87"
    assert [rounded_up(value) for value in (0.1, 1.1, 8.0)] == ["0.1", "1.1", "8"]


def test_a_budget_is_rounded_as_what_was_spent(tiny):
    """A budget of 50.01 is 50.1 in words, and so is what was spent of it."""
    changes = {"scheme.names": ["airfl-dp"], "privacy.accountant": "paper", "privacy.epsilon": 50.01}
    result = airfl.run(tiny.replace(changes))
    assert "The budget of ε = 50.1 was booked by `paper`" in " ".join(headline(result))
    assert "(booked by paper: 50.1)" in repr(result)
    assert result.schemes["airfl-dp"].final()[0].epsilon <= 50.01
    drawn = render_figures(result)["budget.svg"].decode()
    assert "budget ε = 50.1" in drawn


def test_a_run_and_a_study_by_the_older_name_are_read(result, tmp_path, tiny):
    """What a version before `zero-out` wrote: the same bytes but for the name."""
    result = airfl.run(tiny.replace({"scheme.names": ["airfl-dp"], "privacy.neighbours": "zero-out"}))
    airfl.save(result, tmp_path / "run")
    (tmp_path / "run" / "manifest.json").unlink()
    for name in ("summary.json", "config.toml"):
        file = tmp_path / "run" / name
        file.write_text(file.read_text().replace("zero-out", "add-remove"))
    back = airfl.load(tmp_path / "run")
    assert back.summary["neighbours"] == "zero-out"
    assert headline(back) == headline(result)

    study = {
        "name": "old",
        "base": "demo",
        "schemes": ["fedavg-clip"],
        "trials": 1,
        "set": {"system.rounds": 1, "learning.dataset": "digits", "privacy.neighbours": "add-remove"},
    }
    study["set"] |= {"system.num_devices": 4, "learning.model": "softmax", "learning.local_steps": 1}
    airfl.sweep(study, tmp_path / "study", progress=False)
    plan = tmp_path / "study" / "plan.json"
    stored = json.loads(plan.read_text())
    assert stored["base"]["privacy"]["neighbours"] == "zero-out"
    stored["base"]["privacy"]["neighbours"] = "add-remove"
    stored["checksum"] = planfile._checksum({key: value for key, value in stored.items() if key != "checksum"})
    plan.write_text(json.dumps(stored))
    found, folder = sweeps.find_plan(tmp_path / "study")
    assert len(sweeps.summarise(found, folder)) == 1


def test_a_base_station_that_learns_no_more_is_not_called_trusted(result):
    from airfl.report.trust import whom_to_trust

    entry = result.summary["schemes"]["airfl-dp"]
    quiet = {**entry["epsilon_by_observer"], "base-station": entry["epsilon_by_observer"]["model"]}
    kept = {**result.summary, "schemes": {"airfl-dp": {**entry, "epsilon_by_observer": quiet}}}
    words = whom_to_trust(replace(result, kept=kept), ["airfl-dp"])
    assert words == [sentence for sentence in words if "learns no more" in sentence and "rests on" in sentence] != []


def test_a_model_that_learnt_nothing_comes_before_its_privacy(result):
    """The most frequent of ten classes gives the accuracy of a model of no use: that is said first, perk or not."""
    assert result.chance == result.summary["chance_accuracy"] >= 0.1
    schemes = result.summary["schemes"]

    def said(accuracy):
        entries = {**schemes, "airfl-dp": {**schemes["airfl-dp"], "accuracy_mean": accuracy}}
        return headline(replace(result, kept={**result.summary, "schemes": entries}))

    idle, useful = said(result.chance + 0.01), said(0.8)
    assert idle[0].startswith("AirFL-DP learnt next to nothing")
    assert "perk or not" in idle[0]
    assert not any("AirFL-DP learnt next to nothing" in sentence for sentence in useful)


def test_a_summary_says_its_format_and_a_newer_one_is_refused(result, tmp_path):
    assert result.summary["format"] == "airfl-summary/1"
    airfl.save(result, tmp_path)
    (tmp_path / "manifest.json").unlink()  # as an older version left folders: nothing but the format tells
    summary = json.loads((tmp_path / "summary.json").read_text())
    (tmp_path / "summary.json").write_text(json.dumps({**summary, "format": "airfl-summary/2"}))
    with pytest.raises(InputError, match=r"format `airfl-summary/2`"):
        airfl.load(tmp_path)
    del summary["format"], summary["chance_accuracy"]
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert airfl.load(tmp_path).chance == 0.0


def test_published_budget_is_never_quoted_alone(tiny):
    text = " ".join(headline(airfl.run(tiny.replace({"privacy.accountant": "paper"}))))
    assert "proves less than it says" in text
    assert "the proven figure" in text


def test_python_api_of_the_readme(tmp_path):
    """The README's Python lines run as they stand."""
    from pathlib import Path

    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", readme, re.S).group(1)
    assert len(code.strip().splitlines()) <= 6
    small = code.replace('"system.rounds": 10', '"system.rounds": 1, "system.trials": 1')
    assert small != code
    exec(compile(small.replace("my-result", str(tmp_path / "run")), "README", "exec"), {})
    assert (tmp_path / "run" / "summary.json").is_file()


def test_report_of_the_online_scheme_alone(tiny, tmp_path):
    result = airfl.run(tiny.replace({"scheme.names": ["airfl-dp-online"]}))
    page = write_report(result, tmp_path).read_text(encoding="utf-8")
    assert "AirFL-DP online reached" in page
    assert "What AirFL-DP online promises" in page
    assert (tmp_path / "figures" / "budget.png").is_file()
