from __future__ import annotations

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
    for content in (b"PK not a zip", b"", b"\x93NUMPY"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="cannot be read"):
            open_link(config, [0])
    np.save(tmp_path / "array.npy", trace)
    with pytest.raises(InputError, match="cannot be read"):
        open_link(config.replace({"channel.trace_file": str(tmp_path / "array.npy")}), [0])
    path.unlink()
    with pytest.raises(InputError, match="not found"):
        open_link(config, [0])
