#!/usr/bin/env python3
"""The layer check must find each kind of violation, and nothing else."""

import pathlib
import tempfile
import unittest

import check


class CheckTest(unittest.TestCase):
    def faults(self, path: str, *lines: str) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, path)
            file.parent.mkdir(parents=True)
            file.write_text("\n".join(lines) + "\n", encoding="utf-8")
            return check.check(pathlib.Path(folder))

    def test_an_include_from_above_is_fine(self):
        self.assertEqual(self.faults("src/runtime/a.cc", '#include "kernel/tile.h"', "#include <vector>"), [])
        self.assertEqual(self.faults("src/runtime/a.cc", '#include "runtime/b.h"', '#include "near.h"'), [])
        self.assertEqual(self.faults("src/attend.cc", '#include "runtime/executor.h"'), [])

    def test_an_include_from_below_is_found(self):
        found = self.faults("src/tensor/a.h", "", '#include "io/npy.h"')
        self.assertEqual(found, ["src/tensor/a.h:2: includes io/npy.h: io/ stands below tensor/"])
        self.assertEqual(len(self.faults("src/tensor/deep/a.h", '  #  include "mask/mask.h"')), 1)
        self.assertEqual(len(self.faults("src/attend.cc", '#include "cli/main.h"')), 1)

    def test_angle_brackets_hide_nothing(self):
        self.assertEqual(len(self.faults("src/tensor/a.h", "#include <io/npy.h>")), 1)

    def test_schedule_and_planner_are_pure(self):
        for layer in ("schedule", "planner"):
            for other in ("kernel", "transport", "runtime"):
                self.assertEqual(len(self.faults(f"src/{layer}/a.cc", f'#include "{other}/x.h"')), 1)
            self.assertEqual(self.faults(f"src/{layer}/a.cc", '#include "mask/mask.h"'), [])

    def test_the_kernel_knows_no_mask_and_no_layout(self):
        for header in ("mask/mask.h", "layout/tiles.h", "kvring/layout.h"):
            self.assertEqual(len(self.faults("src/kernel/a.cc", f'#include "{header}"')), 1)
        self.assertEqual(self.faults("src/kernel/a.cc", '#include "kvring/tensor.h"'), [])

    def test_results_never_come_from_the_oracle(self):
        self.assertEqual(len(self.faults("src/runtime/a.cc", '#include "reference/reference.h"')), 1)
        self.assertEqual(self.faults("src/cli/verify.cc", '#include "reference/reference.h"'), [])

    def test_test_programs_are_free(self):
        self.assertEqual(self.faults("src/mask/mask_test.cc", '#include "reference/reference.h"'), [])

    def test_an_unknown_folder_is_found(self):
        self.assertEqual(len(self.faults("src/utils/a.h", "")), 1)


if __name__ == "__main__":
    unittest.main()
