import json
import pathlib
import tempfile
import unittest

from launch import Line
from records import Diagnosis, diagnosis_in, read_records, step_at, verdict_in


def operation(what, step, posted_s):
    return {"what": what, "block": 0, "lap": 0, "step": step, "peer": -1, "bytes": 0, "posted_s": posted_s,
            "done_s": None}


class VerdictTest(unittest.TestCase):
    def test_is_found_among_other_lines(self):
        lines = [Line(1.0, "WARNING: Open MPI failed to TCP connect to a peer MPI process."),
                 Line(2.5, "kvring: rank 3 gives up: rank 12 does not answer since 4.0 s [Timeout]")]
        found = verdict_in(lines)
        self.assertEqual((found.rank, found.culprit, found.time), (3, 12, 2.5))

    def test_of_a_silent_rank_is_none(self):
        self.assertIsNone(verdict_in([Line(1.0, "kvring: note: rank 3 gives nothing away")]))

    def test_given_twice_is_an_error(self):
        line = Line(1.0, "kvring: rank 3 gives up: rank 1 does not answer")
        with self.assertRaisesRegex(ValueError, "several"):
            verdict_in([line, line])


class RecordTest(unittest.TestCase):
    RECORD = {"schema_version": 1, "rank": 2, "ranks": 4, "host": "h2", "reason": "", "culprit": None,
              "epoch_s": 1000.0,
              "operations": [operation("attend", 0, 1.0), operation("send", 3, 1.5),
                             operation("attend", 1, 2.0)]}

    def test_the_step_is_that_of_the_last_attend_that_had_begun(self):
        self.assertIsNone(step_at(self.RECORD, 1000.5))
        self.assertEqual(step_at(self.RECORD, 1001.9), 0)
        self.assertEqual(step_at(self.RECORD, 1002.1), 1)

    def test_records_are_read_by_rank_and_must_be_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "rank-2.json"
            path.write_text(json.dumps(self.RECORD))
            self.assertEqual(read_records(folder), {2: self.RECORD})
            path.write_text(json.dumps({"rank": 2}))
            with self.assertRaisesRegex(ValueError, "lacks"):
                read_records(folder)

    def test_a_diagnosis_may_name_nobody(self):
        self.assertEqual(diagnosis_in({"culprit": None, "step": None}), Diagnosis(None, None))


if __name__ == "__main__":
    unittest.main()
