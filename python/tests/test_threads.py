"""Other Python threads during a call, and Ctrl-C."""

import concurrent.futures
import os
import signal
import threading
import time

import inputs
import kvring
import pytest


def test_other_threads_run_during_a_call():
    q, k, v = inputs.qkv(1, q_len=4096, kv_len=4096, q_heads=4, kv_heads=4, dim=64, value_dim=64)
    seen = []
    done = threading.Event()

    def watch():
        while not done.is_set():
            seen.append(time.monotonic())
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.monotonic()
    kvring.attention(q, k, v, threads=1)
    end = time.monotonic()
    done.set()
    watcher.join()
    tenth = (end - begin) / 10
    during = [t for t in seen if begin + tenth < t < end - tenth]
    assert len(during) >= 3, f"{len(during)} looks in {end - begin:.3f} s"


def test_calls_from_several_threads():
    cases = [inputs.qkv(seed, q_len=200, kv_len=200) for seed in range(6)]

    def call(case):
        return inputs.bits(kvring.attention(*case, causal=True, ranks=2, tile=32))

    alone = [call(case) for case in cases]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            assert list(pool.map(call, cases)) == alone


def interrupted(tokens, ranks):
    """Interrupt a call with SIGINT after 0.3 s; give the seconds until it ended."""
    q, k, v = inputs.qkv(2, q_len=tokens, kv_len=tokens, q_heads=1, kv_heads=1, dim=64, value_dim=64)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    begin = time.monotonic()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        kvring.attention(q, k, v, ranks=ranks, threads=1)
    timer.join()
    return time.monotonic() - begin


def test_an_interrupt_ends_the_call():
    # Minutes of work, if nothing ended it.
    assert interrupted(400_000, ranks=1) < 20


def test_an_interrupt_ends_all_ranks():
    interrupted(50_000, ranks=3)  # seconds: the other ranks finish the block they are at
    small = inputs.qkv(3)
    assert inputs.bits(kvring.attention(*small)) == inputs.bits(kvring.attention(*small, ranks=2))
