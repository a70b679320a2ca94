from __future__ import annotations

import signal
import threading

import pytest
import torch
from torch import nn

import airfl
from airfl.devices import build_model
from airfl.devices.models import MODELS, ModelSpec
from airfl.devices.precision import has_bf16
from airfl.engines import choose_engine, precision_of
from airfl.engines import device_threads as on_threads
from airfl.engines import threads as engine_threads
from airfl.engines.batched import BatchedEngine
from airfl.engines.cpu_chain import build_chain
from airfl.engines.cpu_dense import dense_layers
from airfl.engines.cpu_stages import ROWS, FactoredLinear, PatchConvolution
from airfl.engines.loop import LoopEngine
from airfl.engines.threads import AnyModule, ThreadsEngine
from airfl.errors import InputError
from tests.test_models_and_engines import OWN, gather, problem

SHAPE = (2, 9, 8)


def spec_of(module: nn.Module) -> ModelSpec:
    named = [(name, value.shape) for name, value in module.named_parameters()]
    return ModelSpec(lambda: module, module, tuple(name for name, _ in named), tuple(shape for _, shape in named))


def small_problem(spec, shape=SHAPE, devices=5, steps=4, batch=6, classes=4):
    """Like the ``problem`` of the other engines' tests, for one module; every device has another amount of data."""
    generator = torch.Generator().manual_seed(2)
    inputs = torch.randn(50, *shape, generator=generator)
    labels = torch.randint(classes, (50,), generator=generator)
    batches = torch.randint(50, (1, devices, steps, batch), generator=generator)
    for slot in range(devices):
        batches[0, slot, -1, slot:] = -1
    return 0.2 * torch.randn(1, spec.dim, generator=generator), batches, inputs, labels


def updates_of(engine, models, batches, inputs, labels, rate=0.05):
    blocks = engine.train(models, batches, inputs, labels, rate)
    return gather(blocks, *batches.shape[:2], models.shape[1])


def relative(found, truth):
    return float((found - truth).norm() / truth.norm())


@pytest.mark.parametrize("name", [*MODELS, *OWN])
def test_threads_equal_the_loop(name):
    spec, models, batches, inputs, labels = problem(name)
    batches[0, 0] = -1  # nobody there
    truth, losses = updates_of(LoopEngine(spec), models, batches, inputs, labels)
    found, found_losses = updates_of(ThreadsEngine(spec), models, batches, inputs, labels)
    assert relative(found, truth) < 2e-5
    assert torch.allclose(found_losses, losses, rtol=1e-5, atol=1e-6)
    assert float(found[0, 0].abs().max()) == float(found_losses[0, 0]) == 0.0


