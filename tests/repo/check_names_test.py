#!/usr/bin/env python3
"""The check of names, tried on made-up sources."""

import tempfile
import unittest
from pathlib import Path

import check_names


class CheckNames(unittest.TestCase):
    def found(self, files):
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                file = Path(root) / "src" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            return list(check_names.violations(root))

    def test_two_files_that_define_one_type_are_named(self):
        for definition in ["struct Move {\n};", "class Move final : public Base {\n};", "enum class Move : int { A };"]:
            files = {
                "comm/a.hpp": f"namespace sw {{\n\n{definition}\n\n}}  // namespace sw\n",
                "mesh/b.cpp": "namespace sw {\nstruct Move { int x; };\n}  // namespace sw\n",
            }
            self.assertEqual(self.found(files), ["sw::Move is defined in src/comm/a.hpp and in src/mesh/b.cpp"])

    def test_declarations_members_and_other_namespaces_are_fine(self):
        files = {
            "comm/a.hpp": "namespace sw {\nstruct Move {\n  struct State;\n};\n}  // namespace sw\n",
            "comm/a.cpp": "namespace sw {\nstruct Move;\nstruct Move::State {\n};\n}  // namespace sw\n",
            "mesh/b.cpp": "namespace sw {\nnamespace {\nstruct Move {};\n}  // namespace\n}  // namespace sw\n",
            "mesh/c.hpp": "namespace sw::mesh {\nstruct Move {};\n}  // namespace sw::mesh\n",
        }
        self.assertEqual(self.found(files), [])


if __name__ == "__main__":
    unittest.main()
