"""PyTorch's tensors, where it is installed."""

import json
import pathlib
import subprocess
import sys

import inputs
import kvring
import numpy as np
import pytest
import reference
from kvring import _arrays

torch = pytest.importorskip("torch")


def tensors(seed, dtype, **shapes):
    return [torch.from_numpy(a).to(dtype) for a in inputs.qkv(seed, **shapes)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_tensors_in_tensors_out(dtype):
    q, k, v = tensors(1, dtype, q_heads=4)
    out, lse = kvring.attention(q, k, v, causal=True, tile=16, ranks=3, return_lse=True)
    assert isinstance(out, torch.Tensor) and out.dtype == dtype and out.shape == q.shape
    assert isinstance(lse, torch.Tensor) and lse.dtype == torch.float32
    expected = reference.attention(*(x.float().numpy() for x in (q, k, v)), causal=True, tile=16)
    digits, smallest = reference.PRECISION[str(dtype).removeprefix("torch.")]
    expected.out_bound += np.abs(expected.out) * 2.0**-digits + smallest
    reference.assert_within(out.float().numpy(), lse.numpy(), expected)


def test_views_are_read_and_written_where_they_lie():
    q, k, v = tensors(2, torch.bfloat16)
    view = q.transpose(1, 2).contiguous().transpose(1, 2)
    assert _arrays.read("q", view).address == view.data_ptr()
    out = torch.full((1, 70, 2, 32), torch.nan, dtype=torch.bfloat16)[..., 8:24]
    assert kvring.attention(view, k, v, out=out) is out
    assert torch.equal(out, kvring.attention(q, k, v))


def test_empty_tensors():
    q, k, v = tensors(3, torch.bfloat16, q_len=0)
    assert kvring.attention(q, k, v).shape == q.shape
    q, k, v = tensors(3, torch.bfloat16, kv_len=0)
    assert (kvring.attention(q, k, v) == 0).all()


def test_lengths_and_sinks_may_be_tensors():
    q, k, v = tensors(4, torch.float32)
    cu = torch.tensor([0, 30, 70], dtype=torch.int32)
    sinks = torch.tensor([0.5, -1.0], dtype=torch.bfloat16)
    out = kvring.attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_kv=cu, sinks=sinks)
    same = kvring.attention(q, k, v, cu_seqlens_q=[0, 30, 70], cu_seqlens_kv=[0, 30, 70], sinks=[0.5, -1.0])
    assert torch.equal(out, same)


def test_gradients_are_not_lost_in_silence():
    q, k, v = tensors(5, torch.float32)
    with pytest.raises(kvring.Unsupported, match=r"k requires a gradient, .* pass k.detach\(\)"):
        kvring.attention(q, k.requires_grad_(), v)
    with pytest.raises(kvring.Unsupported, match="out requires a gradient"):
        kvring.attention(q, k.detach(), v, out=torch.empty_like(q, requires_grad=True))


def test_tensors_without_memory():
    q, k, v = tensors(5, torch.float32)
    with pytest.raises(kvring.InvalidArgument, match="k does not say on which device"):
        kvring.attention(q, k.to("meta"), v)


def test_the_benchmark_runs():
    script = pathlib.Path(__file__).parents[2] / "bench" / "attention.py"
    masks = ["full", "causal", "window", "narrow-v"]
    sizes = ["--n", "256", "--head-dim", "64", "--repeat", "1"]
    command = [sys.executable, script, *sizes, "--json", "--mask", *masks]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert [(row["mask"], row["dtype"]) for row in rows] == [(m, d) for m in masks for d in ("f32", "bf16")]
    for row in rows:
        assert row["torch_falls_back"] == (row["mask"] == "narrow-v")
        # Values are normal, so below 6: half a unit in the last place of bf16 is 2^-6 there.
        allowed = 2.0**-6 if row["dtype"] == "bf16" else 1e-5
        assert max(row["kvring_largest_error"], row["torch_largest_error"]) <= allowed
