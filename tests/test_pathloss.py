"""Path losses and link budgets against numbers worked out by hand and against formulas written down again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airfl
from airfl.catalogue import PATH_LOSSES, site_of
from airfl.channel import geometry, open_link, pathloss
from airfl.channel.budget import link_budget
from airfl.errors import InputError
from airfl.randomness import stream

CITY = {"channel.path_loss_exponent": 3.5}
#: 5G n78: 23 dBm, 100 MHz, noise figure 7 dB, 64 antennas.
N78 = {
    "system.num_antennas": 64,
    "channel.carrier_hz": 3.5e9,
    "channel.bandwidth_hz": 100e6,
    "channel.power_dbm": 23.0,
    "channel.noise_figure_db": 7.0,
    "channel.cell_radius_m": 500.0,
}
LORA = {
    "channel.carrier_hz": 868e6,
    "channel.bandwidth_hz": 125e3,
    "channel.power_dbm": 14.0,
    "channel.noise_figure_db": 6.0,
    "channel.antenna_gain_dbi": 6.0,
    "channel.loss_db": 1.0,
    "channel.cell_radius_m": 10e3,
}
LEO = {
    "channel.carrier_hz": 2e9,
    "channel.bandwidth_hz": 1e6,
    "channel.power_dbm": 23.0,
    "channel.noise_figure_db": 3.0,
    "channel.antenna_gain_dbi": 30.0,
    "channel.device_gain_dbi": 2.0,
    "channel.loss_db": 3.0,
    "channel.cell_radius_m": 1000e3,
}


@pytest.mark.parametrize(
    ("link", "loss_db", "noise_dbm", "snr_db"),
    [
        # 20 log10(4π·500·3.5e9/c) = 53.98 + 190.88 − 147.55 = 97.31; −174 + 80 + 7 = −87; 23 − 97.31 + 87.
        (N78, 97.31, -87.0, 12.69),
        # At 1 m 43.33; and 35 log10(500) = 94.46.
        (N78 | CITY, 137.79, -87.0, -27.79),
        # 80 + 178.77 − 147.55 = 111.22, less 6 dBi, 1 dB more; −174 + 50.97 + 6 = −117.03; 14 − 106.22 + 117.03.
        (LORA, 106.22, -117.03, 24.81),
        # At 1 m 31.22; 35·4 = 140; less 5: 166.22.
        (LORA | CITY, 166.22, -117.03, -35.19),
        # 120 + 186.02 − 147.55 = 158.47, less 32 dBi, 3 dB more; −174 + 60 + 3 = −111; 23 − 129.47 + 111.
        (LEO, 129.47, -111.0, 4.53),
        # At 1 m 38.47; 35·6 = 210; less 29: 219.47.
        (LEO | CITY, 219.47, -111.0, -85.47),
    ],
)
def test_links_worked_out_by_hand(tiny, link, loss_db, noise_dbm, snr_db):
    config = tiny.replace(link)
    budget = link_budget(config)
    assert -10 * math.log10(budget.edge) == pytest.approx(loss_db, abs=0.02)
    assert 10 * math.log10(budget.noise_w) + 30 == pytest.approx(noise_dbm, abs=0.02)
    assert 10 * math.log10(budget.snr) == pytest.approx(snr_db, abs=0.05)
    assert 10 * math.log10(open_link(config, [0]).weakest_path_gain(0)) == pytest.approx(-loss_db, abs=0.02)
    asked = config.replace({"channel.snr_db": snr_db})
    assert asked.channel.power_dbm is None
    assert 10 * math.log10(link_budget(asked).power_w) + 30 == pytest.approx(link["channel.power_dbm"], abs=0.05)


def by_the_table(model: str, d: float, f: float) -> float:
    """TR 38.901, Table 7.4.1-1, written down once more as plain arithmetic with the usual heights."""
    log, c = math.log10, 3.0e8
    place, sight = model.split("-")[1], model.split("-")[-1]
    h_bs = {"umi": 10.0, "uma": 25.0, "rma": 35.0, "inh": 3.0, "inf": 8.0}[place]
    if "-sl-" in model or "-dl-" in model:
        h_bs = 1.5
    h_ut = 1.0 if place == "inh" else 1.5
    d3 = math.hypot(d, h_bs - h_ut)
    if place == "umi":
        bp = 4 * (h_bs - 1) * (h_ut - 1) * f * 1e9 / c
        los = 32.4 + 21 * log(d3) + 20 * log(f)
        if d > bp:
            los = 32.4 + 40 * log(d3) + 20 * log(f) - 9.5 * log(bp**2 + (h_bs - h_ut) ** 2)
        nlos = 35.3 * log(d3) + 22.4 + 21.3 * log(f) - 0.3 * (h_ut - 1.5)
    elif place == "uma":
        bp = 4 * (h_bs - 1) * (h_ut - 1) * f * 1e9 / c
        los = 28 + 22 * log(d3) + 20 * log(f)
        if d > bp:
            los = 28 + 40 * log(d3) + 20 * log(f) - 9 * log(bp**2 + (h_bs - h_ut) ** 2)
        nlos = 13.54 + 39.08 * log(d3) + 20 * log(f) - 0.6 * (h_ut - 1.5)
    elif place == "rma":
        bp, h, w = 2 * math.pi * h_bs * h_ut * f * 1e9 / c, 5.0, 20.0

        def pl1(x):
            a, b = min(0.03 * h**1.72, 10), min(0.044 * h**1.72, 14.77)
            return 20 * log(40 * math.pi * x * f / 3) + a * log(x) - b + 0.002 * log(h) * x

        los = pl1(d3) if d <= bp else pl1(bp) + 40 * log(d3 / bp)
        nlos = 161.04 - 7.1 * log(w) + 7.5 * log(h) - (24.37 - 3.7 * (h / h_bs) ** 2) * log(h_bs)
        nlos += (43.42 - 3.1 * log(h_bs)) * (log(d3) - 3) + 20 * log(f) - (3.2 * log(11.75 * h_ut) ** 2 - 4.97)
    elif place == "inh":
        los = 32.4 + 17.3 * log(d3) + 20 * log(f)
        nlos = 38.3 * log(d3) + 17.30 + 24.9 * log(f)
    else:
        los = 31.84 + 21.50 * log(d3) + 19.00 * log(f)
        sl = 33 + 25.5 * log(d3) + 20 * log(f)
        nlos = {
            "sl": sl,
            "dl": max(sl, 18.6 + 35.7 * log(d3) + 20 * log(f)),
            "sh": 32.4 + 23.0 * log(d3) + 20 * log(f),
            "dh": 33.63 + 21.9 * log(d3) + 20 * log(f),
        }.get(model.split("-")[2], 0.0)
    return los if sight == "los" else max(los, nlos)


PLACES = [name for name in PATH_LOSSES if name.startswith("3gpp")]


@pytest.mark.parametrize("model", PLACES)
def test_medians_of_3gpp(model):
    """At three distances, the last one beyond the breakpoints of cities, and for two carriers."""
    indoors = model.startswith(("3gpp-inh", "3gpp-inf"))
    for carrier in (3.5e9, 0.7e9):
        for distance in (12.0, 45.0, 130.0) if indoors else (30.0, 150.0, 2500.0):
            found = float(pathloss.tr38901_db(model, distance, carrier))
            assert found == pytest.approx(by_the_table(model, distance, carrier / 1e9), abs=0.02)
            assert float(pathloss.gain(model, distance, carrier)) == pytest.approx(10 ** (-found / 10))


def test_known_numbers_of_3gpp():
    """UMi at 100 m and 3.5 GHz: d₃ = 100.36 m, breakpoint 210 m; 32.4 + 42.03 + 10.88, and 70.66 + 22.4 + 11.59."""
    assert float(pathloss.tr38901_db("3gpp-umi-los", 100.0, 3.5e9)) == pytest.approx(85.31, abs=0.02)
    assert float(pathloss.tr38901_db("3gpp-umi-nlos", 100.0, 3.5e9)) == pytest.approx(104.64, abs=0.02)


@given(st.sampled_from(PLACES), st.floats(10.0, 140.0), st.floats(10.0, 140.0), st.floats(0.6e9, 29e9))
def test_losses_grow_with_distance_and_without_sight(model, one, other, carrier):
    near, far = sorted((one, other))
    assert pathloss.tr38901_db(model, near, carrier) <= pathloss.tr38901_db(model, far, carrier) + 1e-9
    if model.endswith("-nlos"):
        hall = model.startswith("3gpp-inf")
        clear = "3gpp-inf-los" if hall else model.replace("-nlos", "-los")
        height = {"base_height_m": pathloss.heights(model, None, None)[0]}
        assert pathloss.tr38901_db(model, far, carrier) >= pathloss.tr38901_db(clear, far, carrier, **height) - 1e-9


def test_log_distance_is_free_space_at_the_reference_and_for_exponent_two():
    far = np.array([0.5, 1.0, 30.0, 4000.0])
    free = pathloss.gain("free-space", far, 2.4e9)
    assert np.allclose(pathloss.gain("log-distance", far, 2.4e9, exponent=2.0), free, rtol=1e-12)
    steep = pathloss.gain("log-distance", far, 2.4e9, exponent=3.0, reference_m=10.0)
    assert np.allclose(steep[:2], free[:2], rtol=1e-12)  # up to the reference nothing else counts
    assert steep[2] == pytest.approx(free[2] / 3.0)
    assert steep[3] == pytest.approx(free[3] / 400.0)


def test_shadowing_is_log_normal_and_stays_for_a_trial(tiny):
    config = tiny.replace({"channel.shadowing_db": 8.0, "system.num_devices": 4000, "scheme.combiner": "auto"})
    law, plain = open_link(config, [0, 1]).law, open_link(config.replace({"channel.shadowing_db": 0.0}), [0, 1]).law
    extra = 20 * np.log10(law.amplitude / plain.amplitude)
    assert extra.mean() == pytest.approx(0.0, abs=0.4)
    assert extra.std() == pytest.approx(8.0, rel=0.03)
    assert abs(np.corrcoef(extra[0], extra[1])[0, 1]) < 0.06
    assert np.array_equal(open_link(config, [1]).law.amplitude[0], law.amplitude[1])
    assert law.weakest_path_gain(0) == plain.weakest_path_gain(0)  # the median's


def test_shadowing_of_neighbours_is_alike():
    """exp(−Δ/50 m) between two devices 50 m apart is 0.37."""
    places = np.array([[0.0, 0.0], [50.0, 0.0], [5000.0, 0.0], [0.0, 0.0]])
    draws = np.stack([geometry.shadowing_db(stream(0, "shadowing", k), places, 6.0, 50.0) for k in range(8000)])
    seen = np.corrcoef(draws.T)
    assert seen[0, 1] == pytest.approx(math.exp(-1), abs=0.04)
    assert seen[0, 2] == pytest.approx(0.0, abs=0.04)
    assert seen[0, 3] == pytest.approx(1.0, abs=1e-3)
    assert draws.std(axis=0) == pytest.approx(np.full(4, 6.0), rel=0.03)


def test_no_device_is_nearer_than_a_place_is_for(tiny):
    config = tiny.replace({"channel.path_loss": "3gpp-uma-nlos", "system.num_devices": 5000, "scheme.combiner": "auto"})
    near = open_link(config.replace({"channel.cell_radius_m": 60.0}), [0]).law.distances_m
    assert near.min() == site_of("3gpp-uma-nlos").nearest_m


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"power_w": 1.0, "power_dbm": 3.0}, "`power_w` and `power_dbm` say the same"),
        ({"snr_db": 1.0, "power_dbm": 3.0}, "`power_dbm` and `snr_db` say the same"),
        ({"noise_figure_db": 3.0, "noise_density_dbm_hz": -170.0}, "say the same"),
        ({"noise_figure_db": -1.0}, "greater than or equal to 0; got -1"),
        ({"power_dbm": 1e4}, "less than or equal to 150"),
        ({"path_loss": "log-distance"}, "needs `path_loss_exponent`"),
        ({"path_loss": "free-space", "path_loss_exponent": 3.0}, "goes with path_loss"),
        ({"path_loss": "umi-los"}, "did you mean `3gpp-umi-los`"),
        ({"path_loss": "3gpp-rma-los", "carrier_hz": 60e9}, "from 0.5 to 30 GHz"),
        ({"path_loss": "3gpp-inh-nlos"}, "distances from 1 to 150 m"),
        ({"shadowing_distance_m": 50.0}, "goes with `shadowing_db`"),
        ({"fading": "3gpp-umi", "carrier_hz": 0.1e9, "bandwidth_hz": 1e6}, "carriers from 0.5 to 100 GHz"),
        ({"fading": "3gpp-inf"}, "distances from 1 to 600 m; got `cell_radius_m` = 1000"),
        ({"fading": "3gpp-umi", "shadowing_db": 4.0}, "of its own|of their own"),
        ({"fading": "3gpp-umi", "antenna_correlation": 0.5}, "correlates antennas and devices by itself"),
        ({"fading": "3gpp-umi", "csi_error": 0.1}, "uncorrelated Rayleigh"),
        ({"fading": "cdl", "bandwidth_hz": 1e9}, "a tenth of the carrier"),
        ({"fading": "3gpp-umo"}, "did you mean `3gpp-uma`|did you mean `3gpp-umi`"),
        ({"indoor_share": 1.5}, "less than or equal to 1"),
    ],
)
def test_what_contradicts_itself_is_refused(tiny, changes, message):
    with pytest.raises(InputError, match=message) as refused:
        tiny.replace({f"channel.{key}": value for key, value in changes.items()})
    assert "\n" not in str(refused.value)


def test_the_other_way_of_saying_it_replaces_the_first(tiny):
    dbm = tiny.replace({"channel.power_dbm": 10.0, "channel.noise_figure_db": 6.0})
    assert (dbm.channel.power_w, dbm.channel.noise_density_dbm_hz) == (None, None)
    assert airfl.config.from_toml(dbm.to_toml()) == dbm
    assert dbm.replace({"channel.power_w": 1.0}).channel.power_dbm is None
    assert link_budget(tiny.replace({"channel.power_dbm": 3.0103})).power_w == pytest.approx(2e-3, rel=1e-5)
    figure = link_budget(tiny.replace({"channel.noise_figure_db": 1.0}))
    assert figure.noise_w == pytest.approx(link_budget(tiny).noise_w)  # −174 + 1 is the −173 of the paper


def test_what_was_measured_has_no_edge(tiny, tmp_path):
    np.savez(tmp_path / "t.npz", channels=np.ones((4, 12, 16)))
    traced = {"channel.fading": "trace", "channel.trace_file": str(tmp_path / "t.npz")}
    with pytest.raises(InputError, match="path gain at the cell edge"):
        tiny.replace({**traced, "channel.snr_db": 3.0})
    with pytest.raises(InputError, match="leave out `path_loss_exponent`"):
        tiny.replace({**traced, "channel.path_loss_exponent": 3.0})


def test_taking_one_way_back_is_not_choosing_another(tiny):
    """What was left out on purpose stays as it was: 1 µW do not become the default's 2 mW."""
    config = tiny.replace({"channel.power_w": 1e-6, "channel.noise_density_dbm_hz": -160.0})
    again = config.replace({"channel.snr_db": None, "channel.power_dbm": None, "channel.noise_figure_db": None})
    assert again == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fading": "3gpp-umi", "path_loss_exponent": 0.0}, "leave out `path_loss_exponent`"),
        ({"path_loss": "3gpp-umi-nlos", "device_height_m": 900.0}, "up to 22.5 m"),
        ({"path_loss": "3gpp-inh-nlos", "cell_radius_m": 50.0, "base_height_m": 1.0, "device_height_m": 2.0}, "higher"),
        ({"path_loss": "3gpp-rma-nlos", "cell_radius_m": 8000.0}, "to 5,000 m"),
    ],
)
def test_what_3gpp_does_not_know_is_refused(tiny, changes, message):
    with pytest.raises(InputError, match=message):
        tiny.replace({f"channel.{key}": value for key, value in changes.items()})
    far = tiny.replace({"channel.path_loss": "3gpp-rma-los", "channel.cell_radius_m": 8000.0})
    assert link_budget(far).edge > 0


def test_correlated_shadowing_takes_the_memory_it_is_said_to():
    import tracemalloc

    places = np.random.default_rng(0).uniform(-500, 500, (1500, 2))
    geometry.shadowing_db(stream(0, "shadowing"), places[:10], 6.0, 50.0)  # what it imports
    tracemalloc.start()
    geometry.shadowing_db(stream(0, "shadowing"), places, 6.0, 50.0)
    assert tracemalloc.get_traced_memory()[1] <= 24 * 1500**2 * 1.1
    tracemalloc.stop()
