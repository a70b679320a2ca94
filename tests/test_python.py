"""airfl from Python: objects in place of import paths, and results, studies and plans that show themselves."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import TensorDataset

import airfl
from airfl.imports import import_object, path_of, require_here, source_digest
from airfl.privacy import GaussianAccountant
from airfl.report import bars
from airfl.schemes import SCHEMES, Clip
from airfl.sweeps.rows import Rows

mpl.use("Agg")


def strongest(channels):
    loudest = channels.abs().square().sum(-1).argmax(-1)
    return channels.take_along_dim(loudest[..., None, None], dim=-2).squeeze(-2)


def arrays(train=90, test=30, size=4):
    rng = np.random.default_rng(5)
    inputs = rng.normal(size=(train + test, size)).astype(np.float32)
    labels = (inputs[:, 0] > 0).astype(np.int64)
    return inputs[:train], labels[:train], inputs[train:], labels[train:]


class Pairs(TorchDataset):
    """A torch dataset that is no TensorDataset."""

    def __init__(self, inputs, labels):
        self.inputs, self.labels = inputs, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return torch.from_numpy(self.inputs[index]), int(self.labels[index])


@pytest.fixture
def small(tiny) -> airfl.Config:
    return tiny.replace({"learning.num_classes": 2, "scheme.names": ["airfl-dp"], "system.rounds": 2})


@pytest.fixture
def result(tiny):
    return airfl.run(tiny.replace({"system.rounds": 3, "scheme.names": ["fedavg", "airfl-dp"]}))


BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "docs/python.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_page_says_what_runs(number, capsys):
    exec(compile(BLOCKS[number], f"docs/python.md, block {number}", "exec"), {"__name__": "page"})
    out = capsys.readouterr().out
    assert "interrupted" in out or "class Log" not in BLOCKS[number]
    plt.close("all")


# Objects


def test_an_object_goes_by_its_import_path_or_by_one_of_this_process():
    assert path_of(strongest) == "tests.test_python:strongest"
    assert path_of(nn.Linear) == "torch.nn.modules.linear:Linear"
    made = [lambda width=width: nn.Linear(width, 2) for width in (3, 3, 4)]
    paths = [path_of(factory) for factory in made]
    assert paths[0] == paths[1] != paths[2]
    assert paths[0].startswith("here:lambda-")
    assert source_digest(paths[0]) == paths[0][-8:]


def test_closures_networks_and_arrays_go_by_what_is_in_them():
    def made(width):
        return lambda: nn.Linear(width, 2)

    assert path_of(made(3)) == path_of(made(3)) != path_of(made(4))
    torch.manual_seed(0)
    first = nn.Linear(3, 2)
    torch.manual_seed(0)
    assert path_of(nn.Linear(3, 2)) == path_of(first) != path_of(nn.Linear(3, 2))
    assert path_of(arrays()) == path_of(arrays()) != path_of(arrays(size=5))


def test_what_cannot_be_looked_into_is_like_nothing_else():
    def made():
        generator = (number for number in range(3))  # nobody can pickle one
        return lambda: next(generator)

    assert path_of(made()) != path_of(made())


def defined(code, **more):
    """What code of a notebook defines: `part`."""
    cell = {"__name__": "__main__", "np": np, "nn": nn, "functools": functools, **more}
    exec(code, cell)
    return cell["part"]


@pytest.mark.parametrize(
    ("code", "one", "other"),
    [
        ("part = lambda: W", np.zeros((4, 2)), np.ones((4, 2))),
        ("part = lambda: W", torch.zeros(2), torch.ones(2)),
        ("part = lambda: W", torch.zeros(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)),
        ("part = lambda: W", [1], [2]),
        ("part = lambda: W", {"lr": 1}, {"lr": 5}),
        ("part = lambda: W", {"a", "b"}, {"a", "c"}),
        ("part = lambda: W", None, 5),
        ("part = lambda: W()", functools.partial(int, 1), functools.partial(int, 2)),
        ("part = lambda: W", nn.Linear(2, 2), nn.Linear(5, 2)),
        ("part = lambda: (lambda: [W for _ in 'ab'])()", 3, 4),
        ("def part():\n class A:\n  n = W\n return A", 3, 4),
        ("inner = lambda: W[0]\npart = lambda: inner()", [3], [4]),
        ("inner = functools.lru_cache(lambda: W)\npart = lambda: inner()", 3, 4),
        ("part = lambda: 0\npart.times = W", 3, 4),
        ("class part:\n _n = W", 3, 4),
        ("class part:\n __slots__ = ('a',)\n _n = W\n def __call__(self): return super().__call__()", 3, 4),
        ("class part:\n @property\n def n(self): return W", 3, 4),
        ("class part:\n @staticmethod\n def n(): return W", 3, 4),
        ("class part:\n @classmethod\n def n(cls): return W", 3, 4),
        ("class part:\n @functools.cached_property\n def n(self): return W", 3, 4),
        ("import abc\nclass part(abc.ABC):\n _n = W", 3, 4),
        ("from dataclasses import dataclass\n@dataclass\nclass part:\n n: int = W", 3, 4),
        ("class A:\n _n = W\npart = A()", 3, 4),
        ("@functools.wraps(np.mean)\ndef part(): return W", 3, 4),
    ],
)
def test_whatever_a_function_or_class_uses_is_part_of_it(code, one, other):
    assert path_of(defined(code, W=one)) == path_of(defined(code, W=one)) != path_of(defined(code, W=other))


def test_a_function_is_known_by_its_arguments_and_not_by_attributes_that_have_the_name_of_a_global():
    assert path_of(lambda: 1) != path_of(lambda shape: 1)
    code = "part = lambda x: np.abs(x).data"
    assert path_of(defined(code, data=1)) == path_of(defined(code, data=2))


def test_an_open_file_among_what_is_used_makes_a_part_like_no_other(tmp_path, small):
    with open(tmp_path / "lines", "w+") as file:
        part = defined("part = lambda inputs: inputs.flatten(1) if W else None", W=file)
        assert path_of(part) != path_of(part)
        config = small.replace({"learning.features": part, "learning.num_classes": 10})
        assert airfl.run(config).schemes["airfl-dp"].status == "done"


def test_a_path_is_the_same_in_another_process():
    code = """
