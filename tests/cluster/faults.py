"""A ring of four hosts in which a rank is killed or stopped, or a cable is cut, at every step; and an outage
short enough to be waited out."""

from collections import Counter

import check
from hosts import Hosts, Link
from outcome import Fault, Outage
from shot import HOSTS, clean_run, run_with_outage, shoot

DEADLINE_S = 4
OUTAGE = Outage(victim=1, step=1, seconds=3)
OUTAGE_DEADLINE_S = 8
# The blocks of the next step are there already when the cable is cut in the middle of a step, so about a
# step and a half of the outage are hidden.
LEAST_WAIT_S = 0.5
FULL = {"repeats": 2, "steps": {"kill": range(HOSTS), "stop": range(HOSTS), "cut": range(HOSTS)}}
QUICK = {"repeats": 1, "steps": {"kill": (0, 3), "stop": (1,), "cut": (2,)}}
# A shot that fell in another step than it was aimed at is repeated.
TRIES_PER_HIT = 3


def _hosts():
    """New ones for every job: those of the one before may still remember who could not be reached."""
    return Hosts(HOSTS, Link(1000))


def _campaign(bench, aim, kind, wanted):
    """Outcomes of shots at the steps in `wanted` {step: how often}, until each was hit as often."""
    outcomes, hits = [], Counter()
    for shot in range(TRIES_PER_HIT * sum(wanted.values())):
        missing = wanted - hits
        if not missing:
            break
        step = min(missing)
        with _hosts() as hosts:
            outcome = shoot(bench, hosts, aim, Fault(kind, shot % HOSTS, step), DEADLINE_S)
        if outcome is None:
            aim.learn(step, HOSTS)
            continue
        print(f"  {' '.join(_row(outcome))}", flush=True)
        outcomes.append(outcome)
        if outcome.step is not None:
            aim.learn(step, outcome.step)
            hits[outcome.step] += 1
    return outcomes, hits


def _row(outcome):
    seconds = [outcome.slowest_report_s, outcome.launcher_s]
    return [outcome.fault.kind, str(outcome.fault.victim), str(outcome.fault.step), str(outcome.step),
            *("-" if s is None else f"{s:.1f}" for s in seconds), str(outcome.status),
            "; ".join(outcome.complaints()) or "as wanted"]


HEADER = ["fault", "rank", "aimed at step", "in step", "last report s", "mpirun s", "status", "result"]


def _checks_of(kind, outcomes, hits, wanted):
    good = sum(not outcome.complaints() for outcome in outcomes)
    yield check.Check(f"{kind}: as wanted", f"{good} of {len(outcomes)}", "all", good == len(outcomes))
    hit = ", ".join(f"step {step}: {hits[step]}" for step in sorted(wanted))
    yield check.Check(f"{kind}: hits", hit, f"{max(wanted.values())} each", not wanted - hits)


def _waited_s(run):
    return max(rank["exposed_wait_s"] for rank in run["per_rank"])


def _check_of_outage(bench, aim, clean):
    what = f"outage of {OUTAGE.seconds} s, deadline {OUTAGE_DEADLINE_S} s"
    try:
        with _hosts() as hosts:
            result = run_with_outage(bench, hosts, aim, OUTAGE, OUTAGE_DEADLINE_S)
    except RuntimeError as error:
        print(error)
        return check.Check(what, "the job failed", "heals", False)
    # Without this, a run that had ended before the outage would pass.
    waited_s = _waited_s(result) - _waited_s(clean)
    same = result["output_digest"] == clean["output_digest"]
    measured = f"waited {waited_s:.1f} s longer, {'same' if same else 'other'} bits"
    return check.Check(what, measured, f">= {LEAST_WAIT_S} s, same bits", same and waited_s >= LEAST_WAIT_S)


def run(bench, quick):
    """Prints a table; returns the checks."""
    plan = QUICK if quick else FULL
    rows, checks = [], []
    with _hosts() as hosts:
        clean, aim = clean_run(bench, hosts, DEADLINE_S)
    for kind, steps in plan["steps"].items():
        wanted = Counter({step: plan["repeats"] for step in steps})
        outcomes, hits = _campaign(bench, aim, kind, wanted)
        rows += [_row(outcome) for outcome in outcomes]
        checks += _checks_of(kind, outcomes, hits, wanted)
    checks.append(_check_of_outage(bench, aim, clean))
    print(check.table(HEADER, rows))
    return checks
