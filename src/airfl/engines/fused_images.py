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
def _of_taps(total, k, tap, y, x, KW: tl.constexpr, WIDE: tl.constexpr):
    """The sums over pixels of a patch, as sums over the taps of the filter that lies (y, x) further."""
    pixel = (tap // KW + y) * WIDE + tap % KW + x
    return tl.dot((pixel[:, None] == k[None, :]).to(tl.float32), total, input_precision="ieee")


@triton.jit
def image_backward_weight(
    x, index, step, steps, dy, choice, weight, bias, stride, rate,
    B: tl.constexpr, H: tl.constexpr, W: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, N: tl.constexpr,
    WIDE: tl.constexpr, UP: tl.constexpr, DY_Q: tl.constexpr, DY_N: tl.constexpr, BN: tl.constexpr,
    BLOCKS: tl.constexpr, TAPS: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr,
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
    a0 = tl.zeros((UP, BN), dtype=tl.float32)
    a1 = tl.zeros((UP, BN), dtype=tl.float32)
    a2 = tl.zeros((UP, BN), dtype=tl.float32)
    a3 = tl.zeros((UP, BN), dtype=tl.float32)
    slopes = tl.zeros((BM, BN), dtype=tl.float32)
    for m0 in range(0, B * P, BM):
        p = m0 + tl.arange(0, BM)
        here = p < B * P
        rows = _patch_base(x, index, t, r, p, steps, B, H, P, PW, WIDE)
        at_pixel = rows[:, None] + (ky * (PW * WIDE) + kx)[None, :]
        v = tl.trans(tl.load(at_pixel, mask=here[:, None] & (ky <= KH)[None, :], other=0.0))
        at = (r * B + p // P) * (P * N) + (p % P) * DY_Q
        g = tl.load(dy + at[:, None] + n[None, :] * DY_N, mask=here[:, None], other=0.0)
        which = tl.load(choice + (r * B * P + p)[:, None] * N + n[None, :], mask=here[:, None], other=4)
        a0 = tl.dot(v, tl.where(which == 0, g, 0.0).to(g.dtype), a0, input_precision=PRECISION)
        a1 = tl.dot(v, tl.where(which == 1, g, 0.0).to(g.dtype), a1, input_precision=PRECISION)
        a2 = tl.dot(v, tl.where(which == 2, g, 0.0).to(g.dtype), a2, input_precision=PRECISION)
        a3 = tl.dot(v, tl.where(which == 3, g, 0.0).to(g.dtype), a3, input_precision=PRECISION)
        slopes += tl.where(which < 4, g, 0.0).to(tl.float32)
    tap = tl.arange(0, TAPS)
    total = _of_taps(a0, k, tap, 0, 0, KW, WIDE) + _of_taps(a1, k, tap, 0, 1, KW, WIDE)
    total += _of_taps(a2, k, tap, 1, 0, KW, WIDE) + _of_taps(a3, k, tap, 1, 1, KW, WIDE)
    inside = (tap < KH * KW)[:, None]
    at_weight = weight + r * stride + tap[:, None] * N + n[None, :]
    tl.store(at_weight, tl.load(at_weight, mask=inside, other=0.0) - rate * total, mask=inside)
    at_bias = bias + r * stride + n
    tl.store(at_bias, tl.load(at_bias) - rate * tl.sum(slopes, axis=0))
