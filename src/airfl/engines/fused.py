"""All active devices of all trials in a few fused GPU kernels per step; the readable twin is ``BatchedEngine``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from airfl.devices.models import ModelSpec
from airfl.devices.updates import UpdateBlock
from airfl.engines.chunks import available_bytes, in_chunks
from airfl.engines.fused_layout import Layout
from airfl.engines.fused_program import Program, is_factored
from airfl.engines.fused_tiles import PRECISIONS
from airfl.engines.fused_widths import compact, in_steps_of, power_of_two


@dataclass(frozen=True)
class FusedEngine:
    """The same steps as the loop: forward, backward and SGD of all replicas in a few kernels, ten for the paper's CNN.

    Master weights are float32; products are taken in the chosen precision and summed up in float32. Large linear layers
    are kept as factors where a round is short (``fused_factors``). The kernels of one step are recorded once per shape
    and number of replicas at work, and played back for every step, round and chunk.

    Attributes:
        chunk: replicas worked on at a time; default: as many as fit half of the free memory.
    """

    spec: ModelSpec
    layout: Layout
    precision: str = "bf16"
    chunk: int | None = None
    name: str = "fused"
    _programs: list[Program] = field(default_factory=list, repr=False, compare=False)
    _sizes: dict[tuple[int, int, int], int] = field(default_factory=dict, repr=False, compare=False)

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
        flat, taken, counts = compact(flat)
        replica = torch.arange(trials * active, device=models.device)
        trial, slot, counts = replica // active, replica % active, counts.clamp(min=1)

        def work(first: int, last: int) -> UpdateBlock:
            here = taken[first:last]
            program = self._program(here, len(models), steps, batch, inputs, labels, learning_rate)
            updates = models.new_empty(last - first, models.shape[1])
            losses = program.play(models, trial[first:last], flat[first:last], here, updates)
            if not here.all():  # who has no samples changes nothing
                updates[torch.from_numpy(np.flatnonzero(here == 0)).to(models.device)] = 0.0
            return UpdateBlock(trial[first:last], slot[first:last], updates, losses / counts[first:last])

        yield from in_chunks(trials * active, self._size(trials * active, inputs.device, steps, batch), work)

    def _program(
        self,
        taken: np.ndarray,
        models: int,
        steps: int,
        batch: int,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        rate: float,
    ) -> Program:
        """Buffers for the replicas that have samples: those at hand, where they are not much too large."""
        broadcast = power_of_two(models)
        key = (broadcast, steps, batch, inputs.data_ptr(), labels.data_ptr(), rate)
        present = max(1, int((taken > 0).sum()))
        for program in self._programs:
            if program.key == key and program.replicas * 4 / 5 < present <= program.replicas:
                return program
        # Who takes part by chance will be a few more in another round.
        replicas = present if present == len(taken) else in_steps_of(max(1, power_of_two(present) // 32), present)
        size = replicas * self.bytes_per_replica(steps, batch)
        room = available_bytes(inputs.device) - size
        if len(self._programs) >= 4 or (self._programs and room < 0):  # shapes come and go; buffers must not pile up
            for program in self._programs:
                program.release()
            self._programs.clear()
            self._sizes.clear()
        where = (replicas, broadcast, steps, batch, inputs, labels, self._images(inputs), rate, size)
        self._programs.append(Program(self.layout, self.precision, key, *where))
        return self._programs[-1]

    def _images(self, inputs: torch.Tensor) -> torch.Tensor | None:
        """What the first convolution reads, once for all programs."""
        if not self.layout.convolutions:
            return None
        from airfl.engines.fused_images import strips

        for program in self._programs:
            if program.inputs.data_ptr() == inputs.data_ptr():
                return program.images
        return strips(inputs, self.layout.convolutions[0], PRECISIONS[self.precision][0])

    def bytes_per_replica(self, steps: int, batch: int) -> int:
        """What one replica takes: its state, its update, room for a copy of that, activations and their gradients."""
        size = torch.empty((), dtype=PRECISIONS[self.precision][0]).element_size()
        maps = sum(block.places * block.filters * (6 * size + 1) for block in self.layout.convolutions)
        state = 4 * self.spec.dim + sum(size * block.size for block in self.layout.convolutions[1:])
        state += sum(16 * block.filters * block.patch[1] for block in self.layout.convolutions[:1])
        maps += 0 if self.layout.convolutions else 4 * self.layout.linears[0].inputs  # samples that were fetched
        rows = sum(layer.inputs + layer.outputs for layer in self.layout.linears)
        factors = 0
        for layer in self.layout.linears:
            if is_factored(self.layout, layer, steps * batch):  # of the weight of its trial a copy, at worst of its own
                state -= (4 - size) * layer.inputs * layer.outputs
                factors += steps * batch * (layer.inputs + layer.outputs)
        return 3 * 4 * self.spec.dim + state + batch * (maps + 2 * size * rows + 4 * steps) + size * factors

    def _size(self, total: int, device: torch.device, steps: int, batch: int) -> int:
        """Replicas at a time: what fits half of the free memory, in even chunks, so that shapes are few."""
        shape = (total, steps, batch)
        if shape not in self._sizes:  # asking for free memory takes longer than small rounds do
            free = available_bytes(device) + sum(program.bytes for program in self._programs)
            most = self.chunk or max(1, free // 2 // self.bytes_per_replica(steps, batch))
            self._sizes[shape] = -(-total // -(-total // most))
        return self._sizes[shape]
