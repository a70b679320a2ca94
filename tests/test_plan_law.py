"""The planner's table of combiner norms: exact where theory is, measured by the script, smooth, and how it goes on."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import mpmath
import numpy as np
import pytest
from experiments.combiner_law import ANTENNAS, DEVICES, How, cells, measure, read, single_antenna

from airfl.errors import InputError
from airfl.linkplan import answer, law, plan, pose
from airfl.linkplan.law import LAYOUTS, MOST_DEVICES, combining, extended, fewest_devices, table
from airfl.linkplan.loudest import heard_beyond, loudest, loudness
from airfl.linkplan.show import sentences

CHECK = Path(__file__).parents[1] / "experiments" / "results" / "combiner_law_check.csv"


def law_file(layout):
    return Path(law.__file__).parent / f"law_{layout}.csv"


def test_one_antenna_is_exact_on_the_ring():
    """With one antenna ‖w‖² is set by the weakest of K unit exponentials, whose mean is 1/K."""
    for devices in (1, 4, 64, 1024, 65_536, MOST_DEVICES):
        assert combining("ring", devices, 1).inverse_norm2 == pytest.approx(1.0 / devices, rel=0.001)
    assert combining("disk", 2, 1).inverse_norm2 == pytest.approx(2 * math.log(2), rel=0.001)
    assert combining("disk", 300, 1).inverse_norm2 == pytest.approx(single_antenna("disk", 300), rel=0.001)


def test_one_device_is_heard_with_all_antennas():
    """w = h/‖h‖², so 1/ρ = ‖h‖² with mean m."""
    for antennas in ANTENNAS:
        assert combining("ring", 1, antennas).inverse_norm2 == pytest.approx(antennas, rel=0.02)


@pytest.mark.parametrize(("layout", "devices", "antennas"), [("ring", 32, 4), ("disk", 64, 8), ("ring", 8, 16)])
def test_the_table_is_the_combiners_that_is_shipped(layout, devices, antennas):
    """Measured again, on other channels: a change of the combiner asks for new tables."""
    row = measure((layout, devices, antennas), How(seconds=0.0))
    cell = table(layout)[devices.bit_length() - 1, antennas]
    error = math.hypot(float(row["standard_error"]), cell.standard_error)
    assert error < 0.02
    assert float(row["inverse_norm2"]) == pytest.approx(cell.inverse_norm2, rel=4 * error)
    assert float(row["mean_power"]) == pytest.approx(cell.mean_power, rel=0.05)
    assert float(row["loudest_round"]) == pytest.approx(cell.loudest_round, rel=0.25)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_more_devices_are_harder_to_reach_and_more_antennas_hear_better(layout):
    antennas = (*ANTENNAS, 5, 11, 100, 200)
    devices = [
        n for n in np.unique(np.geomspace(1, MOST_DEVICES, 400).round().astype(int)) if n >= fewest_devices(layout)
    ]
    found = np.array([[combining(layout, int(n), m).inverse_norm2 for n in devices] for m in sorted(antennas)])
    assert (np.diff(found, axis=1) < 0).all()
    assert (np.diff(found, axis=0) > 0).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_there_are_no_steps(layout):
    """Neighbours on a fine grid of K differ by the trend and no more: second differences are small everywhere."""
    grid = np.unique(np.geomspace(fewest_devices(layout), MOST_DEVICES, 600).round().astype(int))
    # Small numbers are no fine grid: from 20 devices on, steps of a tenth of an octave at most.
    grid = grid[grid >= 20]
    for antennas in (1, 2, 3, 6, 16, 50, 64, 100, 256):
        level = np.array([10 * math.log10(combining(layout, int(n), antennas).inverse_norm2) for n in grid])
        place = np.log2(grid)
        slope = np.diff(level) / np.diff(place)
        jump = np.abs(np.diff(slope)) * np.diff(place)[1:]
        assert jump.max() < 0.1, (antennas, grid[jump.argmax()])
        assert (slope < 0).all()
        assert (slope > -4.0).all()  # 1/K is -3 dB an octave


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_table_has_no_holes_and_hits_its_own_cells(layout):
    rows = read(law_file(layout))
    assert rows.keys() <= set(cells(layout))
    for antennas in ANTENNAS:
        measured = sorted(devices for _, devices, m in rows if m == antennas)
        assert measured == [n for n in DEVICES if fewest_devices(layout) <= n <= measured[-1]]
        assert measured[-1] * antennas >= 65_536
    assert all(int(row["drops"]) * int(row["fadings"]) >= 8 for row in rows.values())
    for devices in (2, 3, 100, 777, 6000, 60_000, 65_536, 300_000, MOST_DEVICES):
        for antennas in (1, 2, 3, 100, 200, 256):
            found = combining(layout, devices, antennas)
            assert found.inverse_norm2 > 0
            assert 0 < found.mean_power <= 1.0 + 1e-9
            assert found.loudest_run <= found.loudest_round * 1.000001
    for antennas in (16, 3, 256):
        assert vars(combining(layout, 64, antennas)) == pytest.approx(vars(table(layout)[6, antennas]), rel=1e-9)


# --- the loudest device of a run


@pytest.mark.parametrize(("near", "shape"), [(0.01, 1), (0.5, 7), (3.0, 31), (200.0, 255)])
def test_how_loud_a_device_is_in_a_round(near, shape):
    """Against the integral over x, by mpmath."""
    spread = 1.0 + np.array([0.1, 0.5, 1.0, 3.0]) * shape / (near + 0.7)
    for heard, found in zip(spread, heard_beyond(spread, near, shape), strict=True):
        # Where Γ has no chance of being so large there is nothing to integrate.
        nodes = [near, near + 0.1, near + 1, near + 5, near + 40]
        exact = mpmath.quad(
            lambda x, z=heard - 1.0: mpmath.exp(near - x) * mpmath.gammainc(shape, z * x, regularized=True), nodes
        )
        assert found == pytest.approx(float(exact), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("layout", "devices", "participation", "antennas", "level", "rounds"),
    [("ring", 200, 0.3, 8, 0.2, 10), ("disk", 200, 1.0, 4, 0.1, 5), ("ring", 50, 0.4, 1, 0.3, 30)],
)
def test_the_loudest_of_a_run_is_that_of_many_draws(layout, devices, participation, antennas, level, rounds):
    rng, logs = np.random.default_rng(3), []
    for _ in range(400):
        place = np.maximum(rng.random(devices), 1e-6) if layout == "disk" else np.ones(devices)
        shape = devices, rounds
        x = level * place[:, None] + rng.exponential(size=shape)
        heard = 1.0 + (rng.gamma(antennas - 1, size=shape) if antennas > 1 else 0.0) / x
        logs.append(math.log((heard * (rng.random(shape) < participation)).sum(axis=1).max() / rounds))
    error = np.std(logs) / 20
    assert error < 0.03
    found = loudest(layout, devices, participation, antennas, level, rounds)
    assert math.log(found) == pytest.approx(np.mean(logs), abs=0.03 + 3 * error)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_loudest_of_a_run_is_what_the_table_measured(layout):
    """Eight rounds, two beyond 4,096 devices: never used by the planner, and met within a decibel and a half."""
    errors = []
    for (k, antennas), cell in table(layout).items():
        devices, rounds = 2**k, 8 if 2**k <= 4096 else 2
        if antennas in (2, 8, 64, 256):
            found = loudness(cell, layout, devices, devices, antennas, rounds) * cell.inverse_norm2
            errors.append(10 * math.log10(found / cell.loudest_run))
    assert len(errors) > 50
    assert np.abs(errors).max() < 1.5
    assert np.median(np.abs(errors)) < 0.4


def test_more_rounds_average_luck_out_and_fewer_of_ones_own_are_heard_less():
    cell = combining("disk", 3000, 8)
    over = [loudness(cell, "disk", 3000, 3000, 8, rounds) for rounds in (1, 10, 100, 10_000, 10**9)]
    assert (np.diff(over) < 0).all()
    assert over[-1] > 1.0
    often = [loudness(cell, "disk", devices, 3000, 8, 1000) for devices in (3000, 6000, 60_000)]
    assert (np.diff(often) < 0).all()
    assert loudness(combining("ring", 10, 1), "ring", 10, 10, 1, 50) == 1.0


# --- beyond the table


def test_the_extrapolation_meets_what_was_measured_beyond_the_table():
    """Cells that the planner does not look at, up to a thousand times as many devices as it has."""
    rows = read(CHECK)
    far = [cell for cell in rows if cell[1] >= 2**19]
    assert len(far) >= 6
    for (layout, devices, antennas), row in rows.items():
        found = extended(layout)[devices.bit_length() - 1, antennas]
        assert found.octaves_beyond > 0
        error = float(row["standard_error"])
        assert found.inverse_norm2 == pytest.approx(float(row["inverse_norm2"]), rel=0.12 + 2 * error)
        assert found.mean_power == pytest.approx(float(row["mean_power"]), rel=0.15 + 2 * error)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("left_out", [1, 2, 3])
def test_the_extrapolation_meets_the_end_of_the_table(layout, left_out, monkeypatch):
    """The last cells of a column from those before them."""
    cells = dict(table(layout))
    ends = {m: max(k for k, n in cells if n == m) for m in ANTENNAS}
    shorter = {cell: value for cell, value in cells.items() if cell[0] <= ends[cell[1]] - left_out}
    monkeypatch.setattr(law, "table", lambda layout: shorter)
    found = law.extended.__wrapped__(layout)
    for antennas, last in ends.items():
        if 2 ** (last - left_out) < 32 * antennas:  # too near to where w can still be fitted to the devices
            continue
        cell = cells[last, antennas]
        assert found[last, antennas].octaves_beyond == left_out
        near = 0.05 + 2 * cell.standard_error
        assert found[last, antennas].inverse_norm2 == pytest.approx(cell.inverse_norm2, rel=near), antennas


def test_within_the_table_nothing_is_extrapolated():
    assert combining("ring", 6000, 16).octaves_beyond == 0.0
    assert combining("disk", 50, 100).octaves_beyond == 0.0
    beyond = combining("ring", MOST_DEVICES, 16).octaves_beyond
    assert 0 < beyond < combining("ring", MOST_DEVICES, 100).octaves_beyond


def test_an_extrapolation_is_said(call):
    within, beyond = (pose("satellite-iot", {"devices": n})[0] for n in (6000, MOST_DEVICES))
    assert not any("extrapolation" in sentence for sentence in sentences(answer(within)))
    assert any("extrapolation" in sentence for sentence in sentences(answer(beyond)))
    found = json.loads(call("plan", "satellite-iot", "--devices", "1000000", "--json")[1])
    assert found["octaves_beyond"] > 0
    assert found["epsilon"]["models"] < found["quantities"]["epsilon"]
    thin = replace(answer(within), table_error=0.04)
    assert any("standard error of 4 %" in sentence for sentence in sentences(thin))


def test_a_million_devices_end_to_end(call, tmp_path):
    """Solving for devices, all of them, a share of them, and the figure."""
    code, _, err = call("plan", "satellite-iot", "--devices", "1000000", "--out", "here")
    assert code == 0, err
    assert (tmp_path / "here" / "plan.png").is_file()
    solved = plan(
        "satellite-iot", {"snr_db": plan("satellite-iot", {"devices": 999_000}, "snr").quantities.snr_db}, "devices"
    )
    assert solved.quantities.devices == 999_000
    assert plan("satellite-iot", {"devices": 10_000_000, "participation": 0.1}).octaves_beyond > 0
    with pytest.raises(InputError, match="knows 1 to 1,000,000 active devices; got 1,000,001"):
        plan("satellite-iot", {"devices": 1_000_001})
