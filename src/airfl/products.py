"""Products of small matrices on a CPU."""

from __future__ import annotations

import torch

HAS_ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def times_transposed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A Bᵀ, neither of them empty, and rows or columns without gaps.

    In float32 through oneDNN, which uses the full width of any CPU; what ``torch.mm`` calls does on some only.
    """
    if a.dtype == torch.float32 and HAS_ONEDNN:
        found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
        return found
    return a @ b.t()
