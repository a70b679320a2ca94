"""Channels that Sionna draws: the same as its own, by our keys, for our positions."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
import torch
from scipy import stats

from airfl.catalogue import SITES
from airfl.channel import open_link
from airfl.channel.laws.cdl import profile_rays, read_profile
from airfl.channel.laws.rays import panel_of, responses
from airfl.channel.laws.sionna import WHERE, drawing
from airfl.channel.laws.site import DROP, open_scenario, place, ray_sum
from airfl.channel.laws.site import _large_scale as large_scale
from airfl.channel.pathloss import tr38901_db
from airfl.errors import InputError
from airfl.randomness import stream

#: The cells of the places: as 3GPP has them, or as large as they may be.
RADII = {"3gpp-umi": 115.0, "3gpp-uma": 290.0, "3gpp-rma": 1000.0, "3gpp-inh": 40.0, "3gpp-inf": 60.0}


def site(tiny, name, devices=24, antennas=16, **more):
    return tiny.replace(
        {
            "channel.fading": name,
            "channel.cell_radius_m": RADII[name],
            "channel.carrier_hz": 3.5e9,
            "system.num_devices": devices,
            "system.num_antennas": antennas,
            "scheme.combiner": "auto",
            **more,
        }
    )


def turned(rays):
    """Sionna's rays as seen from devices that send."""
    for one, other in (("aod", "aoa"), ("zod", "zoa")):
        leave, come = getattr(rays, one).transpose(1, 2), getattr(rays, other).transpose(1, 2)
        setattr(rays, one, come)
        setattr(rays, other, leave)
    for name in ("powers", "delays", "xpr", "strongest_cluster_indices"):
        if getattr(rays, name, None) is not None:
            setattr(rays, name, getattr(rays, name).transpose(1, 2))
    return rays


@pytest.mark.parametrize("name", SITES)
def test_sums_of_rays_are_sionnas_own(tiny, name):
    """Steps 10 and 11 by Sionna's generator, for the same rays and phases; 300 ns apart in delay spread at most."""
    from sionna.phy.channel import tr38901
    from sionna.phy.channel.utils import deg_2_rad

    config = site(tiny, name, antennas=12)
    law = open_link(config, [0]).law
    with drawing(3):
        scenario = open_scenario(config.channel, 12)
        place(scenario, config.channel, law.places_m[0], law._inside(0))
        large, rays = large_scale(scenario)
    ours = ray_sum(scenario, large, rays, 1.0)
    phases = stream(0, "fading").uniform(-np.pi, np.pi, ours.strength.shape)
    clusters = rays.aoa.shape[3:]
    given = torch.zeros(1, 1, 24, *clusters, 4, dtype=torch.float64)
    given[0, 0, ..., 0] = torch.from_numpy(phases).reshape(24, *clusters)
    rays = turned(rays)
    rays.phases = given.transpose(1, 2)

    def across(value):
        return value.transpose(1, 2)

    topology = tr38901.Topology(
        scenario.ut_velocities,
        "tx",
        *(across(deg_2_rad(getattr(scenario, f"los_{angle}"))) for angle in ("aod", "aoa", "zod", "zoa")),
        across(scenario.los),
        across(scenario.distance_3d),
        scenario.ut_orientations,
        scenario.bs_orientations,
    )
    generator = tr38901.ChannelCoefficientsGenerator(
        config.channel.carrier_hz, scenario.ut_array, scenario.bs_array, subclustering=True, **WHERE
    )
    k_factor = torch.from_numpy(large.k_factor)[None, :, None]
    paths, delays = generator(1, 1.0, k_factor, rays, topology, across(scenario.get_param("cDS")) * 1e-9)
    theirs = paths[0, :, 0, ..., 0, 0].sum(dim=1).numpy() * np.sqrt(large.gain)[:, None]
    found = ours.at(phases)
    assert np.abs(found - theirs).max(axis=1) / np.abs(theirs).max(axis=1) == pytest.approx(np.zeros(24), abs=1e-4)
    assert ours.power == pytest.approx(
        np.mean([np.abs(ours.draw(stream(0, "fading", k))) ** 2 for k in range(400)], axis=(0, 2)), rel=0.35
    )
    # The last of Sionna's delays is the last of ours: that of a cluster, or of a part of a strong one.
    assert delays[0, :, 0].amax(dim=1).numpy() == pytest.approx(ours.delays_s.max(axis=1), rel=1e-4, abs=1e-12)


def effective_rank(channels):
    rows = channels / np.linalg.norm(channels, axis=1, keepdims=True)
    share = np.linalg.svd(rows, compute_uv=False) ** 2
    share = share / share.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


