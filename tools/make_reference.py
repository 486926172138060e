#!/usr/bin/env python3
"""Computes causal attention in float64 for sampled rows of a capture, as an oracle for tests.

It shares no code with kvring: the file is read by hand and the arithmetic is NumPy's.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

from files import ToolError, require_folder_of, sha256_of, write_json

EXAMPLES = """\
examples:
  make_reference.py capture.safetensors --output reference.json
  make_reference.py capture.safetensors --rows 100 --softmax-scale 0.1 --output reference.json
"""

TILE = 512


def read_tensors(path):
    """{name: float64 array} of a safetensors file: header length in 8 bytes, JSON header, raw data."""
    try:
        data = pathlib.Path(path).read_bytes()
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:begin])
        return {name: _as_float64(data[begin:], header[name]) for name in ("q", "k", "v")}
    except (OSError, ValueError, KeyError) as error:
        raise ToolError(ToolError.INPUT_FILE, f"{path}: {type(error).__name__}: {error}") from error


def _as_float64(data, entry):
    first, last = entry["data_offsets"]
    raw = data[first:last]
    if entry["dtype"] == "BF16":  # the upper half of a float32
        flat = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    elif entry["dtype"] == "F32":
        flat = np.frombuffer(raw, "<f4")
    else:
        raise ValueError(f"dtype {entry['dtype']}; BF16 and F32 are read here")
    return flat.reshape(entry["shape"]).astype(np.float64)


def attend_row(tensors, row, head, softmax_scale):
    """out (d_v,) and natural-log LSE of one query row over keys 0..row."""
    q, k, v = (tensors[name][0] for name in ("q", "k", "v"))
    kv_head = head // (q.shape[1] // k.shape[1])
    logits = k[: row + 1, kv_head] @ q[row, head] * softmax_scale
    largest = logits.max()
    weights = np.exp(logits - largest)
    total = weights.sum()
    return weights @ v[: row + 1, kv_head] / total, largest + np.log(total)


def sample_rows(tokens, count, seed):
    """Rows beside tile borders, where mistakes live, and the rest at random."""
    edges = [0, 1, TILE - 1, TILE, tokens // TILE * TILE - 1, tokens // TILE * TILE, tokens - 1]
    edges = sorted({row for row in edges if 0 <= row < tokens})[:count]
    others = np.setdiff1d(np.arange(tokens), edges)
    rest = min(count - len(edges), len(others))
    return edges + sorted(np.random.default_rng(seed).choice(others, rest, replace=False).tolist())


def main(argv):
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{__doc__}\n{EXAMPLES}",
        allow_abbrev=False,
    )
    parser.add_argument("capture", help="safetensors file with q, k, v of one batch")
    parser.add_argument("--rows", type=int, default=32, help="rows to sample; heads take turns (default: 32)")
    parser.add_argument("--softmax-scale", type=float, help="default: 1/sqrt(head_dim)")
    parser.add_argument("--seed", type=int, default=1, help="of the random rows (default: 1)")
    parser.add_argument("--output", required=True, metavar="F.json")
    args = parser.parse_args(argv)
    if args.rows < 1:
        parser.error(f"--rows {args.rows}: at least 1")
    require_folder_of(args.output)
    tensors = read_tensors(args.capture)
    _, tokens, heads, dim = tensors["q"].shape
    scale = dim**-0.5 if args.softmax_scale is None else args.softmax_scale
    samples = []
    for turn, row in enumerate(sample_rows(tokens, args.rows, args.seed)):
        out, lse = attend_row(tensors, row, turn % heads, scale)
        samples.append(
            {
                "row": row,
                "head": turn % heads,
                "lse": float(lse),
                "out_first_4": out[:4].tolist(),
                "out_sum": float(out.sum()),
            }
        )
    reference = {
        "capture": pathlib.Path(args.capture).name,
        "capture_sha256": sha256_of(args.capture),
        "mask": "causal",
        "softmax_scale": scale,
        "samples": samples,
    }
    write_json(args.output, reference)
    print(f"{args.output}: {len(samples)} rows of {tokens}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ToolError as error:
        print(f"make_reference.py: {error}", file=sys.stderr)
        sys.exit(error.code)
