from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from airfl.devices import build_model, clip
from airfl.devices.models import MODELS
from airfl.engines.batched import BatchedEngine
from airfl.engines.loop import LoopEngine
from airfl.errors import InputError
from tests.oracles.training import sgd


@pytest.mark.parametrize(
    ("name", "count"), [("paper-cnn", 582_026), ("small-cnn", 29_994), ("mlp", 50_890), ("softmax", 7_850)]
)
def test_parameter_counts(name, count):
    assert build_model(name, (1, 28, 28), 10).dim == count


class Scaled(nn.Module):
    """A module with a parameter of its own and a layer that no fast path knows."""

    def __init__(self, inputs: int, classes: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(inputs))
        self.norm = nn.LayerNorm(inputs)
        self.out = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.nn.functional.gelu(self.norm(x.flatten(1)) * self.scale))


def custom(input_shape, num_classes):
    return Scaled(int(np.prod(input_shape)), num_classes)


def fixed():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def not_a_module():
    return lambda x: x


def with_batch_norm():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))


def wrong_classes():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9))


def frozen():
    module = fixed()
    module[1].bias.requires_grad_(False)
    return module


def with_dropout():
    return nn.Sequential(nn.Flatten(), nn.Dropout1d(0.5), nn.Linear(64, 10))


def mixes_samples():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 10))


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)
        self.unused = nn.Linear(3, 3)

    def forward(self, x):
        return self.out(x.flatten(1)), x


class WithSpare(Pair):
    def forward(self, x):
        return super().forward(x)[0]


def optional(width=7, depth=1):
    return nn.Sequential(nn.Flatten(), *[nn.Linear(64, width) for _ in range(depth)], nn.Linear(width, 10))


def shared_layers(input_shape, num_classes):
    relu, tied = nn.ReLU(), nn.Linear(16, 16)
    return nn.Sequential(nn.Linear(8, 2), nn.Flatten(), nn.Linear(16, 16), relu, tied, relu, tied, nn.Linear(16, 10))


def fails():
    raise RuntimeError("no")


def test_factories_by_import_path():
    here = "tests.test_models_and_engines"
    assert build_model(f"{here}:custom", (1, 8, 8), 10).dim == 64 * 3 + 650
    assert build_model(f"{here}:fixed", (1, 8, 8), 10).dim == 650
    assert build_model(f"{here}:optional", (1, 8, 8), 10).dim == 64 * 7 + 7 + 80  # optional arguments stay as they are
    with pytest.raises(InputError, match="cannot be imported"):
        build_model(".relative:thing", (1, 8, 8), 10)
    for name, message in (
        ("not_a_module", "must return a torch.nn.Module"),
        ("with_batch_norm", "running statistics"),
        ("wrong_classes", "expected"),
        ("frozen", "frozen parameters"),
        ("with_dropout", "draws random numbers"),
        ("mixes_samples", "mixes the samples"),
        ("Pair", "returns tuple"),
        ("fails", "failed: no"),
        ("absent", "cannot be imported"),
    ):
        with pytest.raises(InputError, match=message):
            build_model(f"{here}:{name}", (1, 8, 8), 10)
    with pytest.raises(InputError, match="no model named"):
        build_model("resnet", (1, 8, 8), 10)
    with pytest.raises(InputError, match="square images"):
        build_model("paper-cnn", (1, 8, 8), 10)


def test_initial_models_follow_from_the_seed_and_touch_no_global_state():
    spec = build_model("tests.test_models_and_engines:custom", (1, 8, 8), 10)
    before = torch.random.get_rng_state()
    first = spec.initial(5)
    assert torch.equal(first, spec.initial(5))
    assert not torch.equal(first, spec.initial(6))
    assert torch.equal(before, torch.random.get_rng_state())


def test_flatten_round_trip():
    spec = build_model("small-cnn", (1, 28, 28), 10)
    vectors = torch.randn(3, spec.dim)
    assert torch.equal(spec.flatten({k: v[1] for k, v in spec.unflatten(vectors).items()}), vectors[1])


def problem(name, trials=2, active=3, steps=3, batch=4, samples=40):
    shape = (1, 8, 8) if ":" in name else (1, 28, 28)
    generator = torch.Generator().manual_seed(1)
    spec = build_model(name, shape, 10)
    inputs = torch.randn(samples, *shape, generator=generator)
    labels = torch.randint(10, (samples,), generator=generator)
    batches = torch.randint(samples, (trials, active, steps, batch), generator=generator)
    batches[0, 1, -1, 2:] = -1  # a smaller last batch
    batches[1, 2, 1:] = -1  # a device with less data
    models = torch.stack([spec.initial(seed) for seed in range(trials)])
    return spec, models, batches, inputs, labels


def gather(blocks, trials, active, dim):
    updates, losses = torch.full((trials, active, dim), torch.nan), torch.full((trials, active), torch.nan)
    for block in blocks:
        updates[block.trial, block.slot] = block.updates
        losses[block.trial, block.slot] = block.losses
    return updates, losses


OWN = [f"tests.test_models_and_engines:{name}" for name in ("custom", "shared_layers", "WithSpare")]


