"""python3 bench [--rounds N] [--json FILE] [ROW…]: what ./dev bench runs. Every row is measured
side by side with its peers: the programs of a row take turns, round by round, and a figure is the
median over all rounds, with the lowest and the highest.
"""

import argparse
import json
import sys
from pathlib import Path

import adamw
import collectives
import limits
import ranks
import start
import timed
import train

ROWS = {
    "limits": limits.run,
    "collectives": collectives.run,
    "crowded": collectives.run_crowded,
    "ranks": ranks.run,
    "train": train.run,
    "start": start.run,
    "adamw": adamw.run,
    "bubble": timed.run_bubble,
    "overlap": timed.run_overlap,
}


def main():
    parser = argparse.ArgumentParser(prog="./dev bench")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(ROWS)}; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"))
    arguments = parser.parse_args()
    unknown = [row for row in arguments.rows if row not in ROWS]
    if unknown:
        parser.error(f"no row {unknown[0]}; there are {', '.join(ROWS)}")
    results = {}
    for name in arguments.rows or ROWS:
        print(f"\n== {name}", flush=True)
        results[name] = ROWS[name](arguments.rounds)
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"\nall figures: {arguments.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
