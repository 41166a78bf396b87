"""Peers, each in build/bench-peers; Debian's packages are ./dev's to install."""

import shutil
import sys

from common import PEERS, ROOT, output_of

MPIS = ("openmpi", "mpich")


def mpi_command(which, ranks):
    """Compiles the collectives for an MPI once; the command that runs them on so many ranks."""
    program = PEERS / f"collectives.{which}"
    source = ROOT / "bench/collectives/mpi.cpp"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        PEERS.mkdir(parents=True, exist_ok=True)
        output_of([f"mpicxx.{which}", "-O2", "-std=c++20", source, "-o", program])
    options = ["--allow-run-as-root", "--oversubscribe"] if which == "openmpi" else []
    return [f"mpirun.{which}", *options, "-n", ranks, program]


def torch_python():
    """The interpreter of a virtual environment with PyTorch; installs it the first time."""
    python = PEERS / "torch/bin/python"
    ready = PEERS / "torch/installed"
    if not ready.exists():
        print("installing PyTorch into build/bench-peers/torch", file=sys.stderr, flush=True)
        shutil.rmtree(PEERS / "torch", ignore_errors=True)
        output_of([sys.executable, "-m", "venv", PEERS / "torch"])
        output_of([python, "-m", "pip", "install", "torch", "numpy"])
        ready.touch()
    return python