CHAINS = {
    "library": nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(60, 4)),
    "odd sizes": nn.Sequential(nn.Conv2d(2, 3, (2, 3), stride=(3, 2)), nn.Flatten(), nn.Linear(27, 4, bias=False)),
    "grey": nn.Sequential(
        nn.Conv2d(1, 3, (3, 2), stride=(2, 1), bias=False),
        nn.Conv2d(3, 1, 2),
        nn.Conv2d(1, 2, 2),
        nn.Flatten(),
        nn.Linear(20, 4),
    ),
    "many channels": nn.Sequential(
        nn.Conv2d(2, 16, 3),
        nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        nn.ReLU(),
        nn.Sequential(nn.Conv2d(16, 5, 2), nn.ReLU(), nn.Identity()),
        nn.Flatten(),
        nn.Linear(45, 4),
    ),
    "starts with pooling": nn.Sequential(
        nn.ReLU(), nn.MaxPool2d((2, 1)), nn.Conv2d(2, 4, 2, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(84, 4)
    ),
    "large": nn.Sequential(
        nn.Flatten(), nn.Linear(144, 512), nn.ReLU(), nn.Linear(512, 160, bias=False), nn.ReLU(), nn.Linear(160, 4)
    ),
    "ends with ReLU": nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Flatten(), nn.Linear(144, 512), nn.ReLU()),
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("batch", [6, ROWS])
def test_written_out_passes_are_exact(name, batch):
    """In float32, and by the ways of low precision, which ``float64`` takes without the rounding."""
    module = CHAINS[name]
    spec, shape = spec_of(module), (1, 9, 8) if name == "grey" else SHAPE
    models, batches, inputs, labels = small_problem(spec, shape, steps=14, batch=batch)
    truth, losses = updates_of(LoopEngine(spec), models, batches, inputs, labels)
    for dtype in (torch.float32, torch.float64):
        chain = build_chain(module, shape, batch, dtype)
        assert chain is not None
        start = spec.unflatten(models[0])
        with torch.no_grad():
            for slot in (3, 0, 4, 1):  # the second starts where the first one did
                update, total, count = torch.full((spec.dim,), torch.nan), 0.0, 0
                chain.begin(start, spec.unflatten(update), 0.05)
                for x, y in engine_threads._steps(batches[0, slot], inputs, labels):
                    total, count = total + chain.step(x, y) * len(y), count + len(y)
                chain.finish()
                assert relative(update, truth[0, slot]) < 2e-5
                assert total / count == pytest.approx(float(losses[0, slot]), rel=1e-5)
        stages = [type(stage) for stage in next(iter(chain._plans.values())).stages]
        assert (FactoredLinear in stages) == (batch < ROWS and name in ("large", "ends with ReLU"))
        assert (PatchConvolution in stages) == (name == "grey" or (dtype == torch.float64 and name == "many channels"))


def test_what_is_no_chain_of_known_layers_goes_through_autograd():
    unknown = (
        nn.Sequential(nn.Flatten(), nn.Linear(144, 4), nn.Tanh()),
        nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(168, 4)),
        nn.Sequential(nn.Linear(8, 2), nn.Flatten(), nn.Linear(36, 4)),
        nn.Sequential(nn.Conv2d(2, 3, 3), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(27, 4)),
    )
    for module in unknown:
        spec = spec_of(module)
        assert isinstance(ThreadsEngine(spec)._learner(SHAPE, 6), AnyModule)
        models, batches, inputs, labels = small_problem(spec)
        truth, _ = updates_of(LoopEngine(spec), models, batches, inputs, labels)
        assert relative(updates_of(ThreadsEngine(spec), models, batches, inputs, labels)[0], truth) < 2e-5
    assert build_chain(nn.Sequential(nn.Linear(8, 4)), (3, 8), 6, torch.float32) is None


@pytest.mark.parametrize(("name", "limit"), [("small-cnn", 0.2), ("paper-cnn", 0.2), ("mlp", 0.02)])
def test_bf16_rounds_the_products_only(name, limit):
    """Near the loop; rounding also moves which pixel a pooling layer takes, and which units are on."""
    spec, models, batches, inputs, labels = problem(name)
    truth, losses = updates_of(LoopEngine(spec), models, batches, inputs, labels)
    found, found_losses = updates_of(ThreadsEngine(spec, "bf16"), models, batches, inputs, labels)
    assert found.dtype == torch.float32
    assert 1e-4 < relative(found, truth) < limit
    assert torch.allclose(found_losses, losses, rtol=0.02)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", ["small-cnn", "mlp"])
def test_results_do_not_depend_on_the_number_of_threads(name, precision, monkeypatch):
    spec, models, batches, inputs, labels = problem(name, active=7)
    first, first_losses = updates_of(ThreadsEngine(spec, precision, workers=1), models, batches, inputs, labels)
    monkeypatch.setattr(on_threads, "BLOCK_BYTES", 4 * spec.dim * 5)
    for workers in (2, 5):
        engine = ThreadsEngine(spec, precision, workers)
        for _ in range(2):  # the second time with learners that have been used
            found, losses = updates_of(engine, models, batches, inputs, labels)
            assert torch.equal(found, first)
            assert torch.equal(losses, first_losses)


