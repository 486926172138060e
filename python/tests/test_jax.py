"""JAX's arrays, where it is installed."""

import inputs
import kvring
import numpy as np
import pytest

jax = pytest.importorskip("jax")


@pytest.mark.parametrize("dtype", inputs.DTYPES)
def test_arrays_in_arrays_out(dtype):
    arrays = inputs.qkv(1, dtype=dtype)
    out, lse = kvring.attention(*map(jax.numpy.asarray, arrays), causal=True, return_lse=True)
    assert isinstance(out, jax.Array) and out.dtype == arrays[0].dtype and isinstance(lse, jax.Array)
    assert inputs.bits(np.asarray(out)) == inputs.bits(kvring.attention(*arrays, causal=True))


def test_its_arrays_never_change():
    q, k, v = map(jax.numpy.asarray, inputs.qkv(2))
    with pytest.raises(kvring.InvalidArgument, match="out is of type ArrayImpl; it must be a NumPy array or"):
        kvring.attention(q, k, v, out=jax.numpy.zeros_like(q))
