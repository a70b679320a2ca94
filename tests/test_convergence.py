from __future__ import annotations

import csv
import dataclasses
import json
import math

import mpmath
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from experiments.convergence import RESULTS, full_gradient, shards_of
from hypothesis import given
from hypothesis import strategies as st
from torch.func import functional_call

import airfl
from airfl import ConvergenceBound
from airfl.air import Setting
from airfl.devices import clip, load_samples, open_task
from airfl.devices.updates import UpdateBlock
from airfl.paper.convergence_figure import GradientTrace, draw_convergence, running_mean
from airfl.simulate import open_simulation

sizes = st.floats(1e-3, 1e3)
bounds = st.builds(
    ConvergenceBound,
    learning_rate=sizes,
    local_steps=st.integers(1, 1000),
    smoothness=sizes,
    lipschitz=sizes,
    gradient_var=sizes,
    dissimilarity=sizes,
    initial_gap=sizes,
    clip_norm=sizes,
    num_devices=st.integers(1, 10_000),
    dim=st.integers(1, 10**6),
    noise_power=sizes,
    combiner_norm2=st.lists(sizes, min_size=1, max_size=6),
    participation=st.floats(0.01, 1.0),
    misalignment=sizes,
    real_part=st.booleans(),
)

PAPER = {
    "learning_rate": 0.005,
    "local_steps": 525,
    "smoothness": 1.0,
    "lipschitz": 1.0,
    "gradient_var": 1.0,
    "dissimilarity": 0.0,
    "initial_gap": math.log(10.0),
    "clip_norm": math.sqrt(0.012 * 582_026),
    "num_devices": 50,
    "dim": 582_026,
    "noise_power": 1.0,
    "combiner_norm2": [2 * 10_726.0] * 50,  # v = 10,726 is half of ‖w‖²σ²
    "participation": 0.9,
}


def oracle(b: ConvergenceBound, norms, misaligned) -> dict[str, mpmath.mpf]:
    """The proposition as it is printed, in 50 digits, its sums written out."""
    with mpmath.workdps(50):
        eta, big_l, g, c, r = map(
            mpmath.mpf, (b.learning_rate, b.smoothness, b.lipschitz, b.clip_norm, b.participation)
        )
        sl2, sg2, gap = mpmath.mpf(b.gradient_var), mpmath.mpf(b.dissimilarity), mpmath.mpf(b.initial_gap)
        q, n, d, t, sigma2 = b.local_steps, b.num_devices, b.dim, len(norms), mpmath.mpf(b.noise_power)
        if b.real_part:
            sigma2 /= 2
        total = mpmath.mpf(0)
        for norm2, lam in zip(norms, misaligned, strict=True):
            total += d * mpmath.mpf(norm2) * sigma2 + r * n * mpmath.mpf(lam)
        return {
            "initial_gap": 1 / (eta * q * t) * gap,
            "lipschitz": g**2,
            "local_drift": big_l**2 * eta**2 * q * (sl2 + q * sg2),
            "clipping": eta * big_l * c**2 / q,
            "estimation": big_l * eta / (r**2 * n**2 * q * t) * total,
        }


@given(bounds, st.data())
def test_every_term_equals_the_printed_formula(bound, data):
    misaligned = data.draw(st.lists(sizes, min_size=bound.rounds, max_size=bound.rounds))
    for given_as, rows in ((misaligned, misaligned), (0.0, [0.0] * bound.rounds)):
        one = dataclasses.replace(bound, misalignment=given_as)
        expected = oracle(one, bound.combiner_norm2, rows)
        assert one.terms()._asdict() == pytest.approx({k: float(v) for k, v in expected.items()}, rel=1e-12)
        assert one.terms().total == pytest.approx(float(sum(expected.values())), rel=1e-12)


