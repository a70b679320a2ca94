"""Every combiner method: feasible, invariant, honest about failure; the certificate a true lower bound."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from airfl.analysis.combiners import compare_combiners, seeded_channels
from airfl.catalogue import NEEDS_ANTENNAS
from airfl.errors import InputError
from airfl.transceiver import COMBINERS, certificate
from airfl.transceiver.certificates import certify
from airfl.transceiver.combiners.coordinate import coordinate
from airfl.transceiver.combiners.multicast import Effort, multicast
from airfl.transceiver.combiners.zero_forcing import zero_forcing
from airfl.transceiver.design import received_gains
from tests.test_transceiver import channels

FAST = [name for name in COMBINERS if name not in ("sdr", "auto")]
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
    assert torch.allclose(design.norm[1, 2], COMBINERS[name](h[1, 2]).norm, rtol=1e-6)


@every_method
@small
@given(seed=st.integers(0, 10**6), scale=st.floats(1e-6, 1e6), angle=st.floats(0, 6.3))
def test_scale_phase_permutation(name, seed, scale, angle):
    h = channels(seed, *shapes(name, seed))
    norm = float(COMBINERS[name](h).norm)
    turned = h * (scale * np.exp(1j * angle))
    assert float(COMBINERS[name](turned).norm) * scale == pytest.approx(norm, rel=1e-4)
    if name in ("multicast", "dominant"):  # the others fix or start from the phases of each device
        own = torch.from_numpy(np.exp(1j * np.random.default_rng(seed).uniform(0, 6.3, h.shape[0])))
        assert float(COMBINERS[name](h * own[:, None]).norm) == pytest.approx(norm, rel=1e-3)
    if name != "coordinate":
        order = torch.from_numpy(np.random.default_rng(seed).permutation(h.shape[0]))
        assert float(COMBINERS[name](h[order]).norm) == pytest.approx(norm, rel=1e-3)


@small
@given(seed=st.integers(0, 10**6))
def test_never_worse_than_zero_forcing(seed):
    h = channels(seed, 3, *shapes("coordinate", seed))
    closed = zero_forcing(h).norm
    for method in (coordinate, multicast):
        assert bool((method(h).norm <= closed * (1 + 1e-12)).all())
    # Even without any effort.
    assert bool((multicast(h, Effort(1, 1, 1, 0)).norm <= closed * (1 + 1e-12)).all())


def test_against_brute_force_over_phases():
    """Three devices: every pair of phases on a fine grid, moduli at one (the optimum for equal, near-orthogonal h)."""
    h = channels(3, 3, 6, spread_db=3.0)
    gram_inverse = torch.linalg.inv(h.conj() @ h.mT).numpy()
    grid = np.exp(1j * np.linspace(0, 2 * np.pi, 400, endpoint=False))
    u = np.stack([np.ones((400, 400), complex), *np.meshgrid(grid, grid)])
    best = np.einsum("iab,ij,jab->ab", u.conj(), gram_inverse, u).real.min()
    for method in (coordinate, multicast):
        assert float(method(h).norm) ** 2 <= best * (1 + 1e-3)
        assert float(method(h).norm) ** 2 >= float(certificate(h)) * (1 - 1e-9)


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
        ours, theirs = multicast(h).norm, sdr(h, samples=200).norm
        assert bool((ours <= theirs * (1 + 1e-6)).all())


@pytest.mark.parametrize(("active", "limit"), [(45, 1.065), (90, 1.18), (100, 1.2), (200, 1.4)])
def test_near_optimal_on_the_papers_channels(active, limit):
    """Medians over a few of the instances that benchmarks/combiner.py takes 50 of."""
    study = compare_combiners(100, active, 9 if active < 200 else 4, seed=1, method="multicast")
    assert study.methods["multicast"].over_bound_median <= limit


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
    with pytest.raises(InputError, match="K <= m"):
        coordinate(channels(0, 5, 4))


def test_design_command(call, tmp_path):
    size = ["--antennas", "8", "--active", "5", "--rounds", "3", "--seed", "1"]
    code, out, _ = call("design", *size, "--method", "all", "--certify", "--json")
    methods = json.loads(out)["methods"]
    assert code == 0
    assert {"multicast", "coordinate", "zero-forcing", "mrc", "dominant"} <= set(methods)
    for row in methods.values():
        assert 1.0 - 1e-9 <= row["norm2_over_bound_median"] <= row["norm2_over_bound_max"]
        assert row["status"] == "ok"
        assert row["seconds_per_instance"] > 0
    assert methods["multicast"]["norm2_over_bound_median"] <= methods["zero-forcing"]["norm2_over_bound_median"]
    assert list(json.loads(call("design", *size[:2], "--active", "20", "--json")[1])["methods"]) == ["auto"]
    code, out, _ = call("design", *size, "--out", str(tmp_path / "d"))
    assert "auto" in out
    assert (tmp_path / "d" / "combiners.png").is_file()
    assert (
        json.loads(call("design", *size, "--no-certify", "--json")[1])["methods"]["auto"]["norm2_over_bound_median"]
        is None
    )
    for bad, words in (
        (["--method", "magic"], "no combiner named"),
        (["--antennas", "0"], "at least 1"),
        (["--active", "0"], "at least 1"),
        (["--rounds", "0"], "at least 1"),
        (["--antennas", "4", "--method", "zero-forcing"], "as many antennas"),
    ):
        code, _, error = call("design", *size, *bad)
        assert (code, words in error) == (2, True), error


@pytest.mark.parametrize(("active", "antennas"), [(100, 4), (300, 2), (64, 1)])
def test_many_devices_with_and_without_a_working_set(active, antennas, monkeypatch):
    """Iterating on the hardest devices only is a matter of speed: all are reached, and the norm is about the same."""
    h = seeded_channels(antennas, active, 4, 3)
    whole = multicast(h)
    monkeypatch.setattr(sys.modules["airfl.transceiver.combiners.multicast"], "LARGE", 0)
    part = multicast(h)
    assert set(part.status) == set(whole.status) == {"ok"}
    assert float(received_gains(part.combiner, h).abs().min()) >= 1 - 1e-9
    assert float((part.norm / whole.norm).median()) < 2.0


def test_certify_fills_in_the_gap():
    h = channels(0, 3, 4, 6)
    design = multicast(h)
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
    assert float(together[1]) <= float(multicast(ordinary).norm) ** 2
    assert float(certificate(ordinary)) == pytest.approx(float(certificate(torch.stack([ordinary, same]))[0]), rel=1e-9)


def test_many_devices_do_not_depend_on_batching(monkeypatch):
    """The iteration amplifies rounding; in float64 what is left of it is far below anything that matters."""
    h = seeded_channels(6, 2000, 3, 2)
    monkeypatch.setattr(sys.modules["airfl.transceiver.combiners.multicast"], "LARGE", 0)
    together, alone = multicast(h).norm, torch.stack([multicast(one).norm for one in h])
    assert torch.allclose(together, alone, rtol=1e-6)
