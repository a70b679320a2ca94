"""A Flower grid without Flower: nodes are functions of the message that they get."""

from __future__ import annotations

import itertools

import torch
from flwr.app import ArrayRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from airfl.devices import load_samples, open_task
from airfl.engines.loop import LoopEngine
from airfl.flower.layout import Layout

FIRST_NODE = 1000


class FakeGrid(Grid):
    """``answer(node, message)`` returns a reply, several of them, or None."""

    def __init__(self, count, answer):
        self.ids, self.answer = [FIRST_NODE + i for i in range(count)], answer
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1  # as of a server that runs
        self.trained: list[list[int]] = []
        self.told: list[dict] = []
        self.calls = 0

    def send_and_receive(self, messages, *, timeout=None):
        messages = list(messages)
        if self.calls % 2 == 0:  # every other call is for evaluation
            self.trained.append([message.metadata.dst_node_id for message in messages])
        self.calls += 1
        replies = []
        for message in messages:
            self.told.append(dict(message.content["config"]))
            made = self.answer(message.metadata.dst_node_id, message)
            replies.extend([] if made is None else [made] if isinstance(made, Message) else made)
        return replies

    def get_node_ids(self):
        return list(self.ids)

    def set_run(self, run): ...

    @property
    def run(self): ...

    def create_message(self, *arguments, **named): ...

    def push_messages(self, messages): ...

    def pull_messages(self, message_ids): ...


def reply(message, vector, layout=None):
    """A node's model, as a vector."""
    layout = layout or Layout.of(message.content["arrays"])
    content = {"arrays": layout.record(vector), "metrics": MetricRecord({"num-examples": 7})}
    return Message(RecordDict(content), reply_to=message)


def failure(message):
    return Message(Error(0, "no battery"), reply_to=message)


def moved(shift):
    """Nodes that add something to every parameter."""

    def answer(node, message):
        layout = Layout.of(message.content["arrays"])
        return reply(message, layout.vector(message.content["arrays"]) + shift, layout)

    return answer


class Trainers:
    """Nodes that train as airfl's devices do, on the same samples in the same order."""

    def __init__(self, config, trial=0):
        samples = load_samples(config, torch.device("cpu"))
        self.config, self.task = config, open_task(config, (trial,), samples)
        self.engine = LoopEngine(self.task.spec)
        self.start = self.task.initial_models()

    def arrays(self):
        return ArrayRecord(self.task.spec.unflatten(self.start[0]))

    def __call__(self, node, message):
        told, layout = message.content["config"], Layout.of(message.content["arrays"])
        model = layout.vector(message.content["arrays"])
        batches = self.task.batches(told["server-round"] - 1, torch.tensor([[told["device"]]]).numpy())
        blocks = self.engine.train(
            model.unsqueeze(0), batches, self.task.inputs, self.task.labels, self.config.learning.learning_rate
        )
        (block,) = itertools.islice(blocks, 1)
        return reply(message, model - self.config.learning.learning_rate * block.updates[0], layout)


def softmax_arrays(numbers=3, seed=0):
    """A model of a few parameters in two arrays."""
    generator = torch.Generator().manual_seed(seed)
    return ArrayRecord({"w": torch.randn(2, numbers, generator=generator), "b": torch.zeros(2)})
