"""Updates as engines hand them on, and the two forms they come in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import nn

from airfl.devices.sums import Sum, Sums


@dataclass(frozen=True)
class Spanned:
    """Updates of one linear layer, Δ = Σ_j a_j ⊗ (x_j, 1) over a device's samples, without a vector [d] for each.

    Attributes:
        coefficients: a, [C, B, S], float32; zero where a device has fewer than S samples.
        samples: x, [B, S, F], float32.
        norms: ‖Δ‖, no less than what is left of it when coefficients are scaled in float32, [B], float64.
        bias: whether the layer has one; it comes after the weights [C, F].
        together: finds sums over the same samples by one product; None: each by its own.
    """

    coefficients: torch.Tensor
    samples: torch.Tensor
    norms: torch.Tensor
    bias: bool
    together: Sums | None = field(default=None, repr=False, compare=False)
    _asked: list[tuple[torch.Tensor, Sum]] = field(init=False, default_factory=list, repr=False, compare=False)

    @property
    def device(self) -> torch.device:
        """Where they lie."""
        return self.coefficients.device

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, part: slice) -> Spanned:
        if len(range(*part.indices(len(self)))) == len(self):
            return self
        return Spanned(self.coefficients[:, part], self.samples[part], self.norms[part], self.bias)

    def planted(self, which: torch.Tensor, vector: torch.Tensor) -> Spanned:
        """The same with another update [d] for some of the devices, [B] bool.

        The update of class c is a sample of its own, and a sample of zeros makes up for its share in the bias.
        """
        classes, _, held = self.coefficients.shape
        features, needed = self.samples.shape[2], classes * (1 + self.bias)
        grown = max(0, needed - held)
        a, x = nn.functional.pad(self.coefficients, (0, grown)), nn.functional.pad(self.samples, (0, 0, 0, grown))
        own_a, own_x = a.new_zeros(classes, a.shape[2]), x.new_zeros(x.shape[1:])
        own_a[:, :classes] = torch.eye(classes)
        own_x[:classes] = vector[: classes * features].view(classes, features)
        if self.bias:
            own_a[:, classes:needed] = torch.diag(vector[classes * features :] - 1.0)
        a[:, which], x[which] = own_a.unsqueeze(1), own_x
        norms = self.norms.clone()
        norms[which] = span_norms(a[:, which], inner_products(x[which], self.bias))
        return Spanned(a, x, norms, self.bias)

    def dense(self) -> torch.Tensor:
        """The updates themselves, [B, d]; rounded to float32 once."""
        a = self.coefficients.double().transpose(0, 1)
        weights = torch.bmm(a, self.samples.double()).flatten(1)
        return (torch.cat([weights, a.sum(dim=2)], dim=1) if self.bias else weights).float()

    def sum(self, weights: torch.Tensor) -> torch.Tensor:
        """Σ_i weights_i Δ_i in float64, [d]."""
        return self.later(weights).found

    def later(self, weights: torch.Tensor) -> Sum:
        """The same, found when it is looked at or before; once for schemes that weigh their devices alike."""
        for known, asked in self._asked:
            if torch.equal(known, weights):
                return asked
        sums = self.together or Sums(self.samples.flatten(0, 1), self.bias)
        self._asked.append((weights, sums.ask(self.coefficients, weights)))
        return self._asked[-1][1]


def inner_products(samples: torch.Tensor, bias: bool) -> torch.Tensor:
    """Of (x_j, 1) with each other, for samples [B, S, F]: [B, S, S], float64."""
    wide = samples.double()
    return torch.bmm(wide, wide.mT) + float(bias)


def span_norms(coefficients: torch.Tensor, gram: torch.Tensor) -> torch.Tensor:
    """‖Δ‖ of coefficients [C, B, S] and what scaling them in float32 can add to it, [B]; all in float64."""
    wide = coefficients.double()
    a = wide.permute(1, 2, 0)
    squares = (torch.bmm(gram, a) * a).sum(dim=(1, 2)).clamp(min=0.0)
    lengths = _lengths(wide) * gram.diagonal(dim1=1, dim2=2).sqrt()
    norms: torch.Tensor = squares.sqrt() + 2.0**-22 * lengths.sum(dim=1)
    return norms


def _lengths(a: torch.Tensor) -> torch.Tensor:
    """‖a_j‖ of [C, B, S], [B, S]: the bits of ``torch.linalg.vector_norm`` over few far apart, ten times as fast."""
    first, *others = a * a
    total = first.clone()
    for one in others:
        total += one
    return torch.from_numpy(np.sqrt(total.numpy()))  # torch's own root of float64 is an ulp off now and then


@dataclass(frozen=True)
class UpdateBlock:
    """Updates of some replicas.

    Attributes:
        trial: row of the broadcast model each update belongs to, [B], int64.
        slot: position among the active devices of that trial, [B], int64.
        trained: Δ as it was trained, [B, d], float32; in spanned form those of one trial only.
        losses: mean loss over the samples of the local steps, [B].
        factors: what clipping leaves of each update, [B]; None: all of it. Kept apart, so that no clipped copy is made
            where only a sum is wanted.
    """

    trial: torch.Tensor
    slot: torch.Tensor
    trained: torch.Tensor | Spanned
    losses: torch.Tensor
    factors: torch.Tensor | None = None

    def without(self, which: torch.Tensor) -> UpdateBlock:
        """The same with nothing from some of the replicas, [B] bool."""
        trained = self.trained
        if isinstance(trained, Spanned):
            left = trained.coefficients.masked_fill(which.unsqueeze(-1), 0.0)
            trained = replace(trained, coefficients=left, norms=trained.norms.masked_fill(which, 0.0))
        else:
            trained = trained.masked_fill(which.unsqueeze(-1), 0.0)
        return replace(self, trained=trained)

    def planted(self, which: torch.Tensor, vector: torch.Tensor) -> UpdateBlock:
        """The same with another update [d] from some of the replicas, [B] bool."""
        trained = self.trained
        if isinstance(trained, Spanned):
            return replace(self, trained=trained.planted(which, vector))
        return replace(self, trained=torch.where(which.unsqueeze(1), vector, trained))

    def with_updates(self, updates: torch.Tensor) -> UpdateBlock:
        """The same devices with something else to send, [B, d]."""
        return replace(self, trained=updates, factors=None)

    @property
    def updates(self) -> torch.Tensor:
        """Δ̄, the updates after clipping, [B, d]."""
        trained = self.trained.dense() if isinstance(self.trained, Spanned) else self.trained
        return trained if self.factors is None else trained * self.factors.unsqueeze(-1)

    def rows(self, first: int, last: int, shift: int) -> UpdateBlock | None:
        """The updates of the broadcast rows ``first`` to ``last`` − 1, renumbered by ``shift``; None if there are none.

        Replicas come in the order of their rows, so the part is a view.
        """
        low, high = torch.searchsorted(self.trial.contiguous(), self.trial.new_tensor([first, last])).tolist()
        part = slice(low, high)
        if low == high:
            return None
        factors = None if self.factors is None else self.factors[part]
        return UpdateBlock(self.trial[part] + shift, self.slot[part], self.trained[part], self.losses[part], factors)
