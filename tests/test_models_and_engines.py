from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call

import airfl
from airfl import runs
from airfl.devices import build_model, clip, load_samples, models, open_task
from airfl.devices.models import MODELS
from airfl.engines.batched import BatchedEngine
from airfl.engines.loop import LoopEngine
from airfl.engines.threads import ThreadsEngine
from airfl.errors import InputError
from airfl.runs import unfinished
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


HERE = "tests.test_models_and_engines"


def fixed():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def not_a_module():
    return lambda x: x


def with_batch_norm():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))


def wrong_classes():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 9))


def biases_only():
    """Of every layer a part is trained: the biases, and the weight of the last."""
    module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(108, 7), nn.ReLU(), nn.Linear(7, 10))
    for layer, key in ((0, "weight"), (3, "weight"), (5, "bias")):
        getattr(module[layer], key).requires_grad_(False)
    return module


def fine_tuned():
    """A frozen body of known layers below a head that is trained."""
    body = nn.Sequential(nn.Conv2d(1, 4, 3, stride=2, groups=1), nn.ReLU(), nn.Flatten(), nn.Linear(36, 16))
    return nn.Sequential(body.requires_grad_(False), nn.ReLU(), nn.Linear(16, 10))


class LowRank(nn.Module):
    """x ↦ V(Wx + BAx) with a frozen W, normalised by running statistics that are frozen too."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.norm = nn.Linear(64, 12).requires_grad_(False), nn.BatchNorm1d(12)
        self.norm.running_mean.uniform_()
        self.down, self.up = nn.Linear(64, 2, bias=False), nn.Linear(2, 12, bias=False)
        self.out = nn.Linear(12, 10)
        self.eval()

    def forward(self, x):
        x = x.flatten(1)
        return self.out(self.norm(self.base(x) + self.up(self.down(x))))


def lazy():
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(10))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.out = nn.GRU(8, 5, batch_first=True), nn.Linear(5, 10)

    def forward(self, x):
        return self.out(self.body(x.view(-1, 8, 8))[1][0])


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.out = nn.Embedding(17, 4), nn.Linear(4, 10)

    def forward(self, x):
        return self.out(self.body(x.flatten(1).long()).mean(dim=1))


class Masked(nn.Module):
    """A buffer that is not touched; with ``counts`` one that every pass changes."""

    def __init__(self, counts: bool = False) -> None:
        super().__init__()
        self.register_buffer("mask", (torch.rand(64) < 0.5).float())
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.out, self.counts = nn.Linear(64, 10), counts

    def forward(self, x):
        if self.counts:
            self.seen = self.seen + len(x)
        return self.out(x.flatten(1) * self.mask)


class After(nn.Module):
    """Each sample is scored by how it differs from the first of its batch."""

    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        return self.out((x - x[:1]).flatten(1))


def counting():
    return Masked(counts=True)


def unseeded():
    module = Masked()
    module.mask += torch.from_numpy(np.random.default_rng().random(64))
    return module


def all_frozen():
    return fixed().requires_grad_(False)


def double():
    return fixed().double()


def half():
    return fixed().bfloat16()


def double_inside():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4).double().requires_grad_(False), nn.Linear(4, 10))


class Detached(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        return self.out(x.flatten(1)).detach()


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
    here = HERE
    assert build_model(f"{here}:custom", (1, 8, 8), 10).dim == 64 * 3 + 650
    assert build_model(f"{here}:fixed", (1, 8, 8), 10).dim == 650
    assert build_model(f"{here}:optional", (1, 8, 8), 10).dim == 64 * 7 + 7 + 80  # optional arguments stay as they are
    with pytest.raises(InputError, match="cannot be imported"):
        build_model(".relative:thing", (1, 8, 8), 10)
    inputs = torch.randn(9, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for name, message in (
        ("not_a_module", "must return a torch.nn.Module"),
        ("with_batch_norm", "changes `2.running_mean` while it is trained"),
        ("counting", "changes `seen` while it is trained"),
        ("wrong_classes", "expected"),
        ("all_frozen", "no parameters to train"),
        ("double", r"trains parameters of torch\.float64, and models are trained and sent in float32"),
        ("half", r"trains parameters of torch\.bfloat16"),
        ("double_inside", r"does not take inputs of shape \(1, 8, 8\) in float32"),
        ("unseeded", "has other frozen parameters or buffers whenever it is built"),
        ("Detached", "cannot be trained"),
        ("with_dropout", "draws random numbers"),
        ("After", "mixes the samples"),
        ("mixes_samples", "mixes the samples"),
        ("Pair", "returns tuple"),
        ("fails", "failed: no"),
        ("absent", "cannot be imported"),
    ):
        with pytest.raises(InputError, match=message):
            build_model(f"{here}:{name}", (1, 8, 8), 10, inputs)
    with pytest.raises(InputError, match="no model named"):
        build_model("resnet", (1, 8, 8), 10)
    with pytest.raises(InputError, match="square images"):
        build_model("paper-cnn", (1, 8, 8), 10)


def test_a_model_is_tried_on_samples_of_the_data_set():
    tokens, few = torch.randint(17, (50, 1, 8, 8)).float(), torch.zeros(500, 1, 8, 8)
    assert build_model(f"{HERE}:Tokens", (1, 8, 8), 10, tokens).dim == 17 * 4 + 50
    with pytest.raises(InputError, match="does not take inputs"):
        build_model(f"{HERE}:Tokens", (1, 8, 8), 10, tokens + 1)
    few[33:36] = torch.arange(1.0, 4.0).view(3, 1, 1, 1)  # others do not show what mixes
    with pytest.raises(InputError, match="mixes the samples"):
        build_model(f"{HERE}:mixes_samples", (1, 8, 8), 10, few)
    for name, dim in (("Masked", 650), ("lazy", 64 * 6 + 6 + 70), ("Recurrent", 285)):
        assert build_model(f"{HERE}:{name}", (1, 8, 8), 10, tokens).dim == dim


def test_what_is_not_trained_is_the_same_whenever_a_model_is_built():
    for name, dim in (("biases_only", 3 + 7 + 70), ("fine_tuned", 170), ("LowRank", 128 + 24 + 24 + 130)):
        inputs = torch.randn(9, 1, 8, 8)
        before = torch.random.get_rng_state()
        spec = build_model(f"{HERE}:{name}", (1, 8, 8), 10, inputs)
        assert torch.equal(before, torch.random.get_rng_state())
        torch.rand(1)
        other = build_model(f"{HERE}:{name}", (1, 8, 8), 10)
        assert spec.dim == dim
        start = spec.initial(3)
        assert torch.equal(start, other.initial(3))
        assert not torch.equal(start, spec.initial(4))
        for key, value in spec.state_dict(start).items():
            assert torch.equal(value, other.state_dict(start)[key])


@pytest.mark.parametrize("name", ["softmax", "LowRank", "shared_layers", "Masked"])
def test_a_vector_loads_into_its_module(name):
    spec = build_model(name if name == "softmax" else f"{HERE}:{name}", (1, 8, 8), 10)
    vector = spec.initial(5)
    module = copy.deepcopy(spec.module)
    module.load_state_dict(spec.state_dict(vector))
    x = torch.randn(3, 1, 8, 8)
    assert torch.equal(module(x), functional_call(spec.module, spec.unflatten(vector), (x,)))


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


OWN_NAMES = ("custom", "shared_layers", "WithSpare", "biases_only", "fine_tuned", "LowRank", "Masked", "lazy")
OWN = [f"{HERE}:{name}" for name in OWN_NAMES]


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
            module.load_state_dict(spec.state_dict(models[trial]))
            sgd(module, batches[trial, slot], inputs, labels, rate)
            local = spec.flatten({name: value.detach() for name, value in module.named_parameters()})
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


def pooled_softmax():
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(16, 10))


def test_what_is_frozen_is_neither_trained_nor_clipped_nor_sent_nor_paid_for(tiny, tmp_path):
    """d, and with it c, noise, power and every ledger, are those of a model that has the trained part alone."""
    config = tiny.replace({"learning.clip_factor": 0.01, "learning.model": f"{HERE}:fine_tuned"})
    loop, *others = (airfl.run(config.replace(engine={"backend": name})) for name in ("loop", "batched", "threads"))
    alone = airfl.run(config.replace({"learning.model": f"{HERE}:pooled_softmax"}))
    assert loop.dim == alone.dim == 170
    for name, scheme in loop.schemes.items():
        assert scheme.models.shape == (2, 170)
        assert scheme.ledgers == alone.schemes[name].ledgers
        for column in ("noise_var", "combiner_norm", "epsilon"):
            assert np.array_equal(scheme.column(column), alone.schemes[name].column(column), equal_nan=True)
        for other in others:
            assert torch.allclose(other.schemes[name].models, scheme.models, atol=1e-5)
            assert other.schemes[name].ledgers == scheme.ledgers
    kept = airfl.load(airfl.save(loop, tmp_path / "o").out).schemes["airfl-dp"]
    task = open_task(config, (0,), load_samples(config, torch.device("cpu")))
    spec = build_model(config.learning.model, (1, 8, 8), 10)
    spec.module.load_state_dict(spec.state_dict(kept.models[0]))
    tested = task.partitions[0].test
    right = (spec.module(task.inputs[tested]).argmax(dim=1) == task.labels[tested]).float().mean()
    assert float(right) == pytest.approx(kept.final()[0].accuracy)


@pytest.mark.parametrize("engine", [LoopEngine, BatchedEngine, ThreadsEngine])
@pytest.mark.parametrize("name", ["biases_only", "fine_tuned", "LowRank"])
def test_frozen_values_do_not_move_by_a_bit(name, engine):
    spec, *data = problem(f"{HERE}:{name}")
    frozen = {key: value.clone() for key, value in spec.state_dict(data[0][0]).items() if key not in spec.names}
    assert frozen
    before = spec.kept_digest()
    list(engine(spec).train(*data, 0.5))
    assert spec.kept_digest() == before != ""
    for key, value in frozen.items():
        assert torch.equal(spec.module.state_dict()[key], value)


def test_a_run_does_not_go_on_with_other_frozen_values(tiny, tmp_path, monkeypatch):
    config = tiny.replace({"learning.model": f"{HERE}:fine_tuned", "system.trials": 1, "scheme.names": ["airfl-dp"]})
    heard = []

    class Twice:
        def start(self, scheme, rounds):
            pass

        def round(self, scheme, records):
            heard.append(records)
            if len(heard) == 2:
                raise KeyboardInterrupt

    airfl.run(config, progress=Twice(), keeper=runs.Keeper(tmp_path, 0.0))
    begun = unfinished.read_begun(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(
            "airfl.devices.models._seeded", lambda factory, seed, make=models._seeded: make(factory, seed + 1)
        )
        with pytest.raises(InputError, match="what the model does not train: begun with"):
            airfl.run(config, keeper=runs.Keeper(tmp_path, 60.0, begun))
    again = airfl.run(config, keeper=runs.Keeper(tmp_path, 60.0, begun))
    assert torch.equal(again.schemes["airfl-dp"].models, airfl.run(config).schemes["airfl-dp"].models)


def test_what_cannot_be_batched_is_trained_by_the_loop_and_said_once(tiny, tmp_path, call):
    config = tiny.replace({"learning.model": f"{HERE}:Recurrent", "system.rounds": 1})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        result = airfl.run(config)
    assert result.provenance["engine"] == "loop"
    assert [str(one.message).partition(" (")[0] for one in said] == ["PyTorch's vmap cannot batch model `Recurrent`"]
    (tmp_path / "own.toml").write_text(config.to_toml())
    code, _, error = call("run", "own.toml", "--set", "engine.backend=batched", "--out", "o")
    _, refusal = [line for line in error.splitlines() if line]  # after the warning that code is executed
    assert (code, refusal[:38]) == (2, "airfl: PyTorch's vmap cannot batch mod")
    assert "cannot batch model `Recurrent`" in error
    assert "use engine.backend = `loop`" in error
    threads = airfl.run(config.replace({"engine.backend": "threads"}))
    for name, scheme in result.schemes.items():
        assert torch.allclose(threads.schemes[name].models, scheme.models, atol=1e-5)


def token_data():
    tokens = np.random.default_rng(0).integers(17, size=(300, 1, 8, 8))
    return tokens[:200], tokens[:200, 0, 0, 0] % 10, tokens[200:], tokens[200:, 0, 0, 0] % 10


def test_tokens_and_lazy_layers_are_trained(tiny):
    data = {"learning.dataset": f"{HERE}:token_data", "learning.num_classes": 10, "system.rounds": 1}
    for name, dim in (("Tokens", 118), ("lazy", 460)):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*is batched by vmap.*")
            assert airfl.run(tiny.replace({**data, "learning.model": f"{HERE}:{name}"})).dim == dim
