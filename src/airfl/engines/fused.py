"""All active devices of all trials in a few fused GPU kernels per step; the readable twin is ``BatchedEngine``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from airfl.devices.models import ModelSpec
from airfl.devices.updates import UpdateBlock
from airfl.engines.chunks import available_bytes, in_chunks
from airfl.engines.fused_layout import ConvBlock, Layout, LinearBlock
from airfl.engines.fused_widths import compact, in_steps_of, power_of_two, width_for

#: How each precision stores activations, and how matrix units read float32.
PRECISIONS: dict[str, tuple[torch.dtype, str]] = {
    "float32": (torch.float32, "ieee"),
    "tf32": (torch.float32, "tf32"),
    "bf16": (torch.bfloat16, "ieee"),
}

#: Tile sizes and launch settings of each kernel ("images": it reads the data set), as tuned on an H200.
TILES: dict[str, dict[str, dict[str, int]]] = {
    "bf16": {
        "conv_forward images": {"BP": 64, "BK": 32, "num_warps": 2, "num_stages": 3},
        "conv_forward": {"BP": 64, "BK": 32, "num_warps": 4, "num_stages": 3},
        "conv_weight images": {"BM": 128, "BK": 32, "num_warps": 1, "num_stages": 2},
        "conv_weight": {"BM": 128, "BK": 64, "num_warps": 4, "num_stages": 2},
        "conv_input": {"BM": 128, "num_warps": 4, "num_stages": 3},
        "linear_forward": {"BK": 64, "BN": 64, "num_warps": 4, "num_stages": 2},
        "linear_backward": {"BK": 64, "BN": 32, "num_warps": 4, "num_stages": 4},
        "unpool": {"BP": 32, "num_warps": 4, "num_stages": 1},
        "head": {"BK": 256, "num_warps": 4, "num_stages": 1},
    },
    "float32": {
        "conv_forward images": {"BP": 32, "BK": 32, "num_warps": 2, "num_stages": 3},
        "conv_forward": {"BP": 32, "BK": 64, "num_warps": 4, "num_stages": 2},
        "conv_weight images": {"BM": 128, "BK": 32, "num_warps": 2, "num_stages": 1},
        "conv_weight": {"BM": 64, "BK": 32, "num_warps": 4, "num_stages": 2},
        "conv_input": {"BM": 64, "num_warps": 4, "num_stages": 3},
        "linear_forward": {"BK": 64, "BN": 64, "num_warps": 4, "num_stages": 2},
        "linear_backward": {"BK": 64, "BN": 32, "num_warps": 4, "num_stages": 4},
        "unpool": {"BP": 32, "num_warps": 4, "num_stages": 1},
        "head": {"BK": 128, "num_warps": 4, "num_stages": 2},
    },
}

Launch = Callable[[], None]


@dataclass(frozen=True)
class FusedEngine:
    """The same steps as the loop: forward, backward and SGD of all replicas in a few kernels, nine for the paper's CNN.

    Master weights are float32; products are taken in the chosen precision and summed up in float32. The kernels of one
    step are recorded once per shape and number of replicas at work, and played back for every step, round and chunk.

    Attributes:
        chunk: replicas worked on at a time; default: as many as fit half of the free memory.
    """

    spec: ModelSpec
    layout: Layout
    precision: str = "bf16"
    chunk: int | None = None
    name: str = "fused"
    _programs: list[Program] = field(default_factory=list, repr=False, compare=False)

    def train(
        self,
        models: torch.Tensor,
        batches: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        learning_rate: float,
    ) -> Iterator[UpdateBlock]:
        """See ``Engine.train``."""
        trials, active, steps, batch = batches.shape
        flat = batches.reshape(trials * active, steps, batch)
        counts = (flat >= 0).sum(dim=(1, 2)).clamp(min=1)
        flat, taken = compact(flat)

        def work(first: int, last: int) -> UpdateBlock:
            here = taken[first:last]
            program = self._program(here, steps, batch, inputs, labels, learning_rate)
            replica = torch.arange(first, last, device=models.device)
            place = program.play(models, replica // active, flat[first:last], here)
            updates = models.new_empty(last - first, models.shape[1])
            for row in range(first // active, (last - 1) // active + 1):  # one pass, and no gathered copy of θ
                low, high = max(row * active, first) - first, min((row + 1) * active, last) - first
                local = program.local[low:high] if place is None else program.local[place[low:high]]
                torch.sub(models[row] / learning_rate, local, alpha=1.0 / learning_rate, out=updates[low:high])
            losses = program.losses[: last - first] if place is None else program.losses[place]
            if not here.all():  # who has no samples changes nothing
                absent = torch.from_numpy(np.flatnonzero(here == 0)).to(models.device)
                updates[absent], losses[absent] = 0.0, 0.0
            return UpdateBlock(replica // active, replica % active, updates, losses / counts[first:last])

        yield from in_chunks(trials * active, self._size(trials * active, inputs.device, steps, batch), work)

    def _program(
        self, taken: np.ndarray, steps: int, batch: int, inputs: torch.Tensor, labels: torch.Tensor, rate: float
    ) -> Program:
        """Buffers for the replicas that have samples: those at hand, where they are not much too large."""
        key = (steps, batch, inputs.data_ptr(), labels.data_ptr(), rate)
        present = max(1, int((taken > 0).sum()))
        for program in self._programs:
            if program.key == key and program.replicas * 4 / 5 < present <= program.replicas:
                return program
        # Who takes part by chance will be a few more in another round.
        replicas = present if present == len(taken) else in_steps_of(max(1, power_of_two(present) // 32), present)
        room = available_bytes(inputs.device) - replicas * self.bytes_per_replica(steps, batch)
        if len(self._programs) >= 4 or (self._programs and room < 0):  # shapes come and go; buffers must not pile up
            for program in self._programs:
                program.release()
            self._programs.clear()
        self._programs.append(Program(self, key, replicas, steps, batch, inputs, labels, rate))
        return self._programs[-1]

    def bytes_per_replica(self, steps: int, batch: int) -> int:
        """What one replica takes: weights, their update, room for a copy of it, activations and their gradients."""
        size = torch.empty((), dtype=PRECISIONS[self.precision][0]).element_size()
        maps = sum(block.places * block.filters * (5 * size + 1) for block in self.layout.convolutions)
        maps += 0 if self.layout.convolutions else 4 * self.layout.linears[0].inputs  # samples that were fetched
        rows = sum(layer.inputs + layer.outputs for layer in self.layout.linears)
        return 4 * 4 * self.spec.dim + batch * (maps + 2 * size * rows + 4 * steps)

    def _size(self, total: int, device: torch.device, steps: int, batch: int) -> int:
        """Replicas at a time: what fits half of the free memory, in even chunks, so that shapes are few."""
        free = available_bytes(device) + sum(program.bytes for program in self._programs)
        most = self.chunk or max(1, free // 2 // self.bytes_per_replica(steps, batch))
        return -(-total // -(-total // most))


class Program:
    """Buffers and the recorded kernels of one step, for a number of replicas, steps and samples per step."""

    def __init__(
        self,
        engine: FusedEngine,
        key: tuple[float, ...],
        replicas: int,
        steps: int,
        batch: int,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        rate: float,
    ) -> None:
        self.key = key
        self.layout, self.replicas, self.steps, self.batch = engine.layout, replicas, steps, batch
        self.inputs, self.labels, self.rate, self.dim = inputs, labels, rate, engine.spec.dim
        self.kind, self.precision = PRECISIONS[engine.precision]
        self.tiles = TILES["bf16" if self.kind == torch.bfloat16 else "float32"]
        self.bytes = replicas * engine.bytes_per_replica(steps, batch)
        self.local = self._zeros(replicas, self.dim)
        self.index = self._zeros(replicas, steps, batch, dtype=torch.int32)
        self.step = self._zeros(1, dtype=torch.int32)
        self.losses = self._zeros(replicas)
        self.filters = [self._zeros(replicas, block.fan_in, block.filters) for block in self.layout.convolutions]
        # Kept: they hold the buffers that a recorded step goes on using.
        self.launches = self._launches()
        self.width = replicas
        self.runs: dict[int, Launch] = {}

    def play(
        self, models: torch.Tensor, trial: torch.Tensor, samples: torch.Tensor, taken: np.ndarray
    ) -> torch.Tensor | None:
        """Take all local steps from the broadcast models; the result is in ``local``, summed losses in ``losses``.

        Where replicas take different numbers of steps, ``taken``, they are put in order, the longest first: a step
        then works on those only that still take part. Those that take none have no place at all. Returns where each
        one lies (any place for those without one), or None if none was moved.
        """
        if not taken.any():
            return torch.zeros(len(taken), dtype=torch.int64, device=trial.device)
        place = None
        if taken.min() != taken.max():
            order = np.argsort(-taken, kind="stable")[: np.count_nonzero(taken)]
            place = torch.zeros(len(taken), dtype=torch.int64)
            place[torch.from_numpy(order)] = torch.arange(len(order))
            taken, moved, place = taken[order], torch.from_numpy(order).to(trial.device), place.to(trial.device)
            trial, samples = trial[moved], samples[moved]
        still = len(taken) - np.searchsorted(taken[::-1], np.arange(taken.max()), side="right")
        few = {count: width_for(count, self.replicas) for count in set(still.tolist())}
        widths = [few[count] for count in still.tolist()]
        for width in sorted(set(widths) - set(self.runs)):  # before the buffers are filled: recording writes to them
            self.runs[width] = self._record(width)
        used = slice(0, len(taken))
        torch.index_select(models, 0, trial, out=self.local[used])
        self._copy_filters(used, into_local=False)
        self.index.fill_(-1)
        self.index[used].copy_(samples)
        self.losses.zero_()
        self.step.zero_()
        for width in widths:
            self.runs[width]()
        self._copy_filters(used, into_local=True)
        return place

    def release(self) -> None:
        """Let go of the buffers: the kernels of a step and the program hold each other."""
        self.launches.clear()
        self.runs.clear()

    def _copy_filters(self, used: slice, into_local: bool) -> None:
        """Between the parameter vectors and the order that the kernels use."""
        for block, filters in zip(self.layout.convolutions, self.filters, strict=True):
            rows = _as_rows(self.local[used], block)
            own = filters[used].view(rows.shape)
            if into_local:
                rows.copy_(own)
            else:
                own.copy_(rows)

    def _record(self, width: int) -> Launch:
        """One step of the first ``width`` replicas."""

        def step() -> None:
            self.width = width
            for launch in self.launches:
                launch()
            self.step.add_(1)

        self.step.zero_()
        return _recorded(step) if self.inputs.is_cuda else step

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(shape, device=self.inputs.device, dtype=dtype)

    def _launch(self, kernel: Any, blocks: int, *arguments: Any, **constants: Any) -> Launch:
        constants["PRECISION"] = self.precision
        return lambda: kernel[(self.width * blocks,)](*arguments, **constants)

    def _launches(self) -> list[Launch]:
        """The kernels of one step, in order."""
        forward, backward, activation, choice, slope = self._convolutions()
        if activation is None:
            activation = self._zeros(self.replicas, self.batch, self.layout.linears[0].inputs, dtype=self.kind)
            forward.append(self._fetch(activation))
        incoming: torch.Tensor | None = None
        hidden: list[Launch] = []
        for number, layer in enumerate(self.layout.linears[:-1]):
            mode = 1 if number else 2 if slope is not None else 0
            target = incoming if number else torch.zeros_like(activation)
            out = self._zeros(self.replicas, self.batch, layer.outputs, dtype=self.kind)
            incoming = torch.zeros_like(out)
            forward.append(self._linear_forward(layer, activation, out))
            hidden.insert(0, self._linear_backward(layer, incoming, activation, target, mode))
            if mode == 2:
                backward.insert(0, self._unpool(target, choice, slope))
            activation = out
        return [*forward, self._head(self.layout.linears[-1], activation, incoming), *hidden, *backward]

    def _convolutions(
        self,
    ) -> tuple[list[Launch], list[Launch], torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        """Forward and backward kernels, and what the last block hands on: activation, choice, gradient's place."""
        from airfl.engines import fused_kernels as kernels

        forward: list[Launch] = []
        backward: list[Launch] = []
        x, choice, slope = self.inputs, None, None
        for number, (block, filters) in enumerate(zip(self.layout.convolutions, self.filters, strict=True)):
            last = number == len(self.layout.convolutions) - 1
            places, count = block.places, block.filters
            shape = {"B": self.batch, "C": block.channels, "H": block.height, "W": block.width}
            shape |= {"KH": block.kernel[0], "KW": block.kernel[1], "N": count}
            source = (x, self.index, self.step, self.steps)
            bias = (self.local[:, block.bias :], self.dim)
            out = self._zeros(self.replicas, self.batch, places * count, dtype=self.kind)
            taken = self._zeros(self.replicas, self.batch * places, count, dtype=torch.int8)
            dense = self._zeros(self.replicas, self.batch, 4 * places * count, dtype=self.kind)
            where = "" if number else " images"
            tile = self.tiles[f"conv_forward{where}"]
            rows = -(-self.batch * places // tile["BP"])
            forward.append(
                self._launch(
                    kernels.conv_pool_forward, rows, *source, filters, *bias, out, taken, **shape, **tile,
                    OUT_Q=1 if last else count, OUT_N=places if last else 1, GATHER=number == 0, BLOCKS=rows,
                )
            )  # fmt: skip
            tile = self.tiles[f"conv_weight{where}"]
            parts = -(-block.fan_in // tile["BK"])
            backward.insert(
                0,
                self._launch(
                    kernels.conv_backward_weight, parts, *source, dense, filters, *bias, self.rate, **shape, **tile,
                    GATHER=number == 0, BLOCKS=parts,
                ),
            )  # fmt: skip
            if number:
                tile = dict(self.tiles["conv_input"])
                tile["BM"] *= 2 if block.channels < 32 and self.kind == torch.bfloat16 else 1
                tall = -(-self.batch * block.height * block.width // tile["BM"])
                backward.insert(
                    0,
                    self._launch(
                        kernels.conv_backward_input, tall, dense, filters, choice, slope, **shape, **tile, BLOCKS=tall
                    ),
                )
            x, choice, slope = out, taken, dense
        return forward, backward, None if x is self.inputs else x, choice, slope

    def _fetch(self, out: torch.Tensor) -> Launch:
        """Bring the samples of the current step together, for models without convolutions."""
        images = self.inputs.flatten(1)
        fetched = self._zeros(self.replicas * self.batch, images.shape[1])

        def fetch() -> None:
            now = self.index[: self.width].index_select(1, self.step.long()).squeeze(1).clamp(min=0)
            torch.index_select(images, 0, now.flatten(), out=fetched[: now.numel()])
            out[: self.width].copy_(fetched[: now.numel()].view(*now.shape, -1))

        return fetch

    def _sizes(self, layer: LinearBlock) -> dict[str, int]:
        return {"B": self.batch, "K": layer.inputs, "N": layer.outputs, "BB": max(16, power_of_two(self.batch))}

    def _linear_forward(self, layer: LinearBlock, x: torch.Tensor, out: torch.Tensor) -> Launch:
        from airfl.engines import fused_kernels as kernels

        tile = dict(self.tiles["linear_forward"])
        tile["BN"] = max(16, min(tile["BN"], power_of_two(layer.outputs)))
        blocks = -(-layer.outputs // tile["BN"])
        weight, bias = self.local[:, layer.weight :], self.local[:, layer.bias :]
        return self._launch(
            kernels.linear_forward, blocks, x, weight, bias, self.dim, out, **self._sizes(layer), **tile,
            RELU=True, BLOCKS=blocks,
        )  # fmt: skip

    def _linear_backward(
        self, layer: LinearBlock, dy: torch.Tensor, x: torch.Tensor, dx: torch.Tensor | None, mode: int
    ) -> Launch:
        from airfl.engines import fused_kernels as kernels

        tile = dict(self.tiles["linear_backward"])
        tile["BN"] = max(16, min(tile["BN"], power_of_two(layer.outputs)))
        tile["BK"] = max(16, min(tile["BK"], power_of_two(layer.inputs)))
        blocks = -(-layer.inputs // tile["BK"])
        weight, bias = self.local[:, layer.weight :], self.local[:, layer.bias :]
        return self._launch(
            kernels.linear_backward, blocks, dy, x, weight, bias, self.dim, x if dx is None else dx, self.rate,
            **self._sizes(layer), **tile, MODE=mode, BLOCKS=blocks,
        )  # fmt: skip

    def _unpool(self, dy: torch.Tensor | None, choice: torch.Tensor | None, dense: torch.Tensor | None) -> Launch:
        from airfl.engines import fused_kernels as kernels

        block, tile = self.layout.convolutions[-1], self.tiles["unpool"]
        blocks = -(-self.batch * block.places // tile["BP"])
        places = {"B": self.batch, "PH": block.pooled[0], "PW": block.pooled[1], "N": block.filters}
        return self._launch(kernels.unpool, blocks, dy, choice, dense, **places, **tile, BLOCKS=blocks)

    def _head(self, layer: LinearBlock, x: torch.Tensor, dx: torch.Tensor | None) -> Launch:
        from airfl.engines import fused_kernels as kernels

        tile = dict(self.tiles["head"])
        tile["BK"] = max(16, min(tile["BK"], power_of_two(layer.inputs)))
        weight, bias = self.local[:, layer.weight :], self.local[:, layer.bias :]
        return self._launch(
            kernels.head, 1, x, weight, bias, self.dim, self.index, self.step, self.steps, self.labels, self.losses,
            x if dx is None else dx, self.rate, **self._sizes(layer), NEED_DX=dx is not None, RELU=dx is not None,
            BN=max(16, power_of_two(layer.outputs)), **tile,
        )  # fmt: skip


def _as_rows(local: torch.Tensor, block: ConvBlock) -> torch.Tensor:
    """The filters inside parameter vectors [R, d], seen as [R, kh, kw, C, N]: the order the kernels use."""
    shape = (len(local), block.filters, block.channels, *block.kernel)
    return local[:, block.weight : block.weight + block.size].view(shape).permute(0, 3, 4, 2, 1)


def _recorded(step: Launch) -> Launch:
    """Record one step as a CUDA graph; what warming up did to the buffers is overwritten before they are used."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()  # compiles the kernels
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay
