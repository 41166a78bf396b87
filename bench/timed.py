"""Rows `bubble` and `overlap`: real Programs whose work is replaced by waits, so that 8 stages fit on 2
cores: how long stages of a pipeline do nothing, against the closed form; and how much of what is
sent is hidden behind computing when the wire needs half as long as it.
"""

import json

from common import BUILD, figures, output_of, print_table, take_turns


def lines(what):
    return [json.loads(line) for line in output_of([BUILD / "bench/timed_bench", what]).splitlines()]


def run_bubble(rounds):
    expected = {}

    def measure():
        found = {}
        for line in lines("pipeline"):
            case = (line["schedule"], line["stages"], line["micro_batches"])
            closed = line["closed_form"]
            expected[case] = ["" if closed is None else f"{100 * closed:.1f}",
                              f"{100 * line['unit_times']:.1f}"]
            found[case] = [100 * line["idle"]]
        return found

    samples = take_turns(rounds, {"idle": measure})
    found = figures(samples)["idle"]
    print_table(
        ["schedule", "stages", "micro-batches", "closed form, %", "unit times, %", "idle, %", "low",
         "high"],
        [[*case, *expected[case],
          *(f"{found[' '.join(map(str, case))][key]:.1f}" for key in ("median", "low", "high"))]
         for case in expected],
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
