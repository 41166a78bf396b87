#!/usr/bin/env python3
"""saving_test.py PROGRAM: checkpoints beside training (cases C052, C055, C056)."""

import os
import shutil
import subprocess
import unittest
from pathlib import Path

import shardwright


class Saving(shardwright.SystemTest):
    def test_in_the_background_writes_what_saving_in_the_foreground_does(self):
        steps = 30
        keys = {"train.steps": steps, "checkpoint.every": 1, "checkpoint.keep": steps}
        digests = {}
        for background in (True, False):
            out = f"run{background}"
            self.train(out, {**keys, "checkpoint.background": background}, dp=2, zero=1)
            inspected = [self.checkpoint(out, step) for step in range(1, steps + 1)]
            self.assertEqual(sorted((self.folder / out / "checkpoints").iterdir()), inspected)
            digests[out] = [self.digests(out, step) for step in range(1, steps + 1)]
        self.assertEqual(digests["runTrue"], digests["runFalse"])
        # Every step has its own: nothing was saved twice under two names.
        self.assertEqual(len({str(sorted(d.items())) for d in digests["runTrue"]}), steps)

    def test_keeps_the_newest_of_its_own_run_in_numeric_order(self):
        keys = {"checkpoint.every": 9, "checkpoint.keep": 2, "optimizer.schedule": "constant"}
        self.train("other", {"train.steps": 1, "checkpoint.every": 1, "train.seed": 7})
        folder = self.folder / "run" / "checkpoints"
        self.train("run", {**keys, "train.steps": 9, "checkpoint.every": 9})
        # Beside them: step 5000 of another run, and a folder that is no checkpoint.
        foreign = folder / "step-005000"
        shutil.copytree(self.checkpoint("other", 1), foreign)
        (folder / "notes").mkdir()
        self.train("run", {**keys, "train.steps": 11, "checkpoint.every": 1}, "--resume")
        names = sorted(path.name for path in folder.iterdir())
        self.assertEqual(names, ["notes", "step-000010", "step-000011", "step-005000"])
        # Going on from an older step, the one just written is never the one deleted.
        shutil.rmtree(foreign)
        shutil.rmtree(self.checkpoint("run", 11))
        done = self.train("run", {**keys, "train.steps": 12, "checkpoint.every": 1}, "--resume")
        self.assertIn("(step 10)", done.stderr)
        names = sorted(path.name for path in folder.iterdir())
        self.assertEqual(names, ["notes", "step-000011", "step-000012"])


CGROUP = Path("/sys/fs/cgroup")
VERSION_2 = (CGROUP / "cgroup.controllers").exists()


class MemoryOfSaving(shardwright.SystemTest):
    """Four ranks in a memory control group of 1.3 times what they need without saving."""

    keys = {
        "model.config.hidden_size": 256,
        "model.config.intermediate_size": 688,
        "model.config.num_hidden_layers": 6,
        "train.steps": 3,
        "train.global_batch": 4,
        "train.micro_batch": 1,
        "optimizer.schedule": "constant",
    }

    def group(self, name):
        """A control group with a limit on memory, or why there is none."""
        base = CGROUP if VERSION_2 else CGROUP / "memory"
        path = base / f"shardwright-{os.getpid()}-{name}"
        try:
            path.mkdir()
        except OSError as error:
            self.skipTest(f"no memory control group here: {error}")
        self.addCleanup(path.rmdir)
        if not (path / ("memory.max" if VERSION_2 else "memory.limit_in_bytes")).exists():
            self.skipTest(f"{path} does not limit memory")
        return path

    def run_in(self, group, limit, *arguments):
        if limit is not None:
            name = "memory.max" if VERSION_2 else "memory.limit_in_bytes"
            (group / name).write_text(str(limit), encoding="ascii")
        script = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
        done = subprocess.run(
            ["sh", "-c", script, str(group), shardwright.PROGRAM, *map(str, arguments)],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, shardwright.DONE, done.stderr)
        name = "memory.peak" if VERSION_2 else "memory.max_usage_in_bytes"
        if not (group / name).exists():
            self.skipTest(f"{group} does not tell its peak")
        return int((group / name).read_text(encoding="ascii"))

    @unittest.skipIf(os.geteuid() != 0, "a memory control group needs root")
    def test_fits_in_a_third_more_than_training_needs(self):
        run = self.write_run(self.keys, dp=4, zero=1)
        steady = self.run_in(self.group("steady"), None, "train", run, "--out", "steady")
        limit = int(1.3 * steady)
        # In the background a rank copies its own state first: with dp = 4 and ZeRO-1 that alone is 3
        # bytes for each 10 of weights, gradients and moments. The bound is that of the foreground.
        saving = self.write_run(
            {**self.keys, "checkpoint.every": 1, "checkpoint.background": False}, "saving.toml", dp=4, zero=1
        )
        peak = self.run_in(self.group("saving"), limit, "train", saving, "--out", "run")
        self.assertLessEqual(peak, limit)
        checkpoint = self.checkpoint("run", 3)
        self.run_in(
            self.group("export"), limit, "checkpoint", "convert", checkpoint, "--out", "exported"
        )
        more = self.write_run(
            {**self.keys, "train.steps": 4, "checkpoint.background": False}, "more.toml", dp=4, zero=1
        )
        self.run_in(self.group("load"), limit, "train", more, "--out", "run", "--resume")
        self.assertEqual(self.losses("run")[:3], self.losses("steady"))


if __name__ == "__main__":
    shardwright.main()
