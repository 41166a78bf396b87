#!/usr/bin/env python3
"""check_docs.py ROOT: fails when a page links to a file, or names a source or a test, that does
not exist.

A name in `code` that starts with a top folder (src/, tests/, docs/, examples/, tools/, cmake/) is a
path; <placeholders> are not checked. `Suite.Test` is a test of a source in tests/.
"""

import re
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
NAMED = re.compile(r"`((?:src|tests|docs|examples|tools|cmake)/[\w./-]*)`")


TEST = re.compile(r"`([A-Z]\w+\.[A-Z]\w+)`")
DEFINED_TEST = re.compile(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", re.MULTILINE)


def pages(root):
    yield from sorted(Path(root).glob("*.md"))
    yield from sorted(Path(root, "docs").rglob("*.md"))


def tests(root):
    """{"Suite.Test"} of all sources."""
    sources = (path.read_text(encoding="utf-8") for path in Path(root, "tests").rglob("*.cpp"))
    return {".".join(name) for source in sources for name in DEFINED_TEST.findall(source)}


def violations(root):
    defined = tests(root)
    for page in pages(root):
        text = page.read_text(encoding="utf-8")
        links = [(link, page.parent / link) for link in LINK.findall(text) if "://" not in link]
        named = [(name, Path(root) / name) for name in NAMED.findall(text)]
        for name, target in links + named:
            if not target.exists():
                yield f"{page.relative_to(root)}: {name} does not exist"
        for name in TEST.findall(text):
            if name not in defined:
                yield f"{page.relative_to(root)}: there is no test {name}"


def main():
    found = list(violations(sys.argv[1]))
    print("\n".join(found) if found else "every link, every named file and every named test exists")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
