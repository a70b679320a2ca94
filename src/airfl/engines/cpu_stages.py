"""Weights and layers of a chain on one CPU thread: the passes of each, written out.

All tensors of a stage have their places once and for all. Images are kept with channels last, [n, height, width,
channels].
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from airfl.engines.replicated import Parameters
from airfl.products import times_transposed

#: Entries from which on a linear layer's weight is large: products with smaller ones gain nothing from rounding.
LARGE = 2**16
#: Rows that a large linear layer collects before they are multiplied out.
ROWS = 64

#: Hands out memory of a shape and type.
Room = Callable[[tuple[int, ...], torch.dtype], torch.Tensor]
aten = torch.ops.aten


class Weights:
    """The parameters of the device that is trained: in float32, and rounded for the products.

    Gradients of filters and biases are collected in one vector, so that one addition takes them all off. Linear layers
    take theirs off as they are multiplied out. ``factored`` weights are not held here at all.
    """

    def __init__(self, module: nn.Module, dtype: torch.dtype, factored: dict[str, Factored]) -> None:
        self.factored = factored
        held = {name: value for name, value in module.named_parameters() if name not in factored}
        # Channels last for filters.
        self.orders = {name: (0, 2, 3, 1) if v.dim() == 4 else tuple(range(v.dim())) for name, v in held.items()}
        names = sorted(held, key=lambda name: held[name].dim() == 2)
        shapes = [held[name].permute(self.orders[name]).shape for name in names]
        ends = [0, *torch.tensor([shape.numel() for shape in shapes]).cumsum(0).tolist()]

        def views(vector: torch.Tensor) -> Parameters:
            places = zip(names, shapes, ends, ends[1:], strict=False)
            return {name: vector[a:b].view(shape) for name, shape, a, b in places if b <= len(vector)}

        collected = sum(held[name].numel() for name in names if held[name].dim() != 2)
        self._full, self._gradient = torch.empty(ends[-1]), torch.empty(collected)
        self._value = self._full if dtype == torch.float32 else torch.empty(ends[-1], dtype=dtype)
        self.full, self.value, self.gradient = views(self._full), views(self._value), views(self._gradient)
        self._collected = self._full[:collected]

    def begin(self, start: Parameters, update: Parameters, rate: float) -> None:
        """Start a device at θ; its update (θ − θ_local)/η will be written to ``update``."""
        self.start, self.update, self.rate = start, update, rate
        for name, order in self.orders.items():
            self.full[name].copy_(start[name].permute(order))
        for name, weight in self.factored.items():
            weight.begin(start[name], update[name], rate)
        self._round()

    def step(self) -> None:
        """Take the collected gradients off."""
        self._collected.add_(self._gradient, alpha=-self.rate)
        self._round()

    def finish(self) -> None:
        """Write the update."""
        for name, order in self.orders.items():
            start, update = self.start[name].permute(order), self.update[name].permute(order)
            torch.sub(start, self.full[name], out=update).div_(self.rate)
        for weight in self.factored.values():
            weight.multiply_out()

    def _round(self) -> None:
        if self._value is not self._full:
            self._value.copy_(self._full)


class Factored:
    """The large weight of a linear layer, W = W₀ − η GᵀX.

    A step changes W by −η gᵀx, of no higher rank than there are samples in it. So its rows of x and g are kept, and
    multiplied out only when their places are full or the device is done: most steps do not write W. X lies below W₀,
    so that one product serves both, [W₀; X] x and [g, −η g Gᵀ] [W₀; X]. Rows that are not used yet are zero.
    """

    def __init__(self, outputs: int, inputs: int, batch: int, dtype: torch.dtype) -> None:
        self.batch = batch
        self.both, self.g = torch.zeros(outputs + ROWS, inputs, dtype=dtype), torch.zeros(ROWS, outputs)
        self.first, self.x = self.both.split([outputs, ROWS])
        self.start: torch.Tensor | None = None
        self.rows, self.written = 0, False

    def begin(self, start: torch.Tensor, update: torch.Tensor, rate: float) -> None:
        """See ``Weights.begin``."""
        if self.written or start is not self.start:  # else W₀ is there already
            self.first.copy_(start)
        self.start, self.update, self.rate = start, update, rate
        self.written = False
        self._clear()

    def keep(self, x: torch.Tensor, g: torch.Tensor) -> None:
        """Take −η gᵀx off."""
        end = self.rows + len(x)
        self.x[self.rows : end].copy_(x)
        self.g[self.rows : end].copy_(g)
        self.rows = end
        if end + self.batch > ROWS:
            self.multiply_out()
            self.written = True
            assert self.start is not None
            self.first.copy_(torch.sub(self.start, self.update, alpha=self.rate))

    def multiply_out(self) -> None:
        """Add GᵀX to the update."""
        if not self.rows:
            if not self.written:
                self.update.zero_()
            return
        product = times_transposed(self.g[: self.rows].to(self.x.dtype).t(), self.x[: self.rows].t())
        if self.written:
            self.update.add_(product)
        else:
            self.update.copy_(product)
        self._clear()

    def _clear(self) -> None:
        self.rows = 0
        self.x.zero_()
        self.g.zero_()


class Stage:
    """One layer for batches of one size: from a tensor x to a tensor ``y``, and from the gradient of y to that of x."""

    y: torch.Tensor
    weighted = False

    def attach(self, g: torch.Tensor, room: Room) -> torch.Tensor:
        """Say where the gradient of y will be; returns where that of x will be."""
        raise NotImplementedError

    def forward(self) -> None:
        """Compute y."""
        raise NotImplementedError

    def backward(self, wanted: bool) -> None:
        """Compute the gradient of x, if it is wanted, and those of the weights."""
        raise NotImplementedError


class Convolution(Stage):
    """A convolution through the library."""

    weighted = True

    def __init__(self, layer: nn.Conv2d, name: str, x: torch.Tensor, weights: Weights, room: Room) -> None:
        assert isinstance(layer.padding, tuple)
        (kh, kw), (sh, sw), (ph, pw) = layer.kernel_size, layer.stride, layer.padding
        n, h, w, _ = x.shape
        height, width, outputs = (h + 2 * ph - kh) // sh + 1, (w + 2 * pw - kw) // sw + 1, layer.out_channels
        self.x, self.stride, self.padding = nchw(x), layer.stride, layer.padding
        self.weight, self.bias = nchw(weights.value[f"{name}weight"]), weights.value.get(f"{name}bias")
        self.gradient = nchw(weights.gradient[f"{name}weight"])
        self.bias_gradient = weights.gradient.get(f"{name}bias")
        self.y = room((n, height, width, outputs), x.dtype)
        self.out, self.rows = nchw(self.y), self.y.view(-1, outputs)

    def attach(self, g: torch.Tensor, room: Room) -> torch.Tensor:
        """See ``Stage.attach``."""
        n, c, h, w = self.x.shape
        before = room((n, h, w, c), g.dtype)
        self.g, self.g_rows, self.before = nchw(g), g.view(-1, g.shape[-1]), nchw(before)
        return before

    def forward(self) -> None:
        """See ``Stage.forward``."""
        self.out.copy_(torch.conv2d(self.x, self.weight, self.bias, self.stride, self.padding))

    def backward(self, wanted: bool) -> None:
        """See ``Stage.backward``."""
        before, gradient = self._gradients(wanted, True)
        if wanted:
            self.before.copy_(before)
        self.gradient.copy_(gradient)
        self._bias_gradient()

    def _gradients(self, of_input: bool, of_weight: bool) -> tuple[torch.Tensor, torch.Tensor]:
        mask, same = (of_input, of_weight, False), (self.stride, self.padding, (1, 1), False, (0, 0), 1)
        before, gradient, _ = aten.convolution_backward.default(self.g, self.x, self.weight, None, *same, mask)
        return before, gradient

    def _bias_gradient(self) -> None:
        if self.bias_gradient is not None:
            torch.sum(self.g_rows, 0, dtype=torch.float32, out=self.bias_gradient)


class PatchConvolution(Convolution):
    """A convolution as a product of patches and weights, [n·ho·wo, kh·kw·c] × [kh·kw·c, o].

    The patches serve the gradient of the weights too. This pays for images with one channel, and in low precision.
    """

    def __init__(self, layer: nn.Conv2d, name: str, x: torch.Tensor, weights: Weights, room: Room) -> None:
        super().__init__(layer, name, x, weights, room)
        (kh, kw), (sh, sw), (n, height, width, outputs) = layer.kernel_size, layer.stride, self.y.shape
        _, h, w, c = x.shape
        sizes, steps = (n, height, width, kh, kw * c), (h * w * c, sh * w * c, sw * c, w * c, 1)
        # What is long and without gaps is copied fast: the rows of a patch, or for one channel those of an image.
        self.by_rows = c > 1
        places = x.as_strided(sizes, steps)
        self.places = places if self.by_rows else places.permute(3, 4, 0, 1, 2)
        self.copy = room(tuple(self.places.shape), x.dtype)
        self.patches = self.copy.view(n * height * width, -1) if self.by_rows else self.copy.view(kh * kw, -1).t()
        self.patches_transposed = self.patches.t()
        self.matrix = weights.value[f"{name}weight"].view(outputs, -1).t()
        self.flat_gradient = weights.gradient[f"{name}weight"].view(outputs, -1)

    @staticmethod
    def pays(layer: nn.Conv2d, x: torch.Tensor) -> bool:
        """Whether this is the faster way."""
        long = layer.in_channels * layer.kernel_size[1] >= 32
        return layer.padding == (0, 0) and (layer.in_channels == 1 or (long and x.dtype != torch.float32))

    def forward(self) -> None:
        """See ``Stage.forward``."""
        self.copy.copy_(self.places)
        if self.bias is None:
            torch.mm(self.patches, self.matrix, out=self.rows)
        else:
            torch.addmm(self.bias, self.patches, self.matrix, out=self.rows)

    def backward(self, wanted: bool) -> None:
        """See ``Stage.backward``."""
        if wanted:
            self.before.copy_(self._gradients(True, False)[0])
        rows, patches = self.g_rows, self.patches
        product = rows.t() @ patches if self.by_rows else times_transposed(self.patches_transposed, rows.t()).t()
        self.flat_gradient.copy_(product)
        self._bias_gradient()


class Linear(Stage):
    """x Wᵀ + b."""

    weighted = True

    def __init__(self, layer: nn.Linear, name: str, x: torch.Tensor, weights: Weights, room: Room) -> None:
        self.x, self.weights = x, weights
        self.full = weights.full[f"{name}weight"]
        held = weights.full if x.dtype == torch.float32 else weights.value
        self.weight, self.bias = held[f"{name}weight"], held.get(f"{name}bias")
        self.transposed = self.weight.t()
        self.bias_gradient = weights.gradient.get(f"{name}bias")
        self.y = room((len(x), layer.out_features), x.dtype)

    def attach(self, g: torch.Tensor, room: Room) -> torch.Tensor:
        """See ``Stage.attach``."""
        self.g, self.g_transposed = g, g.t()
        self.before = room((len(g), self.x.shape[1]), g.dtype)
        return self.before

    def forward(self) -> None:
        """See ``Stage.forward``."""
        if self.bias is None:
            torch.mm(self.x, self.transposed, out=self.y)
        else:
            torch.addmm(self.bias, self.x, self.transposed, out=self.y)

    def backward(self, wanted: bool) -> None:
        """See ``Stage.backward``."""
        if wanted:
            torch.mm(self.g, self.weight, out=self.before)
        if self.bias_gradient is not None:
            torch.sum(self.g, 0, dtype=torch.float32, out=self.bias_gradient)
        if self.x.dtype == torch.float32:
            self.full.addmm_(self.g_transposed, self.x, alpha=-self.weights.rate)
        else:
            self.full.addmm_(self.g_transposed.float(), self.x.float(), alpha=-self.weights.rate)


class FactoredLinear(Stage):
    """x Wᵀ + b for a factored W; the result is float32, as are the small products."""

    weighted = True

    def __init__(self, layer: nn.Linear, name: str, x: torch.Tensor, weights: Weights, room: Room) -> None:
        self.x, self.weight = x, weights.factored[f"{name}weight"]
        self.both, self.both_transposed = self.weight.both, self.weight.both.t()
        self.kept, self.kept_transposed = self.weight.g, self.weight.g.t()
        self.bias, self.bias_gradient = weights.full.get(f"{name}bias"), weights.gradient.get(f"{name}bias")
        self.sizes = [layer.out_features, ROWS]
        self.rounded = room((len(x), sum(self.sizes)), x.dtype)
        same = x.dtype == torch.float32
        self.products = self.rounded if same else room((len(x), sum(self.sizes)), torch.float32)
        self.product, self.with_rows = self.products.split(self.sizes, dim=1)
        self.y = room((len(x), layer.out_features), torch.float32)

    def attach(self, g: torch.Tensor, room: Room) -> torch.Tensor:
        """See ``Stage.attach``."""
        self.g, self.factors = g, room((len(g), sum(self.sizes)), self.x.dtype)
        self.factor, self.for_rows = self.factors.split(self.sizes, dim=1)
        self.small = room((len(g), ROWS), torch.float32)
        self.before = room((len(g), self.x.shape[1]), self.x.dtype)
        return self.before

    def forward(self) -> None:
        """See ``Stage.forward``."""
        self.rounded.copy_(times_transposed(self.x, self.both))
        if self.products is not self.rounded:
            self.products.copy_(self.rounded)
        torch.addmm(self.product, self.with_rows, self.kept, alpha=-self.weight.rate, out=self.y)
        if self.bias is not None:
            self.y.add_(self.bias)

    def backward(self, wanted: bool) -> None:
        """See ``Stage.backward``."""
        if wanted:
            self.factor.copy_(self.g)
            self.small.addmm_(self.g, self.kept_transposed, beta=0.0, alpha=-self.weight.rate)
            self.for_rows.copy_(self.small)
            self.before.copy_(times_transposed(self.factors, self.both_transposed))
        if self.bias_gradient is not None:
            torch.sum(self.g, 0, out=self.bias_gradient)
        self.weight.keep(self.x, self.g)


class MaxPool(Stage):
    """The largest of each window."""

    def __init__(self, layer: nn.MaxPool2d, x: torch.Tensor, room: Room) -> None:
        sizes = (layer.kernel_size, layer.stride, layer.padding, layer.dilation)
        self.window = [*((size, size) if isinstance(size, int) else size for size in sizes), layer.ceil_mode]
        self.x = nchw(x)
        n, c, h, w = aten.max_pool2d_with_indices(self.x, *self.window)[0].shape
        self.y = room((n, h, w, c), x.dtype)
        self.out, self.places = nchw(self.y), nchw(room((n, h, w, c), torch.int64))

    def attach(self, g: torch.Tensor, room: Room) -> torch.Tensor:
        """See ``Stage.attach``."""
        n, c, h, w = self.x.shape
        before = room((n, h, w, c), g.dtype)
        self.g, self.before = nchw(g), nchw(before)
        return before

    def forward(self) -> None:
        """See ``Stage.forward``."""
        aten.max_pool2d_with_indices.out(self.x, *self.window, out=self.out, indices=self.places)

    def backward(self, wanted: bool) -> None:
        """See ``Stage.backward``."""
        aten.max_pool2d_with_indices_backward.grad_input(
            self.g, self.x, *self.window, self.places, grad_input=self.before
        )


class Relu(Stage):
    """max(x, 0), in place."""

    def __init__(self, x: torch.Tensor) -> None:
        self.y = x

    def attach(self, g: torch.Tensor, room: Room) -> torch.Tensor:
        """See ``Stage.attach``."""
        self.g = g
        return g

    def forward(self) -> None:
        """See ``Stage.forward``."""
        self.y.relu_()

    def backward(self, wanted: bool) -> None:
        """See ``Stage.backward``."""
        aten.threshold_backward.grad_input(self.g, self.y, 0, grad_input=self.g)


class Copy(Stage):
    """The same numbers in another type, or in another order: images flattened as [c, h, w]."""

    def __init__(self, x: torch.Tensor, dtype: torch.dtype, room: Room) -> None:
        self.x = nchw(x) if x.dim() == 4 else x
        self.y = room((len(x), x[0].numel()), dtype)
        self.out = self.y.view(self.x.shape)

    def attach(self, g: torch.Tensor, room: Room) -> torch.Tensor:
        """See ``Stage.attach``."""
        shape = self.x.shape
        images = len(shape) == 4
        before = room((shape[0], *shape[2:], shape[1]) if images else tuple(shape), self.x.dtype)
        self.g, self.before = g.view(shape), nchw(before) if images else before
        return before

    def forward(self) -> None:
        """See ``Stage.forward``."""
        self.out.copy_(self.x)

    def backward(self, wanted: bool) -> None:
        """See ``Stage.backward``."""
        self.before.copy_(self.g)


def nchw(x: torch.Tensor) -> torch.Tensor:
    """Images [n, h, w, c] as the library names their dimensions, [n, c, h, w]."""
    return x.permute(0, 3, 1, 2)
