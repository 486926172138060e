"""The same bits, whatever computes them."""

import inputs
import kvring
import pytest

TILE = 16


def result(q, k, v, **options):
    out, lse = kvring.attention(q, k, v, tile=TILE, return_lse=True, **options)
    return inputs.bits(out) + inputs.bits(lse)


@pytest.mark.parametrize("dtype", inputs.DTYPES)
@pytest.mark.parametrize("mask", [{}, {"causal": True}, {"window_size": (30, 5)}], ids=str)
def test_ranks_layouts_and_threads_change_no_bit(mask, dtype):
    q, k, v = inputs.qkv(1, q_len=150, kv_len=170, q_heads=4, dtype=dtype)
    alone = result(q, k, v, **mask)
    for ranks in range(1, 6):
        for layout in ("zigzag", "contiguous", "striped"):
            for threads in (1, 2):
                options = {"ranks": ranks, "layout": layout, "threads": threads}
                assert result(q, k, v, **mask, **options) == alone, options


@pytest.mark.parametrize("schedule", ["ring", "all-gather", "pass-q", "ulysses", "tree"])
def test_schedules_change_no_bit(schedule):
    q, k, v = inputs.qkv(3, q_len=150, kv_len=170, q_heads=4, kv_heads=4)
    alone = result(q, k, v, causal=True)
    for ranks in (1, 2, 4):
        assert result(q, k, v, causal=True, ranks=ranks, schedule=schedule) == alone


def test_heads_that_a_schedule_cannot_share_out_are_refused():
    q, k, v = inputs.qkv(3, q_len=20, kv_len=20, q_heads=4, kv_heads=4)
    with pytest.raises(kvring.Unsupported, match="do not divide over 3 ranks; use 2 ranks"):
        kvring.attention(q, k, v, ranks=3, schedule="ulysses")


def test_another_tile_may_give_other_bits():
    # Or the test above would see nothing.
    q, k, v = inputs.qkv(1, q_len=150, kv_len=150)
    assert inputs.bits(kvring.attention(q, k, v, tile=16)) != inputs.bits(kvring.attention(q, k, v, tile=48))


def test_a_document_alone_or_packed():
    q, k, v = inputs.qkv(2, q_len=100, kv_len=100)
    cu = [0, 37, 100]
    packed = kvring.attention(q, k, v, causal=True, tile=TILE, ranks=3, cu_seqlens_q=cu, cu_seqlens_kv=cu)
    alone = kvring.attention(q[:, 37:], k[:, 37:], v[:, 37:], causal=True, tile=TILE)
    assert inputs.bits(packed[:, 37:]) == inputs.bits(alone)
