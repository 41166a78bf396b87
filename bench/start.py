"""Row `start`: seconds from exec of `train` to the end of its first step, a tiny model, 2 ranks."""

import subprocess
import tempfile
import time
from pathlib import Path

from common import BUILD, ROOT, figures, print_table, take_turns

TARGET_S = 0.3
RUN_FILE = f"""
[model]
preset = "llama-tiny"
[data]
train = ["{ROOT}/README.md"]
sequence_length = 64
[train]
steps = 1
global_batch = 4
micro_batch = 2
[parallel]
dp = 2
tp = 1
threads_per_rank = 1
[checkpoint]
every = 0
"""


def seconds_to_first_step():
    """Until the metrics hold the line of step 1."""
    with tempfile.TemporaryDirectory() as scratch:
        run_file = Path(scratch) / "start.toml"
        run_file.write_text(RUN_FILE, encoding="utf-8")
        folder = Path(scratch) / "run"
        metrics = folder / "metrics.jsonl"
        begin = time.perf_counter()
        command = [BUILD / "shardwright", "train", run_file, "--out", folder]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            while not (metrics.exists() and metrics.stat().st_size > 0):
                if process.poll() not in (None, 0):
                    raise SystemExit("shardwright train failed")
                time.sleep(0.001)
            seconds = time.perf_counter() - begin
    return {"seconds": [seconds]}


def run(rounds):
    found = figures(take_turns(max(rounds, 10), {"train": seconds_to_first_step}))
    value = found["train"]["seconds"]
    print_table(["exec to first step", "median", "low", "high", "at most"],
                [["seconds", *(f"{value[key]:.3f}" for key in ("median", "low", "high")), TARGET_S]])
    return found
