#!/usr/bin/env python3
"""floor_function_test.py ROOT CMAKE: sw_floor and the floors that it is given."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(made_up NONE)
include({root}/cmake/floor.cmake)
add_library(sw_ground INTERFACE)
sw_floor(upper SOURCES upper.cpp FLOORS {floors})
message(STATUS "taken")
"""


class FloorFunction(unittest.TestCase):
    def configure(self, floors):
        with tempfile.TemporaryDirectory() as folder:
            text = PROJECT.format(root=ROOT, floors=floors)
            Path(folder, "CMakeLists.txt").write_text(text, encoding="utf-8")
            done = subprocess.run(
                [CMAKE, "-G", "Ninja", "-S", folder, "-B", f"{folder}/build"],
                capture_output=True,
                text=True,
                check=False,
            )
            # Without a compiler CMake ends later, when it would write build files.
            return "taken" in done.stdout, " ".join(done.stderr.split())

    def test_takes_those_that_stand_below(self):
        self.assertTrue(self.configure("ground")[0])

    def test_refuses_one_that_does_not_by_name(self):
        taken, error = self.configure("ground grund")
        self.assertFalse(taken)
        self.assertIn("upper names the floor 'grund', which does not stand below it", error)


if __name__ == "__main__":
    CMAKE, ROOT = sys.argv.pop(), sys.argv.pop()
    unittest.main()
