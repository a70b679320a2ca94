"""How the fused kernels are launched: types, tile sizes, stages."""

from __future__ import annotations

import torch

#: How each precision stores activations, and how matrix units read float32.
PRECISIONS: dict[str, tuple[torch.dtype, str]] = {
    "float32": (torch.float32, "ieee"),
    "tf32": (torch.float32, "tf32"),
    "bf16": (torch.bfloat16, "ieee"),
}

#: Tile sizes and launch settings of each kernel, as tuned on an H200. BK of ``conv_forward`` and EACH of ``conv_input``
#: are those for 64 filters; with fewer filters they are more.
TILES: dict[str, dict[str, dict[str, int]]] = {
    "bf16": {
        "image_forward": {"BP": 64, "EACH": 6, "num_warps": 4, "num_stages": 2},
        "image_weight": {"BM": 128, "num_warps": 4, "num_stages": 1},
        "conv_forward": {"BP": 64, "BK": 32, "num_warps": 4, "num_stages": 3},
        "conv_weight": {"BM": 64, "BK": 64, "num_warps": 4, "num_stages": 3},
        "conv_input": {"BM": 128, "EACH": 1, "num_warps": 4, "num_stages": 3},
        "linear_forward": {"BK": 64, "BN": 64, "num_warps": 4, "num_stages": 2},
        "linear_backward": {"BK": 64, "BN": 32, "num_warps": 4, "num_stages": 4},
        "factored_forward": {"BK": 64, "BN": 128, "num_warps": 4, "num_stages": 2},
        "factored_backward": {"BK": 128, "BN": 32, "num_warps": 4, "num_stages": 3},
        "factored_update": {"BK": 128, "BN": 64, "num_warps": 4, "num_stages": 1},
        "unpool": {"BP": 32, "num_warps": 4, "num_stages": 1},
        "held_update": {"BLOCK": 1024, "EACH": 8, "num_warps": 8, "num_stages": 1},
        "head": {"BK": 256, "num_warps": 4, "num_stages": 1},
    },
    "float32": {
        "image_forward": {"BP": 32, "EACH": 1, "num_warps": 4, "num_stages": 2},
        "image_weight": {"BM": 32, "num_warps": 4, "num_stages": 2},
        "conv_forward": {"BP": 32, "BK": 64, "num_warps": 4, "num_stages": 2},
        "conv_weight": {"BM": 64, "BK": 32, "num_warps": 4, "num_stages": 2},
        "conv_input": {"BM": 64, "EACH": 1, "num_warps": 4, "num_stages": 2},
        "linear_forward": {"BK": 64, "BN": 64, "num_warps": 4, "num_stages": 2},
        "linear_backward": {"BK": 64, "BN": 32, "num_warps": 4, "num_stages": 4},
        "factored_forward": {"BK": 32, "BN": 64, "num_warps": 4, "num_stages": 2},
        "factored_backward": {"BK": 64, "BN": 32, "num_warps": 4, "num_stages": 2},
        "factored_update": {"BK": 64, "BN": 64, "num_warps": 4, "num_stages": 1},
        "unpool": {"BP": 32, "num_warps": 4, "num_stages": 1},
        "held_update": {"BLOCK": 1024, "EACH": 8, "num_warps": 8, "num_stages": 1},
        "head": {"BK": 128, "num_warps": 4, "num_stages": 2},
    },
}
