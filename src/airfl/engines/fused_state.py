"""What a replica holds while it is trained: which parameters, in which order."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch

from airfl.engines.fused_layout import ConvBlock, Layout, LinearBlock

#: Columns that a piece begins at: loads of so many values are one.
ALIGNED = 16


@dataclass(frozen=True)
class Columns:
    """A row of state: filters as [kh·kw·C, N], biases, and the weights of linear layers that are not kept as factors.

    Attributes:
        of: the first column of a piece, by the first of its parameters.
        positions: the parameter in each column; that in one without is of no use, [width].
        columns, parameters: all that are held, in the order of parameters, int32.
    """

    of: dict[int, int]
    positions: torch.Tensor
    columns: torch.Tensor
    parameters: torch.Tensor

    @staticmethod
    def made(layout: Layout, factored: Collection[LinearBlock], device: torch.device) -> Columns:
        """Those of a model."""
        pieces = []
        for block in layout.convolutions:
            pieces += [(block.weight, _filters(block)), (block.bias, torch.arange(block.filters))]
        for layer in layout.linears:
            size = 0 if layer in factored else layer.inputs * layer.outputs
            pieces += [(layer.weight, torch.arange(size)), (layer.bias, torch.arange(layer.outputs))]
        starts, found, end = {}, [], 0
        for first, order in pieces:
            starts[first] = end
            room = -len(order) % ALIGNED
            found.append(torch.cat([first + order, torch.full((room,), -1)]))
            end += len(order) + room
        positions = torch.cat(found)
        parameters, columns = positions.sort()
        held = parameters >= 0
        return Columns(
            starts,
            positions.clamp(min=0).to(device),
            columns[held].to(device, torch.int32),
            parameters[held].to(device, torch.int32),
        )

    @property
    def width(self) -> int:
        """Columns of a row."""
        return len(self.positions)


def _filters(block: ConvBlock) -> torch.Tensor:
    """The parameters of filters [N, C, kh, kw] in the order [kh, kw, C, N]."""
    order = torch.arange(block.size).view(block.filters, block.channels, *block.kernel)
    return order.permute(2, 3, 1, 0).flatten()
