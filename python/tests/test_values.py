"""Every mask and every feature against float64, within the proved bound."""

import inputs
import kvring
import numpy as np
import pytest
import reference

TILE = 16  # so that short sequences have several tiles

DOCUMENTS = {"cu_seqlens_q": [0, 5, 5, 40, 70], "cu_seqlens_kv": [0, 5, 12, 50, 70]}
CASES = {
    "full": ({}, {}),
    "causal": ({}, {"causal": True}),
    "window": ({}, {"window_size": (9, 4)}),
    "window to the left": ({}, {"window_size": (20, -1)}),
    "causal window": ({}, {"causal": True, "window_size": (17, 0)}),
    "window that shows nothing to some": ({"q_len": 90, "kv_len": 30}, {"window_size": (3, 3)}),
    "documents": ({}, DOCUMENTS),
    "causal documents": ({}, {**DOCUMENTS, "causal": True}),
    "causal windows in documents": ({}, {**DOCUMENTS, "causal": True, "window_size": (7, -1)}),
    "grouped heads": ({"q_heads": 6, "kv_heads": 2}, {"causal": True}),
    "one KV head": ({"q_heads": 4, "kv_heads": 1}, {}),
    "value dim": ({"dim": 24, "value_dim": 40}, {"causal": True}),
    "odd dims": ({"dim": 7, "value_dim": 3}, {}),
    "more keys": ({"q_len": 33, "kv_len": 101}, {"causal": True}),
    "more queries": ({"q_len": 101, "kv_len": 33}, {"causal": True}),
    "cross attention": ({"q_len": 20, "kv_len": 51}, {}),
    "batch": ({"batch": 3}, {"causal": True}),
    "softcap": ({}, {"softcap": 2.5}),
    "scale": ({}, {"softmax_scale": 0.01}),
    "negative scale": ({}, {"softmax_scale": -0.3}),
    "sinks": ({"q_heads": 4}, {"sinks": [0.5, -3.0, -np.inf, 4.0], "causal": True}),
    "one query": ({"q_len": 1}, {"causal": True}),
    "no queries": ({"q_len": 0}, {}),
    "no keys": ({"kv_len": 0}, {"causal": True}),
    "no keys, sinks": ({"kv_len": 0}, {"sinks": [1.0, -1.0]}),
    "nothing at all": ({"q_len": 0, "kv_len": 0}, {}),
    "everything": (
        {"q_heads": 4, "kv_heads": 2, "value_dim": 20},
        {
            **DOCUMENTS,
            "causal": True,
            "window_size": (11, -1),
            "softcap": 3.0,
            "sinks": [0.0, 1.0, -2.0, 3.0],
        },
    ),
}


@pytest.mark.parametrize("dtype", inputs.DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_within_the_bound(case, dtype):
    shapes, options = CASES[case]
    q, k, v = inputs.qkv(1, dtype=dtype, **shapes)
    out, lse = kvring.attention(q, k, v, return_lse=True, tile=TILE, ranks=3, **options)
    assert out.dtype == q.dtype and lse.dtype == np.float32
    reference.assert_within(out, lse, reference.attention(q, k, v, tile=TILE, **options))


def test_online_is_within_its_bound():
    q, k, v = inputs.qkv(2)
    out, lse = kvring.attention(q, k, v, return_lse=True, tile=TILE, ranks=2, accumulation="online")
    reference.assert_within(out, lse, reference.attention(q, k, v, tile=TILE, online=True))


def test_defaults_of_a_longer_sequence():
    q, k, v = inputs.qkv(3, q_len=1300, kv_len=1300, dim=64, value_dim=64)
    out, lse = kvring.attention(q, k, v, causal=True, return_lse=True)
    reference.assert_within(out, lse, reference.attention(q, k, v, causal=True))


def test_without_batch_is_a_batch_of_one():
    q, k, v = inputs.qkv(4)
    whole, whole_lse = kvring.attention(q, k, v, causal=True, return_lse=True)
    out, lse = kvring.attention(q[0], k[0], v[0], causal=True, return_lse=True)
    assert out.shape == q.shape[1:] and lse.shape == (q.shape[2], q.shape[1])
    assert inputs.bits(out) == inputs.bits(whole) and inputs.bits(lse) == inputs.bits(whole_lse)


def test_queries_and_keys_of_different_dtypes():
    (q,), (k, v) = inputs.normal(5, (1, 40, 2, 16)), inputs.normal(6, *[(1, 40, 2, 16)] * 2, dtype="float16")
    out, lse = kvring.attention(q, k, v, return_lse=True, tile=TILE)
    assert out.dtype == np.float32
    reference.assert_within(out, lse, reference.attention(q, k, v, tile=TILE))
