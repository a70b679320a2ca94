"""Triton kernels for the first convolution, which reads images of the data set.

Four patches lie below a pooled place, and they overlap: the images are read once for all four, and the filters are
moved instead. Images are kept as ``strips``, so that a row of such a patch is one load.
"""

# Kernels read better with the names of the loops' own letters.

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.nn import functional

from airfl.engines.fused_layout import ConvBlock


def strips(images: torch.Tensor, block: ConvBlock, kind: torch.dtype) -> torch.Tensor:
    """Of images [S, 1, H, W] the pixels from every other column on, [S, H, PW, WIDE], in the type of products.

    The last pixel of a strip is a one: the gradient of its weight is that of the bias.
    """
    wide, places = block.patch[0], block.pooled[1]
    padded = functional.pad(images.squeeze(1).to(kind), (0, max(0, 2 * (places - 1) + wide - block.width)))
    found = padded.unfold(2, wide, 2)[:, :, :places].clone(memory_format=torch.contiguous_format)
    found[..., -1] = 1.0
    return found


@triton.jit
def _patch_base(x, index, t, r, p, steps, B: tl.constexpr, H: tl.constexpr, P: tl.constexpr, PW: tl.constexpr,
                WIDE: tl.constexpr):  # fmt: skip
    """Where the patch of a pooled place begins: in the image of sample b, at its upper left pixel."""
    b, q = p // P, p % P
    sample = tl.load(index + (r * steps + t) * B + b, mask=b < B, other=0)
    return x + tl.maximum(sample, 0).to(tl.int64) * (H * PW * WIDE) + ((q // PW) * 2 * PW + q % PW) * WIDE


@triton.jit
def _moved(weight, ky, kx, n, KH: tl.constexpr, KW: tl.constexpr, N: tl.constexpr):
    """Filters as the patch sees them that lies (y, x) further: weights of these pixels, zero beyond the edge."""
    inside = (ky >= 0) & (ky < KH) & (kx >= 0) & (kx < KW)
    return tl.load(weight + (ky * KW + kx)[:, None] * N + n[None, :], mask=inside[:, None], other=0.0)


@triton.jit
def image_pool_forward(
    x, index, step, steps, weight, bias, stride, out, choice,
    B: tl.constexpr, H: tl.constexpr, W: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, N: tl.constexpr,
    WIDE: tl.constexpr, UP: tl.constexpr, OUT_Q: tl.constexpr, OUT_N: tl.constexpr, BLOCKS: tl.constexpr,
    BP: tl.constexpr, EACH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Convolution, bias, ReLU and 2×2 max-pooling; ``choice`` says which of the four was taken, 4 for none."""
    PH: tl.constexpr = (H - KH + 1) // 2
    PW: tl.constexpr = (W - KW + 1) // 2
    P: tl.constexpr = PH * PW
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    n, k = tl.arange(0, N), tl.arange(0, UP)
    ky, kx = k // WIDE, k % WIDE
    t = tl.load(step)
    weight += r * stride
    kind = out.dtype.element_ty
    w0 = _moved(weight, ky, kx, n, KH, KW, N).to(kind)
    w1 = _moved(weight, ky, kx - 1, n, KH, KW, N).to(kind)
    w2 = _moved(weight, ky - 1, kx, n, KH, KW, N).to(kind)
    w3 = _moved(weight, ky - 1, kx - 1, n, KH, KW, N).to(kind)
    shift = tl.load(bias + r * stride + n)[None, :]
    first = (pid % BLOCKS) * (BP * EACH)
    for p0 in range(first, first + BP * EACH, BP):
        p = p0 + tl.arange(0, BP)
        here = (p < B * P)[:, None]
        rows = _patch_base(x, index, t, r, p, steps, B, H, P, PW, WIDE)
        at_pixel = rows[:, None] + (ky * (PW * WIDE) + kx)[None, :]
        v = tl.load(at_pixel, mask=here & (ky <= KH)[None, :], other=0.0)
        best = tl.dot(v, w0, input_precision=PRECISION)
        which = tl.zeros((BP, N), dtype=tl.int32)
        score = tl.dot(v, w1, input_precision=PRECISION)
        which = tl.where(score > best, 1, which)
        best = tl.maximum(best, score)
        score = tl.dot(v, w2, input_precision=PRECISION)
        which = tl.where(score > best, 2, which)
        best = tl.maximum(best, score)
        score = tl.dot(v, w3, input_precision=PRECISION)
        which = tl.where(score > best, 3, which)
        best = tl.maximum(best, score) + shift
        which = tl.where(best > 0.0, which, 4)
        where = (r * B + p // P) * (P * N) + (p % P) * OUT_Q
        tl.store(out + where[:, None] + n[None, :] * OUT_N, tl.maximum(best, 0.0).to(kind), mask=here)
        tl.store(choice + (r * B * P + p)[:, None] * N + n[None, :], which.to(tl.int8), mask=here)


@triton.jit
def image_backward_weight(
    x, index, step, steps, dy, choice, weight, bias, stride, scratch, rate,
    B: tl.constexpr, H: tl.constexpr, W: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, N: tl.constexpr,
    WIDE: tl.constexpr, UP: tl.constexpr, DY_Q: tl.constexpr, DY_N: tl.constexpr, BN: tl.constexpr,
    BLOCKS: tl.constexpr, TAPS: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The SGD step of the filters and biases, from the gradient of what was pooled.

    Columns are the filters for each of the four patches; at last pixels of a patch are put together as taps.
    """
    PH: tl.constexpr = (H - KH + 1) // 2
    PW: tl.constexpr = (W - KW + 1) // 2
    P: tl.constexpr = PH * PW
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    k, j = tl.arange(0, UP), tl.arange(0, 4 * BN)
    n = (pid % BLOCKS) * BN + j % BN
    ky, kx = k // WIDE, k % WIDE
    t = tl.load(step)
    acc = tl.zeros((UP, 4 * BN), dtype=tl.float32)
    for m0 in range(0, B * P, BM):
        p = m0 + tl.arange(0, BM)
        here = (p < B * P)[:, None]
        rows = _patch_base(x, index, t, r, p, steps, B, H, P, PW, WIDE)
        at_pixel = rows[:, None] + (ky * (PW * WIDE) + kx)[None, :]
        v = tl.load(at_pixel, mask=here & (ky <= KH)[None, :], other=0.0)
        at = (r * B + p // P) * (P * N) + (p % P) * DY_Q
        g = tl.load(dy + at[:, None] + n[None, :] * DY_N, mask=here, other=0.0)
        which = tl.load(choice + (r * B * P + p)[:, None] * N + n[None, :], mask=here, other=4)
        g = tl.where(which == (j // BN)[None, :], g, 0.0).to(v.dtype)
        acc = tl.dot(tl.trans(v), g, acc, input_precision=PRECISION)
    tap, own = tl.arange(0, TAPS), (pid % BLOCKS) * BN + tl.arange(0, BN)
    pixel = (tap // KW) * WIDE + tap % KW
    inside = (tap < KH * KW)[:, None]
    scratch += pid.to(tl.int64) * (UP * 4 * BN)
    tl.store(scratch + k[:, None] * (4 * BN) + j[None, :], acc)
    tl.debug_barrier()  # what is read was written by others
    total = tl.zeros((TAPS, BN), dtype=tl.float32)
    for s in tl.static_range(4):
        row = pixel + s // 2 * WIDE + s % 2
        total += tl.load(
            scratch + row[:, None] * (4 * BN) + (s * BN + tl.arange(0, BN))[None, :], mask=inside, other=0.0
        )
    at_weight = weight + r * stride + tap[:, None] * N + own[None, :]
    tl.store(at_weight, tl.load(at_weight, mask=inside, other=0.0) - rate * total, mask=inside)
    slope = tl.sum(tl.reshape(tl.sum(tl.where((k == WIDE - 1)[:, None], acc, 0.0), axis=0), (4, BN)), axis=0)
    at_bias = bias + r * stride + own
    tl.store(at_bias, tl.load(at_bias) - rate * slope)
