"""What came of one fault, and what of it is wrong. Nothing here touches processes or files."""

from dataclasses import dataclass

from records import Diagnosis

REPORT_GRACE_S = 1  # beyond the deadline, for each rank that still runs
LAUNCHER_GRACE_S = 5  # beyond the deadline, for the end of mpirun


@dataclass(frozen=True)
class Fault:
    kind: str  # "kill", "stop", "cut"
    victim: int
    step: int  # that it is aimed at


@dataclass(frozen=True)
class Outage:
    victim: int
    step: int
    seconds: float


@dataclass(frozen=True)
class Outcome:
    fault: Fault
    ranks: int
    deadline_s: float
    fault_time: float  # this and other times are of time.monotonic()
    verdicts: dict  # of each rank: a Verdict, or None
    status: int | None  # exit status of mpirun, None when it had to be killed
    launcher_end: float | None
    processes_left: dict  # {process number: command line}
    files_left: list
    step: int | None = None  # in which it fell, as the survivors recorded it
    diagnosis: Diagnosis | None = None

    @property
    def running(self):
        """The ranks that still run; one that is cut off does."""
        return [r for r in range(self.ranks) if r != self.fault.victim or self.fault.kind == "cut"]

    @property
    def slowest_report_s(self):
        times = [v.time - self.fault_time for r in self.running if (v := self.verdicts[r])]
        return max(times, default=None)

    @property
    def launcher_s(self):
        return None if self.launcher_end is None else self.launcher_end - self.fault_time

    def complaints(self):
        return [*self._about_reports(), *self._about_names(), *self._about_launcher(), *self._about_remains(),
                *self._about_records()]

    def _about_reports(self):
        for rank in self.running:
            if self.verdicts[rank] is None:
                yield f"rank {rank} did not report"
        late = self.slowest_report_s
        if late is not None and late > self.deadline_s + REPORT_GRACE_S:
            yield f"the last report came {late:.1f} s after the fault"

    def _about_names(self):
        # A stopped rank that wakes to be ended may say something, but it must be right too.
        for rank, found in self.verdicts.items():
            if found is not None and (found.rank, found.culprit) != (rank, self.fault.victim):
                yield f"rank {rank} said: {found.text}"

    def _about_launcher(self):
        if self.status is None:
            yield "mpirun did not end"
            return
        if self.status == 0:
            yield "mpirun ended with status 0"
        if self.launcher_s > self.deadline_s + LAUNCHER_GRACE_S:
            yield f"mpirun ended {self.launcher_s:.1f} s after the fault"

    def _about_remains(self):
        for pid, command in self.processes_left.items():
            yield f"process {pid} stayed behind: {command[:60]}"
        if self.files_left:
            yield f"files stayed behind: {self.files_left}"

    def _about_records(self):
        if self.step is None:
            yield "no record of a survivor says in which step it was"
        if self.diagnosis is None:
            yield "no diagnosis"
        elif self.diagnosis.culprit != self.fault.victim:
            yield f"the diagnosis names rank {self.diagnosis.culprit}"
        elif self.step is not None and self.diagnosis.step is None:
            yield "the diagnosis names no step"
