"""Row `train`: tokens per second of GPT-2 sizes on all cores of one process against PyTorch (eager
and compiled), with the share of the machine's multiply-add peak, probed in every round, and the peak
of resident memory."""

import json
import os
import resource
import subprocess
import tempfile
import time
from pathlib import Path

import limits
from common import BUILD, ROOT, figures, output_of, print_table, take_turns
from peers import torch_python

VOCABULARY = 50257
POSITIONS = 1024
STEPS = 4
WARM_UP_STEPS = 1
# A peer that takes so many times as long as all of a run of shardwright is given up, after time to
# start and compile: PyTorch computes bfloat16 one number at a time where the CPU has no instructions
# for it.
PATIENCE = 6
START_S = 120
#        name: preset, layers, width, heads, batch, sequence
MODELS = {
    "GPT-2 124M": ("gpt2", 12, 768, 12, 4, 512),
    "6 x 384": ("gpt2-small-384", 6, 384, 6, 16, 256),
}
PRECISIONS = ("float32", "bfloat16")


def flops_per_token(layers, width, sequence):
    """6 x parameters + 12 x layers x width x sequence."""
    block = 12 * width * width + 13 * width
    parameters = (VOCABULARY + POSITIONS) * width + layers * block + 2 * width
    return 6 * parameters + 12 * layers * width * sequence


def shardwright(model, precision):
    preset, _, _, _, batch, sequence = model
    with tempfile.TemporaryDirectory() as scratch:
        run_file = Path(scratch) / "bench.toml"
        run_file.write_text(
            f'[model]\npreset = "{preset}"\n'
            f'[data]\ntrain = ["{ROOT}/src/*/*.cpp"]\nsequence_length = {sequence}\n'
            f"[train]\nsteps = {WARM_UP_STEPS + STEPS}\nglobal_batch = {batch}\n"
            f'micro_batch = {batch}\nprecision = "{precision}"\n'
            f"[parallel]\ndp = 1\ntp = 1\nthreads_per_rank = {os.cpu_count()}\n"
            "[checkpoint]\nevery = 0\n",
            encoding="utf-8",
        )
        folder = Path(scratch) / "run"
        command = [BUILD / "shardwright", "train", run_file, "--out", folder]
        # A process of its own, so that the peak of its children is that of this run.
        output_of(["python3", __file__, *command, "--", Path(scratch) / "peak"])
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        peak = int((Path(scratch) / "peak").read_text(encoding="utf-8"))
    steps = [json.loads(line)["tokens_per_second"] for line in lines]
    return {"tokens_per_second": steps[WARM_UP_STEPS:], "peak_bytes": [peak]}


def torch(model, precision, mode, patience_s):
    _, layers, width, heads, batch, sequence = model
    found = json.loads(output_of([torch_python(), ROOT / "bench/torch_train.py", layers, width, heads,
                                  batch, sequence, precision, mode, STEPS],
                                 patience_s=patience_s).splitlines()[-1])
    tokens = batch * sequence
    return {"tokens_per_second": [tokens / seconds for seconds in found["seconds"]],
            "peak_bytes": [found["peak_bytes"]]}


def take_turns_with_torch(rounds, model, precision):
    seconds = 0.0

    def ours():
        nonlocal seconds
        begin = time.monotonic()
        found = shardwright(model, precision)
        seconds = time.monotonic() - begin
        return found

    def torch_in(mode):
        return lambda: torch(model, precision, mode, START_S + PATIENCE * seconds)

    return figures(take_turns(rounds, {
        "peak": lambda: limits.measure(os.cpu_count(), "fma"),
        "shardwright": ours,
        "torch eager": torch_in("eager"),
        "torch compiled": torch_in("compiled"),
    }))


def line_of(title, found, flops):
    """A line of the table; `flops` are those of a token."""
    peak = found["peak"].get("fma_flops_per_s", {"median": 0})["median"]
    rates = {key: found[key]["tokens_per_second"]["median"] if found[key] else None
             for key in found if key != "peak"}
    ours = rates["shardwright"]
    best_peer = max((rate for key, rate in rates.items() if rate and key != "shardwright"),
                    default=None)
    return [
        title,
        *(f"{rate:.0f}" if rate else "-" for rate in rates.values()),
        f"{ours / best_peer:.2f}" if best_peer else "-",
        *(f"{rate * flops / peak:.0%}" if peak and rate else "-" for rate in (ours, best_peer)),
        *(f"{found[key]['peak_bytes']['median'] / 1e6:.0f}" if found[key] else "-"
          for key in rates),
    ]


def run(rounds):
    results = {}
    lines = []
    for name, model in MODELS.items():
        for precision in PRECISIONS:
            found = take_turns_with_torch(rounds, model, precision)
            results[f"{name} {precision}"] = found
            flops = flops_per_token(model[1], model[2], model[5])
            lines.append(line_of(f"{name}, {precision}", found, flops))
    print_table(["tokens/s", "shardwright", "eager", "compiled", "ratio", "share of float32 peak",
                 "peer's", "MB", "eager", "compiled"], lines)
    return results


def run_and_note_peak(words):
    command, (target,) = words[: words.index("--")], words[words.index("--") + 1 :]
    subprocess.run(command, check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    Path(target).write_text(str(peak), encoding="utf-8")


if __name__ == "__main__":
    import sys

    run_and_note_peak(sys.argv[1:])
