"""gloo.py RANKS CASE…: the same as shardwright.cpp, with Gloo over torch.distributed.

Gloo's reduce_scatter is not part of every version of torch.distributed: then that case is left out.
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist

WARM_UP_CALLS = 3


def call_of(kind, length, ranks):
    whole = torch.zeros(length)
    part = torch.zeros(length // ranks)
    if kind == "all_reduce":
        return lambda: dist.all_reduce(whole)
    if kind == "reduce_scatter":
        return lambda: dist.reduce_scatter_tensor(part, whole)
    return lambda: dist.all_gather_into_tensor(whole, part)


def measure(kind, size, calls, batches, ranks):
    call = call_of(kind, size // 4, ranks)
    for _ in range(WARM_UP_CALLS):
        call()
    seconds = []
    for _ in range(batches):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        seconds.append((time.perf_counter() - start) / calls)
    return seconds


def run_rank(rank, ranks, cases):
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    refused = set()
    for case in cases:
        kind, *numbers = case.split(":")
        if kind in refused:
            continue
        size, calls, batches = map(int, numbers)
        try:
            seconds = measure(kind, size, calls, batches, ranks)
        except RuntimeError as error:
            if "support" not in str(error):
                raise
            refused.add(kind)
            continue
        if rank == 0:
            print(json.dumps({"kind": kind, "bytes": size, "seconds": seconds}), flush=True)
    dist.destroy_process_group()


def main():
    ranks, cases = int(sys.argv[1]), sys.argv[2:]
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    torch.set_num_threads(1)
    children = []
    for rank in range(1, ranks):
        child = os.fork()
        if child == 0:
            run_rank(rank, ranks, cases)
            os._exit(0)
        children.append(child)
    run_rank(0, ranks, cases)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
