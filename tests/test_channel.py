from __future__ import annotations

import io
import pickle
import zipfile

import numpy as np
import pytest
from scipy import stats

from airfl.channel import geometry, noise_power_w, open_link
from airfl.channel.laws import rayleigh, rician
from airfl.errors import InputError
from airfl.randomness import stream


def test_noise_power_of_the_paper():
    # -173 dBm/Hz over 20 MHz is -99.99 dBm.
    assert 10 * np.log10(noise_power_w(-173, 20e6) / 1e-3) == pytest.approx(-99.99, abs=0.01)


def test_path_gain_is_free_space():
    assert 10 * np.log10(geometry.path_gain(1000.0, 2.4e9)) == pytest.approx(-100.05, abs=0.01)
    assert geometry.path_gain(500.0, 2.4e9) == pytest.approx(4 * geometry.path_gain(1000.0, 2.4e9))


def test_devices_are_uniform_on_the_disk():
    r = geometry.disk_drop(stream(0, "positions"), 20_000, 1000.0, 1.0, common=False)
    assert stats.kstest((r / 1000.0) ** 2, "uniform").pvalue > 1e-3
    common = geometry.disk_drop(stream(0, "positions"), 50, 1000.0, 1.0, common=True)
    assert np.unique(common).size == 1
    assert geometry.disk_drop(stream(0, "positions"), 50, 1000.0, 900.0, common=False).min() >= 900.0


def test_rayleigh_amplitudes():
    """|h|² is exponential: over many keys the p-values of the test are themselves uniform."""
    draws = [np.abs(rayleigh.scattered(stream(0, "fading", t), 30, 100)).ravel() ** 2 for t in range(200)]
    assert stats.kstest([stats.kstest(draw, "expon").pvalue for draw in draws], "uniform").pvalue > 1e-3


def test_kronecker_correlation():
    roots = rayleigh.correlation_root(6, 0.7), rayleigh.correlation_root(4, 0.4)
    h = np.stack([rayleigh.scattered(stream(0, "fading", t), 4, 6, *roots) for t in range(20_000)])
    antennas = np.einsum("tka,tkb->ab", h, h.conj()) / (len(h) * 4)
    devices = np.einsum("tka,tla->kl", h, h.conj()) / (len(h) * 6)
    index = np.arange(6)
    assert np.abs(antennas - 0.7 ** np.abs(index[:, None] - index)).max() < 0.02
    assert np.abs(devices - 0.4 ** np.abs(index[:4, None] - index[:4])).max() < 0.02


def test_rician_power_and_mean():
    direct = rician.line_of_sight(stream(0, "line-of-sight"), 5, 8)
    assert np.allclose(np.abs(direct), 1.0)
    draws = np.stack(
        [rician.rician(direct, rayleigh.scattered(stream(0, "fading", t), 5, 8), 4.0) for t in range(5000)]
    )
    assert np.mean(np.abs(draws) ** 2) == pytest.approx(1.0, abs=0.02)
    assert np.abs(draws.mean(0) - np.sqrt(0.8) * direct).max() < 0.05


@pytest.mark.parametrize("law", ["rayleigh", "rician"])
def test_draws_do_not_depend_on_batching(tiny, law):
    config = tiny.replace({"channel.fading": law, "channel.antenna_correlation": 0.3})
    together, apart = open_link(config, [0, 1]), open_link(config, [1])
    whole = together.channels(range(4))
    assert whole.shape == (2, 4, 12, 16)
    assert (whole[1:, 2:3] == apart.channels([2])).all()
    assert (together.active(range(4))[1:, 3:] == apart.active([3])).all()


def test_path_loss_is_per_device_and_fixed_over_a_trial(tiny):
    link = open_link(tiny, [0])
    power = (np.abs(link.channels(range(400))) ** 2).mean(axis=(0, 1, 3))
    expected = geometry.path_gain(link.law.distances_m[0], 2.4e9)
    assert np.allclose(power / expected, 1.0, atol=0.08)


def test_participation_is_k_of_n_and_uniform(tiny):
    active = open_link(tiny, [0, 1]).active(range(2000))
    assert active.shape == (2, 2000, 9)
    assert (np.diff(active, axis=2) > 0).all()
    counts = np.bincount(active.ravel(), minlength=12) / (2 * 2000)
    assert np.abs(counts - 0.75).max() < 0.03


def test_traces(tiny, tmp_path):
    path = tmp_path / "trace.npz"
    rng = np.random.default_rng(0)
    trace = rng.standard_normal((5, 12, 16)) + 1j * rng.standard_normal((5, 12, 16))
    np.savez(path, channels=trace)
    config = tiny.replace({"channel.fading": "trace", "channel.trace_file": str(path)})
    assert (open_link(config, [0, 1]).channels([1, 3]) == trace[[1, 3]]).all()
    np.savez(path, channels=np.stack([trace, 2 * trace]))
    assert (open_link(config, [1]).channels([0]) == 2 * trace[0]).all()
    weakest = (np.abs(trace[:4]) ** 2).mean(axis=(0, 2)).min()
    for trials in ([0], [0, 1]):  # a trial's own, whatever it is batched with
        assert open_link(config, trials).weakest_path_gain(0) == pytest.approx(weakest)
    assert open_link(config, [0, 1]).weakest_path_gain(1) == pytest.approx(4 * weakest)
    for bad, message in (
        ({"channels": trace[:3]}, "needs at least"),
        ({"channels": trace[:, :, :8]}, "needs at least"),
        ({"channels": trace[0]}, "needs at least"),
        ({"other": trace}, "no array named"),
        ({"channels": np.where(np.arange(16) == 3, np.nan, trace)}, "NaN"),
    ):
        np.savez(path, **bad)
        with pytest.raises(InputError, match=message):
            open_link(config, [0])
    path.unlink()
    with pytest.raises(InputError, match="not found"):
        open_link(config, [0])


