"""What all rows share: where things are, taking turns, figures, tables."""

import os
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path(os.environ.get("SW_BENCH_BUILD", ROOT / "build/release"))
PEERS = ROOT / "build/bench-peers"


def output_of(command, **options):
    """What a program prints; ends the run with what it complained of if it fails."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def take_turns(rounds, contestants):
    """Calls every contestant once a round. `contestants`: name -> function that returns a dict of
    lists of samples. Returns name -> key -> all samples."""
    samples = {name: {} for name in contestants}
    for number in range(rounds):
        for name, measure in contestants.items():
            for key, values in measure().items():
                samples[name].setdefault(key, []).extend(values)
        print(f"round {number + 1} of {rounds} done", flush=True)
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
