"""Local SGD of a chain of layers on one CPU thread, the passes written out.

A small step spends much of its time beside the products: in autograd, in module calls, in fresh memory. Here all
tensors of a step have their places once and for all, and a step is some forty calls that write to them. Images are
kept with channels last, [n, height, width, channels].
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn

from airfl.engines.cpu_stages import (
    LARGE,
    ROWS,
    Convolution,
    Copy,
    Factored,
    FactoredLinear,
    Linear,
    MaxPool,
    PatchConvolution,
    Relu,
    Room,
    Stage,
    Weights,
    nchw,
)
from airfl.engines.replicated import Parameters, chain, replicated

Layers = list[tuple[str, nn.Module]]
aten = torch.ops.aten


class Plan:
    """The stages for batches of n samples."""

    def __init__(
        self, layers: Layers, input_shape: tuple[int, ...], dtype: torch.dtype, weights: Weights, n: int, room: Room
    ) -> None:
        images = len(input_shape) == 3
        x = room((n, *input_shape[1:], input_shape[0]) if images else (n, *input_shape), dtype)
        self.x, self.weights = nchw(x) if images else x, weights
        self.stages: list[Stage] = []
        for name, layer in layers:
            for stage in _stages(layer, name, x, dtype, weights, room):
                self.stages.append(stage)
                x = stage.y
        if x.dtype != torch.float32:
            self.stages.append(Copy(x, torch.float32, room))
        self.scores = self.stages[-1].y
        g = self.g = room(tuple(self.scores.shape), torch.float32)
        # Nobody asks for gradients before the first weights.
        first = next(i for i, stage in enumerate(self.stages) if stage.weighted)
        self.first, self.others = self.stages[first], self.stages[:first:-1]
        for stage in (*self.others, self.first):
            g = stage.attach(g, room)
        self.one, self.count = torch.ones(()), torch.tensor(float(n))

    def step(self, x: torch.Tensor, labels: torch.Tensor) -> float:
        """One SGD step on the mean loss of n samples; returns that loss."""
        self.x.copy_(x)
        for stage in self.stages:
            stage.forward()
        logs = torch.log_softmax(self.scores, 1)
        loss = F.nll_loss(logs, labels)
        g = aten.nll_loss_backward.default(self.one, logs, labels, None, 1, -100, self.count)
        aten._log_softmax_backward_data.out(g, logs, 1, torch.float32, out=self.g)
        for stage in self.others:
            stage.backward(True)
        self.first.backward(False)
        self.weights.step()
        return float(loss)


def _stages(
    layer: nn.Module, name: str, x: torch.Tensor, dtype: torch.dtype, weights: Weights, room: Room
) -> Iterator[Stage]:
    """The stages of one layer."""
    if isinstance(layer, nn.Conv2d):
        by_patches = PatchConvolution.pays(layer, x)
        yield (PatchConvolution if by_patches else Convolution)(layer, name, x, weights, room)
    elif isinstance(layer, nn.Linear):
        wanted = dtype if layer.weight.numel() >= LARGE else torch.float32
        if x.dtype != wanted:
            copy = Copy(x, wanted, room)
            yield copy
            x = copy.y
        factored = f"{name}weight" in weights.factored
        yield (FactoredLinear if factored else Linear)(layer, name, x, weights, room)
    elif isinstance(layer, nn.MaxPool2d):
        yield MaxPool(layer, x, room)
    elif isinstance(layer, nn.ReLU):
        yield Relu(x)
    elif isinstance(layer, nn.Flatten) and x.dim() == 4:
        yield Copy(x, x.dtype, room)


class Chain:
    """Trains one device after another, in batches of up to ``batch`` samples."""

    def __init__(
        self, module: nn.Module, layers: Layers, input_shape: tuple[int, ...], batch: int, dtype: torch.dtype
    ) -> None:
        self.layers, self.input_shape, self.batch, self.dtype = layers, input_shape, batch, dtype
        factored = {}
        if 2 * batch <= ROWS:
            for name, layer in layers:
                if isinstance(layer, nn.Linear) and layer.weight.numel() >= LARGE:
                    factored[f"{name}weight"] = Factored(layer.out_features, layer.in_features, batch, dtype)
        self.weights = Weights(module, dtype, factored)
        self._plans: dict[int, Plan] = {}
        self._rooms: list[torch.Tensor] = []

    def begin(self, start: Parameters, update: Parameters, rate: float) -> None:
        """Start a device at θ; its update (θ − θ_local)/η will be written to ``update``."""
        self.weights.begin(start, update, rate)

    def step(self, x: torch.Tensor, labels: torch.Tensor) -> float:
        """One SGD step on the mean loss of some samples; returns that loss."""
        n = len(x)
        if n not in self._plans:
            self._plans[n] = Plan(self.layers, self.input_shape, self.dtype, self.weights, n, self._room(n))
        return self._plans[n].step(x, labels)

    def finish(self) -> None:
        """Write the update."""
        self.weights.finish()

    def _room(self, n: int) -> Room:
        """Hand out the tensors of a plan; plans for fewer samples use the beginning of the same memory."""
        used = iter(range(10**6))

        def room(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            index, size = next(used), math.prod(shape)
            if index == len(self._rooms):
                self._rooms.append(torch.empty(size // n * self.batch, dtype=dtype))
            return self._rooms[index][:size].view(shape)

        return room


def build_chain(
    module: nn.Module, input_shape: tuple[int, ...], batch: int, dtype: torch.dtype = torch.float32
) -> Chain | None:
    """The chain of a module that is made of known layers only, else None; ``dtype`` is that of the large products."""
    layers = chain(module)
    if layers is None or replicated(module) is None or len(input_shape) not in (1, 3):
        return None
    flat = len(input_shape) == 1
    for _, layer in layers:
        flat = flat or isinstance(layer, nn.Flatten)
        known = (nn.ReLU, nn.Flatten, nn.Identity, *((nn.Linear,) if flat else (nn.Conv2d, nn.MaxPool2d)))
        if type(layer) not in known:
            return None
    return Chain(module, list(_pool_before_relu(layers)), input_shape, batch, dtype)


def _pool_before_relu(layers: Layers) -> Iterator[tuple[str, nn.Module]]:
    """Swap a ReLU and the max pooling behind it: the same values and gradients, and less to rectify."""
    waiting: Layers = []
    for name, layer in layers:
        if isinstance(layer, nn.ReLU):
            waiting.append((name, layer))
        elif isinstance(layer, nn.MaxPool2d):
            yield name, layer
        else:
            yield from waiting
            yield name, layer
            waiting = []
    yield from waiting
