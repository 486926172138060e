import unittest

from aim import Aim


class AimTest(unittest.TestCase):
    def test_is_found_from_a_run_without_a_fault(self):
        # 0.5 s of preparations, four steps of 1 s at half the processor, 0.2 s of end.
        samples = [(t / 100, min(t / 100, 0.5) + min(max(t / 100 - 0.5, 0), 4) * 0.5) for t in range(471)]
        aim = Aim.from_samples(samples, attention_s=4.0, steps=4)
        self.assertAlmostEqual(aim.first_step_s, 0.5, delta=0.02)
        self.assertAlmostEqual(aim.step_s, 0.5, delta=0.02)

    def test_learns_to_shoot_earlier_after_a_late_shot(self):
        aim = Aim(4, 1.0, 0.5)
        aim.learn(aimed=1, hit=2)
        self.assertAlmostEqual(aim.first_step_s, 0.8)


if __name__ == "__main__":
    unittest.main()
