"""The fused GPU kernels, run by Triton's interpreter on the CPU, against the plain loop."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from airfl.devices.models import ModelSpec, build_model
from airfl.devices.precision import resolve_precision
from airfl.devices.updates import UpdateBlock
from airfl.engines import fused_program
from airfl.engines.batched import BatchedEngine
from airfl.engines.chunks import available_bytes, in_chunks
from airfl.engines.engine import choose_engine
from airfl.engines.fused import FusedEngine
from airfl.engines.fused_layout import fused_layout
from airfl.engines.fused_widths import width_for
from airfl.engines.loop import LoopEngine
from airfl.errors import InputError

SHAPE = (1, 12, 12)


def spec_of(factory) -> ModelSpec:
    module = factory()
    named = [(key, value.shape) for key, value in module.named_parameters()]
    return ModelSpec(factory, module, tuple(key for key, _ in named), tuple(shape for _, shape in named))


def one_block():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 20), nn.ReLU(), nn.Linear(20, 5)
    )


def two_blocks():
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Conv2d(16, 32, (2, 4)),
        nn.ReLU(),
        nn.MaxPool2d(2, 2),
        nn.Flatten(),
        nn.Linear(64, 40),
        nn.ReLU(),
        nn.Linear(40, 24),
        nn.ReLU(),
        nn.Linear(24, 5),
    )


def three_blocks():
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 16, 2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, (2, 3)), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 5)),
    )


def dense():
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 33), nn.ReLU(), nn.Linear(33, 5))


def regression():
    return nn.Sequential(nn.Flatten(), nn.Linear(144, 5))


def problem(spec, trials=2, active=3, steps=3, batch=4):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(30, *SHAPE, generator=generator)
    labels = torch.randint(0, 5, (30,), generator=generator)
    models = torch.stack([spec.initial(seed) for seed in range(trials)])
    batches = torch.randint(0, 30, (trials, active, steps, batch), generator=generator)
    batches[0, 1, 1, 2:] = -1  # a smaller batch
    batches[1, 2, 2:] = -1  # fewer steps
    batches[1, 0] = -1  # nobody there
    batches[0, 2, 0] = -1  # an empty step before others, as at the end of a small device's epoch
    return models, batches, inputs, labels


def together(blocks):
    blocks = list(blocks)
    names = ("trial", "slot", "updates", "losses")
    return UpdateBlock(*(torch.cat([getattr(block, name) for block in blocks]) for name in names))


def test_few_widths_are_recorded_and_none_is_too_small():
    for replicas in (1, 2, 7, 450, 3600):
        widths = [width_for(count, replicas) for count in range(1, replicas + 1)]
        assert all(count <= width <= max(4, 1.25 * count + 1) for count, width in enumerate(widths, 1))
        assert len(set(widths)) <= 48
        many = [(count, width) for count, width in enumerate(widths, 1) if count > 0.8 * replicas]
        assert all(width <= count + max(1, replicas // 32) for count, width in many)


@pytest.mark.parametrize("factory", [one_block, two_blocks, dense, regression])
@pytest.mark.parametrize(("chunk", "large"), [(4, 1), (4, 2**16), (6, 2**16)])
def test_fused_kernels_take_the_same_steps(factory, chunk, large, monkeypatch):
    monkeypatch.setattr(fused_program, "LARGE", large)  # from that size on a layer is kept as factors
    spec = spec_of(factory)
    layout = fused_layout(spec, SHAPE)
    assert layout is not None
    models, batches, inputs, labels = problem(spec)
    plain = together(LoopEngine(spec).train(models, batches, inputs, labels, 0.1))
    engine = FusedEngine(spec, layout, "float32", chunk)
    for _ in range(2):  # buffers are used again in the next round
        fused = together(engine.train(models, batches, inputs, labels, 0.1))
        assert torch.allclose(fused.updates, plain.updates, atol=2e-5, rtol=1e-4)
        assert torch.allclose(fused.losses, plain.losses, atol=1e-6)
        assert torch.equal(fused.trial, plain.trial)
        assert torch.equal(fused.slot, plain.slot)
    assert float(fused.updates[3].abs().max()) < 1e-6  # who has no samples changes nothing


def require_same_steps(factory, shape):
    """Those of the loop, on images of this shape."""
    spec = spec_of(factory)
    layout = fused_layout(spec, shape)
    assert layout is not None
    models, batches, _, labels = problem(spec)
    models, batches = models[:1], batches[:1, :2, :2]
    inputs = torch.randn(30, *shape, generator=torch.Generator().manual_seed(3))
    plain = together(LoopEngine(spec).train(models, batches, inputs, labels, 0.1))
    fused = together(FusedEngine(spec, layout, "float32").train(models, batches, inputs, labels, 0.1))
    assert torch.allclose(fused.updates, plain.updates, atol=2e-5, rtol=1e-4)


def test_three_blocks_of_convolutions_take_the_same_steps():
    require_same_steps(three_blocks, (1, 24, 20))


@pytest.mark.parametrize(("first", "second"), [((1, 1), (3, 3)), ((3, 7), (2, 2)), ((5, 5), (5, 3))])
def test_kernels_of_any_size_take_the_same_steps(first, second):
    """Maps of odd height and width too, whose last 2×2 places are cut off."""

    def factory():
        height, width = ((20 - a + 1) // 2 for a in first)
        places = (height - second[0] + 1) // 2 * ((width - second[1] + 1) // 2)
        return nn.Sequential(
            *(nn.Conv2d(1, 16, first), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, second), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(32 * places, 8), nn.ReLU(), nn.Linear(8, 5)),
        )

    require_same_steps(factory, (1, 20, 20))


def test_long_rounds_keep_weights_and_short_ones_factors():
    spec = build_model("paper-cnn", (1, 28, 28), 10)
    layout = fused_layout(spec, (1, 28, 28))
    assert layout is not None
    first, last = layout.linears
    assert fused_program.is_factored(layout, first, 50)
    assert not fused_program.is_factored(layout, first, 5250)
    assert not fused_program.is_factored(layout, last, 10)
    engine = FusedEngine(spec, layout)
    as_factors = engine.bytes_per_replica(12, 10)
    as_weights = engine.bytes_per_replica(13, 10) - 4 * 10  # less what one step's index takes
    assert as_factors == as_weights - 2 * first.inputs * first.outputs + 2 * 120 * (first.inputs + first.outputs)


def test_rounds_with_other_devices_use_the_same_buffers_and_old_ones_are_let_go():
    spec = spec_of(one_block)
    layout = fused_layout(spec, SHAPE)
    assert layout is not None
    models, _, inputs, labels = problem(spec)
    generator = torch.Generator().manual_seed(5)
    everyone = torch.randint(0, 30, (2, 10, 1, 3), generator=generator)
    engine, plain = FusedEngine(spec, layout, "float32"), LoopEngine(spec)
    for share in (0.9, 0.8, 0.0):
        batches = everyone.clone()
        batches[torch.rand(2, 10, generator=generator) >= share] = -1
        fused = together(engine.train(models, batches, inputs, labels, 0.1))
        expected = together(plain.train(models, batches, inputs, labels, 0.1))
        assert torch.allclose(fused.updates, expected.updates, atol=2e-5, rtol=1e-4)
        assert torch.allclose(fused.losses, expected.losses, atol=1e-6)
        assert torch.equal(fused.trial, expected.trial)
        assert torch.equal(fused.slot, expected.slot)
        if share:
            assert len(engine._programs) <= 2
    gc.collect()
    gc.disable()  # memory on a GPU does not wait for the collector
    try:
        old = [weakref.ref(program.state) for program in engine._programs]
        for active in (1, 2, 3, 4):  # other shapes, until the old ones must go
            together(engine.train(models, everyone[:, :active], inputs, labels, 0.1))
        assert all(reference() is None for reference in old)
    finally:
        gc.enable()


def test_the_models_of_the_package_are_known():
    for name in ("paper-cnn", "small-cnn", "softmax"):
        assert fused_layout(build_model(name, (1, 28, 28), 10), (1, 28, 28)) is not None
    assert fused_layout(build_model("mlp", (1, 28, 28), 10), (1, 28, 28)) is None  # tanh


@pytest.mark.parametrize(
    "factory",
    [
        lambda: nn.Sequential(nn.Conv2d(1, 12, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(300, 5)),
        lambda: nn.Sequential(nn.Conv2d(1, 16, 5, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 5)),
        lambda: nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 5)),
        lambda: nn.Sequential(nn.Conv2d(1, 16, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 5)),
        lambda: nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 5)),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 5, bias=False)),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 100)),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(144, 5), nn.ReLU()),
    ],
)
def test_other_models_are_left_to_other_engines(factory):
    assert fused_layout(spec_of(factory), SHAPE) is None


def test_three_colours_are_left_to_other_engines():
    def colours():
        return nn.Sequential(
            nn.Conv2d(16, 16, 3),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 8),
            nn.ReLU(),
            nn.Linear(8, 5),
        )

    assert fused_layout(spec_of(colours), (16, 12, 12)) is None  # images have their channels first


@pytest.mark.parametrize("factory", [one_block, dense])
def test_grouping_and_order_do_not_matter(factory):
    """Chunks, the order of trials, and other trials in the same call change rounding at most."""
    spec = spec_of(factory)
    models, batches, inputs, labels = problem(spec, trials=3)
    whole = together(BatchedEngine(spec).train(models, batches, inputs, labels, 0.1)).updates.view(3, 3, -1)
    for engine in (BatchedEngine(spec, chunk=2), FusedEngine(spec, fused_layout(spec, SHAPE), "float32", 4)):
        again = together(engine.train(models, batches, inputs, labels, 0.1)).updates.view(3, 3, -1)
        assert torch.allclose(again, whole, atol=2e-5, rtol=1e-4)
        turned = together(engine.train(models.flip(0), batches.flip(0, 1), inputs, labels, 0.1)).updates
        assert torch.allclose(turned.view(3, 3, -1).flip(0, 1), whole, atol=2e-5, rtol=1e-4)
        alone = together(engine.train(models[1:2], batches[1:2], inputs, labels, 0.1)).updates
        assert torch.allclose(alone, whole[1], atol=2e-5, rtol=1e-4)


def test_bf16_is_close_and_leaves_master_weights_in_float32():
    spec = spec_of(dense)
    models, batches, inputs, labels = problem(spec)
    plain = together(LoopEngine(spec).train(models, batches, inputs, labels, 0.1)).updates
    rough = together(BatchedEngine(spec, precision="bf16").train(models, batches, inputs, labels, 0.1)).updates
    assert rough.dtype == torch.float32
    error = (rough - plain).norm() / plain.norm()
    assert 1e-5 < error < 0.05


def test_memory_that_runs_out_halves_the_chunk(caplog):
    done = []

    def work(start, stop):
        if stop - start > 3:
            raise torch.OutOfMemoryError("too much")
        done.append((start, stop))
        return stop - start

    assert sum(in_chunks(10, 10, work)) == 10
    assert done == [(0, 2), (2, 4), (4, 6), (6, 8), (8, 10)]
    assert "going on with 2" in caplog.text
    with pytest.raises(InputError, match="not even one replica"):
        list(in_chunks(2, 2, lambda start, stop: (_ for _ in ()).throw(MemoryError())))
    with pytest.raises(RuntimeError, match="else"):
        list(in_chunks(2, 2, lambda start, stop: (_ for _ in ()).throw(RuntimeError("something else"))))
    assert available_bytes(torch.device("cpu")) > 2**20


def test_choice_of_engine(tiny):
    cpu = torch.device("cpu")

    def chosen(name, **engine):
        spec = build_model(name, (1, 28, 28), 10)
        return choose_engine(tiny.replace(engine=engine), spec, cpu, torch.zeros(1, 1, 28, 28)).name

    assert chosen("softmax") == "batched"
    assert chosen("paper-cnn") != "batched"
    assert chosen("paper-cnn", backend="loop") == "loop"
    with pytest.raises(InputError, match="CUDA"):
        chosen("paper-cnn", backend="fused")
    with pytest.raises(InputError, match="tf32"):
        chosen("softmax", precision="tf32")
    assert resolve_precision("auto", cpu) == "float32"


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x.flatten(1)) * 2


def test_a_module_of_ones_own_is_batched_with_a_note(tiny):
    spec = spec_of(Odd)
    inputs, labels = torch.randn(20, 1, 8, 8), torch.randint(0, 10, (20,))
    with pytest.warns(UserWarning, match="vmap, which is slower"):
        engine = choose_engine(tiny.replace(engine={"backend": "batched"}), spec, torch.device("cpu"), inputs)
    models, batches = spec.initial(0)[None], torch.randint(0, 20, (1, 3, 2, 4))
    plain = together(LoopEngine(spec).train(models, batches, inputs, labels, 0.1)).updates
    assert torch.allclose(together(engine.train(models, batches, inputs, labels, 0.1)).updates, plain, atol=1e-5)