from airfl.imports import path_of
names = {"a", "b", "c", ("d", frozenset("ef"))}
print(path_of(lambda channels: channels[..., 0, :] if channels in {"a", "b", "c", "d"} else names))
"""
    run = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in "1234"
    ]
    assert len(set(run)) == 1
    assert run[0].startswith("here:lambda-")


@pytest.mark.parametrize(
    "data",
    [
        arrays(),
        [part.tolist() for part in arrays()[:1]] + list(arrays()[1:]),
        tuple(torch.from_numpy(part) for part in arrays()),
        (TensorDataset(*map(torch.from_numpy, arrays()[:2])), TensorDataset(*map(torch.from_numpy, arrays()[2:]))),
        (Pairs(*arrays()[:2]), Pairs(*arrays()[2:])),
        (arrays()[:2], arrays()[2:]),
        airfl.Dataset(np.concatenate(arrays()[::2]), np.concatenate(arrays()[1::2]), 90, 2),
        arrays,
    ],
    ids=["arrays", "lists", "tensors", "tensor-datasets", "datasets", "pairs", "airfl", "function"],
)
def test_data_of_every_kind_are_the_same_data(small, data):
    def accuracy(given):
        found = airfl.run(small.replace({"learning.dataset": given, "system.trials": 1}))
        return found.summary["schemes"]["airfl-dp"]["accuracy_mean"]

    assert accuracy(data) == accuracy("tests.test_python:arrays")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            lambda: (arrays()[0], arrays()[1][:-1], *arrays()[2:]),
            r"train labels \[N\]; got shapes \(90, 4\) and \(89,\)",
        ),
        (lambda: (arrays()[0][:, 0], *arrays()[1:]), r"train inputs must be \[N, ...\]"),
        (lambda: (*arrays()[:2], arrays()[2][:, :3], arrays()[3]), r"of one shape; got \(4,\) and \(3,\)"),
        (lambda: (arrays()[0], arrays()[1].astype(str), *arrays()[2:]), "train labels must be whole numbers"),
        (lambda: (arrays()[0].astype(str), *arrays()[1:]), "train inputs must be numbers; got an array of <U"),
        (lambda: (arrays()[0], arrays()[1] + 0.5, *arrays()[2:]), "whole numbers"),
        (lambda: arrays()[:3], "not a tuple of 3: an airfl Dataset, four arrays"),
        (lambda: (Pairs(*arrays()[:2]), 7), "pairs of an input and a label"),
    ],
)
def test_data_that_do_not_fit_are_refused_in_one_sentence(small, data, words):
    with pytest.raises(airfl.InputError, match=words):
        airfl.run(small.replace({"learning.dataset": data}))


def test_a_network_is_where_training_begins_and_is_left_alone(small):
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    before = [value.detach().clone() for value in network.parameters()]
    config = small.replace({"learning.dataset": arrays(), "learning.model": network, "learning.learning_rate": 1e-30})
    models = airfl.run(config.replace({"privacy.epsilon": 1e6})).schemes["airfl-dp"].models
    start = torch.cat([value.reshape(-1) for value in before])
    assert torch.allclose(models, start.expand_as(models))  # both trials, since a step of 1e-30 leads nowhere
    with torch.no_grad():
        network[1].weight.add_(1.0)  # trained on by its owner: nothing to the configuration
    again = airfl.run(config.replace({"privacy.epsilon": 1e6})).schemes["airfl-dp"].models
    assert torch.equal(models, again)


@pytest.mark.parametrize(
    "given",
    [
        lambda data: data,
        list,
        lambda data: tuple(torch.from_numpy(part) for part in data),
        lambda data: [TensorDataset(*map(torch.from_numpy, half)) for half in (data[:2], data[2:])],
        lambda data: (Pairs(*data[:2]), Pairs(*data[2:])),
        lambda data: airfl.Dataset(np.concatenate(data[::2]), np.concatenate(data[1::2]), 90, 2),
    ],
    ids=["arrays", "list", "tensors", "tensor-datasets", "datasets", "airfl"],
)
def test_data_that_change_later_are_nothing_to_a_configuration(small, given):
    own = given(arrays())
    config = small.replace({"learning.dataset": own, "system.trials": 1, "scheme.names": ["fedavg"]})
    before = airfl.run(config).schemes["fedavg"].models
    kept = import_object(config.learning.dataset, "data")
    for labels in (own.labels,) if isinstance(own, airfl.Dataset) else [labels_of(half) for half in own]:
        labels[:] = 1 - labels
    assert torch.equal(airfl.run(config).schemes["fedavg"].models, before)
    assert small.replace({"learning.dataset": own}).learning.dataset != config.learning.dataset
    again = small.replace({"learning.dataset": given(arrays())}).learning.dataset
    assert again == config.learning.dataset
    assert import_object(again, "data") is kept  # one copy


def labels_of(part):
    """What there is to change: the labels of a data set, or any array itself."""
    return part.tensors[1] if isinstance(part, TensorDataset) else getattr(part, "labels", part)


CHANGED = "something that `here:part-.*` uses has changed since .*; give the object again with `replace`"


def test_a_function_whose_data_have_changed_is_refused_until_it_is_given_again(small, tmp_path):
    data = list(arrays())
    part = defined("def part(): return W", W=data)
    alone = {"system.trials": 1, "scheme.names": ["fedavg"], "learning.learning_rate": 0.5}
    config = small.replace({"learning.dataset": part, **alone})
    axes = {"learning.batch_size": [10, 20]}
    first = airfl.sweep(config, tmp_path / "o", axes=axes)
    data[1] = 1 - data[1]
    for call in (airfl.run, lambda old: airfl.sweep(old, axes=axes)):
        with pytest.raises(airfl.InputError, match=CHANGED):
            call(config)
    renewed = config.replace({"learning.dataset": part})
    with pytest.raises(airfl.InputError, match="another study or version"):
        airfl.sweep(renewed, tmp_path / "o", axes=axes, resume=True)
    rows = airfl.sweep(renewed, axes=axes)
    truth = airfl.run(renewed.replace({"learning.batch_size": 10})).summary["schemes"]["fedavg"]["accuracy_mean"]
    assert rows[0]["accuracy_mean"] == truth < first[0]["accuracy_mean"]


def test_a_class_of_data_that_was_changed_is_good_again_once_it_is_made_again():
    code = "class part:\n size = 3\n def __getitem__(self, index): return index"
    old = defined(code)
    path = path_of(old)
    old.size = 4
    with pytest.raises(airfl.InputError, match=CHANGED):
        require_here([path])
    assert path_of(defined(code)) == path
    require_here([path])


def test_every_study_reads_its_data_anew_and_once(small, tmp_path, monkeypatch):
    (tmp_path / "own_data.py").write_text(
        "flip, calls = 0, 0\ndef data():\n    global calls\n    calls += 1\n"
        "    from tests.test_python import arrays\n    a, b, c, d = arrays()\n    return a, b ^ flip, c, d\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import own_data

    config = small.replace({"learning.dataset": "own_data:data", "scheme.names": ["fedavg"], "system.trials": 1})
    axes = {"learning.learning_rate": [0.4, 0.5]}
    first = airfl.sweep(config, axes=axes)
    assert own_data.calls == 1
    own_data.flip = 1
    assert airfl.sweep(config, axes=axes)[0]["accuracy_mean"] < first[0]["accuracy_mean"]
    assert own_data.calls == 2


@pytest.mark.filterwarnings("ignore:.*batched by vmap")
def test_a_function_or_class_makes_a_new_network_for_every_trial(small):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, inputs):
            return self.layer(inputs)

    data = {"learning.dataset": arrays(), "learning.learning_rate": 1e-30, "privacy.epsilon": 1e6}
    for factory in (Own, lambda: nn.Linear(4, 2), lambda shape, classes: nn.Linear(shape[0], classes)):
        models = airfl.run(small.replace({**data, "learning.model": factory})).schemes["airfl-dp"].models
        assert not torch.allclose(models[0], models[1])


def test_parts_of_every_kind_may_be_objects(tiny):
    class Exact(GaussianAccountant):
        name = "exact"

    parts = {
        "learning.features": lambda inputs: inputs.flatten(1),
        "scheme.combiner": lambda channels: strongest(channels),
        "channel.fading": lambda generator, n, m: (
            (generator.normal(size=(n, m)) + 1j * generator.normal(size=(n, m))) / 2**0.5
        ),
        "system.sampling": lambda generator, number, devices, share: range(number % 2, devices, 2),
        "privacy.accountant": Exact,
        "scheme.encoder": Clip(),
        "scheme.policy": SCHEMES["airfl-dp"].policy,
        "scheme.decoder": SCHEMES["airfl-dp"].decoder,
    }
    config = tiny.replace({**parts, "scheme.names": ["airfl-dp"], "system.rounds": 2})
    assert len(config.imports) == len(parts)
    assert airfl.run(config).schemes["airfl-dp"].status == "done"
    whole = tiny.replace({"scheme.names": ["fedavg", SCHEMES["airfl-dp"]], "system.rounds": 2})
    assert whole.scheme.names[1].startswith("here:Scheme-")
    assert {entry.status for entry in airfl.run(whole).schemes.values()} == {"done"}


def test_a_configuration_with_objects_is_plain_data(small):
    config = small.replace({"learning.model": lambda: nn.Linear(64, 2)})
    again = airfl.config.from_toml(config.to_toml())
    assert again == config
    assert config.learning.model in config.imports
    assert json.dumps(config.to_mapping())


@pytest.mark.parametrize("value", [5, 1.5, True, ["softmax"], {"a": 1}])
def test_plain_data_are_no_part(small, value):
    with pytest.raises(airfl.InputError, match=r"learning\.model"):
        small.replace({"learning.model": value})


GONE = "was an object of another Python process and is not here; .* put it into a file"


def test_an_object_that_is_gone_is_refused_in_one_sentence(small, tmp_path, call):
    config = small.replace({"learning.model": "here:Net-0123abcd"})
    with pytest.raises(airfl.InputError, match=GONE):
        airfl.run(config)
    with pytest.raises(airfl.InputError, match=GONE):
        airfl.sweep(config, tmp_path / "study", axes={"privacy.epsilon": [5.0, 50.0]})
    assert not list((tmp_path / "study").glob("*"))
    (tmp_path / "gone.toml").write_text(config.to_toml())
    code, _, err = call("run", "gone.toml", "--out", "o")
    assert code == 2
    assert "here:Net-0123abcd" in err
    assert "put it into a file" in err


def test_a_result_with_objects_is_kept_and_read_where_they_are_gone(small, tmp_path):
    made = airfl.run(
        small.replace(
            {"learning.model": lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10))} | {"learning.num_classes": 10}
        )
    )
    airfl.save(made, tmp_path / "o")
    code = f"import airfl; r = airfl.load({str(tmp_path / 'o')!r}); print(r, r.epsilon(1e-7))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "airfl-dp" in said
    assert f"{made.epsilon(1e-7)}" in said


def test_a_light_command_still_loads_no_torch():
    code = "import sys, airfl; airfl.preset('demo').replace({'learning.model': lambda: 1}); repr(airfl.preset('demo'))"
    code += "; airfl.plan('urban-cell')._repr_html_(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# What is shown


def test_a_result_shows_itself_in_a_few_lines(result, tmp_path):
    said = repr(result).splitlines()
    assert len(said) == 5
    assert said[0] == "<airfl.Result tiny: 3 rounds, 2 trials"
    assert said[2].split() == ["fedavg", *said[2].split()[1:5], "∞", "the", "final", "model"]
    assert "50" in said[3]
    assert "not kept" in said[4]
    kept = airfl.save(result, tmp_path / "o")
    assert f"kept in {tmp_path / 'o'}" in repr(kept)
    assert "<td>airfl-dp</td>" in kept._repr_html_()
    assert repr(result.schemes["airfl-dp"]).startswith("<airfl.SchemeResult airfl-dp: accuracy ")
    assert "color" not in result._repr_html_()


def test_a_result_says_what_was_booked_where_that_is_not_the_exact_figure(tiny):
    booked = airfl.run(tiny.replace({"scheme.names": ["airfl-dp"], "privacy.accountant": "paper", "system.rounds": 1}))
    assert "(booked by paper: 50)" in repr(booked)


def test_epsilon_for_any_delta_and_observer_also_of_a_kept_result(result, tmp_path):
    airfl.save(result, tmp_path / "o")
    for found in (result, airfl.load(tmp_path / "o")):
        summary = found.summary["schemes"]["airfl-dp"]["epsilon_by_observer"]
        assert found.epsilon() == found.schemes["airfl-dp"].epsilon() == summary["model"]["gaussian"]
        assert found.epsilon(observer="base-station") == summary["base-station"]["gaussian"]
        assert found.epsilon(1e-9) > found.epsilon(1e-5) > found.epsilon(1e-2)
        assert found.epsilon(accountant="paper") == summary["model"]["paper"]
        assert found.epsilon(accountant=GaussianAccountant) == found.epsilon()
        assert found.epsilon(neighbours="zero-out") == found.epsilon(neighbours="add-remove") < found.epsilon()
        assert found.epsilon(scheme="fedavg") == math.inf
        assert found.epsilon(observer="everything") == math.inf
    with pytest.raises(airfl.InputError, match="no scheme `airfl-an`; it holds: fedavg, airfl-dp"):
        result.epsilon(scheme="airfl-an")
    with pytest.raises(airfl.InputError, match="no accountant named `gausian`; did you mean `gaussian`"):
        result.epsilon(accountant="gausian")
    with pytest.raises(airfl.InputError, match="no observer named `base-staton`; did you mean `base-station`"):
        result.epsilon(observer="base-staton")


def test_tables(result, monkeypatch):
    table, frame = result.to_arrow(), result.to_pandas()
    assert table.to_pylist() == [{k: pytest.approx(v, nan_ok=True) for k, v in row.items()} for row in result.rounds]
    assert list(frame["scheme"].unique()) == ["fedavg", "airfl-dp"]
    assert len(result.schemes["fedavg"].to_pandas()) == 6
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(airfl.InputError, match=r'needs pandas; install it with: pip install "airfl\[notebook\]"'):
        result.to_pandas()


def test_a_result_draws_any_column(result):
    axes = result.plot()
    assert [line.get_label() for line in axes.lines] == ["Vanilla FL", "AirFL-DP"]
    assert np.allclose(axes.lines[1].get_ydata(), result.schemes["airfl-dp"].column("accuracy").mean(axis=0))
    assert [line.get_label() for line in result.plot("epsilon").lines] == ["AirFL-DP"]  # fedavg has none
    other = result.schemes["fedavg"].plot("loss", ax=mpl.figure.Figure().add_subplot())
    assert other.get_ylabel() == "test loss"
    with pytest.raises(airfl.InputError, match="no column `accurcy` to draw; known: accuracy, loss"):
        result.plot("accurcy")
    plt.close("all")


def test_a_configuration_shows_what_differs():
    demo = airfl.preset("demo")
    assert repr(demo) == str(demo) == "<airfl.Config preset 'demo'>"
    changed = demo.replace({"system.rounds": 3, "learning.local_steps": 2})
    assert repr(changed) == (
        "<airfl.Config preset 'demo', system.rounds = 3, learning.local_steps = 2, learning.local_epochs = not set>"
    )
    assert "<td>system.rounds</td><td>3</td>" in changed._repr_html_()
    own = demo.replace({"name": "mine"})
    assert repr(own).startswith("<airfl.Config 'mine', system.seed = 1, ")
    assert "channel.bandwidth_hz" not in repr(own)


# Studies


def test_a_study_of_a_configuration_and_axes(small, tmp_path):
    axes = {"system.num_antennas": [16, 32], "learning.model": ["softmax", lambda: nn.Linear(64, 10)]}
    base = small.replace({"learning.num_classes": 10, "learning.features": lambda inputs: inputs.flatten(1)})
    rows = airfl.sweep(base, tmp_path / "o", axes=axes, trials=3, progress=False)
    assert isinstance(rows, list)
    assert isinstance(rows, Rows)
    assert [row["system.num_antennas"] for row in rows] == [16, 16, 32, 32]
    assert {row["trials"] for row in rows} == {3}
    assert len(rows.to_pandas()) == 4
    assert "epsilon_exact_base_station" in rows.to_arrow().column_names
    assert repr(rows).splitlines()[0] == "<airfl study: 4 rows"
    assert rows._repr_html_().count("<tr>") == 5
    drawn = rows.plot()
    assert len(drawn.containers) == 2  # a line for each model
    assert airfl.sweep(base, tmp_path / "o", axes=axes, trials=3, resume=True) == rows
    again = tmp_path / "o" / "study.toml"
    assert airfl.sweep(again, tmp_path / "o", resume=True) == rows  # its base lies beside it
    with pytest.raises(airfl.InputError, match="another study or version"):
        airfl.sweep(base.replace({"system.seed": 9}), tmp_path / "o", axes=axes, trials=3, resume=True)
    plt.close("all")


def test_a_study_as_plain_data_may_hold_objects(small):
    study = {"base": small.replace({"system.trials": 1}), "schemes": ["airfl-mimo", SCHEMES["airfl-dp"]]}
    study |= {"set": {"learning.dataset": arrays()}, "zip": [{"learning.model": [nn.Linear(4, 2)]}]}
    rows = airfl.sweep(study)
    assert [row["scheme"][:10] for row in rows] == ["airfl-mimo", "here:Schem"]
    assert rows[0]["learning.model"].startswith("here:Linear-")
    with pytest.raises(airfl.InputError, match="go with a configuration"):
        airfl.sweep({"base": "demo"}, trials=2)


def test_a_figure_of_rows_says_what_it_cannot_draw():
    row = {"scheme": "airfl-dp", "accuracy_mean": 0.5, "accuracy_low": 0.4, "accuracy_high": 0.6, "trials": 2}
    rows = Rows([{"a": 1, **row, "epsilon_by_observer": None}, {"a": 100, **row, "epsilon_by_observer": None}], ("a",))
    axes = rows.plot()
    assert axes.get_xscale() == "log"
    assert axes.get_ylabel() == "test accuracy"
    with pytest.raises(airfl.InputError, match="no column `b` to draw; known: a, scheme"):
        rows.plot("b")
    with pytest.raises(airfl.InputError, match="several rows have the same `scheme`"):
        rows.plot("scheme", by="trials")
    plt.close("all")


# Bars and plans


def test_a_notebook_gets_one_output_that_is_drawn_anew(tiny, monkeypatch, capsys):
    from IPython import display

    drawn = []
    monkeypatch.setattr(bars, "in_notebook", lambda: True)
    monkeypatch.setattr(bars, "EVERY", 0.0)
    monkeypatch.setattr(display.DisplayHandle, "display", lambda self, data, raw: drawn.append(data))
    monkeypatch.setattr(display.DisplayHandle, "update", lambda self, data, raw: drawn.append(data))
    config = tiny.replace({"system.rounds": 2, "scheme.names": ["fedavg", "airfl-dp"]})
    airfl.run(config)
    assert len(drawn) == 1 + 4 + 1
    assert drawn[4]["text/plain"].startswith("100% 4 of 4 rounds, airfl-dp, accuracy 0.")
    assert "<progress" in drawn[4]["text/html"]
    assert drawn[-1]["text/plain"].startswith("4 of 4 rounds, airfl-dp")
    drawn.clear()
    airfl.run(config, progress=False)
    assert not drawn
    airfl.sweep(config, axes={"privacy.epsilon": [5.0]}, trials=1)
    assert drawn[-1]["text/plain"].startswith("2 of 2 cells, ")
    assert capsys.readouterr().err == ""


def test_bars_elsewhere(tiny, capsys):
    config = tiny.replace({"system.rounds": 1, "scheme.names": ["fedavg"]})
    airfl.run(config)
    assert capsys.readouterr().err == ""  # nobody looks on
    airfl.run(config, progress=True)
    assert "fedavg" in capsys.readouterr().err
    with pytest.raises(airfl.InputError, match='True, False, "auto" or an object'):
        airfl.run(config, progress="yes")
    with pytest.raises(airfl.InputError, match=r"takes a configuration, such as airfl.preset\(...\); got str"):
        airfl.run("demo")


def test_who_hears_of_rounds_may_stop_the_run(tiny):
    class StopAt:
        def __init__(self, rounds):
            self.rounds, self.heard = rounds, []

        def start(self, scheme, rounds):
            self.heard.append((scheme, rounds))

        def round(self, scheme, records):
            self.heard.append(records[0].round)
            if records[0].round == self.rounds:
                raise KeyboardInterrupt

    heard = StopAt(2)
    found = airfl.run(tiny.replace({"scheme.names": ["airfl-dp"]}), progress=heard)
    assert heard.heard == [("airfl-dp", 4), 1, 2]
    entry = found.schemes["airfl-dp"]
    assert (entry.status, entry.models, len(entry.records)) == ("interrupted", None, 4)
    assert 0 < found.epsilon() < 50.0
    assert "interrupted" in repr(found)


def test_a_plan_in_one_call():
    link = {"antennas": 16, "distance_m": 500.0, "bandwidth_hz": 1e6, "parameters": 7850, "rounds": 50, "epsilon": 1.0}
    found = airfl.plan(devices=6000, **link)
    assert found.solved_for == "power_w"
    assert found.quantities.power_w == pytest.approx(3.154e-11, rel=1e-3)
    assert airfl.plan(devices=6000, solve_for="power_w", **link).quantities == found.quantities
    assert "• Solved for power: 31.5 pW." in repr(found)
    assert "<li>Solved for power: 31.5 pW.</li>" in found._repr_html_()
    with pytest.raises(airfl.InputError, match="no quantity `antenas`; did you mean `antennas`"):
        airfl.plan(antenas=3)
    with pytest.raises(airfl.InputError, match=r"^`devices`, `power_w` missing; one quantity can be left out"):
        airfl.plan(**link)