@given(bounds)
def test_scaling(bound):
    terms = bound.terms()
    quiet = dataclasses.replace(bound, misalignment=0.0)
    noise = quiet.terms().estimation

    def changed(**values):
        return dataclasses.replace(quiet, **values).terms()

    # The same combiner for twice the devices: a quarter. Half the participation: four times. The rest is as it was.
    assert changed(num_devices=2 * bound.num_devices).estimation == pytest.approx(noise / 4)
    assert changed(participation=bound.participation / 2).estimation == pytest.approx(4 * noise)
    assert changed(num_devices=2 * bound.num_devices)[:4] == quiet.terms()[:4]
    assert changed(dim=2 * bound.dim).estimation == pytest.approx(2 * noise)
    assert changed(local_steps=2 * bound.local_steps).estimation == pytest.approx(noise / 2)
    # Rounds repeated: the mean noise stays, the start is forgotten.
    longer = changed(combiner_norm2=list(bound.combiner_norm2) * 2)
    assert longer.estimation == pytest.approx(noise)
    assert longer.initial_gap == pytest.approx(terms.initial_gap / 2)
    # The two readings of the noise power differ by 2, and only for the noise.
    half, whole = changed(real_part=True), changed(real_part=False)
    assert whole.estimation == pytest.approx(2 * half.estimation)
    assert whole[:4] == half[:4]
    assert np.mean(bound.estimation_by_round()) == pytest.approx(terms.estimation)
    assert bound.step_product == pytest.approx(bound.learning_rate * bound.local_steps * bound.smoothness)


@given(bounds, st.floats(1.01, 10.0))
def test_monotone_and_never_below_what_is_assumed(bound, factor):
    before = bound.terms()
    assert before.total >= bound.lipschitz**2
    for name in ("smoothness", "lipschitz", "gradient_var", "dissimilarity", "initial_gap", "clip_norm", "noise_power"):
        after = dataclasses.replace(bound, **{name: factor * getattr(bound, name)}).terms()
        assert all(b >= a for a, b in zip(before, after, strict=True))
        assert after != before
    louder = [*bound.combiner_norm2[:-1], factor * bound.combiner_norm2[-1]]
    assert dataclasses.replace(bound, combiner_norm2=louder).terms().estimation > before.estimation
    fewer = dataclasses.replace(bound, participation=bound.participation / factor, misalignment=0.0)
    assert fewer.terms().estimation > dataclasses.replace(bound, misalignment=0.0).terms().estimation


def test_the_papers_setting():
    """The numbers of docs/paper.md, for both readings of Q = 5."""
    epochs, steps = ConvergenceBound(**PAPER), ConvergenceBound(**{**PAPER, "local_steps": 5})
    assert epochs.terms() == pytest.approx((0.01754, 1.0, 0.013125, 0.06652, 58.72), rel=1e-3)
    assert steps.terms() == pytest.approx((1.842, 1.0, 0.000125, 6.984, 6166.0), rel=1e-3)
    assert (epochs.step_product, steps.step_product) == pytest.approx((2.625, 0.025))
    assert dataclasses.replace(epochs, real_part=True).terms().estimation == pytest.approx(29.36, rel=1e-3)
    apart = dataclasses.replace(epochs, gradient_var=0.0, dissimilarity=1.0)
    assert apart.terms().local_drift == pytest.approx(2.625**2)


@pytest.mark.parametrize("uplink", ["equivalent", "signal"])
def test_the_real_part_reading_is_the_measured_error(tiny, uplink):
    """d‖w‖²σ²/2 is the squared error of the received sum; the published d‖w‖²σ² is twice that."""
    config = tiny.replace({"system.rounds": 6, "scheme.names": ["airfl-dp"], "scheme.uplink": uplink})
    simulation = open_simulation(
        config, "airfl-dp", open_task(config, [0, 1], load_samples(config, torch.device("cpu")))
    )
    plan, generator = simulation.schedule, torch.Generator().manual_seed(3)
    assert plan.norm is not None
    measured = np.zeros((2, 6))
    for t in range(6):
        setting = plan.setting(t)
        updates, _ = clip(torch.randn(2 * 9, plan.dim, generator=generator), plan.clip_norm)
        measured[:, t] = squared_error(simulation, setting, updates)
    for row in range(2):
        bound = bound_of(config, plan, plan.norm[row].square().tolist(), real_part=True)
        # Over T·d Gaussian numbers the mean square is off by √(2/(T·d)) of itself.
        ratio = measured[row].sum() / sum(bound.estimation_errors())
        assert ratio == pytest.approx(1.0, abs=5 * math.sqrt(2 / (6 * plan.dim)))
        published = dataclasses.replace(bound, real_part=False)
        assert sum(published.estimation_errors()) == pytest.approx(2 * sum(bound.estimation_errors()))
        in_units = measured[row].mean() * bound.smoothness * 0.1 / (9**2 * 3)
        assert bound.terms().estimation == pytest.approx(in_units, rel=5 * math.sqrt(2 / (6 * plan.dim)))


