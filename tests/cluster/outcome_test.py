import dataclasses
import unittest

from outcome import Fault, Outcome
from records import Diagnosis, Verdict


def verdict(rank, time, culprit=2):
    return Verdict(rank, culprit, time, f"kvring: rank {rank} gives up: rank {culprit} ...")


def good(kind="stop"):
    """Rank 2 stopped at time 100, deadline 4 s, all as wanted."""
    return Outcome(
        fault=Fault(kind, victim=2, step=1), ranks=4, deadline_s=4, fault_time=100.0,
        verdicts={0: verdict(0, 104.5), 1: verdict(1, 104.0), 2: verdict(2, 104.2) if kind == "cut" else None,
                  3: verdict(3, 104.1)},
        status=4, launcher_end=107.0, processes_left={}, files_left=[], step=1, diagnosis=Diagnosis(2, 1))


class OutcomeTest(unittest.TestCase):
    def complaints_with(self, outcome=None, **changes):
        return dataclasses.replace(outcome or good(), **changes).complaints()

    def test_nothing_to_complain_about(self):
        for kind in ("kill", "stop", "cut"):
            self.assertEqual(good(kind).complaints(), [])

    def test_a_silent_survivor(self):
        silent = {**good().verdicts, 3: None}
        self.assertEqual(self.complaints_with(verdicts=silent), ["rank 3 did not report"])

    def test_a_rank_that_is_cut_off_must_report_too(self):
        silent = {**good("cut").verdicts, 2: None}
        self.assertEqual(self.complaints_with(good("cut"), verdicts=silent), ["rank 2 did not report"])

    def test_a_late_report(self):
        late = {**good().verdicts, 0: verdict(0, 105.1)}
        self.assertEqual(self.complaints_with(verdicts=late), ["the last report came 5.1 s after the fault"])

    def test_a_wrong_name(self):
        wrong = {**good().verdicts, 0: verdict(0, 104.5, culprit=3)}
        self.assertEqual(self.complaints_with(verdicts=wrong),
                         ["rank 0 said: kvring: rank 0 gives up: rank 3 ..."])

    def test_a_stopped_rank_that_wakes_and_blames_another(self):
        wrong = {**good().verdicts, 2: verdict(2, 108.0, culprit=1)}
        self.assertEqual(len(self.complaints_with(verdicts=wrong)), 1)

    def test_a_launcher_that_hangs_is_late_or_content(self):
        self.assertEqual(self.complaints_with(status=None, launcher_end=None), ["mpirun did not end"])
        self.assertEqual(self.complaints_with(launcher_end=109.5), ["mpirun ended 9.5 s after the fault"])
        self.assertEqual(self.complaints_with(status=0), ["mpirun ended with status 0"])

    def test_remains(self):
        self.assertEqual(len(self.complaints_with(processes_left={77: "orted"}, files_left=["out.tmp"])), 2)

    def test_records(self):
        self.assertEqual(len(self.complaints_with(step=None, diagnosis=None)), 2)
        self.assertEqual(self.complaints_with(diagnosis=Diagnosis(1, 1)), ["the diagnosis names rank 1"])
        self.assertEqual(self.complaints_with(diagnosis=Diagnosis(2, None)), ["the diagnosis names no step"])


if __name__ == "__main__":
    unittest.main()
