"""An engine of your own: one device after another, one step after another, in plain PyTorch.

airfl run paper --set engine.backend=engine:Plain
"""

from collections.abc import Iterator

import torch
from torch.func import functional_call, grad

from airfl.devices import UpdateBlock


class Plain:
    """Made with the model's ``ModelSpec``."""

    name = "plain"

    def __init__(self, spec) -> None:
        self.spec = spec

    def train(self, models, batches, inputs, labels, learning_rate) -> Iterator[UpdateBlock]:
        """Yield every replica's update once."""

        def loss(theta: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
            scores = functional_call(self.spec.module, self.spec.unflatten(theta), (inputs[samples],))
            return torch.nn.functional.cross_entropy(scores, labels[samples])

        for trial, device in torch.cartesian_prod(torch.arange(len(models)), torch.arange(batches.shape[1])).tolist():
            theta, losses = models[trial], []
            for step in batches[trial, device]:
                samples = step[step >= 0]
                if len(samples):
                    losses.append(loss(theta, samples).detach())
                    theta = theta - learning_rate * grad(loss)(theta, samples)
            mean = torch.stack(losses).mean() if losses else torch.zeros(())
            update = ((models[trial] - theta) / learning_rate).unsqueeze(0)
            yield UpdateBlock(torch.tensor([trial]), torch.tensor([device]), update, mean.unsqueeze(0))
