"""Exact ring attention over a sequence that no single device can hold.

`attention` computes softmax attention of whole arrays, in one process, with the sequence cut over any number
of ranks. The result has the same bits for every number of ranks, layouts and threads.
"""

from . import _core
from ._attention import attention
from ._errors import (
    Error,
    InputFile,
    Internal,
    InvalidArgument,
    OutOfBudget,
    Timeout,
    Transport,
    Unsupported,
)

__version__ = _core.version()

__all__ = [
    "Error",
    "InputFile",
    "Internal",
    "InvalidArgument",
    "OutOfBudget",
    "Timeout",
    "Transport",
    "Unsupported",
    "__version__",
    "attention",
    "info",
]


def info():
    """Tell what runs here.

    Returns
    -------
    dict
        ``version`` : str
            Of the library, as `__version__`.
        ``isa`` : str
            The instruction set the kernels run on here, in Highway's words, such as ``"AVX3"``.
        ``supported_isas`` : list of str
            All that are compiled in and that this machine has.

    Examples
    --------
    >>> import kvring
    >>> kvring.info()["version"] == kvring.__version__
    True
    """
    return {
        "version": _core.version(),
        "isa": _core.isa(),
        "supported_isas": _core.supported_isas(),
    }
