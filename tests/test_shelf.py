"""What runs share: samples that may be read ahead, and channels with their combiners."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import airfl
from airfl.channel import open_link
from airfl.devices import Shelf, shelf
from airfl.devices.sums import Sums
from airfl.devices.updates import Spanned
from airfl.errors import InputError
from airfl.runs.tables import record_schema, table_of
from airfl.transceiver import open_radio

CPU = torch.device("cpu")


def test_runs_with_the_same_data_and_features_share_their_samples(tiny):
    held = Shelf()
    first = held.samples(tiny, CPU)
    assert held.samples(tiny.replace({"privacy.epsilon": 2.0, "learning.model": "mlp"}), CPU) is first
    assert held.samples(tiny.replace({"learning.features": "scattering"}), CPU) is not first
    assert Shelf().samples(tiny, CPU) is not first


def test_data_that_are_read_ahead_are_the_data_and_so_are_the_problems(tiny, monkeypatch):
    asked = []

    def load(name, data_dir=None, declared=""):
        asked.append(name)
        if data_dir == "bad":
            raise InputError("damaged")
        return airfl.Dataset(np.zeros((4, 3)), np.arange(4) % 2, 3)

    monkeypatch.setattr(shelf, "load_dataset", load)
    monkeypatch.setattr(shelf, "is_here", lambda name, data_dir: name == "fashion-mnist")
    held, config = Shelf(), tiny.replace({"learning.dataset": "fashion-mnist"})
    held.begin(tiny)  # digits: nothing to gain
    held.begin(config)
    held.begin(config)
    assert held.samples(config, CPU).inputs.shape == (4, 3)
    assert asked == ["fashion-mnist"]
    bad = config.replace({"learning.data_dir": "bad"})
    held.begin(bad)
    with pytest.raises(InputError, match="damaged"):
        held.samples(bad, CPU)


def test_channels_and_combiners_are_shared_where_only_power_and_budget_differ(tiny):
    held, rounds = Shelf(), range(tiny.system.rounds)
    louder = tiny.replace({"channel.power_w": 7.0, "privacy.epsilon": 3.0, "scheme.names": ["airfl-dp"]})
    first = held.radio(tiny, (0, 1), CPU)
    design = first.rounds(tiny, rounds)
    shared = held.radio(louder, (0, 1), CPU)
    assert shared.rounds(louder, rounds) is design
    assert shared.link.power_limit == 7.0
    assert torch.equal(open_radio(louder, (0, 1)).rounds(louder, rounds)[0].combiner, design[0].combiner)
    for other in ({"channel.cell_radius_m": 300.0}, {"system.seed": 9}, {"scheme.combiner": "auto"}):
        changed = tiny.replace(other)
        assert held.radio(changed, (0, 1), CPU).found is not shared.found
    assert held.radio(tiny, (0,), CPU).found is not shared.found


def test_channels_of_many_rounds_are_those_of_each(tiny):
    link = open_link(tiny, (0, 1))
    together = link.channels(range(3))
    for index in range(2):
        for t in range(3):
            assert np.array_equal(together[index, t], link.drawn(index, t))


def test_a_sum_does_not_depend_on_what_is_asked_for_beside_it():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(9, 70, 33, generator=generator)
    parts = [torch.randn(classes, 9, 70, generator=generator) for classes in (10, 10, 10)]
    weights = torch.rand(9, generator=generator, dtype=torch.float64)
    together = Sums(x.flatten(0, 1), True)
    asked = [Spanned(a, x, torch.ones(9).double(), True, together).later(weights) for a in parts]
    assert together.wanted
    together.find()
    assert not together.wanted
    for a, found in zip(parts, asked, strict=True):
        alone = Spanned(a, x, torch.ones(9).double(), True)
        assert torch.allclose(found.found, alone.sum(weights), rtol=1e-14, atol=1e-14)
        assert torch.allclose(found.found.float(), weights.float() @ alone.dense(), atol=1e-3)
        assert alone.later(weights) is alone.later(weights.clone())
    late = together.ask(parts[0], weights)
    assert torch.equal(late.found, asked[0].found)


def test_records_are_a_table_without_pandas():
    import pyarrow as pa

    kinds = {"string": "ε", "int64": 3, "double": math.nan}
    rows = [{name: kinds[str(kind)] for name, kind in record_schema()} for _ in range(3)]
    rows[1] |= {"scheme": "", "epsilon": math.inf, "round": np.int64(5)}
    expected = pa.Table.from_pylist(rows, schema=pa.schema(record_schema()))
    assert table_of(rows).schema == expected.schema
    for name, _ in record_schema():
        assert repr(table_of(rows)[name].to_pylist()) == repr(expected[name].to_pylist())
    assert table_of([]).num_rows == 0
