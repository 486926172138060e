"""Does `kvring simulate` take as long as the real ring where ranks share a cable, or one cable is slower?

There prices are not enough: who has to wait for whom decides. The machine is measured by `kvring plan --calibrate`,
started as the runs are. Cables are slow, so that transfers and not the two cores of this machine decide; and TCP
shares them by CUBIC, the default of most kernels. (By BBR, that of some, several connections on a cable find their
shares too slowly for messages this short.)
"""

import statistics
from dataclasses import dataclass, replace

import check
from hosts import Hosts, Link
from launch import Job
from problem import Problem
from quiet import wait_until_quiet

PROBLEM = Problem(2048, 4)
CABLE = Link(200)
CALIBRATIONS, RUNS = 3, 5
LARGEST_ERROR = 0.15
HEADER = ["ranks", "schedule", "planned s", "simulated s", "measured s", "error"]


@dataclass(frozen=True)
class Case:
    name: str
    hosts: int
    ranks_each: int
    schedules: tuple
    beyond: tuple = ()  # more of them, shown without a check
    slower: tuple = ()  # (host, factor) of cables

    def run(self, bench, command, *flags):
        words = [str(bench.kvring), command, *map(str, flags)]
        with Hosts(self.hosts, CABLE, [str(host % 2) for host in range(self.hosts)], bench.delay_link, self.ranks_each,
                   dict(self.slower), "cubic") as hosts:
            return Job(hosts, words, bench.new_folder("simulation") / "job").finished_result(120)

    def simulate(self, bench, profile, schedule):
        flags = ["--machine", profile, "--q-heads", PROBLEM.heads, "--head-dim", PROBLEM.head_dim, "--dtype",
                 PROBLEM.dtype, "--seq-len", PROBLEM.tokens, "--ranks", self.hosts * self.ranks_each, "--ranks-per-node",
                 self.ranks_each, "--schedule", schedule, "--json"]
        if self.slower:
            flags += ["--faults", ",".join(f"link={host}:{factor}" for host, factor in self.slower)]
        return bench.run([str(bench.kvring), "simulate", *map(str, flags)])


# With pass-q and tree what a rank sends next waits for what it gets. Of two messages that it sends to two others at a
# time one goes first in the simulation, while two connections of TCP share its cable and are both late.
CASES = (Case("2 hosts of 2 ranks", 2, 2, ("ring", "all-gather"), ("pass-q", "tree")),
         Case("3 hosts, that of rank 1 sends at a third", 3, 1, ("ring",), slower=((1, 3),)))


def _calibrated(bench, case):
    """Machines that were measured, with cables that are all alike."""
    alike = replace(case, slower=())
    for _ in range(CALIBRATIONS):
        wait_until_quiet()
        profile = bench.new_folder("profile") / "machine.json"
        alike.run(bench, "plan", "--calibrate", profile, "--json")
        yield profile


def run(bench, quick):
    """Prints a table; returns the checks."""
    rows, checks = [], []
    for case in CASES[:1] if quick else CASES:
        profiles = list(_calibrated(bench, case))
        for schedule in case.schedules + case.beyond:
            played = [case.simulate(bench, profile, schedule) for profile in profiles]
            planned, simulated = (statistics.median(p[name] for p in played) for name in ("planned_s", "total_s"))
            measured = []
            for _ in range(RUNS):
                wait_until_quiet()
                command = bench.attend(PROBLEM, "--threads", 1, "--schedule", schedule)[1:]
                measured.append(case.run(bench, *command)["wall_s"])
            error = simulated / statistics.median(measured) - 1
            rows.append([case.name, schedule, f"{planned:.3f}", f"{simulated:.3f}", f"{statistics.median(measured):.3f}",
                         f"{error:+.1%}"])
            if schedule in case.schedules:
                checks.append(check.at_most(f"{case.name}, {schedule}: |error| of the simulated time", abs(error),
                                            LARGEST_ERROR))
    print(check.table(HEADER, rows))
    return checks
