#!/usr/bin/env python3
"""Checks that every folder of src/ includes only headers of folders above it.

Usage: check.py SOURCE_DIR. Prints one line per fault; exits 1 if there is any.

Programs of tests (*_test.cc) are free: they may compare anything with anything.
"""

import pathlib
import re
import sys

# The layers, top to bottom (a file straight in src/ belongs to "attend").
ORDER = [
    "tensor", "mask", "problem", "reference", "layout", "mesh", "kernel", "transport", "schedule", "runtime",
    "planner", "attend", "cache", "io", "trace", "cli",
]

# What a layer may not use although it stands above, and why.
FORBIDDEN = {
    "kernel": (
        {"mask", "layout", "kvring/layout.h", "kvring/ring.h"},
        "the kernel knows rows' key intervals only, no mask and no layout",
    ),
    "schedule": ({"kernel", "transport"}, "a schedule is a pure function"),
    "planner": ({"kernel", "transport", "runtime"}, "the planner prices steps, it runs nothing"),
}

# Float64 attention is the oracle of tests and of `kvring verify`: no result may come from it.
ORACLE = "reference"
ORACLE_USERS = {"cli"}

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]')


def layer_of(path: pathlib.PurePath) -> str:
    """The layer of a path relative to src/."""
    return path.parts[0] if len(path.parts) > 1 else "attend"


def fault(layer: str, header: str) -> str | None:
    """Why a file of `layer` may not include `header`, or None if it may."""
    banned, reason = FORBIDDEN.get(layer, (set(), ""))
    if header in banned:
        return reason
    folder = header.split("/")[0]
    if "/" not in header or folder not in ORDER or folder == layer:
        return None
    if folder == ORACLE and layer not in ORACLE_USERS:
        return "the oracle is for tests and for verify"
    if folder in banned:
        return reason
    if ORDER.index(folder) > ORDER.index(layer):
        return f"{folder}/ stands below {layer}/"
    return None


def check(source_dir: pathlib.Path) -> list[str]:
    faults = []
    src = source_dir / "src"
    for path in sorted(src.rglob("*")):
        if path.suffix not in {".h", ".cc"} or path.stem.endswith("_test"):
            continue
        layer = layer_of(path.relative_to(src))
        where = path.relative_to(source_dir)
        if layer not in ORDER:
            faults.append(f"{where}: the folder {layer}/ is no known layer")
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            include = INCLUDE.match(line)
            reason = include and fault(layer, include[1])
            if reason:
                faults.append(f"{where}:{number}: includes {include[1]}: {reason}")
    return faults


def main() -> int:
    source_dir = pathlib.Path(sys.argv[1])
    if not (source_dir / "src").is_dir():
        print(f"{source_dir} has no src/", file=sys.stderr)
        return 2
    faults = check(source_dir)
    print("\n".join(faults) or "every include points up")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
