"""Rows `bubble` and `overlap`: real Programs whose work is replaced by waits, so that 8 stages fit on 2
cores: how long stages of a pipeline do nothing, against the closed form; and how much of what is
sent is hidden behind computing when the wire needs half as long as it.
"""

import json

from common import BUILD, figures, output_of, print_table, take_turns


def lines(what):
    return [json.loads(line) for line in output_of([BUILD / "bench/timed_bench", what]).splitlines()]


def run_bubble(rounds):
    closed = {}

    def measure():
        found = {}
        for line in lines("pipeline"):
            case = (line["schedule"], line["stages"], line["micro_batches"])
            closed[case] = line["closed_form"]
            found[case] = [100 * line["idle"]]
        return found

    samples = take_turns(rounds, {"idle": measure})
    found = figures(samples)["idle"]
    print_table(
        ["schedule", "stages", "micro-batches", "closed form, %", "idle, %", "low", "high"],
        [[*case, f"{100 * closed[case]:.1f}",
          *(f"{found[' '.join(map(str, case))][key]:.1f}" for key in ("median", "low", "high"))]
         for case in closed],
    )
    return found


def run_overlap(rounds):
    found = figures(take_turns(rounds, {
        "hidden": lambda: {f"ZeRO-{line['zero']}": [100 * line["hidden"]] for line in lines("overlap")},
    }))["hidden"]
    print_table(["", "hidden, %", "low", "high"],
                [[name, *(f"{value[key]:.1f}" for key in ("median", "low", "high"))]
                 for name, value in found.items()])
    return found
