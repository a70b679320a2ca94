"""The learning task: a model, a node's share of the images, training and testing; and the settings of the air."""

from functools import lru_cache
from pathlib import Path

import torch
import torch.nn.functional as F

import airfl
from airfl.devices import Dataset
from airfl.devices.datasets import load_dataset
from airfl.devices.models import build_model
from airfl.devices.partition import make_partition
from airfl.randomness import stream, torch_seed

HERE = Path(__file__).parents[1]


@lru_cache(maxsize=1)
def air():
    """airfl.toml as it is."""
    return airfl.read(str(HERE / "airfl.toml"))


def job(settings):
    """The airfl configuration of the app: airfl.toml, with the model and the rounds of the app's settings."""
    return air().replace({"learning.model": settings["model"], "system.rounds": settings["rounds"]})


@lru_cache(maxsize=1)
def images() -> Dataset:
    """Fashion-MNIST from airfl's loader: from the system's copy, a cache, or the network; checked by its hash."""
    return load_dataset("fashion-mnist", None)


def make_model(name):
    """`softmax` or `small-cnn`, with the weights that `airfl run` begins with."""
    torch.manual_seed(torch_seed(air().system.seed, "model-init", 0))
    return build_model(name, (1, 28, 28), 10).factory()


@lru_cache(maxsize=64)
def share_of(node, nodes):
    """Images and labels of one node: as many as every other's, drawn at random, as `airfl run` deals them."""
    data, config = images(), air()
    deal = stream(config.system.seed, "partition", 0)
    mine = make_partition(data.labels, data.num_train, nodes, config.learning, deal).of(node)
    return torch.from_numpy(data.inputs[mine]), torch.from_numpy(data.labels[mine])


def train(model, inputs, labels, lr, steps, batch_size, seed):
    """Plain SGD; returns the mean loss."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    parameters, total = list(model.parameters()), 0.0
    for step in range(steps):
        batch = order[torch.arange(step * batch_size, (step + 1) * batch_size) % len(order)]
        loss = F.cross_entropy(model(inputs[batch]), labels[batch])
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= lr * gradient
        total += loss.item() / steps
    return total


@torch.no_grad()
def test(model):
    """Accuracy and loss on the test images."""
    data = images()
    inputs, labels = torch.from_numpy(data.inputs[data.num_train :]), torch.from_numpy(data.labels[data.num_train :])
    scores = torch.cat([model(part) for part in inputs.split(2000)])
    return (scores.argmax(1) == labels).float().mean().item(), F.cross_entropy(scores, labels).item()
