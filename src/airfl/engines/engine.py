"""Local training behind one small protocol.

An engine takes the broadcast models and, for every replica (trial × active device), the samples of each local step.
It hands back blocks of updates Δ = (θ − θ_local)/η, so that memory stays bounded however many devices there are.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import torch

from airfl.config import Config
from airfl.devices.models import ModelSpec
from airfl.devices.precision import has_bf16, resolve_precision
from airfl.devices.updates import UpdateBlock
from airfl.errors import InputError
from airfl.imports import import_callable, is_import_path

if TYPE_CHECKING:
    from airfl.engines.batched import BatchedEngine


class Engine(Protocol):
    """Runs local SGD for all replicas of one round."""

    @property
    def name(self) -> str:
        """The backend's name."""
        ...

    def train(
        self,
        models: torch.Tensor,
        batches: torch.Tensor,
        inputs: torch.Tensor,
        labels: torch.Tensor,
        learning_rate: float,
    ) -> Iterator[UpdateBlock]:
        """Yield every replica's update once.

        Args:
            models: θ, [trials, d].
            batches: sample numbers of each local step, [trials, K, steps, batch], int64; −1 marks an empty place. A
                step without samples leaves the model as it is.
            inputs: all samples, [N, ...].
            labels: [N].
        """
        ...


def choose_engine(config: Config, spec: ModelSpec, device: torch.device, inputs: torch.Tensor) -> Engine:
    """Pick a backend.

    On a GPU and for dense models that is one tensor program over all devices, fused where the kernels know the layers;
    for anything else on a CPU one device per thread: convolutions with a weight per replica are slower batched there.
    With precision ``auto``, chains of known layers with convolutions are trained in bf16 there, if the CPU has it.
    A model that cannot be batched is trained by the loop.

    Args:
        inputs: samples of the data set, [N, ...]; a model whose layers are not known is tried on one.
    """
    from airfl.engines.batched import BatchedEngine
    from airfl.engines.cpu_chain import build_chain
    from airfl.engines.fused import FusedEngine
    from airfl.engines.fused_layout import fused_layout
    from airfl.engines.loop import LoopEngine
    from airfl.engines.replicated import replicated
    from airfl.engines.threads import ThreadsEngine

    wanted, precision = config.engine.backend, resolve_precision(config.engine.precision, device)
    input_shape = tuple(inputs.shape[1:])
    if is_import_path(wanted):
        return _outside(wanted, spec)
    layout = fused_layout(spec, input_shape) if wanted in ("auto", "fused") and device.type == "cuda" else None
    if wanted == "fused" and layout is None:
        raise InputError(
            "backend `fused` knows convolution, ReLU and 2×2 max-pooling blocks followed by linear layers with ReLU, "
            "none of them frozen, on a CUDA GPU; use `batched` for this model or device"
        )
    if wanted == "auto" and device.type == "cuda":
        wanted = "fused" if layout is not None and config.engine.compile and _has_triton() else "batched"
    elif wanted == "auto":
        wanted = "batched" if spec.is_dense else "threads"
    if wanted == "batched" and replicated(spec.module) is None:
        wanted = _by_vmap(BatchedEngine(spec, precision=precision), inputs, config.engine.backend)
    if wanted == "fused":
        assert layout is not None
        return FusedEngine(spec, layout, precision)
    if wanted == "batched":
        compiled = config.engine.compile and device.type == "cuda"
        return BatchedEngine(spec, precision=precision, compiled=compiled, everyone=config.system.everyone)
    if wanted == "threads":
        if device.type != "cpu":
            raise InputError("backend `threads` is for the CPU; use `batched` or `fused` on a GPU")
        chosen = config.engine.precision == "auto" and not spec.is_dense and build_chain(spec.module, input_shape, 1)
        return ThreadsEngine(spec, "bf16" if chosen and has_bf16() else precision)
    return LoopEngine(spec)


def precision_of(engine: Engine, config: Config, device: torch.device) -> str:
    """What an engine multiplies in; one from outside is taken to do what was asked for."""
    if isinstance(own := getattr(engine, "precision", None), str):
        return own
    return resolve_precision(config.engine.precision, device)


def _outside(path: str, spec: ModelSpec) -> Engine:
    """An engine from outside: a callable that takes the model's ``ModelSpec``."""
    made = import_callable(path, "engine")(spec)
    if not callable(getattr(made, "train", None)) or not isinstance(getattr(made, "name", None), str):
        raise InputError(f"engine `{path}` must have a `name` and a method `train`; got {type(made).__name__}")
    return made  # type: ignore[no-any-return]


def _by_vmap(engine: BatchedEngine, inputs: torch.Tensor, asked: str) -> str:
    """The backend of a model that is no chain of known layers, with a word on what that costs."""
    kind, obstacle = type(engine.spec.module).__name__, engine.obstacle(inputs)
    if not obstacle:
        warnings.warn(
            f"model `{kind}` is no chain of known layers: it is batched by vmap, which is slower", stacklevel=3
        )
        return "batched"
    why = f"PyTorch's vmap cannot batch model `{kind}` ({obstacle})"
    if asked == "batched":
        raise InputError(f"{why}; use engine.backend = `loop`, or `threads` on a CPU")
    warnings.warn(f"{why}, so its devices are trained one after another, which is slow", stacklevel=3)
    return "loop"


def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