@pytest.mark.parametrize("name", [*MODELS, *OWN])
def test_loop_and_batched_equal_plain_pytorch(name):
    spec, models, batches, inputs, labels = problem(name)
    rate = 0.05
    loop, loop_losses = gather(LoopEngine(spec).train(models, batches, inputs, labels, rate), 2, 3, spec.dim)
    for chunk in (None, 1, 4):
        engine = BatchedEngine(spec, chunk=chunk)
        batched, losses = gather(engine.train(models, batches, inputs, labels, rate), 2, 3, spec.dim)
        assert torch.allclose(batched, loop, atol=2e-4, rtol=1e-3)
        assert torch.allclose(losses, loop_losses, atol=1e-5)
    for trial in range(2):
        for slot in range(3):
            module = spec.factory()
            with torch.no_grad():
                for parameter, value in zip(module.parameters(), spec.unflatten(models[trial]).values(), strict=True):
                    parameter.copy_(value)
            sgd(module, batches[trial, slot], inputs, labels, rate)
            local = torch.cat([parameter.detach().reshape(-1) for parameter in module.parameters()])
            assert torch.allclose(loop[trial, slot], (models[trial] - local) / rate, atol=2e-4, rtol=1e-3)


def test_training_does_not_touch_the_broadcast_model():
    spec, models, batches, inputs, labels = problem("mlp")
    before = models.clone()
    for engine in (LoopEngine(spec), BatchedEngine(spec)):
        list(engine.train(models, batches, inputs, labels, 0.1))
        assert torch.equal(models, before)


def test_a_device_without_samples_sends_zero():
    spec, models, batches, inputs, labels = problem("softmax")
    batches[0, 0] = -1
    for engine in (LoopEngine(spec), BatchedEngine(spec)):
        updates, losses = gather(engine.train(models, batches, inputs, labels, 0.1), 2, 3, spec.dim)
        assert float(updates[0, 0].abs().max()) == 0.0
        assert float(losses[0, 0]) == 0.0


@pytest.mark.parametrize("limit", [1e-3, 1.0, 77.7, 1e4])
def test_clipping_never_exceeds_its_norm_and_keeps_short_updates(limit):
    updates = torch.randn(50, 3000, generator=torch.Generator().manual_seed(0)) * torch.logspace(-4, 4, 50)[:, None]
    clipped, norms = clip(updates, limit)
    assert float(torch.linalg.vector_norm(clipped.double(), dim=1).max()) <= limit
    assert torch.allclose(norms, torch.linalg.vector_norm(updates.double(), dim=1))
    short = norms < limit * 0.999
    assert torch.equal(clipped[short], updates[short])
    assert torch.allclose(
        torch.linalg.vector_norm(clipped[~short].double(), dim=1), torch.tensor(limit).double(), rtol=2e-3
    )
    zero, _ = clip(torch.zeros(1, 5), limit)
    assert torch.equal(zero, torch.zeros(1, 5))


class Doubled(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(2 * x)


@pytest.mark.parametrize(
    ("module", "known"),
    [
        (nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 4)), True),
        (nn.Sequential(nn.Conv2d(2, 3, (2, 3), bias=False), nn.GELU(), nn.Flatten(), nn.Linear(126, 4)), True),
        (nn.Sequential(nn.Sequential(nn.Flatten(), nn.Linear(128, 6, bias=False)), nn.SiLU(), nn.Linear(6, 4)), True),
        (nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(144, 4)), False),
        (nn.Sequential(nn.Conv2d(2, 4, 3, padding="same"), nn.Flatten(), nn.Linear(256, 4)), False),
        (Doubled(nn.Flatten(), nn.Linear(128, 4)), False),
        (nn.Sequential(nn.Flatten(), nn.LayerNorm(128), nn.Linear(128, 4)), False),
    ],
)
def test_replicated_forward_is_the_module_itself(module, known):
    """Known chains take the fast path, and give what the module gives replica by replica; others are left alone."""
    from airfl.engines.replicated import replicated

    forward = replicated(module)
    assert (forward is not None) == known
    if forward is None:
        return
    generator = torch.Generator().manual_seed(0)
    parameters = {name: torch.randn(3, *value.shape, generator=generator) for name, value in module.named_parameters()}
    x = torch.randn(3, 5, 2, 8, 8, generator=generator)
    scores = forward(parameters, x)
    for i in range(3):
        alone = torch.func.functional_call(module, {name: value[i] for name, value in parameters.items()}, (x[i],))
        assert torch.allclose(scores[i], alone, atol=1e-4, rtol=1e-4)


@given(large=st.integers(1, 64), dim=st.sampled_from([1023, 1024, 8192, 29_994]), small=st.floats(1e-5, 1e-3))
def test_clipping_holds_where_small_squares_vanish_beside_large_ones(large, dim, small):
    rows = torch.full((1, dim), small)
    rows[0, torch.arange(dim) % 1024 < large] = 1.0
    limit = 0.5 * float(torch.linalg.vector_norm(rows.double()))
    clipped, _ = clip(rows, limit)
    assert float(torch.linalg.vector_norm(clipped.double())) <= limit
