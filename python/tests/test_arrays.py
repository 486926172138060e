"""Arrays in and out: no copies, every kind of package, and what is refused."""

import inputs
import kvring
import numpy as np
import pytest
from kvring import _arrays


def address(array):
    return array.__array_interface__["data"][0]


VIEWS = {
    "heads before tokens": lambda a: np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
    "every third token": lambda a: np.repeat(a, 3, axis=1)[:, ::3],
    "a part of each row": lambda a: np.concatenate([a + 1, a, a - 1], axis=-1)[
        ..., a.shape[-1] : 2 * a.shape[-1]
    ],
    "Fortran order outside": lambda a: np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 0, 2)), 2, 0),
}


@pytest.mark.parametrize("dtype", inputs.DTYPES)
@pytest.mark.parametrize("view", VIEWS)
def test_strided_views_are_read_where_they_lie(view, dtype):
    q, k, v = inputs.qkv(1, batch=2, dtype=dtype)
    views = [VIEWS[view](a) for a in (q, k, v)]
    for name, a in zip("qkv", views):
        assert not a.flags.c_contiguous
        assert _arrays.read(name, a).address == address(a)
    expected = kvring.attention(q, k, v, causal=True)
    assert inputs.bits(kvring.attention(*views, causal=True)) == inputs.bits(expected)


def test_broadcast_keys_have_strides_of_zero():
    q, k, v = inputs.qkv(2, batch=3, kv_heads=1)
    k1, v1 = (np.broadcast_to(a[:1], a.shape) for a in (k, v))
    expected = kvring.attention(q, np.ascontiguousarray(k1), np.ascontiguousarray(v1))
    assert inputs.bits(kvring.attention(q, k1, v1)) == inputs.bits(expected)


def test_inputs_may_be_read_only_and_stay_as_they_were():
    q, k, v = inputs.qkv(3)
    before = [inputs.bits(a) for a in (q, k, v)]
    for a in (q, k, v):
        a.flags.writeable = False
    kvring.attention(q, k, v)
    assert [inputs.bits(a) for a in (q, k, v)] == before


def test_the_same_array_three_times():
    (x,) = inputs.normal(4, (1, 30, 2, 8))
    assert inputs.bits(kvring.attention(x, x, x)) == inputs.bits(kvring.attention(x, x.copy(), x.copy()))


@pytest.mark.parametrize("dtype", inputs.DTYPES)
def test_out_is_written_where_it_lies(dtype):
    q, k, v = inputs.qkv(5, dtype=dtype)
    place = np.full((q.shape[0], 2 * q.shape[1], *q.shape[2:]), np.nan, inputs.numpy_dtype(dtype))
    out = place[:, ::2]
    assert kvring.attention(q, k, v, out=out) is out
    assert inputs.bits(out) == inputs.bits(kvring.attention(q, k, v))
    assert np.isnan(place[:, 1::2].astype(np.float32)).all()


def test_out_may_have_another_dtype():
    q, k, v = inputs.qkv(6)
    out = np.empty(q.shape, np.float16)
    kvring.attention(q, k, v, out=out)
    # Rounded once, to float16: no further from the float32 result than half a unit, and that one's own half.
    wide = kvring.attention(q, k, v).astype(np.float64)
    assert (np.abs(out - wide) <= np.abs(wide) * (2.0**-11 + 2.0**-24) + 2.0**-25).all()


