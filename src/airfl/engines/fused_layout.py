"""Which models the fused kernels know: convolution blocks, then linear layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from airfl.devices.models import ModelSpec
from airfl.engines.fused_widths import power_of_two
from airfl.engines.replicated import chain


@dataclass(frozen=True)
class ConvBlock:
    """Convolution (stride 1, no padding), ReLU, 2×2 max-pooling."""

    weight: int
    bias: int
    channels: int
    height: int
    width: int
    kernel: tuple[int, int]
    filters: int

    @property
    def pooled(self) -> tuple[int, int]:
        """Height and width of what comes out."""
        return (self.height - self.kernel[0] + 1) // 2, (self.width - self.kernel[1] + 1) // 2

    @property
    def places(self) -> int:
        """Pooled places of one image."""
        return self.pooled[0] * self.pooled[1]

    @property
    def fan_in(self) -> int:
        """Weights of one filter."""
        return self.kernel[0] * self.kernel[1] * self.channels

    @property
    def patch(self) -> tuple[int, int]:
        """Pixels below a pooled place, [kh + 1, kw + 1], as kernels hold them: in a row, and in all, powers of two.

        A row has room for one more, see ``fused_images.strips``.
        """
        wide = power_of_two(self.kernel[1] + 2)
        return wide, max(16, power_of_two((self.kernel[0] + 1) * wide))

    @property
    def size(self) -> int:
        """Weights of all filters."""
        return self.fan_in * self.filters


@dataclass(frozen=True)
class LinearBlock:
    """Linear layer; ReLU after all but the last."""

    weight: int
    bias: int
    inputs: int
    outputs: int


@dataclass(frozen=True)
class Layout:
    """A model that the kernels know: convolution blocks, then linear ones. Offsets are into the parameter vector."""

    convolutions: tuple[ConvBlock, ...]
    linears: tuple[LinearBlock, ...]

    @property
    def size(self) -> int:
        """Parameters."""
        filters = sum(block.size + block.filters for block in self.convolutions)
        return filters + sum((layer.inputs + 1) * layer.outputs for layer in self.linears)


def fused_layout(spec: ModelSpec, input_shape: tuple[int, ...]) -> Layout | None:
    """Take a chain apart; None where a layer, a size or an order is not what the kernels are written for."""
    layers = chain(spec.module)
    if layers is None:
        return None
    offsets, position = {}, 0
    for name, size in zip(spec.names, map(torch.Size.numel, spec.shapes), strict=True):
        offsets[name], position = position, position + size
    convolutions: list[ConvBlock] = []
    linears: list[LinearBlock] = []
    shape: tuple[int, ...] = tuple(input_shape)
    queue = list(layers)
    while queue and type(queue[0][1]) is nn.Conv2d:
        if len(queue) < 3 or len(shape) != 3:
            return None
        (name, conv), (_, relu), (_, pool) = queue[:3]
        queue = queue[3:]
        block = _conv_block(name, conv, relu, pool, shape, offsets, first=not convolutions)
        if block is None:
            return None
        convolutions.append(block)
        shape = (block.filters, *block.pooled)
    if queue and type(queue[0][1]) is nn.Flatten:
        if (queue[0][1].start_dim, queue[0][1].end_dim) != (1, -1):
            return None
        queue = queue[1:]
    elif len(shape) > 1:
        return None
    size = int(torch.Size(shape).numel())
    while queue:
        name, layer = queue[0]
        if type(layer) is not nn.Linear or layer.bias is None or layer.in_features != size:
            return None
        linears.append(LinearBlock(offsets[f"{name}weight"], offsets[f"{name}bias"], size, layer.out_features))
        size, queue = layer.out_features, queue[1:]
        if queue:
            if type(queue[0][1]) is not nn.ReLU:
                return None
            queue = queue[1:]
            if not queue:
                return None
    if len(linears) < (2 if convolutions else 1) or linears[-1].outputs > 64:
        return None
    return Layout(tuple(convolutions), tuple(linears))


def _conv_block(
    name: str,
    conv: nn.Module,
    relu: nn.Module,
    pool: nn.Module,
    shape: tuple[int, ...],
    offsets: dict[str, int],
    *,
    first: bool,
) -> ConvBlock | None:
    if not (isinstance(conv, nn.Conv2d) and type(relu) is nn.ReLU and type(pool) is nn.MaxPool2d):
        return None
    plain = conv.stride == (1, 1) and conv.padding == (0, 0) and conv.dilation == (1, 1) and conv.groups == 1
    halves = pool.kernel_size in (2, (2, 2)) and pool.stride in (2, (2, 2)) and pool.padding in (0, (0, 0))
    halves = halves and pool.dilation in (1, (1, 1)) and not pool.ceil_mode and not pool.return_indices
    kh, kw = conv.kernel_size
    channels, height, width = shape
    even = (height - kh + 1) % 2 == 0 and (width - kw + 1) % 2 == 0 and min(height - kh, width - kw) >= 1
    tiles = _is_tile(conv.out_channels) and (channels == 1 if first else _is_tile(channels))
    if not (plain and halves and even and tiles and conv.bias is not None and conv.in_channels == channels):
        return None
    return ConvBlock(
        offsets[f"{name}weight"], offsets[f"{name}bias"], channels, height, width, (kh, kw), conv.out_channels
    )


def _is_tile(channels: int) -> bool:
    return 16 <= channels <= 128 and channels & (channels - 1) == 0
