"""Does `kvring plan` foretell what `kvring attend` takes, and choose the schedule that is fastest?

The machine is measured by `kvring plan --calibrate`, started as the runs are: on two played hosts, or in one
process. Cables are so slow that a slice of BREAK_EVEN tokens just hides its hop, by the planner's own formula; runs
are then of 0.5, 1, 1.25, 2 and 4 times that slice.

A shared machine is another one a few seconds later, by up to a half. So each point is measured in rounds, in each
of which the machine is measured and every schedule runs; what counts is the median of what the rounds plan, and that
of what all runs took. In one process, where schedules differ least, more runs are needed to tell them apart.
"""

import json
import pathlib
import statistics
from dataclasses import dataclass

import check
from hosts import Hosts, Link
from launch import Job
from problem import Problem
from quiet import wait_until_quiet

RANKS = 2
BREAK_EVEN = 2048
MULTIPLES = (0.5, 1, 1.25, 2, 4)
SCHEDULES = ("ring", "all-gather", "pass-q", "ulysses", "tree")
HEAD_DIM = 128
TIE = 1.02  # of src/planner/price.h
LARGEST_ERROR = 0.15
LARGEST_LOSS = 0.05  # of the planner's choice against the fastest
LEAST_GOOD_CHOICES = 0.90
HEADER = ["setting", "slice", "x break-even", "schedule", "planned s", "measured s", "error",
          "planned exposed s", "measured exposed s", "exposed error / total", "fastest"]


@dataclass(frozen=True)
class Setting:
    name: str
    over_network: bool
    causal: bool
    rounds: int
    runs_per_round: int  # of every schedule


SETTINGS = (Setting("in process, causal", False, True, 12, 3), Setting("2 hosts", True, False, 7, 2),
            Setting("2 hosts, causal", True, True, 7, 2))


class _Ranks:
    """The two ranks of a setting: what they are measured as, and what they take."""

    def __init__(self, bench, setting, mbit_per_s):
        self.bench, self.setting, self.mbit_per_s = bench, setting, mbit_per_s

    def run(self, command, *flags):
        words = [str(self.bench.kvring), command, *(str(flag) for flag in flags)]
        if not self.setting.over_network:
            return self.bench.run([*words, "--ranks", str(RANKS)])
        with Hosts(RANKS, Link(self.mbit_per_s), ["0", "1"], self.bench.delay_link) as hosts:
            return Job(hosts, words, self.bench.new_folder("prediction") / "job").finished_result(300)

    def calibrate(self):
        wait_until_quiet()
        profile = self.bench.new_folder("profile") / "machine.json"
        self.run("plan", "--calibrate", profile, "--json")
        return Profile(profile, json.loads(profile.read_text())["flops_per_s"]["f32"]["value"])

    def attend(self, problem, schedule):
        wait_until_quiet()
        return self.run(*self.bench.attend(problem, "--threads", 1, "--schedule", schedule)[1:])


@dataclass(frozen=True)
class Profile:
    path: pathlib.Path
    flops: float


def _plan(bench, problem, profile):
    flags = ["--machine", profile.path, "--q-heads", problem.heads, "--head-dim", HEAD_DIM, "--dtype", "f32",
             "--seq-len", problem.tokens, "--ranks", RANKS, "--json"]
    plan = bench.run([str(bench.kvring), "plan", *map(str, flags)] + (["--causal"] if problem.causal else []))
    return {schedule["name"]: schedule for schedule in plan["schedules"]}


def _measure(ranks, problem):
    """What was planned and what was measured, {schedule: Outcome}."""
    plans, results = ({schedule: [] for schedule in SCHEDULES} for _ in range(2))
    for _ in range(ranks.setting.rounds):
        planned = _plan(ranks.bench, problem, ranks.calibrate())
        for schedule in SCHEDULES:
            plans[schedule].append((planned[schedule]["total_s"], planned[schedule]["exposed_s"]))
        for schedule in SCHEDULES * ranks.setting.runs_per_round:
            result = ranks.attend(problem, schedule)
            exposed = max(r["exposed_transfer_s"] + r["exposed_send_s"] for r in result["per_rank"])
            results[schedule].append((result["wall_s"], exposed))
    return {schedule: Outcome(*_medians(plans[schedule]), *_medians(results[schedule])) for schedule in SCHEDULES}