@pytest.mark.parametrize("name", ["3gpp-umi", "3gpp-uma", "3gpp-rma", "3gpp-inh", "3gpp-inf"])
def test_the_statistics_are_those_of_sionna_by_itself(tiny, name):
    """Mean gain, delay spread and effective rank over 12 draws of 60 devices at the same places."""
    from sionna.phy.channel import tr38901

    config = site(tiny, name, devices=60)
    trials = list(range(12))
    law = open_link(config, trials).law
    ours = [law.draw(k, 0) for k in trials]
    spreads = np.concatenate([law.rays(k).delay_spread_s for k in trials])
    theirs, their_spreads = [], []
    channels = {
        "3gpp-umi": lambda **ends: tr38901.UMi(o2i_model="low", **ends),
        "3gpp-uma": lambda **ends: tr38901.UMa(o2i_model="low", **ends),
        "3gpp-rma": tr38901.RMa,
        "3gpp-inh": lambda **ends: tr38901.InH(indoor_scenario="mixed", **ends),
        "3gpp-inf": lambda **ends: tr38901.InF(factory_scenario="SH", hall_dimensions=(120.0, 120.0, 10.0), **ends),
    }
    with drawing(11):
        first = open_scenario(config.channel, 16)
        channel = channels[name](
            carrier_frequency=3.5e9, ut_array=first.ut_array, bs_array=first.bs_array, direction="uplink", **WHERE
        )
        for k in trials:
            place(channel, config.channel, law.places_m[k], law._inside(k))
            paths, delays = channel(1, 1.0)
            theirs.append(paths[0, 0, :, :, 0, :, 0].sum(dim=-1).T.numpy())
            power = (paths[0, 0, :, :, 0, :, 0].abs() ** 2).mean(dim=0).numpy()
            power /= power.sum(axis=1, keepdims=True)
            late = delays[0, 0].numpy()
            mean = (power * late).sum(axis=1, keepdims=True)
            their_spreads.append(np.sqrt((power * (late - mean) ** 2).sum(axis=1)))

    def gains(draws):
        return np.concatenate([10 * np.log10((np.abs(h) ** 2).mean(axis=1)) for h in draws])

    mine, own = gains(ours), gains(theirs)
    error = np.hypot(mine.std(), own.std()) / np.sqrt(len(mine) / 6)  # large-scale parameters are alike nearby
    assert abs(mine.mean() - own.mean()) < 3 * error
    assert mine.std() == pytest.approx(own.std(), rel=0.2)
    assert np.mean([effective_rank(h) for h in ours]) == pytest.approx(
        np.mean([effective_rank(h) for h in theirs]), rel=0.12
    )
    theirs_ds = np.concatenate(their_spreads)
    assert np.median(spreads) == pytest.approx(np.median(theirs_ds), rel=0.35)


@pytest.mark.parametrize("name", SITES)
def test_path_losses_are_sionnas(tiny, name):
    config = site(tiny, name, devices=40)
    model = f"{name}-sh" if name == "3gpp-inf" else name
    law = open_link(config, [0]).law
    with drawing(0):
        scenario = open_scenario(config.channel, 16)
        place(scenario, config.channel, law.places_m[0], law._inside(0))
    losses, sight = scenario.basic_pathloss[0, 0].numpy(), scenario.outdoor_los[0, 0].numpy()
    distances = law.distances_m[0]
    clear = "3gpp-inf-los" if name == "3gpp-inf" else f"{name}-los"
    expected = np.where(sight, tr38901_db(clear, distances, 3.5e9), tr38901_db(f"{model}-nlos", distances, 3.5e9))
    assert losses == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("profile", ["A", "D"])
def test_clustered_delay_lines_are_sionnas(profile):
    """The covariance over the antennas for a device straight ahead, beside that of Sionna's own CDL."""
    from sionna.phy.channel.tr38901 import CDL, PanelArray

    single = {"polarization": "single", "polarization_type": "V", "carrier_frequency": 3.5e9, **WHERE}
    base = PanelArray(num_rows_per_panel=2, num_cols_per_panel=3, antenna_pattern="omni", **single)
    device = PanelArray(num_rows_per_panel=1, num_cols_per_panel=1, antenna_pattern="omni", **single)
    with drawing(5):
        line = CDL(profile, 100e-9, 3.5e9, device, base, "uplink", **WHERE)
        paths, delays = line(3000, 1, 1.0)
    theirs = paths[:, 0, :, 0, 0, :, 0].sum(dim=-1).numpy()
    rays = profile_rays(read_profile(profile), np.zeros(3000), 6, 100e-9, stream(0, "rays"))
    ours = rays.draw(stream(0, "fading"))
    own, other = (h.T @ h.conj() / len(h) for h in (ours, theirs))
    assert np.trace(own).real / 6 == pytest.approx(1.0, abs=0.05)
    assert np.abs(own - other).max() < 0.08
    assert rays.delays_s.max() == pytest.approx(float(delays.max()), rel=1e-4)


