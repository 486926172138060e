from collections.abc import Iterable
from typing import Any, Literal, Protocol, SupportsFloat, SupportsIndex, TypedDict, TypeVar, overload

__version__: str
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

class _Array(Protocol):
    def __dlpack__(self) -> Any: ...

# The result is `out`, or else an array of the type of `q`. The type of the LSE, whose shape and dtype are its
# own, cannot be told from that of `q`.
_Q = TypeVar("_Q", bound=_Array)
_Out = TypeVar("_Out", bound=_Array)

class _Info(TypedDict):
    version: str
    isa: str
    supported_isas: list[str]

class Error(Exception):
    code: str

class InvalidArgument(Error, ValueError): ...
class Unsupported(Error, NotImplementedError): ...
class InputFile(Error): ...
class Transport(Error): ...
class Timeout(Error, TimeoutError): ...
class OutOfBudget(Error, MemoryError): ...
class Internal(Error): ...

@overload
def attention(
    q: _Q,
    k: _Array,
    v: _Array,
    *,
    causal: bool = False,
    window_size: tuple[SupportsIndex, SupportsIndex] = (-1, -1),
    softcap: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None,
    sinks: Iterable[Any] | None = None,
    cu_seqlens_q: Iterable[Any] | None = None,
    cu_seqlens_kv: Iterable[Any] | None = None,
    return_lse: Literal[False] = False,
    accumulation: Literal["reproducible", "online"] = "reproducible",
    ranks: SupportsIndex = 1,
    layout: Literal["zigzag", "contiguous", "striped"] = "zigzag",
    schedule: Literal["ring", "all-gather", "pass-q", "ulysses", "tree"] = "ring",
    tile: SupportsIndex = 512,
    threads: SupportsIndex | None = None,
    out: None = None,
) -> _Q: ...
@overload
def attention(
    q: _Q,
    k: _Array,
    v: _Array,
    *,
    causal: bool = False,
    window_size: tuple[SupportsIndex, SupportsIndex] = (-1, -1),
    softcap: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None,
    sinks: Iterable[Any] | None = None,
    cu_seqlens_q: Iterable[Any] | None = None,
    cu_seqlens_kv: Iterable[Any] | None = None,
    return_lse: Literal[True],
    accumulation: Literal["reproducible", "online"] = "reproducible",
    ranks: SupportsIndex = 1,
    layout: Literal["zigzag", "contiguous", "striped"] = "zigzag",
    schedule: Literal["ring", "all-gather", "pass-q", "ulysses", "tree"] = "ring",
    tile: SupportsIndex = 512,
    threads: SupportsIndex | None = None,
    out: None = None,
) -> tuple[_Q, Any]: ...
@overload
def attention(
    q: _Array,
    k: _Array,
    v: _Array,
    *,
    causal: bool = False,
    window_size: tuple[SupportsIndex, SupportsIndex] = (-1, -1),
    softcap: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None,
    sinks: Iterable[Any] | None = None,
    cu_seqlens_q: Iterable[Any] | None = None,
    cu_seqlens_kv: Iterable[Any] | None = None,
    return_lse: Literal[False] = False,
    accumulation: Literal["reproducible", "online"] = "reproducible",
    ranks: SupportsIndex = 1,
    layout: Literal["zigzag", "contiguous", "striped"] = "zigzag",
    schedule: Literal["ring", "all-gather", "pass-q", "ulysses", "tree"] = "ring",
    tile: SupportsIndex = 512,
    threads: SupportsIndex | None = None,
    out: _Out,
) -> _Out: ...
@overload
def attention(
    q: _Q,
    k: _Array,
    v: _Array,
    *,
    causal: bool = False,
    window_size: tuple[SupportsIndex, SupportsIndex] = (-1, -1),
    softcap: SupportsFloat = 0.0,
    softmax_scale: SupportsFloat | None = None,
    sinks: Iterable[Any] | None = None,
    cu_seqlens_q: Iterable[Any] | None = None,
    cu_seqlens_kv: Iterable[Any] | None = None,
    return_lse: Literal[True],
    accumulation: Literal["reproducible", "online"] = "reproducible",
    ranks: SupportsIndex = 1,
    layout: Literal["zigzag", "contiguous", "striped"] = "zigzag",
    schedule: Literal["ring", "all-gather", "pass-q", "ulysses", "tree"] = "ring",
    tile: SupportsIndex = 512,
    threads: SupportsIndex | None = None,
    out: _Out,
) -> tuple[_Out, Any]: ...
def info() -> _Info: ...
