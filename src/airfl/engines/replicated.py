"""Forward passes with a different weight for every replica.

x [B, b, ...] and parameters [B, *shape] give scores [B, b, classes]: replica i sees its own samples through its own
weights. Linear layers and convolutions become batched matrix products; what has nothing to train is applied as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import nn

Parameters = dict[str, torch.Tensor]
Forward = Callable[[Parameters, torch.Tensor], torch.Tensor]

#: Layers without weights that act on every sample by itself, so that replicas and samples may share a dimension.
POINTWISE = (nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.Sigmoid, nn.Softplus, nn.ELU, nn.LeakyReLU, nn.Identity)


def replicated(module: nn.Module) -> Forward | None:
    """Return the replicated forward pass of a chain of known layers, or None if the module is anything else."""
    stages = [_stage(layer, name) for name, layer in _untied(module) or []]
    if not stages or any(stage is None for stage in stages):
        return None

    def forward(parameters: Parameters, x: torch.Tensor) -> torch.Tensor:
        for stage in stages:
            assert stage is not None
            x = stage(parameters, x)
        return x

    return forward


def chain(module: nn.Module) -> list[tuple[str, nn.Module]] | None:
    """The layers of nested ``Sequential`` modules in order, with the prefix of their parameters' names.

    None where weights are frozen, since whoever writes out passes trains all that there are, or tied.
    """
    return _untied(module) if all(value.requires_grad for value in module.parameters()) else None


def _untied(module: nn.Module) -> list[tuple[str, nn.Module]] | None:
    """The layers, also with frozen weights; None where weights are tied: they have one name but two places."""
    if len(list(module.parameters())) != len(list(module.named_parameters(remove_duplicate=False))):
        return None
    return list(_chain(module, ""))


def _chain(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    # Exactly Sequential: a subclass may do something else in its own forward.
    if type(module) is nn.Sequential:
        for name, child in module._modules.items():  # named_children would leave out a layer used twice
            assert child is not None
            yield from _chain(child, f"{prefix}{name}.")
    else:
        yield prefix, module


def _stage(layer: nn.Module, name: str) -> Forward | None:
    # Exact types again: a subclass may mean something else.
    trained = any(value.requires_grad for value in layer.parameters())
    if not trained and type(layer) in (nn.MaxPool2d, nn.AvgPool2d, nn.Linear, nn.Conv2d):
        return lambda parameters, x: layer(x.flatten(0, 1)).unflatten(0, x.shape[:2])
    if type(layer) is nn.Linear:
        return _linear(layer, name)
    if type(layer) is nn.Conv2d and layer.groups == 1 and layer.dilation == (1, 1) and isinstance(layer.padding, tuple):
        return _convolution(layer, name) if layer.padding_mode == "zeros" else None
    if type(layer) is nn.Flatten and (layer.start_dim, layer.end_dim) == (1, -1):
        return lambda parameters, x: x.flatten(2)
    if type(layer) in POINTWISE:
        return lambda parameters, x: F.relu(x) if type(layer) is nn.ReLU else layer(x)
    return None


def _linear(layer: nn.Linear, name: str) -> Forward:
    def forward(parameters: Parameters, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(x.shape[0], -1, x.shape[-1])
        return _products(layer, name, parameters, rows).view(*x.shape[:-1], -1)

    return forward


def _products(layer: nn.Linear | nn.Conv2d, name: str, parameters: Parameters, rows: torch.Tensor) -> torch.Tensor:
    """Rows [B, r, inputs] times the weights of their replica, plus its bias; one of the two may be frozen."""

    def held(key: str, value: torch.Tensor) -> torch.Tensor:
        return parameters[key] if key in parameters else value.expand(len(rows), *value.shape)

    weight = held(f"{name}weight", layer.weight).flatten(2).mT
    if layer.bias is None:
        return torch.bmm(rows, weight)
    return torch.baddbmm(held(f"{name}bias", layer.bias).unsqueeze(1), rows, weight)


def _convolution(layer: nn.Conv2d, name: str) -> Forward:
    """Patches times weights: [B, b·Ho·Wo, C·kh·kw] × [B, C·kh·kw, O]; the result is kept with channels last."""
    (kh, kw), (sh, sw) = layer.kernel_size, layer.stride
    assert isinstance(layer.padding, tuple)
    ph, pw = layer.padding

    def forward(parameters: Parameters, x: torch.Tensor) -> torch.Tensor:
        replicas, batch = x.shape[:2]
        if ph or pw:
            x = F.pad(x, (pw, pw, ph, ph))
        patches = x.unfold(3, kh, sh).unfold(4, kw, sw).permute(0, 1, 3, 4, 2, 5, 6)
        height, width = patches.shape[2:4]
        columns = patches.reshape(replicas, batch * height * width, -1)
        out = _products(layer, name, parameters, columns)
        return out.view(replicas, batch, height, width, -1).permute(0, 1, 4, 2, 3)

    return forward
