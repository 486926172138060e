"""Random inputs by dtype name, and the types that are here to be tested."""

import numpy as np

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

DTYPES = ["float32", "float16"] + (["bfloat16"] if ml_dtypes else [])


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def normal(seed, *shapes, dtype="float32"):
    """Arrays of standard normal values."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32).astype(numpy_dtype(dtype)) for shape in shapes]


def qkv(seed, *, batch=1, q_len=70, kv_len=70, q_heads=2, kv_heads=2, dim=16, value_dim=16, dtype="float32"):
    return normal(
        seed,
        (batch, q_len, q_heads, dim),
        (batch, kv_len, kv_heads, dim),
        (batch, kv_len, kv_heads, value_dim),
        dtype=dtype,
    )


def bits(array):
    """The bytes of an array, so that NaN and zeros compare as they are."""
    return np.ascontiguousarray(array).tobytes()
