"""The planner page's numbers are those of `airfl plan --json`, to the last digit; a wrong question is a sentence."""

from __future__ import annotations

import io
import json
import math
import shlex
import subprocess
import tomllib
from dataclasses import fields
from urllib.parse import urlencode

import numpy as np
import pytest
import typer

pytest.importorskip("starlette")

from airfl import linkplan
from airfl.errors import InputError
from airfl.linkplan.law import Drawn
from airfl.linkplan.phases import phases_of
from airfl.linkplan.quantities import RANGES, Quantities
from airfl.web import drawing
from airfl.web.app import Site, make_app
from airfl.web.controls import GROUPS, controls, read_query, rivals
from airfl.web.drawing import Drawer, NotDrawn
from airfl.web.guard import Door
from airfl.web.planner import POINTS, answer_to
from airfl.wording import epsilon_text
from tests.web_client import PORT, client_of

QUESTIONS = [
    {"scenario": "urban-cell"},
    {"scenario": "satellite-iot", "power-dbm": "9.3", "devices": "5217", "rounds": "77"},
    {"scenario": "urban-cell", "power": "1e-10", "antennas": "33", "neighbours": "zero-out", "sampling": "poisson"},
    {"scenario": "satellite-iot", "solve-for": "devices", "epsilon": "0.7"},
    {"scenario": "urban-cell", "solve-for": "distance", "epsilon": "1"},
    {"scenario": "urban-cell", "snr": "-71.25", "tolerate": "0.4", "alignment": "0.31"},
    {"scenario": "satellite-iot", "speed": "7500", "coherence-hz": "1000000", "symbols": "complex"},
    {"scenario": "urban-cell", "csi-error": "0.01", "phase-error": "0.2", "interference": "-99.5"},
    {"clip": "1", "noise-var": "400", "rounds": "40", "epsilon": "3", "delta": "1e-6"},
    {"devices": "800", "active": "300", "antennas": "12", "snr": "-40", "parameters": "1000", "rounds": "10"},
]


@pytest.fixture(scope="module")
def client():
    with client_of(make_app(None, Door(port=PORT), Site(None))) as found:
        yield found


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: ",".join(q))
def test_the_answer_is_the_commands(client, call, question):
    found = client.ask(f"/api/plan?{urlencode(question)}&live=1")
    assert found.status == 200, found.text
    words = shlex.split(found.json()["command"])
    assert words[:2] == ["airfl", "plan"]
    code, out, err = call(*words[1:], "--json")
    assert code == 0, err
    assert found.json()["answer"] == json.loads(out.splitlines()[-1])


def test_what_is_shown_is_the_answer(client):
    found = client.ask("/api/plan?scenario=satellite-iot&power-dbm=12").json()
    for row in found["observers"]:
        assert row["free"] == epsilon_text(found["answer"]["epsilon"][row["observer"]])
        assert row["kept"] == epsilon_text(found["answer"]["epsilon_kept"][row["observer"]])
        assert row["free_words"]
        assert row["kept_words"]
    assert [row["observer"] for row in found["observers"]] == ["model", "models", "base-station"]
    margin = found["answer"]["margin_db"]
    assert found["verdict"]["margin"] == f"{margin:+.1f} dB".replace("-", "−")
    assert found["phase"]["point"] == {"devices": 6000, "snr_db": found["answer"]["snr_db"]}


def test_every_option_of_the_command_is_a_control():
    import airfl.cli

    options = {
        name.removeprefix("--")
        for parameter in typer.main.get_command(airfl.cli.app).commands["plan"].params
        for name in getattr(parameter, "opts", ())
        if name.startswith("--")
    }
    assert options - {"help", "json", "out", "observer", "solve-for"} == set(controls())
    fields = {control.field for group in GROUPS.values() for control in group}
    # What scenario files say and no option does: the same here.
    assert set(vars(Quantities())) - fields == {
        "clip_factor", "shadowing_distance_m", "profile", "hall", "indoor_share",
    }  # fmt: skip


