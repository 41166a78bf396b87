#!/usr/bin/env python3
"""The check of pages, tried on a made-up repository."""

import tempfile
import unittest
from pathlib import Path

import check_docs


class CheckDocs(unittest.TestCase):
    def test_links_and_named_sources_and_tests_that_do_not_exist_are_found(self):
        with tempfile.TemporaryDirectory() as root:
            (Path(root) / "docs").mkdir()
            (Path(root) / "src").mkdir()
            (Path(root) / "src/there.hpp").write_text("")
            (Path(root) / "tests").mkdir()
            (Path(root) / "tests/a_test.cpp").write_text("TEST_F(Cuts, AreEven) {\n}\n")
            (Path(root) / "README.md").write_text(
                "[a](docs/page.md) [b](docs/gone.md#part) [c](http://example.org) `src/there.hpp`\n"
            )
            (Path(root) / "docs/page.md").write_text(
                "[up](../README.md) `src/gone.cpp` `src/<name>.cpp` [d](gone.svg)\n"
                "`Cuts.AreEven` `Cuts.AreOdd`\n"
            )
            self.assertEqual(
                list(check_docs.violations(root)),
                [
                    "README.md: docs/gone.md does not exist",
                    "docs/page.md: gone.svg does not exist",
                    "docs/page.md: src/gone.cpp does not exist",
                    "docs/page.md: there is no test Cuts.AreOdd",
                ],
            )


if __name__ == "__main__":
    unittest.main()
