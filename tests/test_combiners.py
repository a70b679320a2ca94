"""Every combiner method: feasible, invariant, honest about failure; the certificate a true lower bound."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from airfl.analysis.combiners import compare_combiners, seeded_channels
from airfl.catalogue import NEEDS_ANTENNAS
from airfl.config import preset
from airfl.errors import InputError
from airfl.paper.studies import read_rows
from airfl.parallel import torch_threads
from airfl.transceiver import COMBINERS, certificate, open_radio
from airfl.transceiver.certificates import certify
from airfl.transceiver.combiners.annealed import Effort, annealed, annealed_for_most
from airfl.transceiver.combiners.polish import least_norm, polished
from airfl.transceiver.combiners.zero_forcing import zero_forcing
from airfl.transceiver.design import finish, received_gains
from tests.test_transceiver import channels

RESULTS = Path(__file__).parents[1] / "experiments" / "results"
FAST = [name for name in COMBINERS if name != "sdr"]
every_method = pytest.mark.parametrize("name", FAST)
small = settings(max_examples=15)


def shapes(name, seed):
    k = 2 + seed % 5
    return (k, k + 2 + seed % 3) if name in NEEDS_ANTENNAS or seed % 2 else (2 * k, k)


@every_method
@small
@given(seed=st.integers(0, 10**6))
def test_every_constraint_holds_and_batching_changes_nothing(name, seed):
    h = channels(seed, 2, 3, *shapes(name, seed))
    design = COMBINERS[name](h)
    assert design.norm.shape == (2, 3)
    assert set(design.status) == {"ok"}
    heard = received_gains(design.combiner, h).abs()
    assert float(heard.min()) >= 1 - 1e-9
    assert torch.allclose(design.norm, torch.linalg.vector_norm(design.combiner, dim=-1), rtol=1e-12)
    assert torch.allclose(design.norm[1, 2], COMBINERS[name](h[1, 2]).norm, rtol=1e-12)


@every_method
@small
@given(seed=st.integers(0, 10**6), angle=st.floats(0, 6.3))
def test_rounding_does_not_choose_the_phase_of_a_combiner(name, seed, angle):
    """wᴴh of the first device is real and positive: with another phase Re(wᴴn) is another draw of the noise."""
    h = channels(seed, 3, *shapes(name, seed))
    w = COMBINERS[name](h).combiner
    first = received_gains(w, h)[:, 0]
    assert torch.allclose(first, first.abs().to(torch.complex128), rtol=1e-12)
    turned = finish(w * complex(math.cos(angle), math.sin(angle)), h, torch.ones(3, dtype=torch.bool), 0).combiner
    assert torch.allclose(turned, w, rtol=1e-12)


@every_method
@small
@given(seed=st.integers(0, 10**6), scale=st.floats(1e-6, 1e6), angle=st.floats(0, 6.3))
def test_scale_phase_permutation(name, seed, scale, angle):
    h = channels(seed, *shapes(name, seed))
    norm = float(COMBINERS[name](h).norm)
    turned = h * (scale * np.exp(1j * angle))
    assert float(COMBINERS[name](turned).norm) * scale == pytest.approx(norm, rel=1e-3)
    if name == "auto":  # the others fix the phase of each device
        own = torch.from_numpy(np.exp(1j * np.random.default_rng(seed).uniform(0, 6.3, h.shape[0])))
        assert float(COMBINERS[name](h * own[:, None]).norm) == pytest.approx(norm, rel=0.05)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(h.shape[0]))
    assert float(COMBINERS[name](h[order]).norm) == pytest.approx(norm, rel=0.05)


@small
@given(seed=st.integers(0, 10**6))
def test_never_worse_than_zero_forcing(seed):
    h = channels(seed, 3, *shapes("zero-forcing", seed))
    closed = zero_forcing(h).norm
    for effort in (0.1, 1.0):
        assert bool((annealed(h, effort).norm <= closed * (1 + 1e-12)).all())


def test_against_brute_force_over_phases():
    """Three devices: every pair of phases on a fine grid, moduli at one (the optimum for equal, near-orthogonal h)."""
    h = channels(3, 3, 6, spread_db=3.0)
    gram_inverse = torch.linalg.inv(h.conj() @ h.mT).numpy()
    grid = np.exp(1j * np.linspace(0, 2 * np.pi, 400, endpoint=False))
    u = np.stack([np.ones((400, 400), complex), *np.meshgrid(grid, grid)])
    best = np.einsum("iab,ij,jab->ab", u.conj(), gram_inverse, u).real.min()
    assert float(annealed(h).norm) ** 2 <= best * (1 + 1e-3)
    assert float(annealed(h).norm) ** 2 >= float(certificate(h)) * (1 - 1e-9)


@pytest.mark.parametrize("num_devices", [3, 40, 400])
def test_against_brute_force_over_all_directions_of_two_antennas(num_devices):
    """‖w‖ = 1 up to a phase is a sphere: every point of a fine grid, with and without path loss."""
    angle, phase = np.meshgrid(np.linspace(0, np.pi / 2, 150), np.linspace(0, 2 * np.pi, 300, endpoint=False))
    grid = torch.from_numpy(np.stack([np.cos(angle).ravel() + 0j, (np.sin(angle) * np.exp(1j * phase)).ravel()]))
    for h in channels(num_devices, 2, num_devices, 2, spread_db=0.0), seeded_channels(2, num_devices, 2, 7):
        for one in h:
            best = float(1 / (one.conj() @ grid).abs().square().amin(dim=0).max())
            assert float(annealed(one).norm) ** 2 <= best * 1.01, "a grid of directions finds a better one"


@small
@given(seed=st.integers(0, 10**6), k=st.integers(1, 9), m=st.integers(1, 7), steps=st.integers(1, 40))
def test_certificate_is_below_every_feasible_combiner(seed, k, m, steps):
    """However early it is stopped."""
    h = channels(seed, 2, k, m)
    bound = certificate(h, iterations=steps)
    assert bool((bound > 0).all())
    for name in FAST:
        if name not in NEEDS_ANTENNAS or k <= m:
            design = COMBINERS[name](h)
            good = torch.tensor([word == "ok" for word in design.status])
            assert bool((design.norm.square() >= bound * (1 - 1e-9))[good].all())


def test_certificate_of_one_device_is_exact():
    h = channels(0, 5, 1, 8)
    assert torch.allclose(certificate(h, tolerance=1e-8), 1 / h.abs().square().sum(dim=(-1, -2)), rtol=1e-6)


def test_relaxation_value_against_cvxpy_and_sdr_is_never_better():
    pytest.importorskip("cvxpy")
    from airfl.transceiver.combiners.sdr import relaxation_value, sdr

    for k, m in ((6, 10), (10, 10), (12, 6)):
        h = seeded_channels(m, k, 2, 5)
        bound = certificate(h, tolerance=1e-5)
        for i in range(2):
            assert float(bound[i]) == pytest.approx(relaxation_value(h[i].numpy()), rel=0.01)
        ours, theirs = annealed(h).norm, sdr(h, samples=200).norm
        assert bool((ours <= theirs * (1 + 1e-6)).all())


@pytest.mark.parametrize(("active", "limit"), [(45, 1.06), (90, 1.14), (100, 1.17), (200, 1.35)])
def test_near_optimal_on_the_papers_channels(active, limit):
    """Medians over a few of the instances that benchmarks/combiner.py takes 50 of."""
    study = compare_combiners(100, active, 9 if active < 200 else 4, seed=1)
    assert study.methods["auto"].over_bound_median <= limit


@pytest.mark.parametrize(
    ("num_devices", "num_antennas", "limit"),
    [(200, 100, 0.63), (1000, 100, 2.2), (3000, 64, 7.8), (6000, 16, 55), (6000, 4, 260)],
)
def test_thousands_of_unit_devices(num_devices, num_antennas, limit):
    """Medians of a few; the aims of benchmarks/combiner.py, which takes 20 of each."""
    h = channels(1, 3, num_devices, num_antennas, spread_db=0.0) / np.sqrt(2)
    assert float(annealed(h).norm.square().median()) <= limit


def test_what_cannot_be_served():
    h = channels(0, 4, 3, 5)
    h[1, 2] = 0
    h[2, 0, 0] = torch.nan
    h[3, 1] = h[3, 0]  # two devices in one place: no zero forcing, but one combiner reaches both
    for name in FAST:
        status = COMBINERS[name](h).status
        assert status[0] == "ok"
        assert status[1] != "ok"
        assert status[2] != "ok"
        assert (status[3] == "ok") == (name not in NEEDS_ANTENNAS)
        with pytest.raises(InputError, match="failed on"):
            COMBINERS[name](h).require_ok()
    assert certificate(h)[1] == certificate(h)[2] == 0.0
    for shape in ((0, 4), (4, 0)):
        for name in FAST:
            with pytest.raises(InputError):
                COMBINERS[name](torch.ones(shape, dtype=torch.complex128))


def test_design_command(call, tmp_path):
    size = ["--antennas", "8", "--active", "5", "--rounds", "3", "--seed", "1"]
    code, out, _ = call("design", *size, "--method", "all", "--certify", "--json")
    methods = json.loads(out)["methods"]
    assert code == 0
    assert {"auto", "zero-forcing", "mrc"} <= set(methods)
    for row in methods.values():
        assert 1.0 - 1e-9 <= row["norm2_over_bound_median"] <= row["norm2_over_bound_max"]
        assert row["status"] == "ok"
        assert row["seconds_per_instance"] > 0
    assert methods["auto"]["norm2_over_bound_median"] <= methods["zero-forcing"]["norm2_over_bound_median"]
    many = json.loads(call("design", *size[:2], "--active", "20", "--effort", "0.5", "--json")[1])
    assert list(many["methods"]) == ["auto"]
    assert many["effort"] == 0.5
    assert 0 < many["lower_bound_median"] <= many["methods"]["auto"]["norm2_median"]
    assert many["counting_figure_median"] > 0
    shown = call("design", *size[:2], "--active", "40")[1]
    assert "Proven: ‖w‖² ≥" in shown
    assert "That is no bound" in " ".join(shown.split())
    code, out, _ = call("design", *size, "--out", str(tmp_path / "d"))
    assert "auto" in out
    assert (tmp_path / "d" / "combiners.png").is_file()
    assert (
        json.loads(call("design", *size, "--no-certify", "--json")[1])["methods"]["auto"]["norm2_over_bound_median"]
        is None
    )
    for bad, words in (
        (["--method", "magic"], "no combiner named"),
        (["--method", "ascent"], "no combiner `ascent` any more; use `auto`"),
        (["--effort", "0"], "`effort` must be between 0.1 and 100"),
        (["--antennas", "0"], "at least 1"),
        (["--active", "0"], "at least 1"),
        (["--rounds", "0"], "at least 1"),
        (["--antennas", "4", "--method", "zero-forcing"], "as many antennas"),
    ):
        code, _, error = call("design", *size, *bad)
        assert (code, words in error) == (2, True), error


def test_certify_fills_in_the_gap():
    h = channels(0, 3, 4, 6)
    design = annealed(h)
    assert bool(torch.isinf(design.gap).all())
    proven = certify(design, h)
    assert bool((proven.gap >= -1e-9).all())
    assert bool((proven.gap < 1.0).all())
    gains = received_gains(proven.combiner, h) * proven.tx_scaling(h)
    assert torch.allclose(gains, torch.ones((), dtype=torch.complex128))


def test_extremes_and_empty_batches():
    h = channels(0, 2, 3, 5)
    for scale in (1e-160, 1e-300, 1e160):
        for name in FAST:
            assert set(COMBINERS[name](h * scale).status) <= {"infeasible", "singular"}
        assert bool((certificate(h * scale) == 0).all())
    for name in FAST:
        assert COMBINERS[name](h[:0]).norm.shape == (0,)


def test_certificate_survives_what_cannot_be_factored_and_does_not_depend_on_its_neighbours():
    same = channels(1, 1, 8).expand(12, 8).contiguous()
    ordinary = channels(2, 12, 8)
    together = certificate(torch.stack([same, ordinary]), iterations=400, tolerance=1e-12)
    assert float(together[0]) == pytest.approx(1 / float(same[0].abs().square().sum()), rel=1e-3)
    assert float(together[1]) <= float(annealed(ordinary).norm) ** 2
    assert float(certificate(ordinary)) == pytest.approx(float(certificate(torch.stack([ordinary, same]))[0]), rel=1e-9)


@pytest.mark.parametrize(("active", "antennas"), [(2, 1), (7, 3), (9, 16), (45, 100), (300, 2), (2000, 6)])
def test_bits_do_not_depend_on_batching_or_threads(active, antennas):
    """The search amplifies rounding, so every product and sum has to come out the same whatever is beside it."""
    h = seeded_channels(antennas, active, 5, 2)
    together = annealed(h).combiner
    assert torch.equal(together, torch.stack([annealed(one).combiner for one in h]))
    assert torch.equal(together[1:4], annealed(h[1:4]).combiner)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(3 - min(threads, 2))
        assert torch.equal(together, annealed(h).combiner)
    finally:
        torch.set_num_threads(threads)


def test_one_antenna_and_one_device_are_exact():
    h = channels(0, 4, 30, 1)
    assert torch.allclose(annealed(h).norm, 1 / h.abs().amin(dim=(1, 2)), rtol=1e-9)
    h = channels(0, 4, 1, 9)
    assert torch.allclose(annealed(h).norm, 1 / torch.linalg.vector_norm(h, dim=(1, 2)), rtol=1e-9)


def test_more_effort_takes_more_and_finds_more():
    for size in ((45, 100), (6000, 16), (6000, 4), (1000, 100)):
        work = [(how.starts + how.later) * how.steps for how in (Effort.of(e, *size) for e in (0.1, 0.5, 1, 4, 30))]
        assert work == sorted(set(work)), "every effort costs more than the one before"
    h = channels(5, 6, 600, 4, spread_db=0.0)
    little, usual, much = (float(annealed(h, effort).norm.log().mean()) for effort in (0.25, 1.0, 6.0))
    assert much < usual < little


def test_a_much_stronger_device_costs_nothing():
    """One that is 200 dB stronger than the others is reached by any combiner for them."""
    h = channels(1, 3, 20, 6, spread_db=0.0)
    loud = torch.cat([h, 1e10 * h[:, :1] + 1e9], dim=1)
    assert torch.allclose(annealed(loud).norm, annealed(h).norm, rtol=0.05)


@small
@given(seed=st.integers(0, 10**6), rounds=st.integers(0, 3))
def test_polishing_never_makes_longer_and_its_convex_problem_is_solved(seed, rounds):
    h = channels(seed, 3, *shapes("auto", seed))
    first = channels(seed + 1, 3, h.shape[2])

    def length(w):
        return torch.linalg.vector_norm(w, dim=1) / (h.conj() @ w.unsqueeze(2)).squeeze(2).abs().amin(dim=1)

    assert bool((length(polished(h, first, rounds)) <= length(first) * (1 + 1e-12)).all())


@pytest.mark.parametrize(("count", "size"), [(5, 8), (40, 6)])
def test_least_norm_against_cvxpy(count, size):
    """Both ways of solving its systems, fewer constraints than unknowns and more."""
    cvxpy = pytest.importorskip("cvxpy")
    rng = np.random.default_rng(count)
    rows = np.abs(rng.standard_normal((count, size)))  # x = (1, …, 1) times enough satisfies all
    start = 1.1 * np.ones(size) / rows.sum(axis=1).min()
    found = least_norm(torch.from_numpy(rows)[None], torch.from_numpy(start)[None])[0].numpy()
    x = cvxpy.Variable(size)
    cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(x)), [rows @ x >= 1]).solve(solver=cvxpy.CLARABEL)
    assert np.linalg.norm(found) == pytest.approx(np.linalg.norm(x.value), rel=1e-4)
    assert (rows @ found).min() >= 1 - 1e-6


@small
@given(seed=st.integers(0, 10**6), k=st.integers(2, 9), m=st.integers(1, 6), data=st.data())
def test_leaving_out_the_worst_aligned(seed, k, m, data):
    h = channels(seed, 2, k, m)
    keep = data.draw(st.integers(1, k))
    design, kept = annealed_for_most(h, keep)
    assert kept.shape == (2, keep)
    assert bool((kept.diff(dim=1) > 0).all()), "sorted, nobody twice"
    served = h.gather(1, kept.unsqueeze(2).expand(-1, -1, m))
    assert float(received_gains(design.combiner, served).abs().min()) >= 1 - 1e-9
    assert bool((design.norm.square() >= certificate(served) * (1 - 1e-9)).all())


def test_leaving_out_against_brute_force():
    """Five of seven devices: every choice, each with its own combiner."""
    for seed in range(4):
        h = channels(seed, 7, 2, spread_db=3.0)
        best = min(float(annealed(h[list(five)]).norm) for five in itertools.combinations(range(7), 5))
        assert float(annealed_for_most(h, 5)[0].norm) <= best * 1.05
    everybody, kept = annealed_for_most(h, 7)
    assert kept.tolist() == list(range(7))
    assert float(everybody.norm) == pytest.approx(float(annealed(h).norm), rel=0.05)


def test_no_jumps_from_ten_devices_to_a_hundred_thousand():
    """The committed curve: it rises, and no point is half a dB from the middle of its neighbours."""
    rows = read_rows(RESULTS / "combiner_curve.csv")
    assert len(rows) == 40
    assert (rows[0]["devices"], rows[-1]["devices"]) == (10, 100_000)
    level = np.array([10 * math.log10(row["norm2_median"]) for row in rows])
    assert (np.diff(level) > 0).all()
    assert np.abs(level[1:-1] - (level[:-2] + level[2:]) / 2).max() < 0.5
    for row in rows:
        assert row["bound_median"] <= row["norm2_median"]
        assert row["norm2_low"] <= row["norm2_median"] <= row["norm2_high"]


@pytest.mark.parametrize("antennas", [2, 8, 40])
def test_one_more_device_or_antenna_changes_little(antennas):
    """Across every border of the effort: with nested devices the norm rises a little at a time."""
    h = channels(9, 3, 1300 if antennas < 40 else 520, antennas + 1, spread_db=0.0)
    for count in (3, antennas, antennas + 1, 2 * antennas, 10_000 // antennas, 20_000 // antennas):
        count = min(count, h.shape[1] - 1)
        served, more = h[:, :count, :antennas], h[:, : count + 1, :antennas]
        step = 20 * float((annealed(more).norm / annealed(served).norm).log10().median())
        assert -0.5 <= step <= 0.5 + 20 / count
        wider = 20 * float((annealed(h[:, :count]).norm / annealed(served).norm).log10().median())
        assert wider <= 0.5


def test_former_names_effort_and_alignment_in_a_configuration():
    config = preset("paper")
    with pytest.raises(InputError, match="no combiner `ascent` any more; use `auto`"):
        config.replace({"scheme.combiner": "ascent"})
    with pytest.raises(InputError, match='`effort` goes with combiner = "auto"'):
        config.replace({"scheme.combiner": "mrc", "scheme.effort": 2.0})
    with pytest.raises(InputError, match="both are found together"):
        config.replace({"scheme.combiner": "zero-forcing", "scheme.selection": "aligned"})
    with pytest.raises(InputError, match="effort"):
        config.replace({"scheme.combiner": "auto", "scheme.effort": 0.0})


def test_more_effort_is_designed_anew_and_a_radio_takes_its_device():
    few = {"system.num_devices": 40, "system.num_antennas": 3, "system.participation": 1.0, "system.rounds": 4}
    config = preset("paper").replace({**few, "scheme.combiner": "auto"})
    radio = open_radio(config, (0, 1), torch.device("cpu"))
    usual = radio.rounds(config, range(4))[0]
    more = radio.rounds(config.replace({"scheme.effort": 4.0}), range(4))[0]
    assert len(radio.found) == 2
    assert float(more.norm.log().mean()) <= float(usual.norm.log().mean())


def test_leaving_out_does_not_hide_what_cannot_be_served():
    """Whichever device it is, and whether or not there is a closed form for those that are kept."""
    for keep in (2, 3, 4, 5):
        for device, value in ((0, torch.nan), (5, torch.nan), (2, 0.0)):
            h = channels(3, 2, 6, 3)
            h[0, device] = value
            assert annealed_for_most(h, keep)[0].status == ("infeasible", "ok")
    for keep in (0, 7):
        with pytest.raises(InputError, match="between 1 and 6"):
            annealed_for_most(h, keep)
    assert annealed_for_most(h[:0], 4)[1].shape == (0, 4)


@pytest.mark.parametrize("antennas", [4, 16])
@pytest.mark.parametrize("far", [False, True])
def test_with_very_many_devices_a_sample_and_the_worst_off_lead_as_far(antennas, far, monkeypatch):
    """In dB and on average over three channels; here a hundredth of the devices is looked at at most times."""
    generator = torch.Generator().manual_seed(5)
    h = torch.randn(3, 20_000, antennas, dtype=torch.complex128, generator=generator)
    if far:
        h *= torch.rand(3, 20_000, 1, dtype=torch.float64, generator=generator).sqrt().clamp(min=0.02) ** -1.88
    everybody = annealed(h)
    monkeypatch.setattr("airfl.transceiver.combiners.annealed.MANY", 2**13)
    monkeypatch.setattr("airfl.transceiver.combiners.many.COARSE", 2**11)
    monkeypatch.setattr("airfl.transceiver.combiners.many.COUNT", 128)
    found = annealed(h)
    assert not torch.equal(found.combiner, everybody.combiner)
    assert float((h.conj() @ found.combiner.unsqueeze(-1)).abs().min()) >= 1 - 1e-9
    assert float(20 * (found.norm / everybody.norm).log10().mean()) < 0.6


def test_bits_do_not_depend_on_batching_or_threads_with_very_many_devices(monkeypatch):
    monkeypatch.setattr("airfl.transceiver.combiners.annealed.MANY", 2**11)
    monkeypatch.setattr("airfl.transceiver.combiners.many.COARSE", 2**9)
    monkeypatch.setattr("airfl.transceiver.combiners.many.HELD", 2**18)  # starts in several blocks
    h = torch.randn(3, 5_000, 3, dtype=torch.complex128, generator=torch.Generator().manual_seed(3))
    together = annealed(h).combiner
    assert torch.equal(together, torch.stack([annealed(one).combiner for one in h]))
    with torch_threads(1):
        assert torch.equal(together, annealed(h).combiner)


def test_starts_in_blocks_are_the_same_search(monkeypatch):
    """One instance with too many starts for the memory is searched a block of starts at a time."""
    h = seeded_channels(4, 300, 2, 1)
    whole = annealed(h, 3.0)
    monkeypatch.setattr("airfl.transceiver.combiners.annealed.MOST_HEARD", 1)
    assert torch.allclose(annealed(h, 3.0).norm, whole.norm, rtol=0.02)
