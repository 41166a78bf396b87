"""Row `ranks`: tokens per second of two ranks with one thread each (data parallel, shm) against one
rank with two threads, same global batch, 6 layers 384 wide; and the share of a step in which they
communicate while nothing is computed.
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


def exposed_share(events):
    """Of a step of one run: the largest share of any rank in which it communicates and computes
    nothing. `events`: its trace, in which stream 0 of each rank computes."""
    shares = []
    for rank in sorted({event["pid"] for event in events if event["ph"] == "X"}):
        spans = [(event["ts"], event["ts"] + event["dur"], event["tid"] == 0)
                 for event in events if event["ph"] == "X" and event["pid"] == rank]
        changes = sorted([(begin, 1, computes) for begin, _, computes in spans]
                         + [(end, -1, computes) for _, end, computes in spans])
        running = {True: 0, False: 0}
        exposed = 0
        before = changes[0][0]
        for at, change, computes in changes:
            if running[False] > 0 and running[True] == 0:
                exposed += at - before
            running[computes] += change
            before = at
        shares.append(exposed / (changes[-1][0] - changes[0][0]))
    return max(shares)


def measure(settings):
    """Tokens per second of each step of one run, without the first ones; exposed communication of
    the last, in per cent."""
    with tempfile.TemporaryDirectory() as scratch:
        run_file = Path(scratch) / "bench.toml"
        run_file.write_text(RUN_FILE, encoding="utf-8")
        folder = Path(scratch) / "run"
        sets = [word for setting in settings for word in ("--set", setting)]
        output_of([BUILD / "shardwright", "train", run_file, "--out", folder, *sets])
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        trace = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
    steps = [json.loads(line)["tokens_per_second"] for line in lines]
    return {"tokens_per_second": steps[WARM_UP_STEPS:],
            "exposed_percent": [100 * exposed_share(trace["traceEvents"])]}


def run(rounds):
    found = figures(take_turns(rounds, {
        name: lambda settings=settings: measure(settings)
        for name, settings in LAYOUTS.items()
    }))
    one = found["1 rank x 2 threads"]["tokens_per_second"]["median"]
    print_table(
        ["tokens/s", "median", "low", "high", "of 1 rank", "exposed communication, %"],
        [[name, *(f"{value['tokens_per_second'][key]:.0f}" for key in ("median", "low", "high")),
          f"{value['tokens_per_second']['median'] / one:.2f}",
          f"{value['exposed_percent']['median']:.1f}"] for name, value in found.items()],
    )
    return found
