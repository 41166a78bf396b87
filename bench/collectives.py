"""Rows `collectives` (2 ranks) and `crowded` (4 ranks on 2 cores): `shm` against Open MPI, MPICH
and Gloo; float32, all-reduce in place, the others out of place; sizes are those of the whole
buffer. Large ones are also held to the copy and add bandwidth of as many threads.
"""

import json
import os

import limits
from common import BUILD, ROOT, figures, output_of, print_table, take_turns
from peers import MPIS, mpi_command, torch_python

KINDS = ("all_reduce", "reduce_scatter", "all_gather")
SIZES = [1 << power for power in range(10, 29, 2)]
CROWDED_SIZES = [1 << power for power in range(16, 27, 2)]
LARGE = 64 << 20


def cases(sizes, fewer=1):
    """KIND:BYTES:CALLS:BATCHES. Batches of about a millisecond, so that few are disturbed."""
    for kind in KINDS:
        for size in sizes:
            calls = max(1, min(100, (2 << 20) // size) // fewer)
            yield f"{kind}:{size}:{calls}:{3 if size >= LARGE else 20}"


def timed(command):
    found = {}
    for line in output_of(command).splitlines():
        result = json.loads(line)
        found[(result["kind"], result["bytes"])] = result["seconds"]
    return found


def limit_of(kind, size, ranks, bandwidth):
    """Seconds that the additions and copies of one rank take at the measured bandwidth, which is
    that of `ranks` threads at once."""
    share = {key: value["median"] / ranks for key, value in bandwidth.items()}
    part = size / ranks
    if kind == "all_reduce":
        return part / share["add_in_place_bytes_per_s"] + (size - part) / share["copy_bytes_per_s"]
    if kind == "reduce_scatter":
        return part / share["add_bytes_per_s"]
    return size / share["copy_bytes_per_s"]


def compare(ranks, sizes, rounds):
    gloo = [torch_python(), ROOT / "bench/collectives/gloo.py", ranks, *cases(sizes, fewer=10)]
    contestants = {
        "limits": lambda: limits.measure(min(ranks, os.cpu_count()), "memory"),
        "shm": lambda: timed([BUILD / "bench/collectives_bench", ranks, *cases(sizes)]),
        **{which: lambda which=which: timed([*mpi_command(which, ranks), *cases(sizes)])
           for which in MPIS},
        "gloo": lambda: timed(gloo),
    }
    samples = take_turns(rounds, contestants)
    bandwidth = figures({"limits": samples.pop("limits")})["limits"]
    return samples, bandwidth


def show(samples, bandwidth, ranks, sizes):
    found = figures(samples)
    lines = []
    for kind in KINDS:
        for size in sizes:
            of = {name: found[name].get(f"{kind} {size}") for name in found}
            ratio = {
                key: min(value[key] for name, value in of.items() if value and name != "shm")
                / of["shm"][key]
                for key in ("median", "low")
            }
            ours = of["shm"]["median"]
            limit = limit_of(kind, size, ranks, bandwidth) if size >= LARGE and ranks == 2 else None
            lines.append([
                kind, f"{size >> 10} KiB",
                *(f"{value['median'] * 1e6:.1f}" if value else "-" for value in of.values()),
                f"{of['shm']['low'] * 1e6:.1f}..{of['shm']['high'] * 1e6:.1f}",
                f"{ratio['median']:.2f}", f"{ratio['low']:.2f}",
                f"{limit / ours:.0%}" if limit else "",
            ])
    print_table(["microseconds", "", *found, "shm, range", "best peer / shm", "lowest / lowest",
                 "of limit"], lines)
    return {"ranks": ranks, "bandwidth": bandwidth, **found}


def run(rounds):
    return show(*compare(2, SIZES, rounds), 2, SIZES)


def run_crowded(rounds):
    return show(*compare(4, CROWDED_SIZES, rounds), 4, CROWDED_SIZES)
