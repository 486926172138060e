#!/usr/bin/env python3
"""Runs the demo: python3 scripts/demo.py KVRING CAPTURE.safetensors

Attends the capture at several ring sizes and layouts, and prints what was shown: the error against float64, that
the result is the same file at every ring size, what a rank holds, and how evenly the work falls.
"""
import filecmp
import json
import pathlib
import subprocess
import sys
import tempfile

RANKS = (1, 2, 4, 8)


def run(arguments):
    done = subprocess.run(arguments, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: exit status {done.returncode}")
    return json.loads(done.stdout)


def work(result):
    """The busiest rank's share of the work, over an even share: how much longer than needed the ring takes."""
    tiles = [rank["tiles_full"] + rank["tiles_partial"] for rank in result["per_rank"]]
    return max(tiles) * len(tiles) / sum(tiles)


def mebibytes(count):
    return f"{count / 2**20:.1f} MiB"


def main(kvring, capture):
    common = ["--input", capture, "--causal", "--json"]
    check = run([kvring, "verify", *common, "--ranks", "4"])
    problem = check["problem"]
    print(f"Queries, keys and values of a real language model reading a real text: {problem['q_len']} tokens,")
    print(f"{problem['q_heads']} query heads sharing {problem['kv_heads']} KV head, {problem['q_dtype']}, causal.")
    print("Attended exactly, the sequence cut over P ranks; kernels on", check["isa"] + ".")
    print()
    print(f"Is it right?  {check['rows']} rows computed again in float64, with a ring of 4:")
    for name, what in (("out", "output"), ("lse", "logsumexp")):
        print(
            f"  {what:<10} largest error {check[name + '_max_abs_error']:.1e}; "
            f"the nearest to its proved bound used {check[name + '_error_over_bound']:.0%} of it"
        )
    print()
    print("Is it the same?  Layout zigzag, then what the plain contiguous layout would cost:")
    print("  ranks   output digest      file as with 1 rank   a rank holds   busiest / even share   contiguous")
    same = True
    with tempfile.TemporaryDirectory() as folder:
        first = pathlib.Path(folder, "1.safetensors")
        for ranks in RANKS:
            output = pathlib.Path(folder, f"{ranks}.safetensors")
            zigzag = run([kvring, "attend", *common, "--ranks", str(ranks), "--output", str(output)])
            plain = run([kvring, "attend", *common, "--ranks", str(ranks), "--layout", "contiguous"])
            identical = filecmp.cmp(first, output, shallow=False) and plain["output_digest"] == zigzag["output_digest"]
            same = same and identical
            held = max(rank["peak_bytes"] for rank in zigzag["per_rank"])
            print(
                f"  {ranks:5}   {zigzag['output_digest']}   {'identical' if identical else 'DIFFERENT':<19}   "
                f"{mebibytes(held):>12}   {work(zigzag):>22.2f}   {work(plain):>10.2f}"
            )
    print()
    print("Every ring size gave the same bytes." if same else "The ring sizes disagree.")
    return 0 if same and check["passed"] else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
