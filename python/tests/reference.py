"""Plain float64 attention, and how far kvring's result may be from it: the bound of docs/numerics.md.

Shares no code and no idea with kvring: the mask is a matrix of bools, made from positions.
"""

import dataclasses

import numpy as np

# Significant bits and the smallest subnormal of an output type.
PRECISION = {"float32": (24, 2.0**-149), "float16": (11, 2.0**-24), "bfloat16": (8, 2.0**-133)}
U = 2.0**-24  # the rounding of one float32 operation


@dataclasses.dataclass
class Expected:
    """Of shape (batch, q_len, heads, value_dim) and (batch, heads, q_len), float64."""

    out: np.ndarray
    lse: np.ndarray
    out_bound: np.ndarray
    lse_bound: np.ndarray


def visible(q_len, kv_len, *, causal=False, window_size=(-1, -1), cu_seqlens_q=None, cu_seqlens_kv=None):
    """Tell which query (row) sees which key (column)."""
    cu_q = [0, q_len] if cu_seqlens_q is None else list(cu_seqlens_q)
    cu_kv = [0, kv_len] if cu_seqlens_kv is None else list(cu_seqlens_kv)
    seen = np.zeros((q_len, kv_len), bool)
    for q0, q1, k0, k1 in zip(cu_q[:-1], cu_q[1:], cu_kv[:-1], cu_kv[1:]):
        position = np.arange(q1 - q0)[:, None] + (k1 - k0) - (q1 - q0)
        key = np.arange(k1 - k0)[None, :]
        left, right = window_size
        inside = np.ones((q1 - q0, k1 - k0), bool)
        if causal:
            inside &= key <= position
        if left >= 0:
            inside &= key >= position - left
        if right >= 0:
            inside &= key <= position + right
        seen[q0:q1, k0:k1] = inside
    return seen


def attention(q, k, v, *, softmax_scale=None, softcap=0.0, sinks=None, tile=512, online=False, **mask):
    """Compute what kvring.attention should, for arrays with batch; the bound is for outputs in q's dtype."""
    out_dtype = q.dtype.name
    bf16_products = all(x.dtype.name == "bfloat16" for x in (q, k, v))
    q, k, v = (x.astype(np.float64).swapaxes(1, 2) for x in (q, k, v))  # (batch, heads, tokens, dim)
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    dim, kv_len = q.shape[-1], k.shape[-2]
    scale = 1 / np.sqrt(dim) if softmax_scale is None else softmax_scale
    seen = visible(q.shape[2], kv_len, **mask)

    logit = scale * (q @ k.swapaxes(-1, -2))
    if softcap:
        logit = softcap * np.tanh(logit / softcap)
    sink = np.full(q.shape[1], -np.inf) if sinks is None else np.asarray(sinks, np.float64)
    sink = np.broadcast_to(sink[None, :, None, None], (*q.shape[:3], 1))
    logit = np.concatenate([np.where(seen, logit, -np.inf), sink], -1)
    top = logit.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    p = np.exp(logit - top)
    total = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        lse = (np.log(total) + top)[..., 0]
        p = np.where(total > 0, p / total, 0)[..., :-1]
    out = p @ v

    # The bound, in the words of docs/numerics.md.
    size = abs(scale) * np.where(seen, np.abs(q) @ np.abs(k).swapaxes(-1, -2), 0).max(-1, initial=0)
    size = np.maximum(size, np.where(np.isfinite(sink), np.abs(sink), 0)[..., 0])
    delta = (dim + 3) * U * size + 12 * U * softcap + (dim * abs(scale) + 1) * 2.0**-149
    terms, tiles = min(tile, kv_len), kv_len // tile + 1
    gamma = terms * U / (1 - terms * U)
    t = 2 * tiles * U if online else tiles * 2.0**-30
    lost = 2.0**-55 if bf16_products else 2.0**-126
    a = (1 + 16 * U + 2.0**-22) ** 2 * (1 + U) - 1
    r = (1 + a) * (1 + gamma) * (1 + t) - 1 + 2 * kv_len * lost
    r_v = (1 + r) * (1 + 2.0**-8) - 1 if bf16_products else r  # the weights of values are rounded
    e, e_v = ((np.exp(delta) * (1 + x) - 1)[..., None] for x in (r, r_v))
    assert (e < 0.5).all(), "logits too large for a useful bound"
    w = p @ np.abs(v)
    largest = np.where(seen[..., None], np.abs(v)[:, :, None], 0).max(-2, initial=0)
    bound = np.minimum((e_v + e) * w / (1 - e), ((1 + r_v) / (1 - r) + 1) * largest)
    bound += (t + 2 * kv_len * lost) * largest + kv_len * 2.0**-148
    bound += 4 * U * (np.abs(out) + bound)
    digits, smallest = PRECISION[out_dtype]
    bound += (np.abs(out) + bound) * 2.0**-digits + smallest / 2
    lse_size = np.where(np.isfinite(lse), np.abs(lse), 0)
    lse_bound = delta + r / (1 - r) + 4 * U * (np.maximum(1, lse_size) + np.log(kv_len + 2))
    return Expected(out.swapaxes(1, 2), lse, bound.swapaxes(1, 2), lse_bound)


def assert_within(out, lse, expected):
    """Assert that a result is within its bound, and exact where nothing was summed."""
    out, lse = np.asarray(out).astype(np.float64), np.asarray(lse).astype(np.float64)
    assert out.shape == expected.out.shape and lse.shape == expected.lse.shape
    error = np.abs(out - expected.out)
    assert (error <= expected.out_bound).all(), np.nanmax(error / expected.out_bound)
    empty = ~np.isfinite(expected.lse)
    assert np.array_equal(lse[empty], expected.lse[empty])
    assert (out.swapaxes(1, 2)[empty] == 0).all()
    error = np.abs(lse[~empty] - expected.lse[~empty])
    assert (error <= expected.lse_bound[~empty]).all(), np.max(error / expected.lse_bound[~empty])