def test_misaligned_gains_stay_below_the_bound(tiny):
    """With channels known badly, rnΛ_t covers what the sum is off by."""
    config = tiny.replace({"channel.csi_error": 0.3, "privacy.epsilon": 1e7, "scheme.names": ["airfl-dp"]})
    simulation = open_simulation(config, "airfl-dp", open_task(config, [0], load_samples(config, torch.device("cpu"))))
    plan, generator = simulation.schedule, torch.Generator().manual_seed(4)
    assert plan.norm is not None
    for t in range(4):
        setting = plan.setting(t)
        direction, _ = clip(torch.randn(1, plan.dim, generator=generator), plan.clip_norm)
        updates = direction.repeat(9, 1)  # all alike: the errors add up
        misaligned = float((1.0 - setting.gains[0]).abs().square().sum()) * plan.clip_norm**2
        bound = bound_of(config, plan, [float(plan.norm[0, t]) ** 2], misalignment=misaligned)
        assert 9 * misaligned > 10 * plan.dim * float(plan.noise_var[0, t])  # the noise does not hide it
        assert squared_error(simulation, setting, updates)[0] < bound.estimation_errors()[0]


def squared_error(simulation, setting: Setting, updates: torch.Tensor) -> np.ndarray:
    """‖Δ̂ − ΣΔ̄‖² of every trial, for updates [trials·K, d] as they are sent."""
    trials, active = setting.gains.shape
    places = torch.arange(trials * active)
    receiver = simulation.uplink.open(simulation.schedule.dim, setting)
    receiver.add(UpdateBlock(places // active, places % active, updates, torch.zeros(len(places))))
    wanted = updates.double().view(trials, active, -1).sum(dim=1)
    return (receiver.finish().double() - wanted).square().sum(dim=1).numpy()


def bound_of(config: airfl.Config, plan, norm2, **changes) -> ConvergenceBound:
    known = {
        "learning_rate": config.learning.learning_rate,
        "local_steps": config.learning.local_steps,
        "clip_norm": plan.clip_norm,
        "num_devices": config.system.num_devices,
        "participation": config.system.participation,
        "dim": plan.dim,
        "noise_power": plan.link.noise_power,
        "combiner_norm2": norm2,
    }
    return ConvergenceBound(**{**PAPER, "smoothness": 2.0, **known, **changes})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"learning_rate": 0.0}, r"`learning_rate` must be a finite number above 0; got 0.0"),
        ({"smoothness": -1.0}, r"`smoothness` must be a finite number above 0"),
        ({"lipschitz": math.inf}, r"`lipschitz` must be a finite number above 0; got inf"),
        ({"clip_norm": math.nan}, r"`clip_norm` must be a finite number above 0; got nan"),
        ({"clip_norm": "3"}, r"`clip_norm` must be a finite number above 0; got '3'"),
        ({"participation": 1.2}, r"`participation` must lie in \(0, 1\]; got 1.2"),
        ({"gradient_var": -1e-9}, r"`gradient_var` must be a finite number of at least 0"),
        ({"dissimilarity": None}, r"`dissimilarity` must be a finite number of at least 0; got None"),
        ({"noise_power": 10**400}, r"`noise_power` must be a finite number of at least 0"),
        ({"local_steps": 0}, r"`local_steps` must be a whole number of at least 1; got 0"),
        ({"num_devices": 2.5}, r"`num_devices` must be a whole number of at least 1; got 2.5"),
        ({"dim": math.inf}, r"`dim` must be a whole number of at least 1; got inf"),
        ({"combiner_norm2": []}, r"`combiner_norm2` must hold one number per round; got none"),
        ({"combiner_norm2": 4.0}, r"`combiner_norm2` must hold one number per round; got 4.0"),
        ({"combiner_norm2": [1.0, -2.0]}, r"`combiner_norm2\[1\]` must be a finite number of at least 0; got -2.0"),
        ({"misalignment": -1.0}, r"`misalignment` must be a finite number of at least 0"),
        ({"misalignment": [1.0, 2.0]}, r"as many rounds as `combiner_norm2`, 50; got 2"),
        ({"misalignment": "none"}, r"`misalignment` must hold one number per round; got 'none'"),
    ],
)
def test_bad_input_is_one_sentence(changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        ConvergenceBound(**{**PAPER, **changes})


def test_arrays_are_taken_and_kept_as_plain_numbers():
    bound = ConvergenceBound(**{**PAPER, "combiner_norm2": np.ones(3), "misalignment": np.zeros(3), "dim": np.int64(5)})
    assert bound.combiner_norm2 == (1.0, 1.0, 1.0)
    assert bound == ConvergenceBound(**{**PAPER, "combiner_norm2": [1, 1, 1], "misalignment": [0, 0, 0], "dim": 5})


def test_gradient_and_curvature_of_the_experiment(tiny):
    """∇f is the mean of the devices' gradients, and tr ∇²f is that of the whole Hessian."""
    config = tiny.replace({"learning.partition": "dirichlet", "system.num_devices": 4, "system.trials": 1})
    task = open_task(config, [0], load_samples(config, torch.device("cpu")))
    model = 0.3 * torch.randn(task.spec.dim, generator=torch.Generator().manual_seed(5))
    loss, gradient, trace = full_gradient(task, shards_of(task, 0), model)

    def mean_loss(theta):
        parameters = task.spec.unflatten(theta)
        total = torch.zeros(())
        for device in range(4):
            mine = torch.from_numpy(task.partitions[0].of(device))
            scores = functional_call(task.spec.module, parameters, (task.inputs[mine],))
            total = total + F.cross_entropy(scores, task.labels[mine]) / 4
        return total

    assert loss == pytest.approx(float(mean_loss(model)), rel=1e-5)
    assert torch.allclose(gradient.float(), torch.func.grad(mean_loss)(model), atol=1e-5)
    hessian = torch.autograd.functional.hessian(mean_loss, model)
    assert trace == pytest.approx(float(hessian.diagonal().sum()), rel=1e-4)
    largest = float(shards_of(task, 0).length2.max()) / 2
    assert float(torch.linalg.eigvalsh(hessian.double())[-1]) <= largest  # the experiment's L


def test_figure_with_and_without_curvature(tmp_path):
    values = np.geomspace(1.0, 0.1, 12).reshape(2, 6)
    assert running_mean(values)[:, 2] == pytest.approx(values[:, :3].mean(axis=1))
    traces = [GradientTrace("one", values, 3 * values, values / 9), GradientTrace("two", values[:1], values[:1])]
    draw_convergence(traces, tmp_path / "new", "both")
    assert (tmp_path / "new" / "both.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "new" / "both.pdf").read_bytes().startswith(b"%PDF")


def test_committed_results_say_what_the_docs_say():
    cases = json.loads((RESULTS / "convergence.json").read_text(encoding="utf-8"))["cases"]
    with (RESULTS / "convergence.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for case in cases:
        budget = "" if case["epsilon"] is None else f"{case['epsilon']:g}"
        mine = [row for row in rows if (row["scheme"], row["epsilon"]) == (case["scheme"], budget)]
        assert float(mine[-1]["gradient_norm2_running"]) == pytest.approx(case["measured"], rel=1e-4)
        assert float(mine[-1]["noise_term_running"]) == pytest.approx(case["terms"]["estimation"], rel=1e-4)
        assert case["constants"]["step_product"] < 1.0
        assert case["measured"] < case["terms"]["lipschitz"]
    quiet, *private = cases
    for case in private:  # about half the term with the mean curvature is what the noise adds
        added = case["measured_last_100"] - quiet["measured_last_100"]
        assert 0.4 < added / case["curvature_noise_term_last_100"] < 0.8
