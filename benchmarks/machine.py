"""What a number was measured on."""

from __future__ import annotations

import platform
import subprocess
import time
from datetime import UTC, datetime
from typing import Any

import torch


def provenance() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip() or "unknown",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
    }


def matmul_flops(size: int = 1024, repeats: int = 8) -> float:
    """The machine's own float32 matrix product rate, FLOP/s, best of several."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    a @ b
    best = 0.0
    for _ in range(repeats):
        begin = time.perf_counter()
        a @ b
        best = max(best, 2 * size**3 / (time.perf_counter() - begin))
    return best