class Foreign:
    """An array of a package that NumPy knows nothing of."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


def test_anything_with_dlpack():
    q, k, v = inputs.qkv(7)
    out, lse = kvring.attention(Foreign(q), Foreign(k), Foreign(v), return_lse=True)
    assert inputs.bits(out) == inputs.bits(kvring.attention(q, k, v))
    assert lse.shape == (1, 2, 70)


class OnAGpu(Foreign):
    def __dlpack_device__(self):
        return (2, 0)


class Refusing(Foreign):
    def __dlpack__(self, **options):
        raise BufferError("not today")


def replaced(name, change):
    arrays = dict(zip("qkv", inputs.qkv(8)))
    arrays[name] = change(arrays[name])
    return arrays


def unaligned(a):
    raw = np.empty(a.nbytes + 1, np.uint8)
    return np.frombuffer(raw.data, a.dtype, a.size, offset=1).reshape(a.shape)


REFUSED = {
    "a list": (lambda a: a.tolist(), kvring.InvalidArgument, "k is of type list; it must be a NumPy array"),
    "None": (lambda a: None, kvring.InvalidArgument, "k is of type NoneType"),
    "float64": (
        lambda a: a.astype(np.float64),
        kvring.Unsupported,
        "k is float64; it must be float32, float16",
    ),
    "integers": (lambda a: a.astype(np.int32), kvring.Unsupported, "k is int32"),
    "foreign float64": (
        lambda a: Foreign(a.astype(np.float64)),
        kvring.Unsupported,
        "k is float64; it must be",
    ),
    "foreign complex": (lambda a: Foreign(a.astype(np.complex64)), kvring.Unsupported, "k is complex64"),
    "foreign uint16": (lambda a: Foreign(a.astype(np.uint16)), kvring.Unsupported, "k is uint16"),
    "swapped bytes": (lambda a: a.astype(a.dtype.newbyteorder()), kvring.Unsupported, "k is >f4"),
    "a mask": (np.ma.masked_array, kvring.InvalidArgument, "k is a masked array"),
    "a GPU": (OnAGpu, kvring.InvalidArgument, "k is on a device of DLPack's type 2; it must be on the CPU"),
    "a refusal": (Refusing, kvring.InvalidArgument, "the memory of k cannot be read: not today"),
    "2 dimensions": (lambda a: a[0, 0], kvring.InvalidArgument, "k has 2 dimensions; it must have 4"),
    "0 dimensions": (lambda a: a[0, 0, 0, 0, ...], kvring.InvalidArgument, "k has 0 dimensions"),
    "5 dimensions": (lambda a: a[None], kvring.InvalidArgument, "k has 5 dimensions"),
    "3 beside 4": (lambda a: a[0], kvring.InvalidArgument, "q has 4 dimensions and k has 3"),
    "another head dim": (
        lambda a: a[..., :8],
        kvring.InvalidArgument,
        r"k has shape \(1, 70, 2, 8\); it must be",
    ),
    "another batch": (lambda a: np.repeat(a, 2, 0), kvring.InvalidArgument, r"k has shape \(2, 70, 2, 16\)"),
    "dims apart": (
        lambda a: np.repeat(a, 2, -1)[..., ::2],
        kvring.InvalidArgument,
        "k has a stride of 2 in its last dimension; it must be 1",
    ),
    "backwards": (
        lambda a: a[:, ::-1],
        kvring.InvalidArgument,
        "k has a stride of -32 elements in dimension 1",
    ),
    "unaligned": (unaligned, kvring.InvalidArgument, "k starts at an address that is not a multiple"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_inputs(case):
    change, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        kvring.attention(**replaced("k", change))


def test_keys_and_values_of_different_dtypes_are_refused():
    with pytest.raises(kvring.InvalidArgument, match="v is f16; the problem says f32"):
        kvring.attention(**replaced("v", lambda a: a.astype(np.float16)))


def read_only(a):
    a.flags.writeable = False
    return a


REFUSED_OUT = {
    "read-only": (lambda q: read_only(np.empty_like(q)), "the memory of out cannot be written: .*read-?only"),
    "an input": (lambda q: q, "out shares the memory of q"),
    "a part of an input": (lambda q: q[:, ::-1][:, ::-1], "out shares the memory of q"),
    "another shape": (lambda q: np.empty_like(q[:, 1:]), r"out has shape \(1, 69, 2, 16\); it must be"),
    "one place for all": (
        lambda q: np.lib.stride_tricks.as_strided(np.zeros(2000, np.float32), q.shape, (0, 0, 64, 4)),
        "out has elements that share memory",
    ),
    "rows that overlap": (
        lambda q: np.lib.stride_tricks.as_strided(np.zeros(9000, np.float32), q.shape, (0, 124, 64, 4)),
        "out has elements that share memory",
    ),
    "a list": (lambda q: q.tolist(), "out is of type list"),
}


@pytest.mark.parametrize("case", REFUSED_OUT)
def test_refused_outputs(case):
    change, message = REFUSED_OUT[case]
    q, k, v = inputs.qkv(9)
    with pytest.raises(kvring.InvalidArgument, match=message):
        kvring.attention(q, k, v, out=change(q))
