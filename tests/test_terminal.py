"""Tables on terminals of every width: no number is ever cut off or broken over two lines."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airfl.terminal import Column, be_quiet, note, numbers, print_table, prose, words

WIDTHS = (60, 80, 120)
number_texts = st.one_of(
    st.floats(allow_nan=False).map(lambda value: f"{value:.4g}"),
    st.integers(-(10**12), 10**12).map(lambda value: f"{value:,}"),
    st.floats(0, 100).map(lambda value: f"{value:.1f}±{value / 10:.1f}%"),
)
names = st.text("abcdefgh.-_ε‖", min_size=1, max_size=34)


@st.composite
def tables(draw):
    kinds = st.one_of(names.map(lambda name: numbers(name)[0]), names.map(prose))
    columns = [words(draw(names)), *draw(st.lists(kinds, max_size=9))]
    rows = [
        [
            " ".join(draw(st.lists(st.one_of(names, number_texts), min_size=1, max_size=12)))
            if column.is_prose
            else draw(number_texts)
            for column in columns
        ]
        for _ in range(draw(st.integers(1, 4)))
    ]
    return columns, rows


def shown(capsys, monkeypatch, width, *arguments, **options) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    print_table(*arguments, **options)
    return capsys.readouterr().out


@given(table=tables())
@pytest.mark.parametrize("width", WIDTHS)
def test_every_number_is_whole_at_every_width(width, table):
    columns, rows = table
    out = io.StringIO()
    with mock.patch.dict(os.environ, {"COLUMNS": str(width)}), contextlib.redirect_stdout(out):
        print_table(columns, rows, "a title")
    found = out.getvalue()
    assert "…" not in found
    assert all(len(line.rstrip()) <= width for line in found.splitlines())
    pieces = found.split()
    for row in rows:
        for cell in row:
            for word in cell.split():
                assert word in pieces, (word, found)


def test_wide_enough_is_a_table_and_too_narrow_are_blocks(capsys, monkeypatch):
    columns = [words("scheme"), *numbers("channel.power_w", "accuracy of the last model", "ε")]
    rows = [("airfl-dp", "7e-11", "81.25 ± 0.31 %", "0.998"), ("fedavg", "", "88.00 %", "∞")]
    wide = shown(capsys, monkeypatch, 80, columns, rows, "a study")
    assert "scheme" in wide.splitlines()[2]
    assert "airfl-dp" in wide
    assert "scheme: " not in wide
    folded = shown(capsys, monkeypatch, 58, columns, rows)  # the header goes over two lines before rows come apart
    assert "scheme: " not in folded
    assert "81.25 ± 0.31 %" in folded
    narrow = shown(capsys, monkeypatch, 30, columns, rows, "a study")
    assert [line.rstrip() for line in narrow.splitlines() if line.strip()] == [
        *("a study", "scheme: airfl-dp", "channel.power_w: 7e-11", "accuracy of the last model:", "81.25 ± 0.31 %"),
        *("ε: 0.998", "scheme: fedavg", "accuracy of the last model:", "88.00 %", "ε: ∞"),
    ]


def test_a_path_is_never_broken(capsys, monkeypatch):
    path = "/a/very/long/path/" + 60 * "x" + "/end"
    assert path in shown(capsys, monkeypatch, 60, [words("what"), prose("found")], [("data", path)], header=False)


def test_what_looks_like_markup_is_printed_as_it_is(capsys, monkeypatch):
    for width in (80, 20):
        out = shown(capsys, monkeypatch, width, [words("a"), words("b")], [("[red]x", ":x: [/red]123456")])
        assert "[red]x" in out
        assert ":x: [/red]123456" in out


def test_notes_can_be_silenced(capsys):
    note("one")
    be_quiet()
    note("two")
    be_quiet(False)
    assert capsys.readouterr().err == "airfl: one\n"


def test_every_table_goes_through_one_door():
    """A table of rich's own would cut numbers where the terminal is narrow."""
    source = Path(__file__).parents[1] / "src" / "airfl"
    own = {str(path.relative_to(source)) for path in source.rglob("*.py") if "rich.table" in path.read_text()}
    assert own == {"terminal.py"}
    assert Column("x").justify == "left"
