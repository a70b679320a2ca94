from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import struct
import threading

import numpy as np
import pytest
import torch

from airfl.devices import idx, load_dataset, load_samples, open_task
from airfl.errors import InputError


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


@pytest.fixture
def files() -> dict[str, bytes]:
    rng = np.random.default_rng(0)
    shapes = [(30, 28, 28), (30,), (10, 28, 28), (10,)]
    return {
        name: idx_bytes(rng.integers(0, 256 if len(shape) == 3 else 10, shape))
        for name, shape in zip(idx.FILES, shapes, strict=True)
    }


@pytest.fixture
def folder(tmp_path, files):
    target = tmp_path / "data"
    target.mkdir()
    for number, (name, data) in enumerate(files.items()):
        if number % 2:
            (target / name).write_bytes(data)
        else:
            (target / f"{name}.gz").write_bytes(gzip.compress(data))
    return target


def known(files, **more) -> idx.Source:
    return idx.Source("mine", {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}, **more)


def test_idx_in_general(folder, files):
    dataset = load_dataset("idx", str(folder))
    assert dataset.inputs.shape == (40, 1, 28, 28)
    assert (dataset.num_train, dataset.labels.dtype, dataset.inputs.dtype) == (30, np.int64, np.float32)
    assert -1.0 <= dataset.inputs.min() < dataset.inputs.max() <= 1.0
    pixels = np.frombuffer(files[idx.FILES[0]], np.uint8, offset=16).reshape(30, 28, 28)
    assert np.allclose(dataset.inputs[:30, 0], pixels / 127.5 - 1.0, atol=1e-6)


def test_search_order(folder, files, tmp_path, monkeypatch):
    cache, system = tmp_path / "cache", tmp_path / "system"
    monkeypatch.setenv("AIRFL_CACHE", str(cache))
    source = known(files, system_folders=[system])
    assert idx.locate(source) is None
    folder.rename(system)
    assert idx.locate(source) == system
    (cache / "mine").mkdir(parents=True)
    for name, data in files.items():
        (cache / "mine" / name).write_bytes(data)
    assert idx.locate(source) == cache / "mine"
    assert idx.locate(source, str(system)) == system
    assert idx.locate(source, str(tmp_path / "nowhere")) is None  # an explicit folder is the only one looked at


def test_bad_files(folder, files):
    name = idx.FILES[0]
    packed = folder / f"{name}.gz"
    good = packed.read_bytes()
    for data, message in (
        (good[:-20], "truncated or not gzip"),
        (b"hello", "truncated or not gzip"),
        (gzip.compress(files[name][:-1]), "truncated or too long"),
        (gzip.compress(files[name] + b"0"), "truncated or too long"),
        (gzip.compress(files[name][:6]), "truncated inside its header"),
        (gzip.compress(b"not idx at all"), "not an IDX file"),
    ):
        packed.write_bytes(data)
        with pytest.raises(InputError, match=message):
            load_dataset("idx", str(folder))
    packed.write_bytes(gzip.compress(idx_bytes(np.zeros((29, 28, 28)))))
    with pytest.raises(InputError, match="do not fit together"):
        load_dataset("idx", str(folder))
    packed.unlink()
    with pytest.raises(InputError, match="is missing"):
        load_dataset("idx", str(folder))
    with pytest.raises(InputError, match="data_dir"):
        load_dataset("idx")


def test_wrong_hash(folder, files):
    source = known(files)
    idx.load(source, str(folder))
    (folder / idx.FILES[1]).write_bytes(files[idx.FILES[1]][:-1] + b"\x01")
    with pytest.raises(InputError, match="wrong hash"):
        idx.load(source, str(folder))
    with pytest.raises(InputError, match="wrong hash"):
        load_dataset("fashion-mnist", str(folder))


@pytest.fixture
def server(tmp_path):
    root = tmp_path / "www"
    root.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(root))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield root, f"http://127.0.0.1:{httpd.server_address[1]}/"
        httpd.shutdown()


def test_download_from_the_first_mirror_that_has_it(server, files, tmp_path, monkeypatch):
    root, url = server
    monkeypatch.setenv("AIRFL_CACHE", str(tmp_path / "cache"))
    for name, data in files.items():
        (root / f"{name}.gz").write_bytes(gzip.compress(data))
    source = known(files, mirrors=[url + "absent/", url])
    train, labels, _, _ = idx.load(source)
    assert train.shape == (30, 28, 28)
    assert len(labels) == 30
    for path in root.iterdir():
        path.unlink()
    idx.load(source)  # from the cache now


def test_a_mirror_that_breaks_off_is_passed_over(server, files, tmp_path, monkeypatch):
    root, url = server
    monkeypatch.setenv("AIRFL_CACHE", str(tmp_path / "cache"))
    for name, data in files.items():
        (root / f"{name}.gz").write_bytes(gzip.compress(data))

    class Short(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b"short")

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Short) as broken_mirror:
        threading.Thread(target=broken_mirror.serve_forever, daemon=True).start()
        mirrors = [f"http://127.0.0.1:{broken_mirror.server_address[1]}/", url]
        assert len(idx.load(known(files, mirrors=mirrors))[1]) == 30
        broken_mirror.shutdown()


