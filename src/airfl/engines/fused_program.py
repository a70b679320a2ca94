"""Buffers of many replicas, and the recorded kernels of their steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from airfl.engines.fused_layout import ConvBlock, Layout, LinearBlock
from airfl.engines.fused_state import Columns
from airfl.engines.fused_tiles import PRECISIONS, TILES
from airfl.engines.fused_widths import in_parts, power_of_two, width_for

#: Entries from which on a linear layer's weight is large, and rows that are kept of it in place of weights.
LARGE, ROWS = 2**16, 128

#: Most steps that are recorded as one.
AT_ONCE = 8

#: No steps of no replicas.
BEGIN = (0, 0)

Launch = Callable[[], None]


def is_factored(layout: Layout, layer: LinearBlock, rows: int) -> bool:
    """Whether a replica that goes through so many samples keeps this layer's weight as factors."""
    return layer is not layout.linears[-1] and layer.inputs * layer.outputs >= LARGE and rows <= ROWS


class Program:
    """Buffers and the recorded kernels of steps, for a number of replicas, steps and samples per step.

    Args:
        broadcast: how many models replicas can begin at.
        images: what convolutions read, see ``strips``.
        size: what it takes, in bytes.
    """

    def __init__(
        self,
        layout: Layout,
        precision: str,
        key: tuple[float, ...],
        replicas: int,
        broadcast: int,
        steps: int,
        batch: int,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        images: torch.Tensor | None,
        rate: float,
        size: int,
    ) -> None:
        self.key, self.bytes = key, size
        self.layout, self.replicas, self.steps, self.batch = layout, replicas, steps, batch
        self.inputs, self.labels, self.images, self.rate = inputs, labels, images, rate
        self.kind, self.precision = PRECISIONS[precision]
        self.tiles = TILES["bf16" if self.kind == torch.bfloat16 else "float32"]
        self.factored = [layer for layer in layout.linears if is_factored(layout, layer, steps * batch)]
        self.columns = Columns.made(layout, self.factored, inputs.device)
        self.models, self.start = self._zeros(broadcast, layout.size), self._zeros(broadcast, self.columns.width)
        self.state = self._zeros(replicas, self.columns.width)
        # Filters of all but the first convolution as products take them; in float32 those of the state.
        self.copies = [
            (block, self._zeros(replicas, block.size, dtype=self.kind))
            for block in (layout.convolutions[1:] if self.kind != torch.float32 else ())
        ]
        self.index = self._zeros(replicas, steps, batch, dtype=torch.int32)
        self.step = self._zeros(1, dtype=torch.int32)
        # Of each replica: the model it begins at, the steps it takes, and where its update goes.
        self.trial, self.taken, self.row = self._zeros(3, replicas, dtype=torch.int32)
        self.everyone = torch.arange(replicas, device=inputs.device, dtype=torch.int32)
        self.losses = self._zeros(replicas)
        shapes = [(layer.outputs, layer.inputs) for layer in self.factored]
        self.first = [self._zeros(broadcast, *shape, dtype=self.kind) for shape in shapes]
        self.kept = [
            tuple(self._zeros(replicas, steps * batch, many, dtype=self.kind) for many in (layer.inputs, layer.outputs))
            for layer in self.factored
        ]
        # Kept: they hold the buffers that a recorded step goes on using.
        self.launches = self._launches()
        self.width = replicas
        self.runs: dict[tuple[int, int], Launch] = {}

    def play(
        self, models: torch.Tensor, trial: torch.Tensor, samples: torch.Tensor, taken: np.ndarray, out: torch.Tensor
    ) -> torch.Tensor:
        """Take all local steps from the broadcast models, and write the updates to ``out``; returns summed losses.

        Where replicas take different numbers of steps, ``taken``, they are put in order, the longest first: a step
        then works on those only that still take part. Those that take none have no place at all, and their updates
        are not written.
        """
        if not taken.any():
            return torch.zeros(len(taken), device=trial.device)
        row = None
        if taken.min() != taken.max():
            order = np.argsort(-taken, kind="stable")[: np.count_nonzero(taken)]
            row = torch.from_numpy(order).to(trial.device)
            steps, trial, samples = taken[order], trial[row], samples[row]
        else:
            steps = taken
        used = len(steps)
        still = used - np.searchsorted(steps[::-1], np.arange(steps.max()), side="right")
        few = {count: width_for(count, self.replicas) for count in set(still.tolist())}
        parts = in_parts([few[count] for count in still.tolist()], AT_ONCE)
        for part in sorted({BEGIN, *parts} - set(self.runs)):  # before the buffers are filled: recording writes to them
            self.runs[part] = self._record(*part)
        self.models[: len(models)].copy_(models)
        self.trial[:used].copy_(trial)
        if row is None:
            self.taken.fill_(int(steps[0]))
        else:
            self.taken[:used].copy_(torch.from_numpy(steps))
            self.row[:used].copy_(row)
        if used < self.replicas:
            self.index.fill_(-1)
        self.index[:used].copy_(samples)
        self.runs[BEGIN]()
        for part in parts:
            self.runs[part]()
        self._finish(used, self.everyone if row is None else self.row, out)
        if row is None:
            return self.losses.clone()[:used]
        losses = torch.zeros(len(taken), device=trial.device)
        losses[row] = self.losses[:used]
        return losses

    def release(self) -> None:
        """Let go of the buffers: the kernels of a step and the program hold each other."""
        self.launches.clear()
        self.runs.clear()

    def _begin(self) -> None:
        """Fill the state with what is broadcast."""
        torch.index_select(self.models, 1, self.columns.positions, out=self.start)
        torch.index_select(self.start, 0, self.trial, out=self.state)
        for layer, first in zip(self.factored, self.first, strict=True):
            first.copy_(self.models[:, layer.weight : layer.weight + first[0].numel()].view_as(first))
        for block, copy in self.copies:
            column = self.columns.of[block.weight]
            copy.copy_(self.state[:, column : column + block.size])
        self.losses.zero_()
        self.step.zero_()

    def _finish(self, used: int, row: torch.Tensor, out: torch.Tensor) -> None:
        """Write the updates of the replicas in use to their rows of ``out``."""
        from airfl.engines import fused_factors as kernels

        dim, count = out.shape[1], len(self.columns.columns)
        tile = self.tiles["held_update"]
        blocks = -(-count // tile["BLOCK"])
        kernels.held_update[(-(-used // tile["EACH"]) * blocks,)](
            self.start, self.state, self.trial, row, self.columns.columns, self.columns.parameters, out, used,
            self.columns.width, dim, self.rate, COUNT=count, BLOCKS=blocks, **tile,
        )  # fmt: skip
        for layer, (xs, gs) in zip(self.factored, self.kept, strict=True):
            tile = self.tiles["factored_update"]
            blocks = -(-layer.inputs // tile["BK"]) * -(-layer.outputs // tile["BN"])
            kernels.factored_update[(used * blocks,)](
                xs, gs, self.taken, row, out[:, layer.weight :], dim, **self._factors(layer), **tile,
                BLOCKS=blocks, PRECISION=self.precision,
            )  # fmt: skip

    def _record(self, width: int, steps: int) -> Launch:
        """Steps of the first ``width`` replicas, one after another; none of none is what comes before them."""

        def go() -> None:
            if (width, steps) == BEGIN:
                self._begin()
            self.width = width
            for _ in range(steps):
                for launch in self.launches:
                    launch()
                self.step.add_(1)

        self.step.zero_()
        return _recorded(go) if self.inputs.is_cuda else go

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(shape, device=self.inputs.device, dtype=dtype)

    def _launch(self, kernel: Any, blocks: int, *arguments: Any, **constants: Any) -> Launch:
        constants["PRECISION"] = self.precision
        return lambda: kernel[(self.width * blocks,)](*arguments, **constants)

    def _held(self, weight: int, bias: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        """Where two pieces begin in the first row of state, and how long a row is."""
        first, second = self.columns.of[weight], self.columns.of[bias]
        return self.state[:, first:], self.state[:, second:], self.columns.width

    def _launches(self) -> list[Launch]:
        """The kernels of one step, in order."""
        forward, backward, activation, gradient = self._convolutions() if self.layout.convolutions else self._fetched()
        incoming: torch.Tensor | None = None
        hidden: list[Launch] = []
        for number, layer in enumerate(self.layout.linears[:-1]):
            mode = 1 if number else 2 if gradient is not None else 0
            target = incoming if number else gradient
            out = self._zeros(self.replicas, self.batch, layer.outputs, dtype=self.kind)
            incoming = torch.zeros_like(out)
            ahead, back = self._linear(layer, activation, out, incoming, target, mode)
            forward.append(ahead)
            hidden.insert(0, back)
            activation = out
        return [*forward, self._head(self.layout.linears[-1], activation, incoming), *hidden, *backward]

    def _convolutions(self) -> tuple[list[Launch], list[Launch], torch.Tensor, torch.Tensor]:
        """Forward and backward kernels, the activations that come out, and where their gradient is to be put."""
        first, *others = self.layout.convolutions
        x, dy, choice = self._maps(first)
        ahead, back = self._of_images(first, x, dy, choice)
        forward, backward = [ahead], [back]
        for block in others:
            out, given, chosen = self._maps(block)
            ahead, backs = self._of_maps(block, x, dy, out, given, chosen)
            forward.append(ahead)
            backward = [*backs, *backward]
            x, dy = out, given
        return forward, backward, x, dy

    def _maps(self, block: ConvBlock) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What comes out of a block, its gradient, and which of four pixels was taken."""
        out = self._zeros(self.replicas, self.batch, block.places * block.filters, dtype=self.kind)
        return out, torch.zeros_like(out), torch.zeros_like(out, dtype=torch.int8)

    def _shape(self, block: ConvBlock) -> dict[str, int]:
        sizes = {"B": self.batch, "H": block.height, "W": block.width, "N": block.filters}
        return sizes | {"KH": block.kernel[0], "KW": block.kernel[1]}

    def _order(self, block: ConvBlock, name: str) -> dict[str, int]:
        """Steps from place to place and filter to filter; the last block has filters first, as linear layers read."""
        last = block is self.layout.convolutions[-1]
        return {f"{name}_Q": 1 if last else block.filters, f"{name}_N": block.places if last else 1}

    def _of_images(
        self, block: ConvBlock, out: torch.Tensor, dy: torch.Tensor, choice: torch.Tensor
    ) -> tuple[Launch, Launch]:
        """Forward and backward pass of the first block, which reads the data set."""
        from airfl.engines import fused_images as kernels

        source, held = (self.images, self.index, self.step, self.steps), self._held(block.weight, block.bias)
        wide, pixels = block.patch
        shape = self._shape(block) | {"WIDE": wide, "UP": pixels}
        tile = self.tiles["image_forward"]
        parts = -(-self.batch * block.places // (tile["BP"] * tile["EACH"]))
        forward = self._launch(
            kernels.image_pool_forward, parts, *source, *held, out, choice,
            **shape, **self._order(block, "OUT"), **tile, BLOCKS=parts,
        )  # fmt: skip
        parts, taps = block.filters // 16, max(16, power_of_two(block.fan_in))
        scratch = self._zeros(self.replicas, 4 * block.filters, pixels)
        backward = self._launch(
            kernels.image_backward_weight, parts, *source, dy, choice, *held, scratch, self.rate,
            **shape, **self._order(block, "DY"), **self.tiles["image_weight"], TAPS=taps, BN=16, BLOCKS=parts,
        )  # fmt: skip
        return forward, backward

    def _of_maps(
        self,
        block: ConvBlock,
        x: torch.Tensor,
        dx: torch.Tensor,
        out: torch.Tensor,
        dy: torch.Tensor,
        choice: torch.Tensor,
    ) -> tuple[Launch, list[Launch]]:
        """Forward and backward pass of a block that reads what another one gives."""
        from airfl.engines import fused_kernels as kernels

        weight, bias, stride = self._held(block.weight, block.bias)
        filters = next((copy for of, copy in self.copies if of is block), weight)
        products, shape = (filters, filters.stride(0)), self._shape(block) | {"C": block.channels}
        tile = dict(self.tiles["conv_forward"])
        tile["BK"] = max(16, tile["BK"] * 64 // block.filters)
        parts = -(-self.batch * block.places // tile["BP"])
        forward = self._launch(
            kernels.conv_pool_forward, parts, x, *products, bias, stride, out, choice,
            **shape, **self._order(block, "OUT"), **tile, BLOCKS=parts,
        )  # fmt: skip
        dense = self._zeros(self.replicas, 4 * self.batch * block.places * block.filters, dtype=self.kind)
        places = {"B": self.batch, "P": block.places, "N": block.filters}
        spread = self._launch(
            kernels.unpool, 1, dy, choice, dense, bias, stride, self.rate,
            **places, **self._order(block, "DY"), **self.tiles["unpool"],
        )  # fmt: skip
        tile, parts = self._quads(block)
        inner = self._launch(kernels.conv_backward_input, parts, dense, *products, dx, **shape, **tile, BLOCKS=parts)
        tile = self.tiles["conv_weight"]
        parts = -(-block.fan_in // tile["BK"])
        own = self._launch(
            kernels.conv_backward_weight, parts, x, dense, weight, stride, *products, self.rate,
            **shape, **tile, COPY=filters is not weight, BLOCKS=parts,
        )  # fmt: skip
        return forward, [spread, inner, own]

    def _quads(self, block: ConvBlock) -> tuple[dict[str, int], int]:
        """How the places of a convolution's input are shared out, four by four, and among how many programs."""
        tile = dict(self.tiles["conv_input"])
        tile["EACH"] = min(4, max(1, tile["EACH"] * 64 // block.filters))
        tall, wide = -(-block.height // 2), self.batch * -(-block.width // 2)
        tile["TALL"] = max(1, min(tall, tile["BM"] // wide))
        tile["BM"] = max(16, min(tile["BM"], power_of_two(wide * tile["TALL"])))
        return tile, -(-tall // tile["TALL"]) * -(-wide * tile["TALL"] // tile["BM"])

    def _fetched(self) -> tuple[list[Launch], list[Launch], torch.Tensor, None]:
        """The samples of a step brought together, for models without convolutions."""
        images = self.inputs.flatten(1)
        out = self._zeros(self.replicas, self.batch, images.shape[1], dtype=self.kind)
        fetched = self._zeros(self.replicas * self.batch, images.shape[1])

        def fetch() -> None:
            now = self.index[: self.width].index_select(1, self.step.long()).squeeze(1).clamp(min=0)
            torch.index_select(images, 0, now.flatten(), out=fetched[: now.numel()])
            out[: self.width].copy_(fetched[: now.numel()].view(*now.shape, -1))

        return [fetch], [], out, None

    def _sizes(self, layer: LinearBlock) -> dict[str, int]:
        return {"B": self.batch, "K": layer.inputs, "N": layer.outputs}

    def _factors(self, layer: LinearBlock) -> dict[str, int]:
        rows = self.steps * self.batch
        return {**self._sizes(layer), "ROWS": rows, "BH": max(16, power_of_two(rows))}

    def _tile(self, name: str, layer: LinearBlock) -> dict[str, int]:
        tile = {**self.tiles[name], "BB": max(16, power_of_two(self.batch))}
        tile["BN"] = max(16, min(tile.get("BN", 64), power_of_two(layer.outputs)))
        tile["BK"] = max(16, min(tile["BK"], power_of_two(layer.inputs)))
        return tile

    def _linear(
        self,
        layer: LinearBlock,
        x: torch.Tensor,
        out: torch.Tensor,
        dy: torch.Tensor,
        dx: torch.Tensor | None,
        mode: int,
    ) -> tuple[Launch, Launch]:
        """Forward and backward pass of a layer that has a weight for each replica, or factors in its place."""
        from airfl.engines import fused_factors, fused_kernels

        held: tuple[Any, ...] = self._held(layer.weight, layer.bias)
        if layer in self.factored:
            number, sizes = self.factored.index(layer), self._factors(layer)
            held = (self.first[number], self.trial, *self.kept[number], self.step, *held[1:])
            name, ahead, back = "factored", fused_factors.factored_forward, fused_factors.factored_backward
            known = (*held, self.rate)
        else:
            sizes, known = self._sizes(layer), held
            name, ahead, back = "linear", fused_kernels.linear_forward, fused_kernels.linear_backward
        tile = self._tile(f"{name}_forward", layer)
        blocks = -(-layer.outputs // tile["BN"])
        forward = self._launch(ahead, blocks, x, *known, out, **sizes, **tile, BLOCKS=blocks)
        tile = self._tile(f"{name}_backward", layer)
        blocks = -(-layer.inputs // tile["BK"])
        backward = self._launch(
            back, blocks, dy, x, *held, x if dx is None else dx, self.rate, **sizes, **tile, MODE=mode, BLOCKS=blocks
        )
        return forward, backward

    def _head(self, layer: LinearBlock, x: torch.Tensor, dx: torch.Tensor | None) -> Launch:
        from airfl.engines import fused_kernels as kernels

        tile = self._tile("head", layer)
        return self._launch(
            kernels.head, 1, x, *self._held(layer.weight, layer.bias), self.index, self.step, self.steps, self.labels,
            self.losses, x if dx is None else dx, self.rate, **self._sizes(layer), **tile,
            NEED_DX=dx is not None, RELU=dx is not None,
        )  # fmt: skip


def _recorded(steps: Launch) -> Launch:
    """Record steps as a CUDA graph; what warming up did to the buffers is overwritten before they are used."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        steps()  # compiles the kernels
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        steps()
    return graph.replay
