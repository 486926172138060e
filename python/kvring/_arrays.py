"""Arrays in and arrays out: whatever the caller computes with, without importing it."""

import sys

import numpy as np

from . import _core
from ._errors import InvalidArgument, Unsupported

_NUMPY_DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16)}


def read(name, array):
    """Give the memory of an array of the caller's, to be read where it lies."""
    if isinstance(array, np.ndarray):
        return _numpy_tensor(name, array)
    if not hasattr(type(array), "__dlpack__"):
        raise InvalidArgument(
            f"{name} is of type {type(array).__name__}; it must be a NumPy array or have __dlpack__"
        )
    if getattr(array, "requires_grad", False):
        raise Unsupported(f"{name} requires a gradient, which kvring does not compute; pass {name}.detach()")
    return _core.Tensor(name, array)


def write(name, array):
    """Give the memory of an array of the caller's, to be written where it lies."""
    if isinstance(array, np.ndarray):
        return _numpy_tensor(name, array, writable=True)
    # Not every package says by DLPack that its arrays never change.
    if "torch" not in _packages(array):
        raise InvalidArgument(
            f"{name} is of type {type(array).__name__}; it must be a NumPy array or a PyTorch tensor"
        )
    if array.requires_grad:
        raise Unsupported(f"{name} requires a gradient, which kvring does not compute; pass {name}.detach()")
    return _core.Tensor(name, array, writable=True)


class Result:
    """A new dense array of the package that `like` comes from.

    Attributes
    ----------
    memory : object
        What to write to, before `array` is called.
    """

    def __init__(self, like, shape, dtype):
        if isinstance(like, np.ndarray):
            self._package = None
            # bfloat16 is no type of NumPy's own, so it can only come from the caller's array.
            self.memory = np.empty(shape, _NUMPY_DTYPES.get(dtype, like.dtype))
        else:
            self._package = _package_of(like)
            self.memory = _core.empty(shape, dtype)

    def tensor(self, name):
        """Give the memory as a tensor, to be written."""
        if self._package is None:
            return _numpy_tensor(name, self.memory, writable=True)
        return _core.Tensor(name, self.memory, writable=True)

    def array(self):
        """Give the array, once written: packages may take it to be constant from here on."""
        return self.memory if self._package is None else self._package.from_dlpack(self.memory)


def _numpy_tensor(name, array, *, writable=False):
    if isinstance(array, np.ma.MaskedArray):
        raise InvalidArgument(f"{name} is a masked array, whose mask would be lost; pass a plain array")
    if array.dtype.name == "bfloat16":  # of the package ml_dtypes
        return _core.Tensor(name, array.view(np.uint16), writable=writable, bits_are_bf16=True)
    if array.dtype not in _NUMPY_DTYPES.values():
        raise Unsupported(f"{name} is {array.dtype}; it must be float32, float16 or bfloat16")
    return _core.Tensor(name, array, writable=writable)


def _packages(array):
    """Names of the packages that made the type of an array, and its bases."""
    return [cls.__module__.partition(".")[0] for cls in type(array).__mro__]


def _package_of(array):
    """Find who can make an array of this kind out of a DLPack object."""
    if hasattr(array, "__array_namespace__"):
        return array.__array_namespace__()
    for name in _packages(array):
        package = sys.modules.get(name)
        if hasattr(package, "from_dlpack"):
            return package
    return np
