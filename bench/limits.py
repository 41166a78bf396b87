"""Row `limits`: what this machine can do, for comparison."""

import json
import os

from common import BUILD, figures, output_of, print_table, take_turns

NAMES = {
    "fma_flops_per_s": "float32 multiply-add, GFLOP/s",
    "copy_bytes_per_s": "copy, GB/s",
    "add_bytes_per_s": "add into a third buffer, GB/s of result",
    "add_in_place_bytes_per_s": "add in place, GB/s of result",
}


def measure(threads, what=None):
    """key -> one sample."""
    found = json.loads(output_of([BUILD / "bench/limits_bench", threads, *([what] if what else [])]))
    return {key: [value] for key, value in found.items() if key in NAMES and value > 0}


def run(rounds):
    contestants = {
        f"{threads} threads": lambda threads=threads: measure(threads)
        for threads in sorted({1, os.cpu_count()})
    }
    found = figures(take_turns(rounds, contestants))
    print_table(
        ["", *found],
        [[text, *(f"{found[name][key]['median'] / 1e9:.1f}" for name in found)]
         for key, text in NAMES.items()],
    )
    return found
