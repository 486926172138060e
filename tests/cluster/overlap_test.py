import unittest

from efficiency import useful_share
from overlap import measurement


class MeasurementTest(unittest.TestCase):
    # Two ranks, two laps: two hops and four blocks each.
    RANK = {"compute_s": 4.0, "transfer_s": 1.0, "exposed_late_s": 0.5, "exposed_transfer_s": 0.06,
            "exposed_send_s": 0.02, "hops": 2}
    RUN = {"wall_s": 4.2, "output_digest": "d", "per_rank": [RANK, {**RANK, "compute_s": 3.0}]}

    def test_shares_are_of_the_sums_and_a_late_peer_is_no_exposure(self):
        found = measurement(self.RUN)
        self.assertAlmostEqual(found.exposed_share, 0.16 / 2.0)
        self.assertAlmostEqual(found.late_s, 1.0)
        self.assertEqual(found.compute_s, 4.0)

    def test_break_even_compares_one_block_with_one_transfer(self):
        self.assertAlmostEqual(measurement(self.RUN).above_break_even, (7.0 / 8) / 0.5)

    def test_a_program_without_the_split_is_refused(self):
        ranks = [{"compute_s": 1.0, "hops": 1}]
        with self.assertRaisesRegex(ValueError, "exposed_send_s"):
            measurement({**self.RUN, "per_rank": ranks})


class ClosedFormTest(unittest.TestCase):
    def test_two_contiguous_ranks_are_useful_for_two_thirds(self):
        self.assertAlmostEqual(useful_share(2), 2 / 3)


if __name__ == "__main__":
    unittest.main()
