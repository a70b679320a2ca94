"""Which code computes, and on which processor: what a run or study was begun with must be what goes on with it."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from airfl.errors import InputError
from airfl.imports import code_identity, source_digest

log = logging.getLogger("airfl")

#: Instructions that decide how libraries round, and what holds them back.
VECTORS = ("sse4_1", "avx", "avx2", "fma3", "avx512_f", "avx512_vnni", "avx512_bf16", "amx_tile")
LIMITS = {"MKL": ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS"), "oneDNN": ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")}


def code_of(imports: Iterable[str]) -> dict[str, str]:
    """This package, PyTorch, and the files of parts that configurations name."""
    return {**code_identity(), **{path: source_digest(path) or "not found" for path in imports}}


def require_same_code(
    stored: Mapping[str, Any] | None, out: str | Path, *, anyway: bool = False, now: Mapping[str, Any] | None = None
) -> None:
    """Refuse to go on in ``out`` with other code than it was begun with, and show the difference.

    Args:
        stored: what was kept at the beginning; None where an older version kept nothing, which is said and let pass.
        anyway: say it, and go on.
        now: default: ``code_identity()``.
    """
    if stored is None:
        log.warning("`%s` does not say which code it was begun with; going on as if it were this one", out)
        return
    now = code_identity() if now is None else now
    changed = [key for key in sorted({*stored, *now}) if stored.get(key) != now.get(key)]
    if not changed:
        return
    shown = "; ".join(f"{key}: begun with {stored.get(key)}, now {now.get(key)}" for key in changed)
    if not anyway:
        raise InputError(
            f"`{out}` was begun with other code ({shown}); go back to that one, begin anew in another folder, or add "
            "--anyway to mix the two"
        )
    log.warning("`%s` was begun with other code (%s); going on anyway", out, shown)


@cache
def processor() -> str:
    """The model of the CPU, its vector instructions, what ATen uses of them and what MKL and oneDNN may use."""
    try:
        found = torch.cpu.get_capabilities()
    except (AttributeError, RuntimeError):  # PyTorch before 2.9
        found = {}
    vectors = " ".join(name for name in VECTORS if found.get(name)) or platform.machine()
    allowed = [
        f"{library} {next((os.environ[key] for key in keys if os.environ.get(key)), 'all')}"
        for library, keys in LIMITS.items()
    ]
    return ", ".join([f"{_model_name()} ({vectors})", f"ATen {torch.backends.cpu.get_cpu_capability()}", *allowed])


def _model_name() -> str:
    """The CPU as it calls itself, with family and model where these are known: names alone repeat."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    parts = [said.get("model name") or platform.processor() or platform.machine()]
    parts += [f"{key} {said[key]}" for key in ("cpu family", "model") if key in said]
    return " ".join(parts)


def warn_other_processor(before: str | None, out: str | Path) -> None:
    """Say what may differ where ``out`` goes on, on a CPU, on another processor than it was begun on."""
    now = processor()
    if before is not None and before != now:
        log.warning(
            "`%s` was begun on another processor (%s) and goes on with %s: rounding differs, so models agree with "
            'those of one processor to about 1e-6 of their length, with combiner "auto" and uplink "signal" to about '
            "1e-3, and not to the bit",
            out,
            before,
            now,
        )
