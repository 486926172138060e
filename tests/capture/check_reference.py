#!/usr/bin/env python3
"""Attends the committed capture and compares with reference.json, whose maker shares no code with kvring.

    check_reference.py KVRING CAPTURE.safetensors REFERENCE.json

The tolerance is derived, not fitted: u = 2^-24; a logit is off by at most delta = (dim + 3) u scale |q| |k|
(Cauchy-Schwarz); a weighted mean of values of size at most V by 2 (e^delta - 1 + (tile + 20) u) V; the logsumexp by
delta + (tile + 20) u and the rounding of its float32.
"""
import array
import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

U = 2.0**-24
TILE = 512


def read(path):
    """Tensors of a .safetensors file as (shape, list of floats)."""
    data = pathlib.Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        raw = data[8 + length + begin : 8 + length + end]
        if info["dtype"] == "BF16":
            wide = array.array("I", [bits << 16 for bits in array.array("H", raw)]).tobytes()
        else:
            assert info["dtype"] == "F32", info["dtype"]
            wide = raw
        tensors[name] = info["shape"], array.array("f", wide)
    return tensors


def norm(values):
    return math.sqrt(sum(x * x for x in values))


def main(kvring, capture, reference_path):
    reference = json.loads(pathlib.Path(reference_path).read_text())
    inputs = read(capture)
    (_, _, heads, dim), q = inputs["q"]
    k, v = inputs["k"][1], inputs["v"][1]
    longest_key = max(norm(k[i : i + dim]) for i in range(0, len(k), dim))
    largest_value = max(map(abs, v))
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder, "out.safetensors")
        command = [kvring, "attend", "--input", capture, "--causal", "--ranks", "4", "--output-dtype", "f32"]
        subprocess.run([*command, "--output", str(output), "--quiet"], check=True, stdout=subprocess.DEVNULL)
        results = read(output)
    (_, tokens, _, value_dim), out = results["out"]
    lse = results["lse"][1]
    failures = 0
    for sample in reference["samples"]:
        row, head = sample["row"], sample["head"]
        at = (row * heads + head) * dim
        delta = (dim + 3) * U * dim**-0.5 * norm(q[at : at + dim]) * longest_key
        bound = 2 * (math.expm1(delta) + (TILE + 20) * U) * largest_value
        got = out[(row * heads + head) * value_dim : (row * heads + head + 1) * value_dim]
        errors = [abs(a - b) for a, b in zip(got, sample["out_first_4"])] + [
            abs(sum(got) - sample["out_sum"]) / value_dim
        ]
        lse_error = abs(lse[head * tokens + row] - sample["lse"])
        lse_bound = delta + (TILE + 20) * U + abs(sample["lse"]) * U
        if not (max(errors) <= bound and lse_error <= lse_bound):
            failures += 1
            print(f"row {row} head {head}: out off by {max(errors):.3g} of {bound:.3g}, lse {lse_error:.3g} of {lse_bound:.3g}")
    print(f"{len(reference['samples']) - failures} passed, {failures} failed")
    return 1 if failures or not reference["samples"] else 0


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
