"""Two ranks of one thread against one rank of two threads, on two cores."""

import os
from dataclasses import dataclass

import check
from problem import Problem

LEAST_EFFICIENCY = 0.95
CLOSED_FORM_TOLERANCE = 0.10
RANKS = 2


@dataclass(frozen=True)
class Setting:
    transport: str
    layout: str

    def __str__(self):
        return f"{self.layout}, {self.transport}"

    def command(self, bench, problem):
        attend = bench.attend(problem, "--threads", 1, "--layout", self.layout)
        if self.transport == "inproc":
            return attend + ["--ranks", str(RANKS)]
        return ["mpirun.openmpi", "-np", str(RANKS), "--oversubscribe", "--bind-to", "none", *attend]


SETTINGS = [Setting(transport, layout)
            for layout in ("zigzag", "contiguous") for transport in ("inproc", "mpi")]


def useful_share(ranks):
    """Of a causal mask on contiguous shards: the last rank attends P - 1/2 of P^2 / 2 blocks while the
    others wait, so that of P ranks' time the share P / (2P - 1) is useful."""
    return ranks / (2 * ranks - 1)


def _wall_s(bench, command):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return bench.run(command, environment=environment)["wall_s"]


def _round(bench, problem):
    """One rank, then every setting, close together in time: its seconds, and those of each setting."""
    one = _wall_s(bench, bench.attend(problem, "--ranks", 1, "--threads", RANKS))
    seconds = {setting: _wall_s(bench, setting.command(bench, problem)) for setting in SETTINGS}
    return one, seconds


def _check(problem, setting, efficiency):
    what = f"{problem.tokens} tokens, {setting}: efficiency"
    if setting.layout == "zigzag":
        return check.at_least(what, efficiency, LEAST_EFFICIENCY)
    share = useful_share(RANKS)
    near = abs(efficiency / share - 1) <= CLOSED_FORM_TOLERANCE
    return check.Check(what, f"{efficiency:.3f}", f"{share:.3f} +- {CLOSED_FORM_TOLERANCE:.0%}", near)


def run(bench, quick):
    """Prints a table; returns the checks."""
    problems = [Problem(16384, 4, causal=True)] + ([] if quick else [Problem(32768, 4, causal=True)])
    rows, checks = [], []
    for problem in problems:
        # Other work on the machine makes a round worse: the best of a few counts.
        rounds = [_round(bench, problem) for _ in range(3)]
        for setting in SETTINGS:
            one, two = max(((one, seconds[setting]) for one, seconds in rounds), key=lambda r: r[0] / r[1])
            rows.append([problem, setting, f"{one:.3f}", f"{two:.3f}", f"{one / two:.3f}"])
            checks.append(_check(problem, setting, one / two))
    print(check.table(["problem", "two ranks", "one rank of two threads, s", "two ranks, s", "efficiency"], rows))
    return checks
