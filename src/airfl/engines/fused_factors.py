"""Triton kernels for a large linear layer whose weight is kept as factors, W = W₀ − η GᵀX, and for handing updates on.

W₀ is the broadcast model's: replicas of a trial share it, and it stays in the caches. A step changes W by −η gᵀx, of no
higher rank than there are samples in it; so the rows of x and g of all steps are kept, [R, steps·b, ·], and multiplied
out once, as the update. No replica has a weight of its own.
"""

# ruff: noqa: D103

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def factored_forward(
    x, first, trial, xs, gs, step, bias, stride, rate, out,
    B: tl.constexpr, K: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
    BB: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    n = (pid % BLOCKS) * BN + tl.arange(0, BN)
    b, h = tl.arange(0, BB), tl.arange(0, BH)
    first += tl.load(trial + r).to(tl.int64) * (N * K)
    xs += r * (ROWS * K)
    gs += r * (ROWS * N)
    kept = h < tl.load(step) * B  # rows of the steps before
    acc = tl.zeros((BB, BN), dtype=tl.float32)
    with_rows = tl.zeros((BB, BH), dtype=tl.float32)
    for k0 in range(0, K, BK):
        k = k0 + tl.arange(0, BK)
        w = tl.load(first + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
        v = tl.load(x + (r * B + b)[:, None] * K + k[None, :], mask=(b < B)[:, None] & (k < K)[None, :], other=0.0)
        acc = tl.dot(v, tl.trans(w), acc, input_precision=PRECISION)
        rows = tl.load(xs + h[:, None] * K + k[None, :], mask=kept[:, None] & (k < K)[None, :], other=0.0)
        with_rows = tl.dot(v, tl.trans(rows), with_rows, input_precision=PRECISION)
    g = tl.load(gs + h[:, None] * N + n[None, :], mask=kept[:, None] & (n < N)[None, :], other=0.0)
    acc -= rate * tl.dot(with_rows.to(g.dtype), g, input_precision=PRECISION)
    acc = tl.maximum(acc + tl.load(bias + r * stride + n, mask=n < N, other=0.0)[None, :], 0.0)
    inside = (b < B)[:, None] & (n < N)[None, :]
    tl.store(out + (r * B + b)[:, None] * N + n[None, :], acc.to(out.dtype.element_ty), mask=inside)


@triton.jit
def factored_backward(
    dy, x, first, trial, xs, gs, step, bias, stride, dx, rate,
    B: tl.constexpr, K: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, MODE: tl.constexpr, BLOCKS: tl.constexpr,
    BB: tl.constexpr, BK: tl.constexpr, BN: tl.constexpr, BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The gradient of the input, the bias's step, and the rows of this step; ``MODE`` as in ``linear_backward``."""
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    block = pid % BLOCKS
    k = block * BK + tl.arange(0, BK)
    b, h = tl.arange(0, BB), tl.arange(0, BH)
    first += tl.load(trial + r).to(tl.int64) * (N * K)
    xs += r * (ROWS * K)
    gs += r * (ROWS * N)
    bias += r * stride
    now = tl.load(step) * B
    kept = h < now
    own = (b < B)[:, None] & (k < K)[None, :]
    v = tl.load(x + (r * B + b)[:, None] * K + k[None, :], mask=own, other=0.0)
    tl.store(xs + (now + b)[:, None] * K + k[None, :], v, mask=own)
    acc = tl.zeros((BB, BK), dtype=tl.float32)
    with_rows = tl.zeros((BB, BH), dtype=tl.float32)
    for n0 in range(0, N, BN):
        n = n0 + tl.arange(0, BN)
        inside = (b < B)[:, None] & (n < N)[None, :]
        g = tl.load(dy + (r * B + b)[:, None] * N + n[None, :], mask=inside, other=0.0)
        if MODE > 0:
            w = tl.load(first + n[:, None] * K + k[None, :], mask=(n < N)[:, None] & (k < K)[None, :], other=0.0)
            acc = tl.dot(g, w, acc, input_precision=PRECISION)
            rows = tl.load(gs + h[:, None] * N + n[None, :], mask=kept[:, None] & (n < N)[None, :], other=0.0)
            with_rows = tl.dot(g, tl.trans(rows), with_rows, input_precision=PRECISION)
        if block == 0:
            old = tl.load(bias + n, mask=n < N, other=0.0)
            tl.store(bias + n, old - rate * tl.sum(g.to(tl.float32), axis=0), mask=n < N)
            tl.store(gs + (now + b)[:, None] * N + n[None, :], g, mask=inside)
    if MODE > 0:
        rows = tl.load(xs + h[:, None] * K + k[None, :], mask=kept[:, None] & (k < K)[None, :], other=0.0)
        acc -= rate * tl.dot(with_rows.to(rows.dtype), rows, input_precision=PRECISION)
        if MODE == 1:
            acc = tl.where(v > 0, acc, 0.0)
        tl.store(dx + (r * B + b)[:, None] * K + k[None, :], acc.to(x.dtype.element_ty), mask=own)


@triton.jit
def factored_update(
    xs, gs, taken, row, out, dim,
    B: tl.constexpr, K: tl.constexpr, N: tl.constexpr, ROWS: tl.constexpr, BLOCKS: tl.constexpr,
    BK: tl.constexpr, BN: tl.constexpr, BH: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """GᵀX, which is the weight's update, written where it belongs."""
    WIDE: tl.constexpr = (K + BK - 1) // BK
    pid = tl.program_id(0)
    r = (pid // BLOCKS).to(tl.int64)
    n = (pid % BLOCKS) // WIDE * BN + tl.arange(0, BN)
    k = (pid % BLOCKS) % WIDE * BK + tl.arange(0, BK)
    h = tl.arange(0, BH)
    kept = (h < tl.load(taken + r) * B)[:, None]
    g = tl.load(gs + (r * ROWS + h)[:, None] * N + n[None, :], mask=kept & (n < N)[None, :], other=0.0)
    v = tl.load(xs + (r * ROWS + h)[:, None] * K + k[None, :], mask=kept & (k < K)[None, :], other=0.0)
    product = tl.dot(tl.trans(g), v, input_precision=PRECISION)
    at = out + tl.load(row + r).to(tl.int64) * dim + n[:, None] * K + k[None, :]
    tl.store(at, product, mask=(n < N)[:, None] & (k < K)[None, :])


@triton.jit
def held_update(
    start, state, trial, row, columns, parameters, out, used, stride, dim, rate,
    COUNT: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr, EACH: tl.constexpr,
):  # fmt: skip
    """(θ − w)/η of all parameters that replicas hold, written where they belong; EACH replicas a program."""
    pid = tl.program_id(0)
    first = (pid // BLOCKS).to(tl.int64) * EACH
    j = (pid % BLOCKS) * BLOCK + tl.arange(0, BLOCK)
    inside = j < COUNT
    column = tl.load(columns + j, mask=inside, other=0)
    parameter = tl.load(parameters + j, mask=inside, other=0)
    for i in range(EACH):
        r = tl.minimum(first + i, used - 1)  # the last one again and again, to the same end
        model = tl.load(trial + r).to(tl.int64)
        before = tl.load(start + model * stride + column, mask=inside, other=0.0)
        after = tl.load(state + r * stride + column, mask=inside, other=0.0)
        at = out + tl.load(row + r).to(tl.int64) * dim + parameter
        tl.store(at, (before - after) / rate, mask=inside)
