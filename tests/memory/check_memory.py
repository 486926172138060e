#!/usr/bin/env python3
"""A job too big for one rank's memory runs on four, and each process holds what its ledger says.

    check_memory.py KVRING MPIRUN [MPIRUN-FLAG...]

Memory is looked at from outside, while the job runs: the proportional set size of each process without file pages
(Pss_Anon + Pss_Shmem of smaps_rollup). It may exceed the ledger by a tenth and CONSTANT, which is what MPI, the C library
and the stacks hold whatever the job.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

RANKS = 4
LIMIT = 90 << 20
CONSTANT = 32 << 20
# 4 query heads on 1 KV head of dim 64, float32: tensors and the block alone are 96 MiB.
SHAPE = ["--shape", "1,32768,4,64", "--kv-shape", "1,32768,1,64", "--dtype", "f32", "--seed", "7"]


def children(pid):
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            pass
    return found + [below for child in found for below in children(child)]


def memory(pid):
    """(program, rank, bytes) of a process, or None when it is gone."""
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))
        environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return None
    rank = next((int(e.split(b"=")[1]) for e in environment if e.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK="))), None)
    held = sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith(("Pss_Anon:", "Pss_Shmem:")))
    return program, rank, held * 1024


def watch(command):
    """Runs the command; returns its exit status, output, and the most each rank's process held."""
    peaks = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        while job.poll() is None:
            for pid in children(job.pid):
                seen = memory(pid)
                if seen and seen[0] == "kvring" and seen[1] is not None:
                    peaks[seen[1]] = max(peaks.get(seen[1], 0), seen[2])
            time.sleep(0.01)
        return job.returncode, job.stdout.read(), job.stderr.read(), peaks


def main(kvring, launcher):
    with tempfile.TemporaryDirectory() as folder:
        data = str(pathlib.Path(folder, "qkv.safetensors"))
        subprocess.run([kvring, "generate", *SHAPE, "-o", data], check=True, stdout=subprocess.DEVNULL)
        attend = [kvring, "attend", "--input", data, "--causal", "--rank-memory", str(LIMIT), "--threads", "1", "--json"]
        alone = subprocess.run(attend, capture_output=True, text=True, check=False)
        if alone.returncode != 6 or "ranks would fit" not in alone.stderr:
            sys.exit(f"one rank should not fit, with exit status 6: got {alone.returncode}: {alone.stderr}")
        command = [*launcher, "-n", str(RANKS), *attend, "--output", str(pathlib.Path(folder, "out.safetensors"))]
        status, output, errors, peaks = watch(command)
        if status != 0:
            sys.exit(f"four ranks should fit: exit status {status}: {errors}")
    failures = 0
    for rank in json.loads(output)["per_rank"]:
        held, ledger = peaks.get(rank["rank"], 0), rank["peak_bytes"]
        blocks = [name for name in rank["ledger_bytes"] if name.startswith("block")]
        # Seen at all, not above what the ledger says, and the ledger itself within the limit and two blocks.
        good = ledger / 2 < held <= 1.1 * ledger + CONSTANT and ledger <= LIMIT and len(blocks) <= 2
        failures += not good
        print(f"rank {rank['rank']}: held {held / 2**20:.1f} MiB, ledger {ledger / 2**20:.1f} MiB {'' if good else 'FAILED'}")
    print(f"{RANKS - failures} passed, {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
