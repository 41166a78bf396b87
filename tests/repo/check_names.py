#!/usr/bin/env python3
"""check_names.py ROOT: fails when two files define types of the same full name.

The compiler sees one file at a time, so it accepts them; the linker then keeps one body of each
inline function (std::vector<sw::Move>::push_back) for both.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

NAMESPACE = re.compile(r"^(?:inline )?namespace ?([\w:]*) ?\{$")
END = re.compile(r"^\}  // namespace")
TYPE = re.compile(
    r"^(?:struct|class|union|enum(?: class| struct)?)(?: alignas\(\w+\))? (\w+)\b(?!<|::)(?:[^;]*|[^;{]*\{.*)$"
)


def types_of(text):
    """Full names of the types that a source defines at namespace level, outside unnamed ones."""
    spaces = []
    for line in text.splitlines():
        if match := NAMESPACE.match(line):
            spaces.append(match.group(1))
        elif END.match(line):
            spaces.pop()
        elif (match := TYPE.match(line)) and "" not in spaces:
            yield "::".join([*spaces, match.group(1)])


def violations(root):
    places = defaultdict(list)
    for file in sorted(Path(root, "src").rglob("*.[ch]pp")):
        for name in types_of(file.read_text(encoding="utf-8")):
            places[name].append(file.relative_to(root).as_posix())
    for name, files in sorted(places.items()):
        if len(files) > 1:
            yield f"{name} is defined in {' and in '.join(files)}"


def main():
    found = list(violations(sys.argv[1]))
    print("\n".join(found) if found else "every type is defined once")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