def header(*shape):
    """What NumPy writes before an array of complex numbers."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<c16", "fortran_order": False, "shape": shape})
    return stream.getvalue()


def zipped(content, method=zipfile.ZIP_DEFLATED, spoil=1):
    """A file with one array, with every so many bytes of it wrong."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("channels.npy", content)
    data = bytearray(stream.getvalue())
    for place in range(150, len(data) - 200, spoil) if spoil > 1 else ():
        data[place] ^= 255
    return bytes(data)


def saved(array, write=np.savez):
    """What is on the disk where an array is saved."""
    stream = io.BytesIO()
    write(stream, array) if write is np.save else write(stream, channels=array)
    return stream.getvalue()


CHANNELS = np.random.default_rng(0).standard_normal((5, 12, 16)) * np.exp(1j * np.arange(16))
WHOLE = header(*CHANNELS.shape) + CHANNELS.tobytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (saved(CHANNELS.real), "is of `float64`, but a channel has an amplitude and a phase"),
        (saved(np.ones((5, 12, 16), dtype=int)), "is of `int64`"),
        (saved(CHANNELS.astype(object)), "is of `object`"),
        (saved(CHANNELS.astype(str)), "is of `str"),
        (saved(CHANNELS, np.save), "no .npz file"),
        (pickle.dumps(CHANNELS), "no .npz file"),
        (b"MATLAB 5.0 MAT-file", "no .npz file"),
        (b"PK not a zip", "no .npz file"),
        (b"", "no .npz file"),
        (zipped(b""), "no .npz file"),
        (zipped(b"\x93NUMPY\x09\x00" + WHOLE[8:]), "no .npz file"),
        (zipped(b"\x93NUMPY\x01\x00" + (60_000).to_bytes(2, "little") + b"{" * 60_000), "no .npz file"),
        (zipped(b"\x93NUMPY\x01\x00" + (9_000).to_bytes(2, "little") + b"(" * 9_000), "no .npz file"),
        *((zipped(WHOLE, method, spoil=5), "damaged") for method in (0, 8, 12, 14)),
        (zipped(header(10**3, 10**3, 10**3) + bytes(999)), r"its header says .1000, 1000, 1000., and that is not what"),
        (zipped(WHOLE[:-16]), "its header says"),
        (zipped(WHOLE + bytes(16)), "its header says"),
        (zipped(header(-5, 12, 16)), "needs at least"),
    ],
)  # fmt: skip
def test_what_is_no_trace_is_refused_in_our_own_sentence(tiny, tmp_path, content, message):
    path = tmp_path / "trace.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as refused:
        open_link(tiny.replace({"channel.fading": "trace", "channel.trace_file": str(path)}), [0])
    assert "\n" not in str(refused.value)
    assert "pickle" not in str(refused.value)


def test_a_trace_that_is_far_too_large_is_not_unpacked(tiny, tmp_path, monkeypatch):
    """A few MB of zeros in a row may be gigabytes."""
    path, unpacked = tmp_path / "trace.npz", []
    config = tiny.replace({"channel.fading": "trace", "channel.trace_file": str(path)})
    needed = 4 * 12 * 16 * 16
    monkeypatch.setattr("airfl.channel.laws.trace.SPARE_BYTES", 20 * needed)
    read = np.lib.format.read_array
    monkeypatch.setattr(np.lib.format, "read_array", lambda *a, **k: unpacked.append(1) or read(*a, **k))
    for shape in ((81, 12, 16), (4, 243, 16), (4, 12, 324), (1, 81, 12, 16)):
        path.write_bytes(saved(np.ones(shape, dtype=complex), np.savez_compressed))
        with pytest.raises(InputError, match="10 times what the run needs and more"):
            open_link(config, [0])
    np.savez_compressed(path, block_channels=np.ones((4, 21, 12, 16), dtype=complex))
    with pytest.raises(InputError, match="10 times what the run needs and more"):  # a round has one block
        open_link(config, [0])
    assert not unpacked
    path.write_bytes(saved(np.ones((80, 12, 16), dtype=complex)))
    kept = open_link(config, [0]).law._measured
    assert kept.base is None or kept.base.nbytes == needed  # what was not asked for is not held
    assert unpacked


def test_traces_of_every_layout_and_precision(tiny, tmp_path):
    path, found = tmp_path / "trace.npz", []
    config = tiny.replace({"channel.fading": "trace", "channel.trace_file": str(path)})
    for array in (CHANNELS, np.asfortranarray(CHANNELS), CHANNELS.astype(">c16"), CHANNELS.astype(np.clongdouble)):
        path.write_bytes(saved(array))
        link = open_link(config, [0])
        assert (link.channels([1]) == CHANNELS[1]).all()
        found.append(link.law.amplitude.tobytes())
    assert len(set(found)) == 1  # however the axes lie on the disk
    path.write_bytes(saved(CHANNELS.astype(np.complex64)))
    assert (open_link(config, [0]).channels([1]) == CHANNELS[1].astype(np.complex64)).all()
