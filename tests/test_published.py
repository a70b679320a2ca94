"""What is published follows the draws of participation, and data without noise, only where the docs say so."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import airfl
from airfl import runs
from airfl.channel import link
from airfl.devices.shelf import Shelf
from airfl.participation import participants
from airfl.privacy import SEEING
from airfl.report.sentences import headline
from airfl.report.study_fields import check_observer
from airfl.report.study_source import of_run
from airfl.schemes import SCHEMES

PAGE = Path(__file__).parents[1] / "docs" / "privacy.md"


@dataclass(frozen=True)
class Row:
    """A row of the list: names, whether they follow draws and data, and what becomes of them where `sampled` books."""

    names: frozenset[str]
    draws: bool
    data: bool
    hidden: str


def listed() -> list[Row]:
    section = PAGE.read_text(encoding="utf-8").split("### What follows draws and data")[1].split("\n## ")[0]
    cells = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in section.splitlines() if "|" in line
    ]
    assert cells[0][4:] == ["follows who was drawn", "follows data", "where `sampled` books"]
    return [
        Row(frozenset(re.findall(r"`([^`]+)`", " ".join(row[1:4]))), row[4] != "–", row[5] != "–", row[6])
        for row in cells[2:]
    ]


LIST = listed()


def row_of(path: tuple[str, ...]) -> Row | None:
    """The row that names a key, by its last part that is named anywhere."""
    found = [row for part in reversed(path) for row in LIST if part in row.names]
    return found[0] if found else None


def flat(value, path=()):
    """Every value by its path."""
    if isinstance(value, dict):
        return {key: leaf for name, own in value.items() for key, leaf in flat(own, (*path, name)).items()}
    if isinstance(value, list | tuple) and any(isinstance(item, dict) for item in value):
        return flat(dict(enumerate(value)), path)
    return {path: repr(value)}


def published(result):
    """Records by column, and the summary, by path."""
    (scheme,) = result.schemes.values()
    columns = {("rounds", name): repr(scheme.column(name).tolist()) for name in scheme.to_arrow().column_names[1:]}
    return {**columns, **flat(result.summary["schemes"])}


def changed(one, other):
    return {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)}


@pytest.fixture
def redraw(monkeypatch):
    """Others take part; all else stays."""

    def draw(again):
        monkeypatch.setattr(link, "participants", lambda config, key, t: participants(config, key + 1000 * again, t))

    return draw


@pytest.fixture
def drawn(tiny):
    changes = {"system.participation": 0.3, "system.rounds": 5, "scheme.names": ["airfl-dp"], "privacy.epsilon": 4.0}
    return tiny.replace({**changes, "system.sampling": "poisson", "scheme.combiner_columns": "all"})


#: Runs that `sampled` books.
HIDDEN = {
    "poisson": {},
    "a floor above every set": {"scheme.combiner_columns": "active", "channel.power_w": 1.0},
    "K of n": {"system.sampling": "fixed", "system.participation": 0.1, "system.num_devices": 40}
    | {"system.num_antennas": 64},
    "blocks": {"channel.coherence_hz": 1e6, "channel.bandwidth_hz": 10e6},
    "an eavesdropper": {"eavesdropper.distance_m": 300.0, "eavesdropper.noise_density_dbm_hz": -174.0},
    "a domain": {"learning.domain_diameter": 0.01, "privacy.smoothness": 0.1},
    "no promise": {"scheme.names": ["airfl-mimo"], "privacy.accountant": "auto"},
}  # fmt: skip


@pytest.mark.parametrize("changes", HIDDEN.values(), ids=HIDDEN)
def test_where_sampled_books_nothing_tells_who_took_part_but_what_the_docs_name(drawn, redraw, changes):
    config = drawn.replace({"privacy.accountant": "sampled", **changes})
    found = []
    for again in (0, 1):
        redraw(again)
        found.append(runs.run(config))
    (scheme,) = found[0].schemes.values()
    assert scheme.accountant == "sampled"
    assert scheme.hides
    assert [event.noise_var for event in scheme.ledgers[0].events] == [
        event.noise_var for event in next(iter(found[1].schemes.values())).ledgers[0].events
    ]
    told = changed(*map(published, found))
    assert ("rounds", "update_norm") in told  # others took part
    for path in told:
        row = row_of(path)
        assert row is not None, path
        assert row.draws, path
        assert row.hidden.startswith("there"), path
    for name in ("max_power_w", "misalignment"):
        assert np.isnan(scheme.column(name)).all()
    (entry,) = found[0].summary["schemes"].values()
    assert not set(entry["epsilon_by_observer"]) & set(SEEING)
    assert entry["never_heard"] == []
    assert "nobody knowing who took part" in " ".join(headline(found[0]))


class Other(Shelf):
    """Another data set of the same size."""

    def samples(self, config, device):
        found = super().samples(config, device)
        return replace(found, inputs=1 - found.inputs, dataset=replace(found.dataset, inputs=1 - found.dataset.inputs))


DATA = {
    "plain": {},
    "blocks": {"channel.coherence_hz": 1e6, "channel.bandwidth_hz": 10e6, "system.num_antennas": 2},
    "gains of their own": {"scheme.names": ["power-mse"]},
    "mean power": {"scheme.names": ["power-gap"], "channel.coherence_hz": 1e6, "channel.bandwidth_hz": 10e6},
    "noise by estimates": {"scheme.names": ["park2023"], "privacy.neighbours": "zero-out"},
    "energies": {"scheme.names": ["nc-airfl"]},
    "estimates of channels": {"channel.csi_error": 0.05},
}


@pytest.mark.parametrize("name", DATA)
def test_whatever_follows_data_is_in_the_list(tiny, name):
    base = {"system.participation": 1.0, "scheme.names": ["airfl-mimo"], "scheme.combiner": "auto"}
    config = tiny.replace({**base, "learning.clip_norm": 0.001, **DATA[name]})
    told = changed(published(runs.run(config)), published(runs.run(config, shelf=Other())))
    assert (("rounds", "misalignment") in told) == (name == "blocks")
    assert (("rounds", "noise_var") in told) == (name == "noise by estimates")
    for path in told:
        row = row_of(path)
        assert row is not None, path
        assert row.data, path


@pytest.mark.parametrize("scheme", SCHEMES)
def test_whatever_follows_draws_or_data_is_in_the_list_for_every_scheme(tiny, redraw, scheme):
    sizes = {"system.trials": 1, "system.num_antennas": 6, "system.participation": 0.5, "system.rounds": 2}
    ways = {"scheme.combiner": "auto", "privacy.neighbours": "zero-out", "privacy.accountant": "auto"}
    cell = {"channel.power_w": 0.2, "channel.cell_radius_m": 200.0, "channel.min_distance_m": 10.0}
    config = tiny.replace({**sizes, **ways, **cell, "scheme.names": [scheme]})
    redraw(1)
    first = published(runs.run(config))
    data = changed(first, published(runs.run(config, shelf=Other())))
    redraw(2)
    draws = changed(first, published(runs.run(config)))
    assert ("rounds", "update_norm") in data
    assert (("rounds", "update_norm") in draws) == (scheme != "replacement")  # which draws its devices itself
    for path in draws | data:
        row = row_of(path)
        assert row is not None, path
        assert row.draws or path not in draws, path
        assert row.data or path not in data, path


def test_studies_leave_out_what_runs_leave_out(drawn, redraw, tmp_path):
    config = drawn.replace({"privacy.accountant": "auto"})
    rows = []
    for again in (0, 1):
        redraw(again)
        rows += airfl.sweep(config, tmp_path / str(again), axes={"privacy.epsilon": [4.0]}, progress=None)
    assert rows[0]["epsilon_by_observer"].keys() == {"model", "models"}
    for path in changed(*map(flat, rows)):
        row = row_of(path)
        assert row is not None, path
        assert row.hidden.startswith("there"), path
    spent = runs.run(config).summary["schemes"]["airfl-dp"]["epsilon_by_observer"]
    assert rows[0]["epsilon_by_observer"] == spent
    summary = (tmp_path / "0" / "summary.csv").read_text().splitlines()
    assert dict(zip(*(line.split(",") for line in summary), strict=True))["epsilon_exact_base_station"] == ""
    both = runs.run(config.replace({"scheme.names": ["airfl-dp", "koda2020"]}))  # the other counts on nothing hidden
    with pytest.raises(airfl.InputError, match="`airfl-dp` counts on nobody knowing who took part"):
        check_observer("base-station", of_run(both))


@pytest.mark.parametrize("accountant", ["sampled", "gaussian"])
@pytest.mark.parametrize("columns", ["active", "all"])
def test_flowers_history_tells_nothing_of_the_draws_either(drawn, redraw, accountant, columns):
    pytest.importorskip("flwr")
    from airfl.flower import OverTheAir
    from tests.oracles.flower import FakeGrid, moved, softmax_arrays

    config = drawn.replace(
        {"privacy.accountant": accountant, "scheme.combiner_columns": columns, "channel.power_w": 1.0}
    )
    history = []
    for again in (0, 1):
        redraw(again)
        strategy = OverTheAir(config, wait_s=0.0)
        found = strategy.start(FakeGrid(config.system.num_devices, moved(0.0)), softmax_arrays())
        history.append(
            {(str(t), name): value for t, own in found.train_metrics_clientapp.items() for name, value in own.items()}
        )
    told = {path[1] for path in changed(*({path: repr(value) for path, value in one.items()} for one in history))}
    rows = [row_of((name,)) for name in told]
    assert all(row is not None and row.draws for row in rows)
    if accountant == "sampled":
        assert not told
        assert not any(name == "privacy/epsilon_base_station" for _, name in history[0])
    else:
        assert "privacy/epsilon_base_station" in told


def test_a_sentence_claims_credit_only_where_what_would_tell_is_left_out(drawn):
    """By `gaussian` the base station's ε is there, so what the final model tells is said without credit."""
    for accountant, credit in (("sampled", True), ("gaussian", False)):
        result = runs.run(drawn.replace({"privacy.accountant": accountant}))
        entry, told = result.summary["schemes"]["airfl-dp"], " ".join(headline(result))
        assert entry["epsilon"]["sampled"] < 0.9 * entry["epsilon"]["gaussian"]
        assert ("credit for hidden participation" in told) == credit
        assert ("base-station" in entry["epsilon_by_observer"]) != credit
