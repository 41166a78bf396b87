"""What all rows share: where things are, taking turns, figures, tables."""

import os
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("SW_BENCH_BUILD", ROOT / "build/release"))
PEERS = ROOT / "build/bench-peers"


class GivenUp(Exception):
    """A contestant took too long."""


def output_of(command, patience_s=None, **options):
    """What a program prints; ends the run with what it complained of if it fails. Raises GivenUp
    after `patience_s`."""
    try:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                              check=False, timeout=patience_s, **options)
    except subprocess.TimeoutExpired as slow:
        raise GivenUp(f"not done after {patience_s:.0f} s") from slow
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def take_turns(rounds, contestants):
    """Calls every contestant once a round. `contestants`: name -> function that returns a dict of
    lists of samples. Returns name -> key -> all samples. Who was given up takes no further turns,
    and has no samples if it never ended one."""
    samples = {name: {} for name in contestants}
    left = dict(contestants)
    seconds = {}
    for number in range(1, rounds + 1):
        for name, measure in list(left.items()):
            begin = time.monotonic()
            try:
                for key, values in measure().items():
                    samples[name].setdefault(key, []).extend(values)
                seconds[name] = time.monotonic() - begin
            except GivenUp as reason:
                del left[name]
                print(f"{name}: {reason}; it takes no further turns", flush=True)
        rest = sum(seconds[name] for name in left) * (rounds - number)
        note = f", about {rest / 60:.1f} min left" if number < rounds else ""
        print(f"round {number} of {rounds} done{note}", flush=True)
    return samples


def figure(values):
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def figures(samples):
    """name -> key -> figure; keys as text, for JSON."""
    return {
        name: {" ".join(map(str, key)) if isinstance(key, tuple) else key: figure(values)
               for key, values in keys.items()}
        for name, keys in samples.items()
    }


def print_table(header, lines):
    rows = [header, *lines]
    widths = [max(len(str(row[i])) for row in rows) for i in range(len(header))]
    for row in rows:
        print("  ".join(str(cell).rjust(width) for cell, width in zip(row, widths)))