def test_sliders_stay_within_what_a_plan_takes():
    for control in controls().values():
        if control.kind == "choice":
            assert control.choices
            continue
        assert control.low < control.high
        assert not control.log or control.low > 0.0
        low, high = RANGES.get(control.field, (0.0, math.inf))
        assert low <= control.low * control.scale * (1 + 1e-12), control.name
        assert control.high * control.scale <= high, control.name


def test_rivals_are_those_that_a_plan_refuses_together():
    for name, others in rivals().items():
        for other in others:
            if {name, other} <= set(controls()):
                values = {n: {"power": "1", "noise-var": "1"}.get(n, "2") for n in (name, other)}
                asked = read_query([("scenario", "urban-cell"), *values.items()])
                with pytest.raises(InputError, match=r"same thing|whole link|give one|is less|must be"):
                    linkplan.pose(asked.scenario, asked.given)


@pytest.mark.parametrize(
    "question", [q for q in QUESTIONS if "solve-for" not in q and "noise-var" not in q], ids=lambda q: ",".join(q)
)
def test_the_scenario_file_asks_the_same(client, question, tmp_path):
    found = client.ask(f"/api/plan?{urlencode(question)}").json()
    file = tmp_path / "mine.toml"
    file.write_text(found["toml"])
    tolerate = float(question["tolerate"]) if "tolerate" in question else None
    again = json.loads(json.dumps(linkplan.plan(str(file), {}, None, tolerate).summary))
    want, left_out = found["answer"], {"quantities"}
    if want["solved_for"]:  # then the file has the value that was found
        left_out |= {"solved_for", "is_perk", "margin_db", "threshold_db", "backoff_db"}
    assert {key: again[key] for key in {*again} - left_out} == {key: want[key] for key in {*again} - left_out}
    assert tomllib.loads(found["toml"])["rounds"] == want["quantities"]["rounds"]


def test_the_diagram_is_the_free_epsilon(client):
    """On a line, free ε is what the line says: asked again with that SNR."""
    answer = linkplan.plan("satellite-iot", {"power_dbm": 5.5})
    lines = phases_of(answer, POINTS)
    shown = client.ask("/api/plan?scenario=satellite-iot&power-dbm=5.5").json()["phase"]
    assert shown["devices"] == lines.devices.tolist()
    assert np.allclose(shown["target"]["snr_db"], lines.target, rtol=0, atol=1e-9)
    for epsilon, curve in lines.curves[1:4]:
        for place in (3, 20, 35):
            given = {"devices": int(lines.devices[place]), "snr_db": float(curve[place]), "epsilon": 1.0}
            q = answer.quantities.with_values({**given, "neighbours": answer.quantities.relation})
            assert linkplan.free_epsilon(q) == pytest.approx(epsilon, rel=1e-6)


def test_lines_move_with_what_moves_them(client):
    def lines(**more):
        query = urlencode({"scenario": "satellite-iot", **{k.replace("_", "-"): v for k, v in more.items()}})
        return client.ask(f"/api/plan?{query}").json()["phase"]["curves"][2]

    first = lines()
    assert lines(power_dbm=20) == first
    assert lines(distance=10_000) == first
    assert lines(antenna_gain=1) == first
    for moved in ({"rounds": 90}, {"parameters": 5000}, {"antennas": 9}, {"delta": 1e-3}, {"layout": "disk"},
                  {"participation": 0.5}, {"neighbours": "replace"}, {"symbols": "complex"}):  # fmt: skip
        assert lines(**moved) != first, moved


