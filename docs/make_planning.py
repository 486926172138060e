#!/usr/bin/env python3
"""Fills in docs/planning.md what the program prints and what the catalogue holds, and draws its figures of simulations:

    python3 docs/make_planning.py build/release/bin/kvring
"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parent
PAGE = DOCS / "planning.md"
CATALOGUE = DOCS.parent / "src/planner/catalogue/machines.json"


def output_of(kvring, command):
    words = shlex.split(command)
    return subprocess.run([kvring, *words[1:]], check=True, capture_output=True, text=True, cwd=DOCS).stdout


def short(value):
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:.4g} {unit}"
    return f"{value:.4g}"


def machine_row(m):
    flops = ", ".join(f"{dtype} {short(figure['value'])}" for dtype, figure in m["flops_per_s"].items())
    between = m.get("between_nodes")
    far = f"{short(between['bytes_per_s']['value'])}B/s x {between['links']['value']}" if between else "none"
    return [f"`{m['name']}`", flops, f"{short(m['memory_bytes']['value'])}B",
            f"{short(m['memory_bytes_per_s']['value'])}B/s", str(m["ranks_per_node"]["value"]),
            f"{short(m['within_node']['bytes_per_s']['value'])}B/s", far]


def figures_of(tree):
    for value in tree.values():
        if isinstance(value, dict):
            if "value" in value:
                yield value
            else:
                yield from figures_of(value)


def catalogue():
    machines = json.loads(CATALOGUE.read_text())["machines"]
    head = ["machine", "operations/s", "memory", "memory speed", "ranks per node", "link within", "links between"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(machine_row(m)) + " |" for m in machines]
    sources = {}
    for machine in machines:
        for figure in figures_of(machine):
            sources.setdefault(figure["source"], set()).add(machine["name"])
    lines += ["", "Sources:", ""]
    lines += [f"- {source} ({', '.join(sorted(names))})" for source, names in sources.items()]
    return "\n".join(lines)


BALANCE = "kvring simulate --machine h100 --q-heads 32 --kv-heads 8 --head-dim 128 --causal"


def balance(kvring):
    lines = ["| ranks | contiguous | P / (2P - 1) | zigzag |", "|---|---|---|---|"]
    for ranks in (8, 32, 128, 512, 1024):
        run = f"{BALANCE} --ranks {ranks} --seq-len {ranks * 32768} --json --layout "
        contiguous, zigzag = (json.loads(output_of(kvring, run + layout))["efficiency"] * 100
                              for layout in ("contiguous", "zigzag"))
        lines.append(f"| {ranks} | {contiguous:.2f} % | {100 * ranks / (2 * ranks - 1):.2f} % | {zigzag:.2f} % |")
    return "\n".join(lines)


TRACED = "kvring simulate --machine h100 --ranks 8 --q-heads 8 --kv-heads 2 --head-dim 128 --seq-len 131072 --trace"
FIGURES = {"contiguous": "--causal --layout contiguous", "zigzag": "--causal --layout zigzag",
           "straggler": "--faults slow=3:1.5"}


def draw(kvring):
    """Traces of simulations; the two layouts to one scale."""
    with tempfile.TemporaryDirectory() as name:
        traces = {figure: pathlib.Path(name) / f"{figure}.json" for figure in FIGURES}
        wall_s = {}
        for figure, flags in FIGURES.items():
            output_of(kvring, f"{TRACED} {traces[figure]} {flags}")
            wall_s[figure] = json.loads(output_of(kvring, f"kvring trace {traces[figure]} --json"))["wall_s"]
        for figure, trace in traces.items():
            span_s = wall_s["contiguous" if figure == "zigzag" else figure]
            output_of(kvring, f"kvring trace {trace} -o figures/simulated_{figure}.svg --span {span_s}")


def main(kvring):
    kvring = str(pathlib.Path(kvring).resolve())
    text = PAGE.read_text()
    text = re.sub(r"(<!-- run: (.*?) -->\n```\n).*?(```\n)",
                  lambda m: m[1] + output_of(kvring, m[2]) + m[3], text, flags=re.S)
    text = re.sub(r"(<!-- catalogue: begin -->\n).*?(<!-- catalogue: end -->)",
                  lambda m: m[1] + catalogue() + "\n" + m[2], text, flags=re.S)
    text = re.sub(r"(<!-- balance: begin -->\n).*?(<!-- balance: end -->)",
                  lambda m: m[1] + balance(kvring) + "\n" + m[2], text, flags=re.S)
    PAGE.write_text(text)
    draw(kvring)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
