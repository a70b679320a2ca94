"""Models by name or import path, and their parameters as one flat vector."""

from __future__ import annotations

import copy
import hashlib
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.parameter import is_lazy

from airfl.catalogue import no_such
from airfl.errors import InputError, about_file
from airfl.imports import import_callable, is_import_path

Factory = Callable[[tuple[int, ...], int], nn.Module]
#: Samples that a model is tried on, and among how many those that differ are looked for.
TRIED, LOOKED_AT = 4, 64


def paper_cnn(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The paper's CNN; d = 582,026 for 28×28 images and 10 classes (832 + 51,264 + 524,800 + 5,130)."""
    side = _pooled_side(input_shape, "paper-cnn")
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * side * side, 512),
        nn.ReLU(),
        nn.Linear(512, num_classes),
    )


def small_cnn(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A CNN for many devices; d = 29,994 for 28×28 images and 10 classes."""
    side = _pooled_side(input_shape, "small-cnn")
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * side * side, 32),
        nn.ReLU(),
        nn.Linear(32, num_classes),
    )


def mlp(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """One hidden layer of 64 with tanh, hence smooth; d = 50,890 for 28×28 images and 10 classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), 64), nn.Tanh(), nn.Linear(64, num_classes))


def softmax(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Softmax regression; d = 7,850 for 28×28 images and 10 classes."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))


def logistic(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Softmax regression that begins at zero, so that inputs that never occur say nothing; d = 120 for 59 and 2."""
    layer = nn.Linear(math.prod(input_shape), num_classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


MODELS: dict[str, Factory] = {
    "paper-cnn": paper_cnn,
    "small-cnn": small_cnn,
    "mlp": mlp,
    "softmax": softmax,
    "logistic": logistic,
}


@dataclass(frozen=True)
class ModelSpec:
    """A module used as a function of what is trained of it, and the layout of that in a vector of length ``dim``.

    Frozen parameters and buffers stay in the module: they are the same for every device, round and trial.
    """

    factory: Callable[[], nn.Module] = field(repr=False)
    module: nn.Module = field(repr=False)
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def dim(self) -> int:
        """d, the number of parameters that are trained."""
        return sum(shape.numel() for shape in self.shapes)

    @property
    def is_dense(self) -> bool:
        """Whether the model has no convolution, so that batching devices pays on a CPU too."""
        return not any(isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) for layer in self.module.modules())

    def unflatten(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """Views of vector [..., d] as named parameters [..., *shape]."""
        pieces = vector.split([shape.numel() for shape in self.shapes], dim=-1)
        return {
            name: piece.view(*vector.shape[:-1], *shape)
            for name, shape, piece in zip(self.names, self.shapes, pieces, strict=True)
        }

    def flatten(self, parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        """Inverse of ``unflatten`` for unbatched parameters."""
        return torch.cat([parameters[name].reshape(-1) for name in self.names])

    def state_dict(self, vector: torch.Tensor) -> dict[str, torch.Tensor]:
        """What ``load_state_dict`` of the module takes: the parameters of a vector [d], and what is not trained."""
        trained, whole = self.unflatten(vector), self.module.state_dict(keep_vars=True)
        first = {id(value): name for name, value in self.module.named_parameters()}  # of several, if it is tied
        return {name: trained.get(first.get(id(value), ""), value) for name, value in whole.items()}

    def kept_digest(self) -> str:
        """SHA-256, 12 digits, of what is not trained; empty where there is nothing."""
        kept = {name: value for name, value in _all_of(self.module).items() if name not in self.names}
        digest = hashlib.sha256()
        for name, value in kept.items():
            digest.update(name.encode() + value.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:12] if kept else ""

    def initial(self, seed: int) -> torch.Tensor:
        """Build the module afresh from a seed and return what is trained of it as a vector [d]."""
        fresh = _seeded(self.factory, seed)
        return self.flatten({name: value.detach() for name, value in fresh.named_parameters()})


def build_model(
    name: str, input_shape: tuple[int, ...], num_classes: int, inputs: torch.Tensor | None = None
) -> ModelSpec:
    """Build a model by name, or call a factory given as ``package.module:callable``.

    A factory takes (input_shape, num_classes), or nothing, and returns a ``torch.nn.Module`` that maps a batch of
    inputs to one score per class. A module in place of a factory is copied: every trial begins with its weights. What
    is not trained is drawn, if it is, from a seed of its own: it is the same whenever the model is built.

    Args:
        inputs: samples of the data set, [N, *input_shape]: a few are tried, and the module goes where they lie. None:
            it is not tried, as when a result is loaded into it.
    """
    if name in MODELS:
        factory: Callable[[], nn.Module] = partial(MODELS[name], input_shape, num_classes)
    elif is_import_path(name):
        factory = partial(_from_factory, name, input_shape, num_classes)
    else:
        raise InputError(no_such("model", name, MODELS, ", or package.module:callable"))
    module = _seeded(factory, 0)
    trained = {key: value for key, value in module.named_parameters() if value.requires_grad}
    if not trained:
        raise InputError(f"model `{name}` has no parameters to train")
    odd = next((value.dtype for value in trained.values() if value.dtype != torch.float32), None)
    if odd is not None:
        raise InputError(
            f"model `{name}` trains parameters of {odd}, and models are trained and sent in float32; convert it with "
            "`.float()`, and see `engine.precision` for products in bf16"
        )
    spec = ModelSpec(factory, module, tuple(trained), tuple(value.shape for value in trained.values()))
    if inputs is not None:
        if (kept := spec.kept_digest()) and kept != replace(spec, module=_seeded(factory, 0)).kept_digest():
            raise InputError(
                f"model `{name}` has other frozen parameters or buffers whenever it is built; draw them with PyTorch, "
                "whose generator is seeded, or read them from a file"
            )
        _try(module.cpu(), trained, name, num_classes, _some_that_differ(inputs))
        module.to(inputs.device)
    return spec


def _seeded(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """A module whose random numbers follow from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return factory()


def _from_factory(path: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    factory = import_callable(path, "model")
    if isinstance(factory, nn.Module):
        return _of_known_shapes(copy.deepcopy(factory), path, input_shape)
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        parameters = {}  # type: ignore[assignment]
    required = [p for p in parameters.values() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    try:
        made: Any = factory(input_shape, num_classes) if len(required) >= 2 else factory()
    except Exception as error:
        raise InputError(f"model factory `{path}` failed: {about_file(error)}") from error
    if not isinstance(made, nn.Module):
        raise InputError(f"model factory `{path}` must return a torch.nn.Module; got {type(made).__name__}")
    return _of_known_shapes(made, path, input_shape)


def _of_known_shapes(module: nn.Module, path: str, input_shape: tuple[int, ...]) -> nn.Module:
    """The module, once lazy layers have seen inputs: two of zeros, which every kind of input has."""
    if any(is_lazy(value) for value in (*module.parameters(), *module.buffers())):
        with _in_a_sentence(path, f"does not take inputs of shape {input_shape} in float32"), torch.no_grad():
            module(torch.zeros(2, *input_shape))
    return module


@contextmanager
def _in_a_sentence(name: str, what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # somebody's forward pass may fail in any way
        said = (str(error) or type(error).__name__).strip().splitlines()[0]
        raise InputError(f"model `{name}` {what}: {said}") from error


def _some_that_differ(inputs: torch.Tensor) -> torch.Tensor:
    """A few samples from all over a data set; where all are alike it would not show what a model mixes."""
    rows: torch.Tensor = inputs[torch.arange(LOOKED_AT) * (len(inputs) - 1) // (LOOKED_AT - 1)].flatten(1).unique(dim=0)
    if len(rows) < 2:
        rows = inputs.flatten(1).unique(dim=0)
    places = torch.arange(TRIED) * (len(rows) - 1) // (TRIED - 1)
    return rows[places.unique()].view(-1, *inputs.shape[1:]).cpu()


def _try(module: nn.Module, trained: Mapping[str, torch.Tensor], name: str, num_classes: int, x: torch.Tensor) -> None:
    """Refuse a model that cannot be trained by federated averaging of ``trained`` alone."""
    before = {key: value.detach().clone() for key, value in _all_of(module).items() if key not in trained}
    with _in_a_sentence(name, f"does not take inputs of shape {tuple(x.shape[1:])} in float32"), torch.no_grad():
        scores, parts = module(x), [module(part) for part in x.chunk(2)]
        again = [module(x) for _ in range(8)]  # random numbers may agree by chance once
    count = len(x)
    if not isinstance(scores, torch.Tensor) or scores.shape != (count, num_classes) or not scores.is_floating_point():
        got = f"{scores.dtype} {tuple(scores.shape)}" if isinstance(scores, torch.Tensor) else type(scores).__name__
        wanted = f"a tensor ({count}, {num_classes}) of scores"
        raise InputError(f"model `{name}` returns {got} for {count} inputs; expected {wanted}")
    with _in_a_sentence(name, "cannot be trained"):
        loss = F.cross_entropy(module(x), torch.zeros(count, dtype=torch.int64))
        torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    after = _all_of(module)
    changed = [key for key, value in before.items() if not _are_close(value, after[key], 0.0)]
    if changed:
        raise InputError(
            f"model `{name}` changes `{changed[0]}` while it is trained, as running statistics (batch norm) are, and "
            "that is not sent over the air; use group or layer normalisation, or return the module in `.eval()` mode"
        )
    if not all(_are_close(scores, other, 0.0) for other in again):
        raise InputError(f"model `{name}` draws random numbers (such as dropout), which are not keyed; switch that off")
    # Else one device's samples would reach another's update through the batch, and clipping would bound nothing.
    if not _are_close(scores, torch.cat(parts), 1e-3):
        raise InputError(f"model `{name}` mixes the samples of a batch (such as batch norm); use layer or group norm")


def _all_of(module: nn.Module) -> dict[str, torch.Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _are_close(first: torch.Tensor, other: torch.Tensor, rtol: float) -> bool:
    """Whether they are the same but for rounding; NaN is like NaN."""
    return first.shape == other.shape and torch.allclose(first, other, rtol, 1e-2 * rtol, equal_nan=True)


def _pooled_side(input_shape: tuple[int, ...], name: str) -> int:
    """Side length after twice (convolution 5×5, pooling 2)."""
    side = ((input_shape[-1] - 4) // 2 - 4) // 2 if len(input_shape) == 3 else 0
    if side < 1 or input_shape[-1] != input_shape[-2]:
        raise InputError(f"model `{name}` needs square images of at least 16 pixels a side; got shape {input_shape}")
    return side