def test_a_bad_download_is_refused_and_leaves_nothing(server, files, tmp_path, monkeypatch):
    root, url = server
    cache = tmp_path / "cache"
    monkeypatch.setenv("AIRFL_CACHE", str(cache))
    for name, data in files.items():
        (root / f"{name}.gz").write_bytes(gzip.compress(data[:-1] + b"\x7f"))
    with pytest.raises(InputError, match="wrong hash"):
        idx.load(known(files, mirrors=[url]))
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    with pytest.raises(InputError, match="could not be downloaded"):
        idx.load(known(files, mirrors=["http://127.0.0.1:9/"]))


def test_fashion_mnist_is_the_real_one():
    dataset = load_dataset("fashion-mnist")
    assert dataset.inputs.shape == (70_000, 1, 28, 28)
    assert dataset.num_train == 60_000
    assert (np.bincount(dataset.labels) == 7000).all()
    assert (dataset.inputs.min(), dataset.inputs.max()) == (-1.0, 1.0)


def test_standard_scale_is_that_of_the_training_pixels():
    train = load_dataset("fashion-mnist-standard").inputs[:60_000]
    assert train.mean(dtype=np.float64) == pytest.approx(0.0, abs=2e-3)
    assert train.std(dtype=np.float64) == pytest.approx(1.0, abs=2e-3)


def test_digits_need_no_file():
    dataset = load_dataset("digits")
    assert dataset.inputs.shape == (1797, 1, 8, 8)
    assert dataset.num_classes == 10
    assert dataset.inputs.min() == -1.0
    assert dataset.inputs.max() == 1.0


def four_arrays():
    return np.zeros((6, 3)), np.array([0, 1, 2, 0, 1, 2]), np.ones((3, 3)), np.array([0, 1, 2])


def not_data():
    return 7


def broken():
    raise OSError("no disk")


def needs_arguments(path):
    return path


def uneven():
    return np.zeros((6, 3)), np.zeros(6), np.zeros((3, 4)), np.zeros(3)


def words():
    return np.zeros((6, 3)), np.array(list("abcabc")), np.zeros((3, 3)), np.array(list("abc"))


def halves():
    return np.zeros((6, 3)), np.full(6, 0.5), np.zeros((3, 3)), np.zeros(3)


def doubles():
    import airfl

    return airfl.Dataset(np.zeros((6, 3)), np.array([0, 1, 2, 0, 1, 2], dtype=np.int32), 4)


def nan_data():
    return np.full((6, 3), np.nan), np.zeros(6), np.ones((3, 3)), np.ones(3)


def test_factories_by_import_path():
    dataset = load_dataset("tests.test_data:four_arrays")
    assert dataset.input_shape == (3,)
    assert dataset.num_classes is None  # not counted
    made = load_dataset("tests.test_data:doubles")
    assert (made.inputs.dtype, made.labels.dtype) == (np.float32, np.int64)
    for path, message in (
        ("tests.test_data:not_data", "must return"),
        ("tests.test_data:nan_data", "NaN"),
        ("tests.test_data:broken", "failed: no disk"),
        ("tests.test_data:needs_arguments", "without arguments"),
        ("tests.test_data:uneven", "must be of one shape"),
        ("tests.test_data:words", "whole numbers"),
        ("tests.test_data:halves", "whole numbers"),
        ("tests.test_data:absent", "cannot be imported"),
        ("no_such_package:thing", "cannot be imported"),
        ("tests.test_data:__name__", "not a callable"),
        ("mnizt", "no data set named"),
    ):
        with pytest.raises(InputError, match=message):
            load_dataset(path)


def two_classes():
    rng = np.random.default_rng(0)
    return rng.normal(size=(60, 3)), np.arange(60) % 2, rng.normal(size=(20, 3)), np.arange(20) % 2


def one_label_more():
    train, labels, test, test_labels = two_classes()
    labels[7] = 6
    return train, labels, test, test_labels


@pytest.mark.parametrize("factory", ["two_classes", "one_label_more"])
def test_one_label_does_not_change_the_shape_of_a_private_model(tiny, factory):
    config = tiny.replace({"learning.dataset": f"tests.test_data:{factory}", "scheme.names": ["airfl-dp"]})
    samples = load_samples(config, torch.device("cpu"))
    with pytest.raises(InputError, match=r"does not declare its classes.*`learning.num_classes`"):
        open_task(config, (0,), samples)
    stated = config.replace({"learning.num_classes": 10})
    assert open_task(stated, (0,), samples).spec.dim == 10 * 4
    with pytest.warns(UserWarning, match="does not declare"):
        counted = open_task(config.replace({"scheme.names": ["fedavg"]}), (0,), samples)
    assert counted.spec.dim == (2 if factory == "two_classes" else 7) * 4


def test_labels_beyond_the_declared_classes_are_refused(tiny):
    import airfl

    with pytest.raises(InputError, match="a label is 3, and 3 classes"):
        airfl.Dataset(np.zeros((4, 2)), np.arange(4), 2, num_classes=3)
    assert airfl.Dataset(np.zeros((4, 2)), np.arange(4), 2, num_classes=9).num_classes == 9
    config = tiny.replace({"learning.num_classes": 9})
    with pytest.raises(InputError, match="a label is 9, and 9 classes"):
        open_task(config, (0,), load_samples(config, torch.device("cpu")))
    for name in ("fashion-mnist", "digits"):
        assert load_dataset(name).num_classes == 10
