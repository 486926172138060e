#!/usr/bin/env python3
"""Writes docs/support.md from the support table inside the program:

    python3 docs/make_support.py build/release/bin/kvring > docs/support.md
"""
import json
import subprocess
import sys

INTRO = """# What is supported

Made by `python3 docs/make_support.py build/release/bin/kvring` from `kvring info --support --json`. The same table
decides at run time: what it does not list is refused with the error `Unsupported`.

Masks, dtypes and features of a row combine freely, and a call with several masks (a causal window inside documents)
needs the row of each. `q`, `k` with `v`, and `out` may each have another of the dtypes. Where `q`, `k` and `v` all are
bf16, products are those of bfloat16, else of float32 ([numerics.md](numerics.md#the-two-kinds-of-products)). Schedule
ulysses shares the KV heads out: those of all batch entries must divide over the ranks ([schedules.md](schedules.md)).
"""


def main(kvring):
    text = subprocess.run([kvring, "info", "--support", "--json"], check=True, capture_output=True, text=True).stdout
    rows = json.loads(text)["support"]
    print(INTRO)
    print("| schedule | mask | dtypes | features |")
    print("|---|---|---|---|")
    for row in rows:
        print(f"| {row['schedule']} | {row['mask']} | {', '.join(row['dtypes'])} | {', '.join(row['features'])} |")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
