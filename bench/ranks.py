"""Row `ranks`: tokens per second of two ranks with one thread each (data parallel, shm) against one
rank with two threads, same global batch, 6 layers 384 wide; and how much of a step the two ranks
wait for each other where nothing else runs.
"""

import json
import tempfile
from pathlib import Path

from common import BUILD, ROOT, figures, output_of, print_table, take_turns

WARM_UP_STEPS = 1
RUN_FILE = f"""
[model]
preset = "gpt2-small-384"
[data]
train = ["{ROOT}/src/*/*.cpp"]
sequence_length = 256
[train]
steps = 6
global_batch = 16
[parallel]
tp = 1
[checkpoint]
every = 0
"""
LAYOUTS = {
    "1 rank x 2 threads": ["parallel.dp=1", "train.micro_batch=16", "parallel.threads_per_rank=2"],
    "2 ranks x 1 thread": ["parallel.dp=2", "train.micro_batch=8", "parallel.threads_per_rank=1"],
    "2 ranks, ZeRO-1": ["parallel.dp=2", "train.micro_batch=8", "parallel.threads_per_rank=1",
                        "parallel.zero=1"],
}


def tokens_per_second(settings):
    """Of each step of one run, without the first ones."""
    with tempfile.TemporaryDirectory() as scratch:
        run_file = Path(scratch) / "bench.toml"
        run_file.write_text(RUN_FILE, encoding="utf-8")
        folder = Path(scratch) / "run"
        sets = [word for setting in settings for word in ("--set", setting)]
        output_of([BUILD / "shardwright", "train", run_file, "--out", folder, *sets])
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line)["tokens_per_second"] for line in lines]
    return {"tokens_per_second": steps[WARM_UP_STEPS:]}


def run(rounds):
    found = figures(take_turns(rounds, {
        name: lambda settings=settings: tokens_per_second(settings)
        for name, settings in LAYOUTS.items()
    }))
    one = found["1 rank x 2 threads"]["tokens_per_second"]["median"]
    print_table(
        ["tokens/s", "median", "low", "high", "of 1 rank"],
        [[name, *(f"{value['tokens_per_second'][key]:.0f}" for key in ("median", "low", "high")),
          f"{value['tokens_per_second']['median'] / one:.2f}"] for name, value in found.items()],
    )
    return found
