"""Row `adamw`: one update of 124M parameters against a loop that streams the same bytes."""

import json
import os

from common import BUILD, figures, output_of, print_table, take_turns


def measure():
    lines = output_of([BUILD / "bench/adamw_bench", os.cpu_count()]).splitlines()
    found = [json.loads(line) for line in lines]
    return {key: [line[key] for line in found] for key in ("stream_s", "adamw_s")}


def run(rounds):
    found = figures(take_turns(rounds, {"adamw": measure}))
    rows = found["adamw"]
    print_table(
        ["ms", "median", "low", "high", "of the stream's"],
        [[name, *(f"{1e3 * rows[key][which]:.0f}" for which in ("median", "low", "high")),
          f"{rows[key]['median'] / rows['stream_s']['median']:.2f}"]
         for name, key in (("the same bytes streamed", "stream_s"), ("AdamW", "adamw_s"))],
    )
    return found
