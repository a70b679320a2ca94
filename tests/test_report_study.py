"""Figures of studies and runs: every file, the numbers of the rows, a sentence where something cannot be drawn."""

from __future__ import annotations

import csv
import errno
import json
import math
import re
import zlib
from pathlib import Path

import pytest

import airfl
from airfl import runs, sweeps
from airfl.report import latex, study_page, write_report
from airfl.report.figures import STYLES, style_of, styles_for
from airfl.report.html import DARK, LIGHT, contrast, inline, readable
from airfl.report.page import Story, rewrite_report
from airfl.report.perk_figure import LINES
from airfl.report.study_fields import snr_db
from airfl.study import make_study
from airfl.sweeps.executors import InProcess, Settings
from airfl.traits import SCHEMES
from airfl.wording import epsilon_text

ROOT = Path(__file__).parents[1]
NAMES = {"figure.pdf", "figure.png", "figure.svg", "figure.csv", "table.tex", "report.html"}
STUDY = {
    "name": "small_study",
    "base": "paper",
    "schemes": ["airfl-mimo", "airfl-dp"],
    "trials": 2,
    "set": {
        "system.num_devices": 5,
        "system.num_antennas": 6,
        "system.participation": 1.0,
        "system.rounds": 3,
        "learning.dataset": "digits",
        "learning.split": "standard",
        "learning.model": "softmax",
        "learning.local_steps": 2,
        "learning.learning_rate": 0.1,
        "learning.clip_norm": 1.0,
        "privacy.accountant": "gaussian",
        "privacy.epsilon": 50.0,
    },
    "grid": {"channel.power_w": [1e-9, 1e-3], "scheme.combiner": ["zero-forcing", "mrc"]},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "s"
    with runs.locked(out):
        plan, folder = sweeps.open_folder(make_study(STUDY), "name = 'small'\n", out, resume=False, threads=1)
        sweeps.run_sweep(plan, folder, InProcess(Settings()))
    return out


@pytest.fixture(scope="module")
def a_run(tmp_path_factory):
    overrides = {**STUDY["set"], "system.trials": 1, "scheme.combiner": "zero-forcing"}
    config = airfl.preset("paper").replace({**overrides, "scheme.names": ["fedavg", "airfl-dp"]})
    return airfl.save(airfl.run(config), tmp_path_factory.mktemp("run") / "r")


def rows_in(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_command_of_a_paper(study, call, tmp_path):
    before = contents(study)
    wish = ["--x", "channel.snr_db", "--y", "accuracy", "--by", "scheme.combiner", "--where", "scheme=airfl-dp"]
    code, out, error = call("report", str(study), *wish, "--out", "f", "--json")
    assert code == 0, error
    found = json.loads(out)
    assert {Path(name).name for name in found["files"]} == NAMES == {path.name for path in (tmp_path / "f").iterdir()}
    assert contents(study) == before
    plain = json.loads(call("report", str(study), "--json")[1])
    assert {key: found[key] for key in plain} == plain
    private = [row for row in plain["rows"] if row["scheme"] == "airfl-dp"]
    drawn = rows_in(tmp_path / "f" / "figure.csv")
    assert len(drawn) == len(private) == 4
    plan, _ = sweeps.find_plan(study)
    for row in private:
        snr = snr_db(plan.base.replace({"channel.power_w": row["channel.power_w"]}))
        (own,) = (
            r
            for r in drawn
            if r["scheme.combiner"] == row["scheme.combiner"] and math.isclose(float(r["snr_db"]), snr, abs_tol=1e-5)
        )
        for key in ("accuracy_mean", "accuracy_low", "accuracy_high"):
            assert float(own[key]) == row[key]
        assert int(own["trials"]) == 2


def test_a_narrow_page_stacks_its_tables(study, call, tmp_path):
    """On a phone the heads are not shown: every cell of a table says what it is."""
    code, _, _ = call("report", str(study), "--x", "power_w", "--by", "scheme", "--by", "combiner", "--out", "f")
    assert code == 0
    page = (tmp_path / "f" / "report.html").read_text(encoding="utf-8")
    tables = re.findall(r"<table.*?</table>", page, re.DOTALL)
    assert len(tables) == 2
    for table in tables:
        assert table.startswith('<table class="stack">')
        heads = re.findall(r"<th[^>]*>([^<]*)</th>", table)
        labels = re.findall(r'<td class="(?:key|num)" data-label="([^"]+)">', table)
        assert labels == heads * (len(labels) // len(heads))
        assert len(labels) == table.count("<td") > 0


def test_every_file_is_what_it_says(study, call, tmp_path):
    code, out, _ = call(
        "report", str(study), "--x", "power_w", "--by", "scheme", "--by", "combiner", "--log-x", "--out", "f"
    )
    assert code == 0
    assert out.strip().splitlines()[-1] == f"Report: {tmp_path / 'f' / 'report.html'}"
    files = {name: (tmp_path / "f" / name).read_bytes() for name in NAMES}
    assert files["figure.pdf"].startswith(b"%PDF")
    assert re.search(rb"/MediaBox \[ ?0 0 252 ", files["figure.pdf"])  # 3.5 in
    assert fonts_in(files["figure.pdf"]) == {"Type0", "CIDFontType2"}
    assert files["figure.png"].startswith(b"\x89PNG")
    assert b"<svg" in files["figure.svg"]
    assert b"<text" not in files["figure.svg"]  # outlines: the same without the font
    page = files["report.html"].decode()
    assert not re.search(r"<script|<link|@import|https?://", page)
    assert not re.search(r'(src|href)="(?!data:)', page)
    for word in ("AirFL-DP, zero-forcing", "8 rows", "airfl report", "prefers-color-scheme: dark", "Student"):
        assert word in page
    again = call("report", str(study), "--x", "power_w", "--by", "scheme", "--by", "combiner", "--log-x", "--out", "f")
    assert again[0] == 0
    assert contents(tmp_path / "f") == files


def test_wide_figures_and_rounds(study, a_run, call, tmp_path):
    assert call("report", a_run.out, "--size", "two-column", "--out", "f")[0] == 0
    data = (tmp_path / "f" / "figure.pdf").read_bytes()
    assert re.search(rb"/MediaBox \[ ?0 0 515\.5", data)  # 7.16 in
    rows = rows_in(tmp_path / "f" / "figure.csv")
    assert [(row["scheme"], row["round"]) for row in rows] == [(s, r) for s in ("fedavg", "airfl-dp") for r in "123"]
    records = {(r["scheme"], r["round"]): r["accuracy"] for r in a_run.rounds}
    assert all(float(row["accuracy_mean"]) == records[row["scheme"], int(row["round"])] for row in rows)
    assert all(row["accuracy_low"] == row["accuracy_high"] == "" for row in rows)  # one trial has no interval
    fixed = ["--where", "power_w=1e-9", "--where", "combiner=mrc"]
    assert call("report", str(study), "--x", "round", *fixed, "--out", "g")[0] == 0
    assert len(rows_in(tmp_path / "g" / "figure.csv")) == 2 * 3


def test_json_of_a_run_keeps_its_keys(a_run, call, tmp_path):
    before = contents(Path(a_run.out))
    found = json.loads(call("report", a_run.out, "--x", "scheme", "--y", "seconds", "--out", "f", "--json")[1])
    assert len(found.pop("files")) == 6
    assert found == {**a_run.summary, "out": a_run.out}
    assert contents(Path(a_run.out)) == before


def test_exact_epsilon_of_an_observer(study, call, tmp_path):
    wish = ["--x", "power_w", "--where", "combiner=mrc", "--y", "epsilon", "--out", "f"]
    found = json.loads(call("report", str(study), *wish, "--observer", "base-station", "--json")[1])
    rows = {
        (row["scheme"], row["channel.power_w"]): row["epsilon_by_observer"]["base-station"]["gaussian"]
        for row in found["rows"]
        if row["scheme.combiner"] == "mrc"
    }
    drawn = {
        (r["scheme"], float(r["channel.power_w"])): float(r["epsilon"]) for r in rows_in(tmp_path / "f/figure.csv")
    }
    assert drawn == rows
    assert "curious base station" in (tmp_path / "f" / "report.html").read_text()


def test_snr_is_the_one_that_runs_report(study):
    """Threshold minus margin of the perk is the SNR of the run."""
    plan, _ = sweeps.find_plan(study)
    config = plan.config(0)
    perk = runs.run(config.replace({"scheme.names": ["airfl-dp"], "system.trials": 1})).schemes["airfl-dp"].perks[0]
    assert snr_db(config) == pytest.approx(perk.snr_threshold_db - perk.margin_db, abs=1e-9)


def test_the_page_says_against_whom_and_whom_one_trusts(study, call, tmp_path):
    assert call("report", str(study), "--x", "channel.power_w", "--by", "scheme.combiner", "--out", "f")[0] == 0
    page = (tmp_path / "f" / "report.html").read_text(encoding="utf-8")
    rows = json.loads(call("report", str(study), "--json")[1])["rows"]
    curious = max(row["epsilon_by_observer"]["base-station"]["gaussian"] or math.inf for row in rows)
    assert "against anyone who sees the models" in page
    assert f"{epsilon_text(curious)}." in page.split("looks at every antenna learns up to", 1)[1][:40]


def test_every_scheme_is_a_line_of_its_own(study, call, tmp_path):
    """Also where only another key was asked for: the mean over schemes would mean nothing."""
    code, _, error = call("report", str(study), "--x", "channel.power_w", "--by", "scheme.combiner", "--out", "f")
    assert code == 0, error
    plain = json.loads(call("report", str(study), "--json")[1])["rows"]
    drawn = rows_in(tmp_path / "f" / "figure.csv")
    assert len(drawn) == len(plain)
    assert {(r["scheme.combiner"], r["scheme"]) for r in drawn} == {(r["scheme.combiner"], r["scheme"]) for r in plain}


REFUSED = {
    "--x channel.power_w --by scheme": "`scheme.combiner` is neither x nor by .* --where scheme.combiner=zero-forcing",
    "--x channel.powr_w": "did you mean `channel.power_w`",
    "--x channel.snr": "did you mean `channel.snr_db`",
    "--by scheme.name": "did you mean `scheme.names`",
    "--x system.rounds --by scheme --by combiner": "`system.rounds` is 3 in all that is drawn; .* channel.power_w",
    "--y acuracy": "did you mean `accuracy`",
    "--y seconds": "by batch",
    "--where scheme.combiner": "must look like KEY=VALUE",
    "--where scheme.combiner=auto": "nothing here has scheme.combiner = auto; there is: zero-forcing, mrc",
    "--size huge": "known: one-column, two-column",
    "--x combiner --where power_w=1e-9 --log-x": "--log-x takes numbers above zero",
    "--observer model --where combiner=mrc": "no ε is drawn",
    "--y epsilon --observer eavesdropper": "no ε for the observer `eavesdropper`",
    "--by round": "--x round",
}


@pytest.mark.parametrize("wish", REFUSED)
def test_refusals_are_one_sentence_and_leave_nothing(study, call, tmp_path, wish):
    code, out, error = call("report", str(study), *wish.split(), "--out", "f/g")
    assert (code, out) == (2, "")
    assert re.search(REFUSED[wish], error), error
    assert error.count("\n") == 1
    assert not (tmp_path / "f").exists()


def test_a_measured_channel_has_no_cell_edge():
    config = airfl.preset("paper").replace({"channel.fading": "trace", "channel.trace_file": "x.npz"})
    with pytest.raises(airfl.errors.InputError, match=r"power_dbm"):
        snr_db(config)


def test_places_that_are_somebody_elses(study, a_run, call, tmp_path):
    for place in (str(study), a_run.out):
        code, _, error = call("report", str(study), "--by", "scheme", "--by", "combiner", "--out", place)
        assert (code, "holds a run or a study" in error) == (2, True)
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "figure.pdf").write_text("mine")
    code, _, error = call("report", str(study), "--by", "scheme", "--by", "combiner", "--out", "f")
    assert (code, "in the way" in error) == (2, True)
    assert contents(tmp_path / "f") == {"figure.pdf": b"mine"}
    code, _, error = call("report", str(study), "--x", "power_w")
    assert (code, "--out FOLDER" in error) == (2, True)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_what_was_changed_since_is_not_replaced(study, call, tmp_path, name):
    wish = ("report", str(study), "--by", "scheme", "--by", "combiner", "--out", "f")
    assert call(*wish)[0] == 0
    (tmp_path / "f" / name).write_bytes(b"mine" + (tmp_path / "f" / name).read_bytes())
    before = contents(tmp_path / "f")
    code, _, error = call(*wish)
    assert (code, f"{name}` is in the way" in error) == (2, True)
    assert contents(tmp_path / "f") == before
    (tmp_path / "f" / name).unlink()
    if name != "report.html":  # that says which of the others are ours
        assert call(*wish)[0] == 0


def test_an_infinite_epsilon_has_no_place_on_an_axis(call, tmp_path):
    schemes = {"name": "e", "schemes": ["fedavg", "airfl-dp"], "trials": 1, "grid": {"privacy.epsilon": [20.0, 50.0]}}
    with runs.locked("e"):
        plan, folder = sweeps.open_folder(make_study({**STUDY, **schemes}), "", Path("e"), resume=False, threads=1)
        sweeps.run_sweep(plan, folder, InProcess(Settings()))
    code, _, error = call("report", "e", "--x", "epsilon", "--out", "f")
    assert (code, "`fedavg` has no finite ε" in error) == (2, True)
    advice = error.strip().split("leave it out with ")[1]
    assert advice == "--where scheme=airfl-dp"
    assert call("report", "e", "--x", "epsilon", *advice.split(), "--out", "f")[0] == 0


def test_a_study_prints_no_json_that_is_none(study, call, monkeypatch):
    monkeypatch.setattr(sweeps, "summarise", lambda plan, where: [{"accuracy_mean": math.nan}])
    with pytest.raises(ValueError, match="not JSON compliant"):
        call("report", str(study), "--json")


def test_a_full_disk_leaves_what_was_there(study, call, tmp_path, monkeypatch):
    wish = ("report", str(study), "--by", "scheme", "--by", "combiner", "--out")
    assert call(*wish, "f")[0] == 0
    before = contents(tmp_path / "f")
    honest = Path.write_bytes

    def full(path, data):
        if path.name == "report.html":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return honest(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    assert call(*wish, "f")[0] == call(*wish, "new/one")[0] == 1
    assert contents(tmp_path / "f") == before
    assert not (tmp_path / "new").exists()


def test_latex_is_balanced_and_escaped(study, call, tmp_path):
    assert call("report", str(study), "--by", "scheme", "--by", "combiner", "--out", "a_b%")[0] == 0
    text = (tmp_path / "a_b%" / "table.tex").read_text()
    comments, body = ([line for line in text.splitlines() if line.startswith("%") == own] for own in (True, False))
    assert any(r"\usepackage{booktabs}" in line for line in comments)
    joined = "\n".join(body)
    assert re.findall(r"\\begin\{(\w+)\}", joined) == re.findall(r"\\end\{(\w+)\}", joined)[::-1]
    bare = re.sub(r"\\[\\{}&%$#_]", "", joined)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"[%#]", bare)
    assert {row.count("&") for row in body if row.endswith(r"\\")} == {4}
    assert not re.search(r"[^\x00-\x7f]", joined)


def test_latex_escapes_all_that_is_special():
    assert latex.escape(r"50 % of a_b & {c} #1 $x ~ ^ \n") == (
        r"50 \% of a\_b \& \{c\} \#1 \$x \textasciitilde{} \textasciicircum{} \textbackslash{}n"
    )
    assert latex.escape("P·Λ_min/σ², ε = ∞") == r"P$\cdot\Lambda_{\min}$/$\sigma^2$, $\varepsilon$ = $\infty$"
    assert latex.escape("$ε") == r"\$$\varepsilon$"


def test_lines_survive_black_and_white():
    assert set(STYLES) == set(SCHEMES)
    for looks in (list(STYLES.values()), styles_for([str(i) for i in range(60)]), list(LINES)):
        pairs = [(str(look["linestyle"]), look["marker"]) for look in looks]
        assert len(set(pairs)) == len(pairs)  # without any colour
    own = list(STYLES.values())
    assert len({str(look["linestyle"]) for look in own}) == len({look["marker"] for look in own}) == len(own)
    few = styles_for([str(i) for i in range(7)])
    assert len({str(look["linestyle"]) for look in few}) == len({look["marker"] for look in few}) == 7


def test_lines_are_seen_by_day_and_by_night():
    looks = [*STYLES.values(), *LINES, *styles_for([str(i) for i in range(7)]), style_of("mine:scheme")]
    for look in looks:
        if look["color"] != "#000000":  # that is the page's ink
            for ground in (LIGHT, DARK):
                assert contrast(readable(look["color"].lower(), ground), ground) >= 3.0
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)


def test_a_drawing_in_a_page_has_names_of_its_own():
    svg = (
        b'<?xml version="1.0"?><svg xmlns:xlink="x" width="9pt" height="9pt" viewBox="0 0 9 9"><metadata>m</metadata>'
        b'<style type="text/css">*{}</style><path id="a" style="stroke: #d55e00; fill: #ffffff"/>'
        b'<use xlink:href="#a" clip-path="url(#a)"/></svg>'
    )
    text = inline(svg, "one")
    assert "metadata" not in text
    assert "#d55e00" not in text
    for part in ('id="one-a"', "href='#one-a'", "url(#one-a)", "var(--c-d55e00)", "var(--page)", 'viewBox="0 0 9 9"'):
        assert part in text


def test_a_demo_of_an_older_version_keeps_its_picture(a_run, tmp_path):
    result = airfl.save(a_run, tmp_path)
    old = {"title": "t", "sentences": ["s"], "picture": "iVBORw0=", "caption": "c", "table_title": "x", "table": []}
    runs.write_run(result, tmp_path, {"story.json": json.dumps(old).encode()})
    page = rewrite_report(airfl.load(tmp_path), tmp_path).read_text()
    assert "data:image/png;base64,iVBORw0=" in page
    rows = [{"devices": 5, "epsilon": e, "accuracy_mean": 0.5} for e in (1.0, 2.0, None)]
    drawn = write_report(result, tmp_path, Story("t", ("s",), "c", "x", [], rows)).read_text()
    assert "image/png" not in drawn
    assert 'aria-label="story"' in drawn


def test_proofs_come_first(a_run, tmp_path):
    page = write_report(a_run, tmp_path).read_text()
    table = page[page.index("promises, to whom") :]
    heading = table.index("not a proof, for comparison")
    for name, before in (("gaussian (", True), ("koda2020 (", False), ("park2023 (", False)):
        places = [found.start() for found in re.finditer(re.escape(name), table)]
        assert places
        assert all((place < heading) == before for place in places)
    assert "<strong>" not in table[heading : table.index("</table>")]
    assert "ε against anyone who sees the final model" in page


def fonts_in(data):
    """The kinds of fonts that a PDF holds, also in compressed streams."""
    parts = [data]
    for found in re.finditer(rb"stream\r?\n(.*?)\r?\nendstream", data, re.DOTALL):
        try:
            parts.append(zlib.decompress(found.group(1)))
        except zlib.error:
            continue
    kinds = re.findall(rb"/Subtype\s*/(Type0|Type1|Type3|TrueType|CIDFontType[02])\b", b"\n".join(parts))
    return {kind.decode() for kind in kinds}


def test_no_committed_figure_has_fonts_that_publishers_refuse():
    figures = sorted((ROOT / "experiments" / "results").glob("*.pdf"))
    assert len(figures) >= 15
    for path in figures:
        assert fonts_in(path.read_bytes()) == {"Type0", "CIDFontType2"}, path


def test_the_check_would_find_one():
    import io

    import matplotlib as mpl
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    with mpl.rc_context({"pdf.fonttype": 3}):
        figure = Figure()
        figure.text(0.5, 0.5, "x")
        figure.savefig(buffer, format="pdf")
    assert "Type3" in fonts_in(buffer.getvalue())


def test_names_are_those_that_are_written():
    assert set(study_page.NAMES) == NAMES
