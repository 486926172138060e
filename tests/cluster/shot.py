"""One run on four hosts, without a fault, with one, or with an outage, and all that came of it."""

import contextlib
import os
import signal
import statistics
import time
from dataclasses import dataclass

from launch import Job
from outcome import LAUNCHER_GRACE_S, Outcome
from problem import Problem
from records import diagnosis_in, read_records, step_at, verdict_in

HOSTS = 4
# All steps cost the same with a full mask; one lap, so that the ring has as many steps as hosts.
PROBLEM = Problem(12288, 8)


@dataclass
class Aim:
    """When a step is under way, in seconds after the rank's process was first seen."""

    first_step_s: float
    step_s: float

    def at(self, step):
        return max(0.0, self.first_step_s + (step + 0.5) * self.step_s)

    def learn(self, aimed, hit):
        self.first_step_s -= 0.5 * (hit - aimed) * self.step_s


@dataclass
class Run:
    """A job that has started, and where its results go."""

    job: Job
    folder: object

    @property
    def records(self):
        return self.folder / "records"

    @property
    def outputs(self):
        return self.folder / "output"


def start(bench, hosts, name, deadline_s):
    folder = bench.new_folder(name)
    for part in ("records", "output"):
        (folder / part).mkdir()
    command = bench.attend(PROBLEM, "--threads", 1, "--heads-per-lap", PROBLEM.heads, "--timeout", deadline_s,
                           "--output", folder / "output" / "result.safetensors", "--record", folder / "records")
    return Run(Job(hosts, command, folder / "job"), folder)


def process_of(job, rank, timeout_s=10):
    """Waits until the rank is there; returns its process number and when it was first seen."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and job.running():
        if pid := job.rank_process(rank):
            return pid, time.monotonic()
        time.sleep(0.01)
    raise RuntimeError(f"rank {rank} did not start: {job.messages()}")


def finish_without_fault(run):
    """What rank 0 printed with --json."""
    status = run.job.finish(120)
    if status != 0:
        raise RuntimeError(f"a run that should have gone well ended with {status}:\n{run.job.messages()}")
    return run.job.result()


def clean_run(bench, hosts, deadline_s):
    """What rank 0 printed with --json, and the aim."""
    run = start(bench, hosts, "clean", deadline_s)
    _, seen = process_of(run.job, 0)
    result = finish_without_fault(run)
    after_s = 0.3  # the output and the end of MPI
    first_step_s = run.job.ended - seen - result["wall_s"] - after_s
    return result, Aim(first_step_s, result["wall_s"] / HOSTS)


def run_with_outage(bench, hosts, victim, delay_s, outage_s, deadline_s):
    """What rank 0 printed with --json, after the cable was cut and mended."""
    run = start(bench, hosts, "outage", deadline_s)
    _, seen = process_of(run.job, victim)
    time.sleep(max(0.0, seen + delay_s - time.monotonic()))
    with hosts.cut(victim):
        time.sleep(outage_s)
    return finish_without_fault(run)


def shoot(bench, hosts, fault, delay_s, deadline_s):
    """The Outcome of one fault, `delay_s` after the victim's process was first seen."""
    run = start(bench, hosts, fault.kind, deadline_s)
    pid, seen = process_of(run.job, fault.victim)
    time.sleep(max(0.0, seen + delay_s - time.monotonic()))
    with contextlib.ExitStack() as repairs:
        if fault.kind == "cut":
            repairs.enter_context(hosts.cut(fault.victim))
        else:
            os.kill(pid, signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)
        fault_time, fault_epoch_s = time.monotonic(), time.time()
        # Longer than is allowed, to see by how much it is missed.
        status = run.job.finish(deadline_s + LAUNCHER_GRACE_S + 5)
        time.sleep(0.2)  # the launcher's helpers follow it
        processes_left = hosts.processes()
        hosts.kill_all()
    records = read_records(run.records)
    return Outcome(
        fault=fault, ranks=HOSTS, deadline_s=deadline_s, fault_time=fault_time, status=status,
        verdicts={rank: verdict_in(run.job.lines(rank)) for rank in range(HOSTS)},
        launcher_end=run.job.ended, processes_left=processes_left,
        files_left=[path.name for path in run.outputs.iterdir()],
        step=_step_hit(records, fault.victim, fault_epoch_s),
        diagnosis=_diagnose(bench, run.records) if records else None)


def _step_hit(records, victim, epoch_s):
    """Steps begin at almost the same time everywhere; what most survivors were at is taken."""
    steps = [step_at(record, epoch_s) for rank, record in records.items() if rank != victim]
    return statistics.mode(steps) if steps else None


def _diagnose(bench, folder):
    paths = sorted(str(path) for path in folder.glob("rank-*.json"))
    return diagnosis_in(bench.run([str(bench.kvring), "diagnose", "--json", *paths]))
