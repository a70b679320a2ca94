"""The benchmark of growth, on sizes that take no time: what it counts, fits and keeps; no clock is asserted."""

from __future__ import annotations

import json

import pytest
from benchmarks import growth
from experiments import growth_figure

from airfl.runs import together


@pytest.mark.parametrize("axis", ["devices", "parameters", "antennas"])
def test_a_size_is_measured_in_all_its_parts(axis):
    honest = together.advance_together
    row = growth.measure(axis, 1000 if axis == "parameters" else 6)
    assert (row["axis"], row["actors_mb"]) == (axis, 0)
    assert row["seconds_total"] >= row["seconds_to_open"] >= row["seconds_combiners"] > 0.0
    assert min(row[name] for name in ("seconds_draw", "seconds_train", "seconds_receive", "seconds_record")) > 0.0
    assert row["peak_mb"] >= row["added_mb"] > 0
    assert together.advance_together is honest


def test_models_have_as_many_parameters_as_the_axis_says():
    assert growth.measure("parameters", 10_000)["parameters"] == pytest.approx(10_000, rel=0.01)


def test_a_run_of_so_many_rounds_is_kept_and_studied():
    row = growth.measure("rounds", 4)
    assert row["size"] == 4
    assert row["disk_mb"] > 0.0
    assert min(row[name] for name in ("seconds_run", "seconds_write", "seconds_study")) > 0.0


def test_slopes_are_those_of_powers():
    assert growth_figure.slope([1, 10, 100], [3.0, 30.0, 300.0]) == pytest.approx(1.0)
    assert growth_figure.slope([1, 2, 4, 8], [9.0, 1.0, 4.0, 16.0]) == pytest.approx(2.0)


def test_axes_measured_apart_are_kept_together(tmp_path):
    def rows(axis, *sizes):
        names = (
            "seconds_to_open",
            "seconds_per_round",
            "seconds_total",
            "seconds_study",
            "peak_mb",
            "added_mb",
            "actors_mb",
        )
        return {
            "rows": [
                {"axis": axis, "size": n, "parameters": n, "rounds": 4, **dict.fromkeys(names, n + 1.0)} for n in sizes
            ]
        }

    growth.keep({"shards": rows("shards", 0, 1, 2, 4)}, tmp_path)
    growth.keep({"rounds": rows("rounds", 4, 8, 16)}, tmp_path)
    growth.keep({"shards": rows("shards", 0, 1, 2)}, tmp_path)
    kept = json.loads((tmp_path / "growth.json").read_text())
    assert list(kept) == ["rounds", "shards"]
    assert [row["size"] for row in kept["shards"]["rows"]] == [0, 1, 2]
    assert len((tmp_path / "growth.csv").read_text().splitlines()) == 7
    assert {path.stem for path in tmp_path.glob("*.png")} == {"growth-shards", "growth-rounds"}
