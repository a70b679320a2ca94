"""A last layer of its own for every device, trained there after the release: it stays there, so it costs no privacy.

From the released model a device takes everything but the last linear layer as it is, and goes on with that layer by
gradient descent on all of its own training samples:

    W_i ← W_i − η ∇ (1/|D_i|) Σ_{(x, y) ∈ D_i} loss(W_i φ(x), y).

Few steps from a good model are a compromise between everybody's data and one's own.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from airfl.devices.models import ModelSpec
from airfl.errors import InputError

#: Values of padded inputs that are held at once.
MOST_VALUES = 2**25


def last_layer(spec: ModelSpec) -> tuple[str, nn.Linear]:
    """Name and module of the last linear layer, whose output the model returns."""
    found = [(name, layer) for name, layer in spec.module.named_modules() if isinstance(layer, nn.Linear)]
    modules = [layer for layer in spec.module.modules() if not list(layer.children())]
    if not found or modules[-1] is not found[-1][1]:
        raise InputError(
            'metric "personal" trains the last linear layer, and the model does not end with one; leave the metric out'
        )
    return found[-1]


def seen_by_last(spec: ModelSpec, model: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """φ(x): what the last layer is given, [N, F]."""
    _, layer = last_layer(spec)
    caught: list[torch.Tensor] = []
    handle = layer.register_forward_pre_hook(lambda _, given: caught.append(given[0]))
    try:
        with torch.no_grad():
            for part in inputs.split(4096):
                functional_call(spec.module, spec.unflatten(model), (part,))
    finally:
        handle.remove()
    return torch.cat(caught)


def personal_scores(
    spec: ModelSpec,
    model: torch.Tensor,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    parts: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray],
    steps: int,
    learning_rate: float,
) -> torch.Tensor:
    """What each device's own layer says of its own test samples, [own samples, C], in the order of the devices.

    Args:
        model: the released parameters, [d].
        parts: training samples and their offsets, own test samples and their offsets, as a ``Partition`` has them.
    """
    train, offsets, own, own_offsets = parts
    name, _ = last_layer(spec)
    parameters = spec.state_dict(model)  # that layer may be a frozen one
    weight = parameters[f"{name}.weight"]
    bias = parameters.get(f"{name}.bias")
    if bias is None:
        bias = weight.new_zeros(len(weight))
    sizes = np.diff(offsets)
    order = np.argsort(sizes, kind="stable")  # devices of a size together: little padding
    scores = weight.new_zeros(len(own), len(weight))
    first = 0
    while first < len(order):
        last = first + 1
        width = inputs[0].numel()
        while last < len(order) and (last + 1 - first) * int(sizes[order[last]]) * width <= MOST_VALUES:
            last += 1
        some = order[first:last]
        samples = torch.from_numpy(_padded(train, offsets, some)).to(inputs.device)
        layers = _trained(spec, model, (weight, bias), inputs, labels, samples, steps, learning_rate)
        tested = torch.from_numpy(_padded(own, own_offsets, some)).to(inputs.device)
        said = torch.baddbmm(layers[1].unsqueeze(1), _features(spec, model, inputs, tested), layers[0].mT)
        for row, device in enumerate(some.tolist()):
            low, high = own_offsets[device], own_offsets[device + 1]
            scores[low:high] = said[row, : high - low]
        first = last
    return scores


def _padded(samples: np.ndarray, offsets: np.ndarray, devices: np.ndarray) -> np.ndarray:
    """Sample numbers of some devices, [B, longest]; −1 where a device has fewer."""
    longest = max(1, int(np.diff(offsets)[devices].max()))
    places = offsets[devices][:, None] + np.arange(longest)
    beyond = places >= offsets[devices + 1][:, None]
    numbers = samples if len(samples) else np.zeros(1, dtype=np.int64)
    return np.where(beyond, -1, numbers[np.where(beyond, 0, places)])


def _features(spec: ModelSpec, model: torch.Tensor, inputs: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
    """φ of padded samples, [B, S, F]; zero where there is none."""
    made = seen_by_last(spec, model, inputs[samples.clamp(min=0).flatten()])
    return made.view(*samples.shape, -1) * (samples >= 0).unsqueeze(-1)


def _trained(
    spec: ModelSpec,
    model: torch.Tensor,
    begin: tuple[torch.Tensor, torch.Tensor],
    inputs: torch.Tensor,
    labels: torch.Tensor,
    samples: torch.Tensor,
    steps: int,
    learning_rate: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The layers after so many steps, [B, C, F] and [B, C]."""
    seen, there = _features(spec, model, inputs, samples), (samples >= 0).unsqueeze(-1)
    wanted = nn.functional.one_hot(labels[samples.clamp(min=0)], len(begin[1])).to(seen) * there
    share = 1.0 / there.sum(dim=1, keepdim=True).clamp(min=1)
    weight, bias = begin[0].expand(len(samples), -1, -1).clone(), begin[1].expand(len(samples), -1).clone()
    for _ in range(steps):
        scores = torch.baddbmm(bias.unsqueeze(1), seen, weight.mT)
        wrong = (scores.softmax(dim=2) * there - wanted) * share
        weight -= learning_rate * torch.bmm(wrong.mT, seen)
        bias -= learning_rate * wrong.sum(dim=1)
    return weight, bias