@pytest.mark.parametrize("profile", ["A", "E"])
def test_tapped_delay_lines_are_sionnas(tiny, profile):
    from sionna.phy.channel.tr38901 import TDL

    with drawing(5):
        taps, _ = TDL(profile, 100e-9, 2.4e9, **WHERE)(4000, 1, 1.0)
    theirs = np.abs(taps.flatten(1).sum(dim=1).numpy()) ** 2
    law = open_link(tiny.replace({"channel.fading": "tdl", "channel.profile": profile}), [0]).law
    ours = np.abs(np.concatenate([law.coefficients(0, t)[:, 0] for t in range(350)])) ** 2
    assert stats.ks_2samp(ours, theirs).pvalue > 1e-3
    assert ours.mean() == pytest.approx(1.0, abs=0.05)


def test_thousands_come_in_drops(tiny):
    """Drops differ in their keys alone: those of the first 500 devices do not depend on how many follow."""
    few, many = (open_link(site(tiny, "3gpp-umi", devices=n), [0]).law for n in (DROP, DROP + 7))
    assert many.draw(0, 0).shape == (DROP + 7, 16)
    # Positions and who is indoors are prefixes of each other, and so are the drops.
    assert np.allclose(np.abs(many.amplitude[0][:DROP]), few.amplitude[0], rtol=1e-6)
    assert len(np.unique(np.round(20 * np.log10(many.amplitude[0]), 6))) == DROP + 7


def test_rays_stay_and_phases_are_new(tiny):
    law = open_link(site(tiny, "3gpp-umi"), [0, 1]).law
    assert law.rays(0) is law.rays(0)
    assert not np.array_equal(law.draw(0, 0), law.draw(0, 1))
    power = np.mean([np.abs(law.draw(0, t)) ** 2 for t in range(300)], axis=(0, 2))
    assert power == pytest.approx(law.amplitude[0] ** 2, rel=0.4)


def test_pytorchs_own_generator_is_left_alone(tiny):
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    open_link(site(tiny, "3gpp-umi"), [0]).law.draw(0, 0)
    assert torch.equal(torch.rand(3), expected)


def test_sectors_and_halls(tiny):
    outdoors, indoors = (open_link(site(tiny, name, devices=2000), [0]).law for name in ("3gpp-uma", "3gpp-inf"))
    assert np.abs(outdoors.azimuths).max() <= np.pi / 3
    assert np.abs(indoors.azimuths).max() > np.pi / 2
    assert outdoors.distances_m.min() >= 10.0
    assert outdoors._inside(0).mean() == pytest.approx(0.8, abs=0.04)
    outside = open_link(site(tiny, "3gpp-uma", devices=50, **{"channel.indoor_share": 0.0}), [0]).law
    assert not outside._inside(0).any()


@pytest.mark.parametrize(
    ("antennas", "panel"), [(1, (1, 1)), (2, (1, 2)), (13, (1, 13)), (64, (8, 8)), (100, (10, 10))]
)
def test_panels(antennas, panel):
    rows, columns = panel_of(antennas)
    assert (rows, columns) == panel
    up, across = responses(np.array([0.3]), np.array([1.2]), rows, columns)
    assert np.abs(up) == pytest.approx(np.ones((1, rows)), rel=1e-6)
    assert across.shape == (1, columns)


def test_without_the_extra_one_sentence_says_how_to_get_it(tiny, call, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if "sionna" in name else found(name, *rest)
    )
    for name in ("3gpp-umi", "tdl", "cdl"):
        with pytest.raises(InputError, match=r"pip install 'airfl\[sionna\]'") as refused:
            open_link(tiny.replace({"channel.fading": name}), [0])
        assert "\n" not in str(refused.value)
    code, _, error = call("run", "paper", "--set", "channel.fading=3gpp-umi", "--out", "o")
    assert code == 2
    assert "airfl[sionna]" in error.splitlines()[-1]


def test_a_run_in_a_city_in_one_command(call, tmp_path):
    """The paper's setting with Sionna's channels, 50 devices and 100 antennas; small data and few rounds."""
    small = [
        *("--set", "learning.dataset=digits", "--set", "learning.split=standard", "--set", "learning.model=softmax"),
        *(
            "--set",
            "learning.local_steps=2",
            "--set",
            "system.rounds=2",
            "--trials",
            "1",
            "--set",
            "learning.clip_norm=1.0",
        ),
    ]
    code, out, error = call("run", "paper", "--set", "channel.fading=3gpp-umi", *small, "--out", "o", "--json")
    assert code == 0, error
    summary = json.loads(out.strip().splitlines()[-1])
    assert all(entry["status"] == "done" for entry in summary["schemes"].values())
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    assert "an urban microcell (UMi) of 3GPP TR 38.901, drawn by Sionna for positions of ours" in page
    assert "the median without a line of sight" in page
