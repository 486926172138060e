"""The one call of the package."""

import os

from . import _arguments as arguments
from . import _core
from ._arrays import Result, read, write

_MOST_RANKS = 1024
_MOST_THREADS = 4096


def attention(
    q,
    k,
    v,
    *,
    causal=False,
    window_size=(-1, -1),
    softcap=0.0,
    softmax_scale=None,
    sinks=None,
    cu_seqlens_q=None,
    cu_seqlens_kv=None,
    return_lse=False,
    accumulation="reproducible",
    ranks=1,
    layout="zigzag",
    schedule="ring",
    tile=512,
    threads=None,
    out=None,
):
    """Compute exact softmax attention of whole arrays, on the CPU.

    Row i of query head h gives ``softmax(softmax_scale * q[i, h] @ k[:, g].T) @ v[:, g]`` over the keys that
    it sees, with g the KV head that h shares (``h // (q_heads // kv_heads)``). The sequence is cut over
    `ranks` that run as threads of this process and pass keys and values around a ring. Forward only.

    Parameters
    ----------
    q : array, shape (batch, q_len, q_heads, head_dim) or (q_len, q_heads, head_dim)
        Queries, float32, float16 or bfloat16. A NumPy array or any array on the CPU with ``__dlpack__``
        (PyTorch, JAX, ...). It is used where it lies, so it may be a view: strides may be 0 or more, the
        last dimension must be contiguous.
    k : array, shape (batch, kv_len, kv_heads, head_dim) or (kv_len, kv_heads, head_dim)
        Keys. `q_heads` must be a multiple of `kv_heads`. May have another dtype than `q`.
    v : array, shape (batch, kv_len, kv_heads, value_dim) or (kv_len, kv_heads, value_dim)
        Values, with the dtype of `k`.
    causal : bool, default False
        Query i sits at key position ``i + kv_len - q_len`` and sees the keys up to and including it
        (aligned at the bottom right; per document).
    window_size : (int, int), default (-1, -1)
        A query at that position p sees keys ``p - left`` to ``p + right``; -1 is unlimited. It intersects
        with `causal`.
    softcap : float, default 0.0
        Logits become ``softcap * tanh(logit / softcap)``; 0 is off.
    softmax_scale : float, optional
        Default ``1 / sqrt(head_dim)``.
    sinks : sequence of q_heads floats, optional
        One logit per query head (natural logarithm, neither scaled nor capped) that joins the denominator
        of each row. -inf is none.
    cu_seqlens_q, cu_seqlens_kv : sequence of ints, optional
        Packed documents: ``documents + 1`` offsets in tokens that start at 0 and end at `q_len` and
        `kv_len`. Give both or neither; needs a batch of 1, or none. A document may be empty.
    return_lse : bool, default False
        Return the logsumexp of each row too.
    accumulation : {"reproducible", "online"}
        How tiles of keys are summed. "online" takes a quarter of the memory for sums, and its bits depend
        on `ranks` and `layout`.
    ranks : int, default 1
        Members of the ring, 1 to 1024.
    layout : {"zigzag", "contiguous", "striped"}
        Which rank owns which tokens. Changes time, not bits.
    schedule : {"ring", "all-gather", "pass-q", "ulysses", "tree"}
        What moves when. Changes time and memory, not bits. "ulysses" needs KV heads (of all batch entries)
        that divide over `ranks`.
    tile : int, default 512
        Keys that are summed as one chain, 1 to 32768. Part of the result's bits.
    threads : int, optional
        Compute threads per rank. Default: the cores that this process may use, divided by `ranks`.
    out : array, shape as the result, optional
        Where to write the result, in its own dtype: a NumPy array or a PyTorch tensor, writable, sharing no
        memory with the inputs. After an error its contents are undefined.

    Returns
    -------
    out : array, shape (batch, q_len, q_heads, value_dim) or (q_len, q_heads, value_dim)
        Of the package that `q` comes from, in the dtype of `q`; or `out` itself. A row that sees no key
        is 0.
    lse : array, shape (batch, q_heads, q_len) or (q_heads, q_len)
        Only with `return_lse`: float32, natural logarithm of the sum of exponentials of the scaled (and
        capped) logits and of the sink. -inf for a row that sees no key and has no sink.

    Raises
    ------
    InvalidArgument
        (a ValueError) for a value that no call may have, or for arrays that do not fit together.
    Unsupported
        (a NotImplementedError) for a dtype that kvring does not have, for heads that a schedule cannot share
        out, and for tensors that require a gradient.
    OutOfBudget
        (a MemoryError) if the machine has not enough memory or threads.

    Notes
    -----
    With "reproducible", output and LSE have the same bits for every `ranks`, `layout`, `schedule` and
    `threads`, and for a document alone or packed with others.

    Other Python threads run meanwhile, and may call this function too. Inputs must not change during the
    call. Ctrl-C in the main thread ends the call: with one rank within about 0.1 s, with several when each
    has finished the block it is at.

    Examples
    --------
    >>> import kvring
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> q = rng.standard_normal((1, 1000, 8, 64), dtype=np.float32)
    >>> k, v = (rng.standard_normal((1, 1000, 2, 64), dtype=np.float32) for _ in range(2))
    >>> out, lse = kvring.attention(q, k, v, causal=True, return_lse=True)
    >>> out.shape, lse.shape
    ((1, 1000, 8, 64), (1, 8, 1000))

    Any ring gives the same bits:

    >>> ring = kvring.attention(q, k, v, causal=True, ranks=4, tile=512, layout="striped")
    >>> np.array_equal(out, ring)
    True

    Two documents of 300 and 700 tokens, packed, each with a window of 128 keys to the left:

    >>> ends = [0, 300, 1000]
    >>> packed = kvring.attention(
    ...     q, k, v, causal=True, window_size=(128, 0), cu_seqlens_q=ends, cu_seqlens_kv=ends
    ... )
    >>> alone = kvring.attention(q[:, :300], k[:, :300], v[:, :300], causal=True, window_size=(128, 0))
    >>> np.array_equal(packed[:, :300], alone)
    True

    A mistake is named:

    >>> kvring.attention(q, k, v, ranks=0)
    Traceback (most recent call last):
    ...
    kvring.InvalidArgument: ranks is 0; it must be an integer from 1 to 1024
    """
    problem = _core.Problem()
    problem.causal = arguments.flag("causal", causal)
    problem.window_left, problem.window_right = arguments.window(window_size)
    problem.softcap = arguments.real("softcap", softcap)
    if softmax_scale is not None:
        problem.softmax_scale = arguments.real("softmax_scale", softmax_scale)
    problem.cu_seqlens_q = arguments.offsets("cu_seqlens_q", cu_seqlens_q)
    problem.cu_seqlens_kv = arguments.offsets("cu_seqlens_kv", cu_seqlens_kv)
    problem.tile = arguments.integer("tile", tile)
    problem.accumulation = arguments.choice("accumulation", accumulation, _core.Accumulation)
    sink_logits = arguments.logits("sinks", sinks)

    options = _core.Options()
    options.ranks = arguments.integer("ranks", ranks, 1, _MOST_RANKS)
    options.layout = arguments.choice("layout", layout, _core.Layout)
    options.schedule = arguments.choice("schedule", schedule, _core.Schedule)
    options.threads = _threads(threads, options.ranks)
    return_lse = arguments.flag("return_lse", return_lse)

    queries, keys, values = read("q", q), read("k", k), read("v", v)
    *batch, q_len, q_heads, _ = queries.shape
    if out is None:
        result = Result(q, (*batch, q_len, q_heads, values.shape[-1]), queries.dtype)
        target = result.tensor("out")
    else:
        result, target = None, write("out", out)
    lse = Result(q, (*batch, q_heads, q_len), "f32") if return_lse else None
    _core.attend(problem, options, queries, keys, values, target, lse and lse.memory, sink_logits)
    answer = out if result is None else result.array()
    return (answer, lse.array()) if lse else answer


def _threads(threads, ranks):
    if threads is not None:
        return arguments.integer("threads", threads, 1, _MOST_THREADS)
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # not every system can tell
        cores = os.cpu_count() or 1
    return max(1, cores // ranks)
