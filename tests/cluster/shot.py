"""One run on four hosts, without a fault, with one, or with an outage, and all that came of it."""

import contextlib
import os
import signal
import statistics
import time
from dataclasses import dataclass

from aim import Aim, watch
from launch import Job
from outcome import LAUNCHER_GRACE_S, Outcome
from problem import Problem
from records import diagnosis_in, read_records, step_at, verdict_in

HOSTS = 4
# All steps cost the same with a full mask; one lap, so that the ring has as many steps as hosts.
PROBLEM = Problem(12288, 8)


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
    command = bench.attend(
        PROBLEM, "--threads", 1, "--heads-per-lap", PROBLEM.heads, "--timeout", deadline_s,
        "--output", folder / "output" / "result.safetensors", "--record", folder / "records")
    return Run(Job(hosts, command, folder / "job"), folder)


def process_of(job, rank, timeout_s=20):
    """The process number of the rank, once it is there."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end and job.running():
        if pid := job.rank_process(rank):
            return pid
        time.sleep(0.01)
    raise RuntimeError(f"rank {rank} did not start: {job.messages()}")


def finish_without_fault(run):
    """What rank 0 printed with --json."""
    return run.job.finished_result(120)


def clean_run(bench, hosts, deadline_s):
    """What rank 0 printed with --json, and the aim."""
    run = start(bench, hosts, "clean", deadline_s)
    samples = watch(process_of(run.job, 0))
    result = finish_without_fault(run)
    return result, Aim.from_samples(samples, result["wall_s"], HOSTS)


def run_with_outage(bench, hosts, aim, outage, deadline_s):
    """What rank 0 printed with --json, after the cable was cut and mended."""
    run = start(bench, hosts, "outage", deadline_s)
    aim.wait_for(outage.step, process_of(run.job, outage.victim))
    with hosts.cut(outage.victim):
        time.sleep(outage.seconds)
    return finish_without_fault(run)


def shoot(bench, hosts, aim, fault, deadline_s):
    """The Outcome of one fault; None when the victim had ended before."""
    run = start(bench, hosts, fault.kind, deadline_s)
    pid = process_of(run.job, fault.victim)
    if not aim.wait_for(fault.step, pid):
        finish_without_fault(run)
        return None
    with contextlib.ExitStack() as repairs:
        if fault.kind == "cut":
            repairs.enter_context(hosts.cut(fault.victim))
        else:
            os.kill(pid, signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)
        fault_time, fault_epoch_s = time.monotonic(), time.time()
        # Longer than is allowed, to see by how much it is missed.
        status = run.job.finish(deadline_s + LAUNCHER_GRACE_S + 5)
        # A host that is cut off ends its rank by itself, perhaps later than mpirun ends.
        processes_left = hosts.wait_until_empty(fault_time + deadline_s + LAUNCHER_GRACE_S)
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
