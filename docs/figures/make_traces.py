#!/usr/bin/env python3
"""Draws trace_contiguous.svg and trace_zigzag.svg: the same causal attention in either layout, on 4 threads.

    python3 docs/figures/make_traces.py KVRING [RUNS]

KVRING is the built program. Of RUNS runs (default 5) of a layout the quickest is drawn: what else the machine does
shows least in it.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

RANKS = 4
HERE = pathlib.Path(__file__).resolve().parent


def run(kvring, *arguments):
    command = [kvring, *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def quickest(kvring, folder, layout, runs):
    """The trace of the quickest of some runs."""
    best = None
    for number in range(runs):
        trace = folder / f"{layout}-{number}.json"
        run(kvring, "attend", "--input", folder / "qkv.safetensors", "--causal", "--ranks", RANKS, "--threads", 1,
            "--layout", layout, "--trace", trace, "--quiet")
        summary = json.loads(run(kvring, "trace", trace, "--json"))
        if best is None or summary["wall_s"] < best[0]:
            best = (summary["wall_s"], summary["efficiency"], trace)
    return best


def main():
    kvring = sys.argv[1]
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(kvring, "generate", "--shape", "1,32768,1,128", "--dtype", "f32", "-o", folder / "qkv.safetensors",
            "--quiet")
        best = {layout: quickest(kvring, folder, layout, runs) for layout in ("contiguous", "zigzag")}
        span_s = max(wall_s for wall_s, _, _ in best.values())
        for layout, (wall_s, efficiency, trace) in best.items():
            run(kvring, "trace", trace, "-o", HERE / f"trace_{layout}.svg", "--span", span_s)
            print(f"{layout}: {wall_s:.3f} s, {efficiency:.0%} of the time computing")


if __name__ == "__main__":
    main()