# ------------------------------------------------------------------------------------------- what is asked wrongly


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("scenario=nowhere", "no scenario"),
        ("scenario=../../../../etc/passwd", "no scenario"),
        ("scenario=satellite-iot.toml", "no scenario"),
        ("scenario=urban-cell&power-dbm=loud", "must be a number"),
        ("scenario=urban-cell&devices=1.5", "must be a whole number"),
        ("scenario=urban-cell&power-dbm=nan", "a number from"),
        ("scenario=urban-cell&power-dbm=inf", "a number from"),
        ("scenario=urban-cell&devices=" + "9" * 400, "a whole number from"),
        ("scenario=urban-cell&rounds=" + "9" * 501, "characters"),
        ("scenario=urban-cell&power-dbm=1&power-dbm=2", "twice"),
        ("scenario=urban-cell&powr=1", "did you mean `power`"),
        ("scenario=urban-cell&fading=trace", "must be one of"),
        ("scenario=urban-cell&fading=os:system", "fading"),
        ("scenario=urban-cell&solve-for=world-peace", "cannot solve for"),
        ("scenario=urban-cell&layout=<script>alert(1)</script>", "must be one of"),
        ("power-dbm=1", "missing"),
        ("scenario=urban-cell&power=1&power-dbm=1", "same thing"),
        ("&".join(f"a{k}=1" for k in range(101)), "at most 100 values"),
    ],
)
def test_a_wrong_question_is_a_sentence(client, query, why):
    answer = client.ask(f"/api/plan?{query}")
    assert answer.status == 400
    assert answer.headers["content-type"] == "application/json"
    assert why in answer.json()["error"]
    assert "Traceback" not in answer.text


def test_an_import_path_is_never_imported(client, tmp_path, monkeypatch):
    (tmp_path / "hostile.py").write_text("open('was-here', 'w')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    client.ask("/api/plan?scenario=urban-cell&fading=hostile:law")
    assert not (tmp_path / "was-here").exists()


# -------------------------------------------------------------------------------------------------- drawn channels

DRAWN = [("devices", "6"), ("antennas", "2"), ("fading", "rician"), ("snr", "-30"), ("parameters", "100"),
         ("rounds", "4"), ("epsilon", "4"), ("drops", "1")]  # fmt: skip


def test_channels_are_drawn_when_asked_and_remembered(client, call):
    live = f"/api/plan?{urlencode(DRAWN)}&live=1"
    assert "drawn first" in client.ask(live).json()["not_drawn"]
    found = client.ask(f"/api/plan?{urlencode(DRAWN)}").json()
    code, out, err = call("plan", *[word for name, text in DRAWN for word in (f"--{name}", text)], "--json")
    assert code == 0, err
    assert found["answer"] == json.loads(out.splitlines()[-1])
    louder = urlencode([*((n, t) for n, t in DRAWN if n != "snr"), ("snr", "-20")])
    assert "answer" in client.ask(f"/api/plan?{louder}&live=1").json()  # power moves no channel
    assert "diagram" in found["phase"]["why"]


def test_drawing_that_takes_too_long_is_ended(monkeypatch):
    with pytest.raises(InputError, match="more than a page waits"):
        answer_to(read_query(DRAWN), Drawer(seconds=0.05))


def test_the_process_that_draws_answers_in_sentences(monkeypatch, capsys):
    q = linkplan.pose(None, read_query(DRAWN[:-1]).given)[0]
    with pytest.raises(NotDrawn):
        Drawer().known(q, None)
    for changed, why in (({}, None), ({"devices": 900_000, "antennas": 200}, "n·m")):
        question = json.dumps({"quantities": vars(q.with_values(changed)), "drops": 1})
        monkeypatch.setattr("sys.stdin", io.StringIO(question))
        drawing.main()
        answer = json.loads(capsys.readouterr().out)
        assert answer.keys() == {"problem"} if why else set(answer) == {item.name for item in fields(Drawn)}
    monkeypatch.setattr(drawing.subprocess, "run", lambda *a, **k: subprocess.CompletedProcess(a, 1, "", "no memory"))
    with pytest.raises(InputError, match="says why"):
        Drawer().draw(q, None)
