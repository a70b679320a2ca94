"""Triton kernels for local training of many replicas, each with its own weights.

One program works on one replica and one tile. Activations are [R, b, H, W, C] (channels last), the weights of a
convolution [kh·kw·C, N] in the replica's row of state, those of a linear layer [N, K]. Gradients of weights are never
written: the tile that has summed one up takes the SGD step at once. Patches are never written either: they are read
through the caches.
"""

# Kernels read better with the names of the loops' own letters.
# ruff: noqa: D103

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def conv_pool_forward(
    x, filters, apart, bias, stride, out, choice,
    B: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    N: tl.constexpr, OUT_Q: tl.constexpr, OUT_N: tl.constexpr, BLOCKS: tl.constexpr,
    BP: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Convolution, bias, ReLU and 2×2 max-pooling; ``choice`` says which of the four was taken, 4 for none."""
    PH: tl.constexpr = (H - KH + 1) // 2
    PW: tl.constexpr = (W - KW + 1) // 2
    P: tl.constexpr = PH * PW
    K: tl.constexpr = KH * KW * C
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    p = (pid % BLOCKS) * BP + tl.arange(0, BP)
    here = p < B * P
    b, q = p // P, p % P
    rows = x + (r * B + b) * (H * W * C) + ((q // PW) * 2 * W + (q % PW) * 2) * C
    n = tl.arange(0, N)
    filters += r * apart
    a0 = tl.zeros((BP, N), dtype=tl.float32)
    a1 = tl.zeros((BP, N), dtype=tl.float32)
    a2 = tl.zeros((BP, N), dtype=tl.float32)
    a3 = tl.zeros((BP, N), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        inside = k < K
        tap = k // C
        cols = ((tap // KW) * W + tap % KW) * C + k % C
        w = tl.load(filters + k[:, None] * N + n[None, :], mask=inside[:, None], other=0.0)
        at = rows[:, None] + cols[None, :]
        good = here[:, None] & inside[None, :]
        v = tl.load(at, mask=good, other=0.0)
        a0 = tl.dot(v, w, a0, input_precision=PRECISION)
        v = tl.load(at + C, mask=good, other=0.0)
        a1 = tl.dot(v, w, a1, input_precision=PRECISION)
        v = tl.load(at + W * C, mask=good, other=0.0)
        a2 = tl.dot(v, w, a2, input_precision=PRECISION)
        v = tl.load(at + (W + 1) * C, mask=good, other=0.0)
        a3 = tl.dot(v, w, a3, input_precision=PRECISION)
    best = a0
    which = tl.zeros((BP, N), dtype=tl.int32)
    which = tl.where(a1 > best, 1, which)
    best = tl.maximum(best, a1)
    which = tl.where(a2 > best, 2, which)
    best = tl.maximum(best, a2)
    which = tl.where(a3 > best, 3, which)
    best = tl.maximum(best, a3) + tl.load(bias + r * stride + n)[None, :]
    which = tl.where(best > 0.0, which, 4)
    where = (r * B + b) * (P * N) + q * OUT_Q
    best = tl.maximum(best, 0.0).to(out.dtype.element_ty)
    tl.store(out + where[:, None] + n[None, :] * OUT_N, best, mask=here[:, None])
    tl.store(choice + (r * B * P + p)[:, None] * N + n[None, :], which.to(tl.int8), mask=here[:, None])


@triton.jit
def linear_forward(
    x, weight, bias, stride, out,
    B: tl.constexpr, K: tl.constexpr, N: tl.constexpr, BLOCKS: tl.constexpr,
    BB: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    n = (pid % BLOCKS) * BN + tl.arange(0, BN)
    b = tl.arange(0, BB)
    acc = tl.zeros((BB, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        w = tl.load(
            weight + r * stride + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0
        )
        v = tl.load(x + (r * B + b)[:, None] * K + k[None, :], mask=(b < B)[:, None] & (k < K)[None, :], other=0.0)
        acc = tl.dot(v, tl.trans(w.to(out.dtype.element_ty)), acc, input_precision=PRECISION)
    acc = tl.maximum(acc + tl.load(bias + r * stride + n, mask=n < N, other=0.0)[None, :], 0.0)
    inside = (b < B)[:, None] & (n < N)[None, :]
    tl.store(out + (r * B + b)[:, None] * N + n[None, :], acc.to(out.dtype.element_ty), mask=inside)


@triton.jit
def head(
    x, weight, bias, stride, index, step, steps, labels, losses, dx, rate,
    B: tl.constexpr, K: tl.constexpr, N: tl.constexpr, NEED_DX: tl.constexpr, RELU: tl.constexpr,
    BB: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The last layer, the loss, its gradient, and the last layer's own step; one program per replica."""
    r = tl.program_id(0).to(tl.int64)
    b, n = tl.arange(0, BB), tl.arange(0, BN)
    weight += r * stride
    acc = tl.zeros((BB, BN), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        w = tl.load(weight + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        v = tl.load(x + (r * B + b)[:, None] * K + k[None, :], mask=(b < B)[:, None] & (k < K)[None, :], other=0.0)
        acc = tl.dot(v, tl.trans(w.to(x.dtype.element_ty)), acc, input_precision=PRECISION)
    old = tl.load(bias + r * stride + n, mask=n < N, other=0.0)
    scores = tl.where((n < N)[None, :], acc + old[None, :], float("-inf"))
    t = tl.load(step)
    sample = tl.load(index + (r * steps + t) * B + b, mask=b < B, other=-1)
    taken = (sample >= 0).to(tl.float32)
    count = tl.sum(taken, axis=0)
    label = tl.load(labels + tl.maximum(sample, 0).to(tl.int64))
    right = (n[None, :] == label[:, None]).to(tl.float32)
    scores -= tl.max(scores, axis=1)[:, None]
    powers = tl.exp(scores)
    total = tl.sum(powers, axis=1)
    picked = tl.sum(tl.where(right > 0, scores, 0.0), axis=1)
    loss = tl.sum((tl.log(total) - picked) * taken, axis=0)
    tl.store(losses + r, tl.load(losses + r) + loss)
    slope = (powers / total[:, None] - right) * (taken / tl.maximum(count, 1.0))[:, None]
    tl.store(bias + r * stride + n, old - rate * tl.sum(slope, axis=0), mask=n < N)
    slope = slope.to(x.dtype.element_ty)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        at = weight + n[:, None] * K + k[None, :]
        inside = (n < N)[:, None] & (k < K)[None, :]
        w = tl.load(at, mask=inside, other=0.0)
        own = (b < B)[:, None] & (k < K)[None, :]
        v = tl.load(x + (r * B + b)[:, None] * K + k[None, :], mask=own, other=0.0)
        if NEED_DX:
            back = tl.dot(slope, w.to(x.dtype.element_ty), input_precision=PRECISION)
            if RELU:
                back = tl.where(v > 0, back, 0.0)
            tl.store(dx + (r * B + b)[:, None] * K + k[None, :], back.to(x.dtype.element_ty), mask=own)
        tl.store(at, w - rate * tl.dot(tl.trans(slope), v, input_precision=PRECISION), mask=inside)


@triton.jit
def linear_backward(
    dy, x, weight, bias, stride, dx, rate,
    B: tl.constexpr, K: tl.constexpr, N: tl.constexpr, MODE: tl.constexpr, BLOCKS: tl.constexpr,
    BB: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of the input and the SGD step of the weights, which are read and written once.

    MODE 0: no gradient of the input is needed; 1: the input went through a ReLU; 2: ``unpool`` will see to that.
    """
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    block = pid % BLOCKS
    k = block * BK + tl.arange(0, BK)
    b = tl.arange(0, BB)
    weight += r * stride
    bias += r * stride
    own = (b < B)[:, None] & (k < K)[None, :]
    v = tl.load(x + (r * B + b)[:, None] * K + k[None, :], mask=own, other=0.0)
    acc = tl.zeros((BB, BK), dtype=tl.float32)
    for n0 in range(0, N, BN):
        n = n0 + tl.arange(0, BN)
        g = tl.load(dy + (r * B + b)[:, None] * N + n[None, :], mask=(b < B)[:, None] & (n < N)[None, :], other=0.0)
        at = weight + n[:, None] * K + k[None, :]
        inside = (n < N)[:, None] & (k < K)[None, :]
        w = tl.load(at, mask=inside, other=0.0)
        if MODE > 0:
            acc = tl.dot(g, w.to(g.dtype), acc, input_precision=PRECISION)
        tl.store(at, w - rate * tl.dot(tl.trans(g), v, input_precision=PRECISION), mask=inside)
        if block == 0:
            old = tl.load(bias + n, mask=n < N, other=0.0)
            tl.store(bias + n, old - rate * tl.sum(g.to(tl.float32), axis=0), mask=n < N)
    if MODE > 0:
        if MODE == 1:
            acc = tl.where(v > 0, acc, 0.0)
        tl.store(dx + (r * B + b)[:, None] * K + k[None, :], acc.to(x.dtype.element_ty), mask=own)


@triton.jit
def unpool(
    dy, choice, dense, bias, stride, rate,
    B: tl.constexpr, P: tl.constexpr, N: tl.constexpr, DY_Q: tl.constexpr, DY_N: tl.constexpr,
    BP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of what was pooled, four for each place [R, b, P, 4, N]: zero but where it was taken from.

    The step of the biases comes with it.
    """
    r = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N)
    slopes = tl.zeros((BP, N), dtype=tl.float32)
    for p0 in range(0, B * P, BP):
        p = p0 + tl.arange(0, BP)
        here = (p < B * P)[:, None]
        at = (r * B + p // P) * (P * N) + (p % P) * DY_Q
        g = tl.load(dy + at[:, None] + n[None, :] * DY_N, mask=here, other=0.0)
        own = (r * B * P + p)[:, None] * N + n[None, :]
        which = tl.load(choice + own, mask=here, other=4)
        slopes += tl.where(which < 4, g, 0.0).to(tl.float32)
        for s in tl.static_range(4):
            at_dense = dense + (r * B * P + p)[:, None] * (4 * N) + s * N + n[None, :]
            tl.store(at_dense, tl.where(which == s, g, 0.0).to(g.dtype), mask=here)
    at_bias = bias + r * stride + n
    tl.store(at_bias, tl.load(at_bias) - rate * tl.sum(slopes, axis=0))


@triton.jit
def conv_backward_input(
    dense, filters, apart, dx,
    B: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    N: tl.constexpr, BLOCKS: tl.constexpr, TALL: tl.constexpr, BM: tl.constexpr, EACH: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of a convolution's input, for 2×2 places at a time, which are columns of one product.

    One program works on TALL rows of them in all images, and goes through those pooled rows only that have taps in
    common with these.
    """
    PH: tl.constexpr = (H - KH + 1) // 2
    PW: tl.constexpr = (W - KW + 1) // 2
    WIDE: tl.constexpr = (W + 1) // 2
    PARTS: tl.constexpr = (B * TALL * WIDE + BM - 1) // BM
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    top = (pid % BLOCKS) // PARTS * TALL
    m = (pid % BLOCKS) % PARTS * BM + tl.arange(0, BM)
    b, y, z = m // (TALL * WIDE), top + m // WIDE % TALL, m % WIDE
    here = (b < B) & (2 * y < H)
    j, n = tl.arange(0, 4 * C), tl.arange(0, N)
    c, place = j % C, j // C
    filters += r * apart
    dense += r * (4 * B * PH * PW * N)
    LEFT: tl.constexpr = KW // 2 + 1
    TURNS: tl.constexpr = 4 // EACH
    ONE: tl.constexpr = LEFT * TURNS  # turns for a row of pooled places
    acc = tl.zeros((BM, 4 * C), dtype=tl.float32)
    for i in range(tl.maximum(top - PH + 1, 0) * ONE, (tl.minimum(top + TALL - 1, KH // 2) + 1) * ONE):
        up, left = i // ONE, i // TURNS % LEFT
        py, pz = y - up, z - left
        good = (here & (py >= 0) & (py < PH) & (pz >= 0) & (pz < PW))[:, None]
        at = ((b * PH + py) * PW + pz)[:, None] * (4 * N) + n[None, :]
        for one in tl.static_range(EACH):
            s = i % TURNS * EACH + one
            g = tl.load(dense + at + s * N, mask=good, other=0.0)
            ky, kx = 2 * up + place // 2 - s // 2, 2 * left + place % 2 - s % 2
            tap = (ky >= 0) & (ky < KH) & (kx >= 0) & (kx < KW)
            w = tl.load(filters + ((ky * KW + kx) * C + c)[:, None] * N + n[None, :], mask=tap[:, None], other=0.0)
            acc = tl.dot(g, tl.trans(w), acc, input_precision=PRECISION)
    row, column = 2 * y[:, None] + place[None, :] // 2, 2 * z[:, None] + place[None, :] % 2
    at_dx = dx + (((r * B + b)[:, None] * H + row) * W + column) * C + c[None, :]
    tl.store(at_dx, acc.to(dx.dtype.element_ty), mask=here[:, None] & (row < H) & (column < W))


@triton.jit
def conv_backward_weight(
    x, dense, weight, stride, filters, apart, rate,
    B: tl.constexpr, C: tl.constexpr, H: tl.constexpr, W: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    N: tl.constexpr, COPY: tl.constexpr, BLOCKS: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """The SGD step of a convolution's weights; where products need it, a copy in their type."""
    PH: tl.constexpr = (H - KH + 1) // 2
    PW: tl.constexpr = (W - KW + 1) // 2
    K: tl.constexpr = KH * KW * C
    M: tl.constexpr = 4 * B * PH * PW
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    k = (pid % BLOCKS) * BK + tl.arange(0, BK)
    n = tl.arange(0, N)
    inside = k < K
    tap = k // C
    cols = ((tap // KW) * W + tap % KW) * C + k % C
    acc = tl.zeros((BK, N), dtype=tl.float32)
    x += r * (B * H * W * C)
    dense += r * (M * N)
    for m0 in range(0, M, BM):
        m = m0 + tl.arange(0, BM)
        here = (m < M)[:, None]
        q, s = m // 4 % (PH * PW), m % 4
        rows = (m // (4 * PH * PW)) * (H * W * C) + ((2 * (q // PW) + s // 2) * W + 2 * (q % PW) + s % 2) * C
        v = tl.load(x + rows[:, None] + cols[None, :], mask=here & inside[None, :], other=0.0)
        g = tl.load(dense + m[:, None] * N + n[None, :], mask=here, other=0.0)
        acc = tl.dot(tl.trans(v), g, acc, input_precision=PRECISION)
    own = k[:, None] * N + n[None, :]
    at_weight = weight + r * stride + own
    new = tl.load(at_weight, mask=inside[:, None], other=0.0) - rate * acc
    tl.store(at_weight, new, mask=inside[:, None])
    if COPY:
        tl.store(filters + r * apart + own, new.to(filters.dtype.element_ty), mask=inside[:, None])
