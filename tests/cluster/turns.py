"""Few new tokens over many keys: decoding by a tree against the ring, a short turn by pass-q against the ring.

Over the network each run is one `kvring attend`, which packs all keys first. Within a process that would be nearly all
of its time: there tokens are decoded over a KvCache, whose keys are packed, by examples/conversation.
"""

import subprocess
from dataclasses import dataclass

import check
from hosts import Hosts, Link
from launch import Job
from problem import Problem
from quiet import ForeignLoad, wait_until_quiet

DECODE = Problem(1, 8, causal=True, kv_tokens=65536)
TURN = Problem(1024, 8, causal=True, kv_tokens=16384)
CACHED_KEYS, CACHED_TOKENS = 16384, 64
RUNS = 3
HEADER = ["what", "ranks", "ring s", "other s", "ring / other", "others' load"]


@dataclass(frozen=True)
class Case:
    problem: Problem
    schedule: str
    hosts: int
    link: Link

    def __str__(self):
        return f"{self.schedule}: {self.problem}, {self.hosts} hosts, {self.link}"

    def run(self, bench, schedule):
        """Seconds, and a digest of the output."""
        command = bench.attend(self.problem, "--threads", 1, "--schedule", schedule)
        with Hosts(self.hosts, self.link, [str(host % 2) for host in range(self.hosts)], bench.delay_link) as hosts:
            result = Job(hosts, command, bench.new_folder("turns") / "job").finished_result(120)
            return result["wall_s"], result["output_digest"]


@dataclass(frozen=True)
class CachedCase:
    hosts: int  # ranks as threads
    schedule: str = "tree"

    def __str__(self):
        return f"{self.schedule}: 1 token over {CACHED_KEYS} cached keys, {self.hosts} ranks in process"

    def run(self, bench, schedule):
        """Seconds of a token. The program compares its bits with those of one prefill itself."""
        command = [bench.kvring.with_name("conversation"), "--ranks", str(self.hosts), "--schedule", schedule, "--turns",
                   f"{CACHED_KEYS},1x{CACHED_TOKENS}"]
        table = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True).stdout.splitlines()
        milliseconds = next(row.split()[3] for row in table if row.split()[:2] == ["1", str(CACHED_TOKENS)])
        return float(milliseconds) / 1e3, table[-1]


CASES = [CachedCase(2), CachedCase(4), Case(DECODE, "tree", 2, Link(1000)), Case(DECODE, "tree", 4, Link(1000)),
         Case(TURN, "pass-q", 2, Link(200))]


def run(bench, quick):
    """Prints a table; returns the checks."""
    rows, checks = [], []
    for case in CASES[:2] if quick else CASES:
        best = {}
        digests = set()
        foreign = 0.0
        for _ in range(RUNS):
            for schedule in ("ring", case.schedule):
                wait_until_quiet()
                with ForeignLoad() as others:
                    seconds, digest = case.run(bench, schedule)
                best[schedule] = min(best.get(schedule, seconds), seconds)
                digests.add(digest)
                foreign = max(foreign, others.share)
        ratio = best["ring"] / best[case.schedule]
        rows.append([case, case.hosts, f"{best['ring']:.4f}", f"{best[case.schedule]:.4f}", f"{ratio:.2f}",
                     f"{foreign:.0%}"])
        checks.append(check.at_least(f"{case}: ring / {case.schedule}", ratio, 1))
        checks.append(check.Check(f"{case}: bits", "same" if len(digests) == 1 else "other", "same", len(digests) == 1))
    print(check.table(HEADER, rows))
    return checks
