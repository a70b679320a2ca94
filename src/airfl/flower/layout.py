"""Flower's named arrays as one vector, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from flwr.app import Array, ArrayRecord

from airfl.errors import InputError

#: Ends of names that PyTorch gives to running statistics, which are no parameters.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class MisfitError(ValueError):
    """Arrays that are not those of the model."""


@dataclass(frozen=True)
class Layout:
    """Which arrays a model is, in order; d is how many numbers they hold."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]

    @staticmethod
    def of(arrays: ArrayRecord) -> Layout:
        """The layout of a model's arrays; what cannot be sent over the air is refused."""
        found = {name: array.numpy() for name, array in arrays.items()}
        for name, values in found.items():
            if name.endswith(STATISTICS) or not np.issubdtype(values.dtype, np.floating):
                raise InputError(
                    f"array `{name}` ({values.dtype}) is no parameter: all that nodes return is a sum of updates, and "
                    "running statistics cannot be one; use group or layer normalisation, and leave buffers out"
                )
        layout = Layout(tuple(found), tuple(v.shape for v in found.values()), tuple(v.dtype for v in found.values()))
        if layout.dim == 0:
            raise InputError("`initial_arrays` holds no numbers; give the parameters of a model")
        if not bool(torch.isfinite(layout.vector(arrays)).all()):
            raise InputError("`initial_arrays` holds NaN or infinity; give finite parameters")
        return layout

    @property
    def dim(self) -> int:
        """d."""
        return sum(math.prod(shape) for shape in self.shapes)

    def vector(self, arrays: ArrayRecord) -> torch.Tensor:
        """The arrays as float32, [d]; ``MisfitError`` where they are others."""
        if set(arrays) != set(self.names):
            raise MisfitError("arrays of other names")
        parts = []
        for name, shape in zip(self.names, self.shapes, strict=True):
            if arrays[name].shape != shape:
                raise MisfitError(f"`{name}` is {arrays[name].shape}, not {shape}")
            values = arrays[name].numpy()
            if values.shape != shape or not np.issubdtype(values.dtype, np.floating):
                raise MisfitError(f"`{name}` is {values.dtype} {values.shape}, not {shape}")
            with np.errstate(over="ignore"):  # infinity then, and that is looked for
                parts.append(np.ascontiguousarray(values, dtype=np.float32).reshape(-1))
        return torch.from_numpy(np.concatenate(parts))

    def record(self, vector: torch.Tensor) -> ArrayRecord:
        """Inverse of ``vector``, in the arrays' own precision."""
        values = vector.detach().cpu().numpy()
        parts = np.split(values, np.cumsum([math.prod(shape) for shape in self.shapes])[:-1])
        return ArrayRecord(
            {
                name: Array(part.reshape(shape).astype(dtype))
                for name, shape, dtype, part in zip(self.names, self.shapes, self.dtypes, parts, strict=True)
            }
        )
