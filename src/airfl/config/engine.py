"""Section [engine]: how the computation is carried out."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from airfl.catalogue import EngineName
from airfl.config.section import Section


class Engine(Section):
    """How the computation is carried out; changes time and rounding, not meaning."""

    parts: ClassVar = ("backend",)

    backend: EngineName = Field(
        "auto",
        description="loop, threads: one device after another, or one per thread; batched, fused: all at once; "
        "or package.module:name",
    )
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "float32", "tf32", "bf16"] = Field(
        "auto",
        description="of matrix products; master weights are float32. auto: bf16 on Hopper GPUs, and for convolutions "
        "on CPUs that have it; else float32",
    )
    compile: bool = Field(True, description="compiled kernels on a GPU; without, the first round starts sooner")
    eval_every: int = Field(1, ge=1, description="Test every k rounds, and after the last.")
    train_loss: Literal["local", "global"] = Field(
        "local",
        description="local: mean over local steps; global: of the new model on all training samples, when tested",
    )
