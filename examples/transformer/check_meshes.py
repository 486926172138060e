#!/usr/bin/env python3
"""The transformer has the same bits on every mesh, and refuses those that it cannot be cut into.

Usage: check_meshes.py PROGRAM MPIRUN [FLAG...]
"""

import json
import subprocess
import sys

# Cut along all axes, along one, in another order of axes, and so finely that some ranks own no token.
MESHES = [
    (1, "dp=1,pp=1,tp=1,ring=1"),
    (3, "dp=3"),
    (4, "ring=4"),
    (4, "tp=4"),
    (6, "ring=3,pp=2"),
    (8, "dp=1,pp=2,tp=2,ring=2"),
    (16, "dp=2,pp=2,tp=2,ring=2"),
    (16, "pp=2,ring=8"),
]
JOB = ["--tokens", "700", "--batch", "3"]

# Ranks, arguments, and what the message must say.
REFUSALS = [
    (2, ["--mesh", "ring=3"], "is for 3 ranks and there are 2; start 3, or use dp=1,pp=1,tp=1,ring=2"),
    (2, ["--mesh", "cp=2"], "the axes are dp, pp, tp, ring"),
    (3, ["--mesh", "tp=3"], "use tp=1, tp=2 or tp=4"),
    (3, ["--mesh", "pp=3"], "use at most pp=2"),
    (2, ["--mesh", "dp=2", "--batch", "1"], "use at most dp=1, or --batch 2"),
    (2, ["--tokens", "0"], "--tokens"),
]


def main() -> int:
    program, mpirun = sys.argv[1], sys.argv[2:]

    def run(ranks: int, arguments: list[str]) -> subprocess.CompletedProcess:
        command = [*mpirun, "-n", str(ranks), program, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    faults = []
    digests = set()
    for ranks, mesh in MESHES:
        done = run(ranks, ["--mesh", mesh, "--json", *JOB])
        print(f"{ranks:2} ranks, {mesh}: exit code {done.returncode}", flush=True)
        if done.returncode != 0:
            faults.append(f"{mesh}: {done.stdout}{done.stderr}")
            continue
        result = json.loads(done.stdout)
        digests.add(result["digest"])
        rows = result["per_rank"]
        if not result["identical"] or [row["rank"] for row in rows] != list(range(ranks)):
            faults.append(f"{mesh}: {done.stdout}")
        print(f"   {result['digest']}, {result['wall_s']:.2f} s, at least {min(r['tokens'] for r in rows)} tokens a rank")
    if len(digests) != 1:
        faults.append(f"digests differ between meshes: {digests}")
    for ranks, arguments, words in REFUSALS:
        done = run(ranks, arguments)
        if done.returncode != 2 or done.stderr.count("transformer: ") != 1 or words not in done.stderr:
            faults.append(f"{arguments}: exit code {done.returncode}, {done.stderr}")
    print("\n".join(faults) or "every mesh has the same bits")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
