"""Two ranks of one thread against one rank of two threads, on two cores."""

import os
from dataclasses import dataclass

import check
from problem import Problem
from quiet import LARGEST_FOREIGN_SHARE, ForeignLoad, wait_until_quiet

LEAST_EFFICIENCY = 0.95
CLOSED_FORM_TOLERANCE = 0.10
RANKS = 2
ROUNDS = 6  # the fastest of fewer still tells of the machine
MOST_ROUNDS = 9  # on a busy machine
HEADER = ["problem", "two ranks", "one rank of two threads, s", "two ranks, s", "efficiency", "others' load"]


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


class _Best:
    """The fastest of the runs that others left alone; of all runs when there was no such one.

    Only undisturbed times may be compared: a baseline that others slowed down would make any ring look good.
    """

    def __init__(self):
        self.wall_s = None
        self.foreign_share = None

    def add(self, wall_s, foreign_share):
        quiet = foreign_share <= LARGEST_FOREIGN_SHARE
        better = self.wall_s is None or (
            wall_s < self.wall_s if quiet and self.quiet else foreign_share < self.foreign_share)
        if better:
            self.wall_s, self.foreign_share = wall_s, foreign_share

    @property
    def quiet(self):
        return self.foreign_share is not None and self.foreign_share <= LARGEST_FOREIGN_SHARE


def _measure(bench, problem):
    """{setting, or None for one rank: _Best}, from rounds in which all are close together in time."""
    commands = {None: bench.attend(problem, "--ranks", 1, "--threads", RANKS)}
    commands |= {setting: setting.command(bench, problem) for setting in SETTINGS}
    best = {setting: _Best() for setting in commands}
    for number in range(MOST_ROUNDS):
        if number >= ROUNDS and all(b.quiet for b in best.values()):
            break
        for setting, command in commands.items():
            if number >= ROUNDS and best[setting].quiet:
                continue
            wait_until_quiet()
            with ForeignLoad() as others:
                wall_s = _wall_s(bench, command)
            best[setting].add(wall_s, others.share)
    return best


def _check(problem, setting, efficiency, quiet):
    what = f"{problem.tokens} tokens, {setting}: efficiency"
    if not quiet:
        return check.Check(what, "the machine was busy with other work", "an idle machine", False)
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
        best = _measure(bench, problem)
        one = best[None]
        for setting in SETTINGS:
            two = best[setting]
            efficiency = one.wall_s / two.wall_s
            rows.append([problem, setting, f"{one.wall_s:.3f}", f"{two.wall_s:.3f}", f"{efficiency:.3f}",
                         f"{max(one.foreign_share, two.foreign_share):.0%}"])
            checks.append(_check(problem, setting, efficiency, one.quiet and two.quiet))
    print(check.table(HEADER, rows))
    return checks
