"""Few new tokens over many keys: decoding by a tree against the ring, a short turn by pass-q against the ring."""

import check
from dataclasses import dataclass
from hosts import Hosts, Link
from launch import Job
from problem import Problem
from quiet import ForeignLoad, wait_until_quiet

DECODE = Problem(1, 8, causal=True, kv_tokens=65536)
TURN = Problem(1024, 8, causal=True, kv_tokens=16384)
RUNS = 3
HEADER = ["what", "ranks", "ring s", "other s", "ring / other", "others' load"]


@dataclass(frozen=True)
class Case:
    problem: Problem
    schedule: str
    hosts: int
    link: Link | None  # None: threads of one process

    def __str__(self):
        where = f"{self.hosts} hosts, {self.link}" if self.link else f"{self.hosts} ranks in process"
        return f"{self.schedule}: {self.problem}, {where}"


CASES = [Case(DECODE, "tree", 2, None), Case(DECODE, "tree", 4, None), Case(DECODE, "tree", 2, Link(1000)),
         Case(DECODE, "tree", 4, Link(1000)), Case(TURN, "pass-q", 2, Link(200))]


def _wall_s(bench, case, schedule):
    command = bench.attend(case.problem, "--threads", 1, "--schedule", schedule)
    if case.link is None:
        return bench.run([*command, "--ranks", str(case.hosts)])
    with Hosts(case.hosts, case.link, [str(host % 2) for host in range(case.hosts)], bench.delay_link) as hosts:
        job = Job(hosts, command, bench.new_folder("turns") / "job")
        if (status := job.finish(120)) != 0:
            raise RuntimeError(f"{case}: mpirun ended with {status}: {job.messages()}")
        return job.result()


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
                    result = _wall_s(bench, case, schedule)
                best[schedule] = min(best.get(schedule, result["wall_s"]), result["wall_s"])
                digests.add(result["output_digest"])
                foreign = max(foreign, others.share)
        ratio = best["ring"] / best[case.schedule]
        rows.append([case, case.hosts, f"{best['ring']:.4f}", f"{best[case.schedule]:.4f}", f"{ratio:.2f}",
                     f"{foreign:.0%}"])
        checks.append(check.at_least(f"{case}: ring / {case.schedule}", ratio, 1))
        checks.append(check.Check(f"{case}: bits", "same" if len(digests) == 1 else "other", "same", len(digests) == 1))
    print(check.table(HEADER, rows))
    return checks
