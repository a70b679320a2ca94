"""Local SGD of chains of linear layers on CPU threads, some replicas at once on each, the passes written out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import torch
from torch import nn

from airfl.devices.models import ModelSpec
from airfl.devices.updates import UpdateBlock
from airfl.engines.device_threads import train_on_threads
from airfl.engines.replicated import Parameters, chain, replicated

#: Bytes of parameters and samples of the replicas on one thread: they should stay in the caches.
GROUP_BYTES = 4 * 2**20

aten = torch.ops.aten
#: Gradient of an activation's input, from that of its output and from the output.
ACTIVATIONS: dict[type[nn.Module], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    nn.ReLU: lambda g, y: aten.threshold_backward(g, y, 0),
    nn.Tanh: aten.tanh_backward,
    nn.Sigmoid: aten.sigmoid_backward,
}
Layers = list[tuple[str, nn.Module]]


def dense_layers(module: nn.Module, input_shape: tuple[int, ...]) -> Layers | None:
    """Linear layers and activations of a chain that has nothing else, else None; samples come as vectors."""
    layers = chain(module)
    if layers is None or replicated(module) is None:
        return None
    flat = len(input_shape) == 1
    for _, layer in layers:
        flat = flat or isinstance(layer, nn.Flatten)
        if type(layer) not in (*ACTIVATIONS, nn.Flatten) and not (flat and type(layer) is nn.Linear):
            return None
    return [(name, layer) for name, layer in layers if type(layer) is not nn.Flatten]


def train_dense(
    spec: ModelSpec,
    layers: Layers,
    models: torch.Tensor,
    batches: torch.Tensor,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    learning_rate: float,
    group: int | None = None,
) -> Iterator[UpdateBlock]:
    """See ``Engine.train``; ``layers`` are those of ``dense_layers``, and ``group`` of them share a thread."""
    trials, active, steps, batch = batches.shape
    vectors, flat = inputs.flatten(1), batches.reshape(trials * active, steps, batch)
    size = group or max(1, GROUP_BYTES // (4 * (spec.dim + batch * vectors.shape[1])))
    idle: list[Group] = []

    def work(first: int, last: int, updates: torch.Tensor, stop: threading.Event) -> torch.Tensor:
        try:
            place = idle.pop()
        except IndexError:
            place = Group(spec, layers, size, batch, vectors.shape[1])
        with torch.no_grad():
            torch.index_select(models, 0, torch.arange(first, last) // active, out=updates)
            losses = place.train(updates, flat[first:last], vectors, labels, learning_rate, stop)
        idle.append(place)
        return losses

    yield from train_on_threads(work, trials, active, spec.dim, size)


class Group:
    """Trains up to ``size`` replicas at once, in memory that is used again for the next ones."""

    def __init__(self, spec: ModelSpec, layers: Layers, size: int, batch: int, width: int) -> None:
        self.spec, self.layers = spec, layers
        self.local, self.x = torch.empty(size, spec.dim), torch.empty(size * batch, width)

    def train(
        self,
        updates: torch.Tensor,
        batches: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        rate: float,
        stop: threading.Event,
    ) -> torch.Tensor:
        """Turn the models θ in ``updates`` into the updates (θ − θ_local)/η; returns the mean losses."""
        replicas, steps, batch = batches.shape
        local = self.local[:replicas].copy_(updates)
        parameters = self.spec.unflatten(local)
        there, places = batches >= 0, batches.clamp(min=0)
        counts = there.sum(dim=2)
        shares = there / counts.clamp(min=1).unsqueeze(2)
        targets = labels.index_select(0, places.flatten()).view(replicas, steps, batch, 1)
        total, minus = torch.zeros(replicas), torch.full((replicas, batch, 1), -1.0)
        for index in range(steps):
            if stop.is_set():
                break
            x = self.x[: replicas * batch]
            torch.index_select(inputs, 0, places[:, index].flatten(), out=x)
            values = [x.view(replicas, batch, -1)]
            for name, layer in self.layers:
                values.append(_forward(name, layer, parameters, values[-1]))
            share, target = shares[:, index], targets[:, index]
            g = torch.log_softmax(values[-1], 2)
            total -= (g.gather(2, target).squeeze(2) * share).sum(dim=1) * counts[:, index]
            g.exp_().scatter_add_(2, target, minus).mul_(share.unsqueeze(2))
            self._backward(parameters, values, g, rate)
        updates.sub_(local).div_(rate)
        return total / counts.sum(dim=1).clamp(min=1)

    def _backward(self, parameters: Parameters, values: list[torch.Tensor], g: torch.Tensor, rate: float) -> None:
        """Take the gradients off, from the last layer to the first that has any; layer i goes from value i to i + 1."""
        first = next(i for i, (_, layer) in enumerate(self.layers) if isinstance(layer, nn.Linear))
        for i in range(len(self.layers) - 1, first - 1, -1):
            name, layer = self.layers[i]
            if not isinstance(layer, nn.Linear):
                g = ACTIVATIONS[type(layer)](g, values[i + 1])
                continue
            weight, above = parameters[f"{name}weight"], g
            if i > first:
                g = torch.bmm(above, weight)
            weight.baddbmm_(above.mT, values[i], alpha=-rate)
            if layer.bias is not None:
                parameters[f"{name}bias"].sub_(above.sum(dim=1), alpha=rate)


def _forward(name: str, layer: nn.Module, parameters: Parameters, x: torch.Tensor) -> torch.Tensor:
    if not isinstance(layer, nn.Linear):
        y: torch.Tensor = layer(x)
        return y
    weight, bias = parameters[f"{name}weight"].mT, parameters.get(f"{name}bias")
    return torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight)
