"""Models by name or import path, and their parameters as one flat vector."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn

from airfl.catalogue import no_such
from airfl.errors import InputError, about_file
from airfl.imports import import_callable, is_import_path

Factory = Callable[[tuple[int, ...], int], nn.Module]


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
    """A module used as a function of its parameters, and the layout of those in a vector of length ``dim``."""

    factory: Callable[[], nn.Module] = field(repr=False)
    module: nn.Module = field(repr=False)
    names: tuple[str, ...]
    shapes: tuple[torch.Size, ...]

    @property
    def dim(self) -> int:
        """d, the number of parameters."""
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

    def initial(self, seed: int) -> torch.Tensor:
        """Build the module afresh from a seed and return its parameters as a vector [d]."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            fresh = self.factory()
        return self.flatten({name: value.detach() for name, value in fresh.named_parameters()})


def build_model(name: str, input_shape: tuple[int, ...], num_classes: int) -> ModelSpec:
    """Build a model by name, or call a factory given as ``package.module:callable``.

    A factory takes (input_shape, num_classes), or nothing, and returns a ``torch.nn.Module`` that maps a batch of
    inputs to one score per class. A module in place of a factory is copied: every trial begins with its weights.
    """
    if name in MODELS:
        factory = partial(MODELS[name], input_shape, num_classes)
    elif is_import_path(name):
        factory = partial(_from_factory, name, input_shape, num_classes)
    else:
        raise InputError(no_such("model", name, MODELS, ", or package.module:callable"))
    module = factory()
    _check(module, name, input_shape, num_classes)
    named = [(key, value.shape) for key, value in module.named_parameters()]
    return ModelSpec(factory, module, tuple(key for key, _ in named), tuple(shape for _, shape in named))


def _from_factory(path: str, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    factory = import_callable(path, "model")
    if isinstance(factory, nn.Module):
        return copy.deepcopy(factory)
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
    return made


def _check(module: nn.Module, name: str, input_shape: tuple[int, ...], num_classes: int) -> None:
    if any(buffer.is_floating_point() for buffer in module.buffers()):
        raise InputError(
            f"model `{name}` keeps running statistics (such as batch norm), which are not sent over the air; use group "
            "or layer normalisation"
        )
    if not any(True for _ in module.parameters()):
        raise InputError(f"model `{name}` has no parameters to train")
    if not all(value.requires_grad for value in module.parameters()):
        raise InputError(
            f"model `{name}` has frozen parameters; all of them are trained and sent, so leave frozen ones out"
        )
    probe = torch.linspace(-1.0, 1.0, 3 * math.prod(input_shape)).view(3, *input_shape)
    try:
        with torch.no_grad():
            scores, fewer = module(probe), module(probe[:2])
            again = [module(probe) for _ in range(8)]  # random numbers may agree by chance once
    except Exception as error:
        raise InputError(f"model `{name}` does not take inputs of shape {input_shape}: {error}") from error
    if not isinstance(scores, torch.Tensor) or scores.shape != (3, num_classes):
        shape = tuple(scores.shape) if isinstance(scores, torch.Tensor) else type(scores).__name__
        raise InputError(f"model `{name}` returns {shape} for three inputs; expected a tensor (3, {num_classes})")
    if not all(torch.equal(scores, other) for other in again):
        raise InputError(f"model `{name}` draws random numbers (such as dropout), which are not keyed; switch that off")
    # Else one device's samples would reach another's update through the batch, and clipping would bound nothing.
    if not torch.allclose(scores[:2], fewer, rtol=1e-3, atol=1e-5):
        raise InputError(f"model `{name}` mixes the samples of a batch (such as batch norm); use layer or group norm")


def _pooled_side(input_shape: tuple[int, ...], name: str) -> int:
    """Side length after twice (convolution 5×5, pooling 2)."""
    side = ((input_shape[-1] - 4) // 2 - 4) // 2 if len(input_shape) == 3 else 0
    if side < 1 or input_shape[-1] != input_shape[-2]:
        raise InputError(f"model `{name}` needs square images of at least 16 pixels a side; got shape {input_shape}")
    return side
