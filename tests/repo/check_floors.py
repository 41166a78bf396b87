#!/usr/bin/env python3
"""check_floors.py ROOT: fails when a file under ROOT/src includes what it must not know.

A file includes from its own floor and from the levels below (src/floors.txt), always by the path
from src/; a library's header only in the folder that wraps it.
"""

import re
import sys
from pathlib import Path

# Header of a library -> where it may be included: folders, or single files.
LIBRARIES = [
    (r"hwy/", ["kernels/cpu/", "comm/"]),
    (r"nlohmann/", ["base/json.hpp"]),
    (r"toml\+\+/|toml\.hpp", ["cli/"]),
    (r"CLI/", ["cli/"]),
    (r"xxh", ["base/"]),
    (r"pcre2", ["data/"]),
    (r"mpi\.h", ["comm/mpi/"]),
    (r"nccl", ["comm/nccl/"]),
    (r"cuda|cublas|cudnn", ["device/cuda/", "kernels/cuda/", "comm/nccl/"]),
    (r"gtest/|gmock/|rapidcheck", []),
]

SOURCES = {".cpp", ".hpp", ".h", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


def read_levels(floors_file):
    """Floor -> level, counted from the ground."""
    lines = [line.split("#")[0].split() for line in floors_file.read_text().splitlines()]
    return {floor: level for level, floors in enumerate(filter(None, lines)) for floor in floors}


def why_not_floor(path, header, levels):
    """Why `path` must not include "header" (both from src/), or None."""
    floor, target = path.split("/")[0], header.split("/")[0]
    if target not in levels or "/" not in header:
        return f'"{header}" is not a path from src/ that starts with a floor'
    if target == floor or levels[target] < levels[floor]:
        return None
    relation = "beside" if levels[target] == levels[floor] else "above"
    return f'"{header}": {target} stands {relation} {floor}'


def why_not_library(path, header):
    for pattern, places in LIBRARIES:
        if re.match(pattern, header) and not any(path.startswith(place) for place in places):
            return f"<{header}> belongs in {' or '.join(places) or 'tests/'} only"
    return None


def violations(root):
    source_root = Path(root) / "src"
    levels = read_levels(source_root / "floors.txt")
    for file in sorted(source_root.rglob("*")):
        if file.suffix not in SOURCES:
            continue
        path = file.relative_to(source_root).as_posix()
        if path.split("/")[0] not in levels:
            yield f"src/{path}: its folder is no floor of src/floors.txt"
            continue
        text = file.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            quote, header = match.groups()
            reason = why_not_library(path, header)
            if reason is None and quote == '"':
                reason = why_not_floor(path, header, levels)
            if reason is not None:
                line = text.count("\n", 0, match.start(2)) + 1
                yield f"src/{path}:{line}: {reason}"


def main():
    found = list(violations(sys.argv[1]))
    print("\n".join(found) if found else "every include stays on its floor or goes down")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