def test_blocks_come_in_order_and_a_few_at_a_time(monkeypatch):
    spec, models, batches, inputs, labels = problem("softmax", active=20)
    monkeypatch.setattr(on_threads, "BLOCK_BYTES", 4 * spec.dim * 6)
    begun = []
    monkeypatch.setattr(AnyModule, "begin", lambda self, *rest: begun.append(rest))
    monkeypatch.setattr(AnyModule, "step", lambda self, *rest: 0.0)
    monkeypatch.setattr(AnyModule, "finish", lambda self: None)
    monkeypatch.setattr(engine_threads, "build_chain", lambda *rest: None)
    seen = []
    for block in ThreadsEngine(spec, workers=3).train(models, batches, inputs, labels, 0.1):
        assert len(block.updates) <= 6
        seen += (block.trial * 20 + block.slot).tolist()
        assert len(begun) <= len(seen) + 6
    assert seen == list(range(40))


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


DENSE = {
    "regression": nn.Sequential(nn.Flatten(), nn.Linear(144, 4, bias=False)),
    "vectors": nn.Sequential(nn.Linear(5, 6), nn.Linear(6, 4)),
    "deep": nn.Sequential(
        nn.ReLU(), nn.Flatten(), nn.Sequential(nn.Linear(144, 7), nn.Sigmoid(), nn.Tanh()), nn.Linear(7, 5, bias=False),
        nn.ReLU(), nn.Flatten(), nn.Linear(5, 4), nn.ReLU(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DENSE)
def test_linear_layers_are_trained_in_groups(name, two_threads):
    """Equal to the loop whatever the groups, with unequal data and groups that span trials; threads change nothing."""
    module, shape = DENSE[name], (5,) if name == "vectors" else SHAPE
    assert dense_layers(module, shape) is not None
    spec = spec_of(module)
    models, batches, inputs, labels = small_problem(spec, shape, devices=6)
    models, batches = torch.cat([models, 2 * models]), torch.cat([batches, batches.flip(1)])
    batches[1, 2] = -1
    truth, losses = updates_of(LoopEngine(spec), models, batches, inputs, labels)
    for group in (None, 1, 4):
        found, found_losses = updates_of(BatchedEngine(spec, chunk=group), models, batches, inputs, labels)
        assert relative(found, truth) < 5e-5  # float32, and small updates are differences
        assert torch.allclose(found_losses, losses, rtol=5e-5)
        assert float(found[1, 2].abs().max()) == 0.0
        torch.set_num_threads(1)
        assert torch.equal(updates_of(BatchedEngine(spec, chunk=group), models, batches, inputs, labels)[0], found)
        torch.set_num_threads(2)


def test_only_chains_of_linear_layers_are_dense():
    assert dense_layers(nn.Sequential(nn.Linear(8, 2), nn.Flatten(), nn.Linear(36, 4)), SHAPE) is None
    assert dense_layers(nn.Sequential(nn.Flatten(), nn.Linear(144, 4), nn.GELU()), SHAPE) is None
    assert dense_layers(nn.Sequential(nn.Flatten(), nn.LayerNorm(144), nn.Linear(144, 4)), SHAPE) is None


class Fails(nn.Module):
    """Fails on the samples whose first entry is large."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        if float(x.max()) > 1e3:
            raise ValueError("no such sample")
        return self.out(x.flatten(1))


def workers_alive():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("device")]


def test_a_failure_on_a_thread_reaches_the_caller(two_threads):
    spec = spec_of(Fails())
    models, batches, inputs, labels = small_problem(spec, (1, 8, 8), devices=12, classes=10)
    engine = ThreadsEngine(spec)
    good, _ = updates_of(engine, models, batches, inputs, labels)
    broken = inputs.clone()
    broken[batches[0, 7, 0, 0]] = 1e6
    with pytest.raises(ValueError, match="no such sample"):
        list(engine.train(models, batches, broken, labels, 0.05))
    assert torch.get_num_threads() == 2
    assert not workers_alive()
    assert torch.equal(updates_of(engine, models, batches, inputs, labels)[0], good)


def test_who_has_seen_enough_may_stop(two_threads, monkeypatch):
    spec, models, batches, inputs, labels = problem("softmax", active=30)
    monkeypatch.setattr(on_threads, "BLOCK_BYTES", 1)
    blocks = ThreadsEngine(spec).train(models, batches, inputs, labels, 0.1)
    assert len(next(blocks).updates) == 4
    assert torch.get_num_threads() == 1
    blocks.close()
    assert torch.get_num_threads() == 2
    assert not workers_alive()


class Interrupts(Fails):
    """Sends the main thread what the terminal sends on Ctrl-C."""

    calls: list[int]

    def forward(self, x):
        self.calls.append(len(x))
        if len(self.calls) == 5:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return self.out(x.flatten(1))

    def __deepcopy__(self, memo):
        return self


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals to threads here")
def test_an_interrupt_ends_training_within_a_step():
    module = Interrupts()
    module.calls = []
    spec = spec_of(module)
    models, _, inputs, labels = small_problem(spec, (1, 8, 8), classes=10)
    batches = torch.zeros(1, 2, 200_000, 1, dtype=torch.int64)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever others left behind
    try:
        with pytest.raises(KeyboardInterrupt):
            list(ThreadsEngine(spec, workers=1).train(models, batches, inputs, labels, 0.05))
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(module.calls) < 200_000
    assert not workers_alive()


def test_auto_is_bf16_for_convolutions_on_a_cpu_that_has_it(tiny, monkeypatch):
    monkeypatch.setattr("airfl.engines.engine.has_bf16", lambda: True)

    def precision(name, **engine):
        spec, device = build_model(name, (1, 28, 28), 10), torch.device("cpu")
        config = tiny.replace(engine=engine)
        return precision_of(choose_engine(config, spec, device, torch.zeros(1, 1, 28, 28)), config, device)

    assert precision("small-cnn") == precision("paper-cnn") == "bf16"
    assert precision("small-cnn", precision="float32") == "float32"
    assert precision("small-cnn", backend="batched") == precision("small-cnn", backend="loop") == "float32"
    assert precision("softmax") == precision("mlp", backend="threads") == "float32"


@pytest.mark.parametrize("units", [{}, {"avx512_bf16": True}, {"amx_bf16": True, "avx2": True}, {"avx2": True}])
def test_hardware_for_bf16_is_what_torch_tells(units, monkeypatch):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: units, raising=False)
    assert has_bf16.__wrapped__() == bool({"avx512_bf16", "amx_bf16"} & set(units))


def test_threads_are_chosen_for_convolutions_on_a_cpu(tiny):
    def chosen(name, device="cpu", **engine):
        config, spec = tiny.replace(engine=engine), build_model(name, (1, 28, 28), 10)
        return choose_engine(config, spec, torch.device(device), torch.zeros(1, 1, 28, 28))

    engine = chosen("small-cnn", precision="bf16")
    assert isinstance(engine, ThreadsEngine)
    assert engine.precision == "bf16"
    assert chosen("small-cnn").precision == "float32"
    assert chosen("softmax").name == "batched"
    assert chosen("softmax", backend="threads").name == "threads"
    with pytest.raises(InputError, match="for the CPU"):
        chosen("small-cnn", "cuda", backend="threads", precision="float32")


def test_a_run_with_threads_is_that_of_the_loop(tiny):
    config = tiny.replace({"system.rounds": 2, "learning.partition": "dirichlet"})
    loop, threads = (airfl.run(config.replace({"engine.backend": name})) for name in ("loop", "threads"))
    for name in config.scheme.names:
        assert torch.allclose(loop.schemes[name].models, threads.schemes[name].models, atol=1e-5)
        assert loop.schemes[name].ledgers == threads.schemes[name].ledgers
