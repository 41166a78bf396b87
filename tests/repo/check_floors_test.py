#!/usr/bin/env python3
"""The floor check, tried on a made-up tree of four floors."""

import tempfile
import unittest
from pathlib import Path

import check_floors

FLOORS = "# ground\nbase\nkernels\ntrain plan\ncli\n"


class CheckFloors(unittest.TestCase):
    def found(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {"floors.txt": FLOORS, **files}.items():
                file = Path(root) / "src" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return list(check_floors.violations(root))

    def test_own_floor_floors_below_and_system_headers_are_fine(self):
        files = {
            "train/loop.cpp": '#include "train/loop.hpp"\n#include <vector>\n#include "base/a.hpp"\n',
            "kernels/cpu/einsum.cpp": "#include <hwy/highway.h>\n",
            "base/json.hpp": "#include <nlohmann/json.hpp>\n",
            "cli/run_file.cpp": "#include <toml++/toml.h>\n#include <CLI/CLI.hpp>\n",
        }
        self.assertEqual(self.found(files), [])

    def test_a_higher_floor_is_named_with_its_line(self):
        files = {"base/a.hpp": '#pragma once\n\n#include "cli/main.hpp"\n'}
        self.assertEqual(self.found(files), ['src/base/a.hpp:3: "cli/main.hpp": cli stands above base'])

    def test_neighbours_do_not_know_each_other(self):
        files = {
            "train/a.cpp": '#include "plan/search.hpp"\n',
            "plan/a.cpp": '  #  include "train/loop.hpp"\n',
        }
        self.assertEqual(
            self.found(files),
            [
                'src/plan/a.cpp:1: "train/loop.hpp": train stands beside plan',
                'src/train/a.cpp:1: "plan/search.hpp": plan stands beside train',
            ],
        )

    def test_a_library_header_stays_in_its_folder(self):
        files = {
            "base/math.cpp": "#include <pcre2.h>\n#include <hwy/highway.h>\n",
            "train/log.cpp": "#include <nlohmann/json.hpp>\n#include <CLI/CLI.hpp>\n",
            "cli/a.cpp": '#include "xxhash.h"\n#include <gtest/gtest.h>\n',
        }
        self.assertEqual(
            self.found(files),
            [
                "src/base/math.cpp:1: <pcre2.h> belongs in data/ only",
                "src/base/math.cpp:2: <hwy/highway.h> belongs in kernels/cpu/ or comm/ only",
                "src/cli/a.cpp:1: <xxhash.h> belongs in base/ only",
                "src/cli/a.cpp:2: <gtest/gtest.h> belongs in tests/ only",
                "src/train/log.cpp:1: <nlohmann/json.hpp> belongs in base/json.hpp only",
                "src/train/log.cpp:2: <CLI/CLI.hpp> belongs in cli/ only",
            ],
        )

    def test_relative_includes_and_unknown_folders_are_refused(self):
        files = {"train/a.cpp": '#include "loop.hpp"\n', "misc/a.cpp": "#include <vector>\n"}
        self.assertEqual(
            self.found(files),
            [
                "src/misc/a.cpp: its folder is no floor of src/floors.txt",
                'src/train/a.cpp:1: "loop.hpp" is not a path from src/ that starts with a floor',
            ],
        )


if __name__ == "__main__":
    unittest.main()