def _medians(rows):
    return map(statistics.median, zip(*rows))


def _cable_mbit_per_s(bench, setting):
    """At which BREAK_EVEN tokens hide their hop: n = F / B * bytes per key / flops per pair, half of the pairs with a
    causal mask."""
    flops = _Ranks(bench, SETTINGS[0], None).calibrate().flops
    density = 0.5 if setting.causal else 1
    bytes_per_s = flops * (2 * HEAD_DIM * 4) / (4 * HEAD_DIM * density * BREAK_EVEN)
    return round(bytes_per_s * 8 / 1e6)


def _problem(multiple, causal):
    """Long slices with few heads: all points take about as long."""
    tokens = round(RANKS * BREAK_EVEN * multiple)
    return Problem(tokens, max(2, 2 * round(4 * BREAK_EVEN / (tokens // RANKS))), causal=causal, head_dim=HEAD_DIM)


@dataclass(frozen=True)
class Outcome:
    planned_s: float
    planned_exposed_s: float
    measured_s: float
    measured_exposed_s: float  # of the rank that waited longest

    @property
    def error(self):
        return self.planned_s / self.measured_s - 1

    @property
    def exposed_error(self):
        """Of the total: where nearly all is hidden, the exposed time itself is next to nothing."""
        return (self.planned_exposed_s - self.measured_exposed_s) / self.measured_s


def run(bench, quick):
    """Prints a table; returns the checks."""
    rows, checks, good, points = [], [], 0, 0
    for setting in SETTINGS[1:2] if quick else SETTINGS:
        cable = _cable_mbit_per_s(bench, setting) if setting.over_network else None
        ranks = _Ranks(bench, setting, cable)
        name = f"{setting.name}, {cable} Mbit/s" if cable else setting.name
        for multiple in MULTIPLES:
            problem = _problem(multiple, setting.causal)
            outcomes = _measure(ranks, problem)
            fastest = min(outcomes, key=lambda s: outcomes[s].measured_s)
            # What the planner takes of what runs here on so many ranks: of those that tie the first, the ring.
            best_s = min(outcome.planned_s for outcome in outcomes.values())
            chosen = next(s for s in SCHEDULES if outcomes[s].planned_s <= best_s * TIE)
            loss = outcomes[chosen].measured_s / outcomes[fastest].measured_s - 1
            points += 1
            good += loss <= LARGEST_LOSS
            where = f"{name}, {multiple} x break-even"
            for schedule, outcome in outcomes.items():
                mark = ("fastest " if schedule == fastest else "") + ("chosen" if schedule == chosen else "")
                rows.append([name, problem.tokens // RANKS, multiple, schedule, f"{outcome.planned_s:.3f}",
                             f"{outcome.measured_s:.3f}", f"{outcome.error:+.1%}",
                             f"{outcome.planned_exposed_s:.3f}", f"{outcome.measured_exposed_s:.3f}",
                             f"{outcome.exposed_error:+.1%}", mark])
            ring = outcomes["ring"]
            checks.append(check.at_most(f"{where}: |error| of the ring's total", abs(ring.error), LARGEST_ERROR))
            checks.append(check.at_most(f"{where}: |error| of its exposed time / total", abs(ring.exposed_error),
                                        LARGEST_ERROR))
            print(f"  {where}: ring planned {ring.planned_s:.3f} s, measured {ring.measured_s:.3f} s; "
                  f"fastest {fastest}, chosen {chosen}", flush=True)
    print(check.table(HEADER, rows))
    errors = [abs(float(row[6].rstrip("%"))) for row in rows]
    print(f"median |error| of all schedules: {statistics.median(errors):.1f} %")
    checks.append(check.at_least("the choice is within 5 % of the fastest, share of points", good / points,
                                 LEAST_GOOD_CHOICES))
    return checks
