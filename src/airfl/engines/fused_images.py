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

from airfl.engines.fused_widths import power_of_two


def strips(images: torch.Tensor, kernel: tuple[int, int], kind: torch.dtype) -> torch.Tensor:
    """Of images [S, 1, H, W] the pixels from every other column on, [S, H, PW, WIDE], in the type of products.

    A patch has KW + 1 pixels in a row; WIDE is the power of two that is not below.
    """
    width, wide = images.shape[-1], power_of_two(kernel[1] + 1)
    places = (width - kernel[1] + 1) // 2
    padded = functional.pad(images.squeeze(1).to(kind), (0, max(0, 2 * (places - 1) + wide - width)))
    return padded.unfold(2, wide, 2)[:, :, :places].contiguous()


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
    WIDE: tl.constexpr, BLOCKS: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Convolution, bias, ReLU and 2×2 max-pooling; ``choice`` says which of the four was taken, 4 for none."""
    PH: tl.constexpr = (H - KH + 1) // 2
    PW: tl.constexpr = (W - KW + 1) // 2
    P: tl.constexpr = PH * PW
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    p = (pid % BLOCKS) * BP + tl.arange(0, BP)
    here = p < B * P
    rows = _patch_base(x, index, tl.load(step), r, p, steps, B, H, P, PW, WIDE)
    n = tl.arange(0, N)
    weight += r * stride
    kind = out.dtype.element_ty
    a0 = tl.zeros((BP, N), dtype=tl.float32)
    a1 = tl.zeros((BP, N), dtype=tl.float32)
    a2 = tl.zeros((BP, N), dtype=tl.float32)
    a3 = tl.zeros((BP, N), dtype=tl.float32)
    for k0 in range(0, (KH + 1) * WIDE, BK):
        k = k0 + tl.arange(0, BK)
        ky, kx = k // WIDE, k % WIDE
        at = rows[:, None] + (ky * (PW * WIDE) + kx)[None, :]
        v = tl.load(at, mask=here[:, None] & (ky <= KH)[None, :], other=0.0)
        a0 = tl.dot(v, _moved(weight, ky, kx, n, KH, KW, N).to(kind), a0, input_precision=PRECISION)
        a1 = tl.dot(v, _moved(weight, ky, kx - 1, n, KH, KW, N).to(kind), a1, input_precision=PRECISION)
        a2 = tl.dot(v, _moved(weight, ky - 1, kx, n, KH, KW, N).to(kind), a2, input_precision=PRECISION)
        a3 = tl.dot(v, _moved(weight, ky - 1, kx - 1, n, KH, KW, N).to(kind), a3, input_precision=PRECISION)
    best = a0
    which = tl.zeros((BP, N), dtype=tl.int32)
    which = tl.where(a1 > best, 1, which)
    best = tl.maximum(best, a1)
    which = tl.where(a2 > best, 2, which)
    best = tl.maximum(best, a2)
    which = tl.where(a3 > best, 3, which)
    best = tl.maximum(best, a3) + tl.load(bias + r * stride + n)[None, :]
    which = tl.where(best > 0.0, which, 4)
    at = (r * B * P + p)[:, None] * N + n[None, :]
    tl.store(out + at, tl.maximum(best, 0.0).to(kind), mask=here[:, None])
    tl.store(choice + at, which.to(tl.int8), mask=here[:, None])


@triton.jit
def _of_taps(total, k, tap, s: tl.constexpr, KW: tl.constexpr, WIDE: tl.constexpr):
    """The sums over pixels of a patch, as sums over the taps of the filter that lies (s // 2, s % 2) further."""
    pixel = (tap // KW + s // 2) * WIDE + tap % KW + s % 2
    of_filter = tl.sum(tl.where((tl.arange(0, 4) == s)[None, :, None], total, 0.0), axis=1)
    return tl.dot((pixel[:, None] == k[None, :]).to(tl.float32), of_filter, input_precision="ieee")


@triton.jit
def image_backward_weight(
    x, index, step, steps, dy, choice, weight, bias, stride, rate,
    B: tl.constexpr, H: tl.constexpr, W: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, N: tl.constexpr,
    WIDE: tl.constexpr, BN: tl.constexpr, BLOCKS: tl.constexpr,
    UP: tl.constexpr, TAPS: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The SGD step of the filters and biases, from the gradient of what was pooled."""
    PH: tl.constexpr = (H - KH + 1) // 2
    PW: tl.constexpr = (W - KW + 1) // 2
    P: tl.constexpr = PH * PW
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    n = (pid % BLOCKS) * BN + tl.arange(0, BN)
    k = tl.arange(0, UP)
    ky, kx = k // WIDE, k % WIDE
    t = tl.load(step)
    total = tl.zeros((UP, 4 * BN), dtype=tl.float32)
    slope = tl.zeros((BN,), dtype=tl.float32)
    for m0 in range(0, B * P, BM):
        p = m0 + tl.arange(0, BM)
        here = p < B * P
        rows = _patch_base(x, index, t, r, p, steps, B, H, P, PW, WIDE)
        at_pixel = rows[:, None] + (ky * (PW * WIDE) + kx)[None, :]
        v = tl.load(at_pixel, mask=here[:, None] & (ky <= KH)[None, :], other=0.0)
        at = (r * B * P + p)[:, None] * N + n[None, :]
        g = tl.load(dy + at, mask=here[:, None], other=0.0)
        which = tl.load(choice + at, mask=here[:, None], other=4)
        g = tl.where(which < 4, g, 0.0).to(v.dtype)
        # One column for each of the four patches.
        of_four = which[:, None, :] == tl.arange(0, 4)[None, :, None]
        four = tl.reshape(tl.where(of_four, g[:, None, :], 0.0).to(v.dtype), (BM, 4 * BN))
        total = tl.dot(tl.trans(v), four, total, input_precision=PRECISION)
        slope += tl.sum(g.to(tl.float32), axis=0)
    tap = tl.arange(0, TAPS)
    apart = tl.reshape(total, (UP, 4, BN))
    gradient = _of_taps(apart, k, tap, 0, KW, WIDE) + _of_taps(apart, k, tap, 1, KW, WIDE)
    gradient += _of_taps(apart, k, tap, 2, KW, WIDE) + _of_taps(apart, k, tap, 3, KW, WIDE)
    inside = (tap < KH * KW)[:, None]
    at_weight = weight + r * stride + tap[:, None] * N + n[None, :]
    tl.store(at_weight, tl.load(at_weight, mask=inside, other=0.0) - rate * gradient, mask=inside)
    at_bias = bias + r * stride + n
    tl.store(at_bias, tl.load(at_bias) - rate * slope)
