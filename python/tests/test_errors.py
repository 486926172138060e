"""Mistakes: which exception, and what it says."""

import inputs
import kvring
import pytest

CLASSES = {
    "InvalidArgument": ValueError,
    "Unsupported": NotImplementedError,
    "InputFile": Exception,
    "Transport": Exception,
    "Timeout": TimeoutError,
    "OutOfBudget": MemoryError,
    "Internal": Exception,
}


@pytest.mark.parametrize("name", CLASSES)
def test_each_kind_is_an_error_of_kvring_and_of_python(name):
    cls = getattr(kvring, name)
    assert issubclass(cls, kvring.Error) and issubclass(cls, CLASSES[name])
    assert f"{cls.__module__}.{cls.__qualname__}" == f"kvring.{name}"
    assert cls.code == name and cls("words").code == name and str(cls("words")) == "words"


CASES = {
    "causal is 1; it must be True or False": {"causal": 1},
    "return_lse is 'yes'; it must be True or False": {"return_lse": "yes"},
    r"window_size is 128; it must be a pair \(left, right\)": {"window_size": 128},
    r"window_size\[1\] is 0.5; it must be an integer": {"window_size": (1, 0.5)},
    "window_left is -2; it must be 0 or more, or -1": {"window_size": (-2, 0)},
    r"window_size\[0\] is 9223372036854775808; it must be an integer from": {"window_size": (2**63, 0)},
    "softcap is 'high'; it must be a real number": {"softcap": "high"},
    "softcap is -1; it must be finite and positive": {"softcap": -1.0},
    "softmax_scale is inf; it must be finite": {"softmax_scale": float("inf")},
    "softmax_scale is '1'; it must be a real number": {"softmax_scale": "1"},
    "sinks has 3 values; it must have one for each of the 2 query heads": {"sinks": [0.0, 0.0, 0.0]},
    "sinks is 1.0; it must be a sequence of real numbers": {"sinks": 1.0},
    "the sink of head 1 is nan; it must be finite or -inf": {"sinks": [0.0, float("nan")]},
    "cu_seqlens_q is given without cu_seqlens_kv": {"cu_seqlens_q": [0, 70]},
    "cu_seqlens_q has no entries": {"cu_seqlens_q": [], "cu_seqlens_kv": []},
    r"cu_seqlens_q\[1\] is 70.0; it must be an integer": {"cu_seqlens_q": [0, 70.0]},
    "cu_seqlens_q is 70; it must be a sequence of integers": {"cu_seqlens_q": 70},
    "cu_seqlens_q ends at 60; it must end at q_len, which is 70": {
        "cu_seqlens_q": [0, 60],
        "cu_seqlens_kv": [0, 70],
    },
    "accumulation is 'exact'; it must be one of 'reproducible', 'online'": {"accumulation": "exact"},
    "ranks is 0; it must be an integer from 1 to 1024": {"ranks": 0},
    "ranks is True; it must be an integer": {"ranks": True},
    "ranks is 2.0; it must be an integer": {"ranks": 2.0},
    "layout is 'zig'; it must be one of 'contiguous', 'zigzag', 'striped'": {"layout": "zig"},
    "layout is None; it must be one of": {"layout": None},
    "tile is 0; it must be 1 to 32768": {"tile": 0},
    "threads is 0; it must be an integer from 1 to 4096": {"threads": 0},
}


@pytest.mark.parametrize("message", CASES)
def test_mistakes_are_named(message):
    q, k, v = inputs.qkv(1)
    with pytest.raises(kvring.InvalidArgument, match=message) as caught:
        kvring.attention(q, k, v, **CASES[message])
    assert caught.value.code == "InvalidArgument"


def test_an_unknown_argument_is_a_type_error():
    q, k, v = inputs.qkv(1)
    with pytest.raises(TypeError, match="casual"):
        kvring.attention(q, k, v, casual=True)


def test_query_heads_not_a_multiple_of_kv_heads():
    q, k, v = inputs.qkv(1, q_heads=3)
    with pytest.raises(kvring.InvalidArgument, match="q_heads is 3 and kv_heads is 2"):
        kvring.attention(q, k, v)


def test_documents_in_a_batch():
    q, k, v = inputs.qkv(1, batch=2)
    with pytest.raises(kvring.InvalidArgument, match="batch is 2 with packed documents"):
        kvring.attention(q, k, v, cu_seqlens_q=[0, 70], cu_seqlens_kv=[0, 70])


def test_a_head_dim_too_large():
    q, k, v = inputs.qkv(1, dim=257)
    with pytest.raises(kvring.InvalidArgument, match="head_dim is 257; it must be 1 to 256"):
        kvring.attention(q, k, v)
