#!/usr/bin/env python3
"""kill_test.py PROGRAM: ranks that die, stop or hang (cases C050, C084)."""

import os
import random
import re
import shutil
import signal
import socket
import time

import shardwright

KEYS = {
    "train.steps": 100000,
    "train.global_batch": 8,
    "optimizer.schedule": "constant",
    "checkpoint.every": 2,
    "checkpoint.keep": 2,
    "data.log_samples": True,
    "parallel.deadline_s": 10,
}


def ranks_of(launcher):
    """{rank: process id} of the ranks that a launcher has started."""
    ranks = {}
    with open(f"/proc/{launcher}/task/{launcher}/children", encoding="ascii") as children:
        for child in children.read().split():
            try:
                with open(f"/proc/{child}/cmdline", "rb") as file:
                    arguments = file.read().split(b"\0")
            except OSError:
                continue
            if len(arguments) > 2 and arguments[1] == b"__rank":
                ranks[int(arguments[2])] = int(child)
    return ranks


def shared_memory():
    return sorted(os.listdir("/dev/shm"))


class KilledRanks(shardwright.SystemTest):
    def setUp(self):
        super().setUp()
        self.seed = random.randrange(2**32)
        self.random = random.Random(self.seed)
        self.run_file = self.write_run(KEYS, dp=2, tp=2, zero=1)
        self.before = shared_memory()

    def start_run(self, *arguments):
        """A run with all its ranks started and at least one step of this launch behind it."""
        process = self.start("train", self.run_file, "--out", "run", *arguments)
        for line in process.stderr:
            if line.startswith("step "):
                break
        else:
            self.fail(f"no step: status {process.wait()}")
        ranks = ranks_of(process.pid)
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        return process, ranks

    def end(self, process, within):
        started = time.monotonic()
        _, errors = process.communicate(timeout=within)
        self.assertLessEqual(time.monotonic() - started, within)
        return errors

    def assert_nothing_is_left(self, ranks):
        for rank, process in ranks.items():
            self.assertFalse(os.path.exists(f"/proc/{process}"), f"rank {rank}, seed {self.seed}")
        self.assertEqual(shared_memory(), self.before)

    def checkpoints(self):
        folder = self.folder / "run" / "checkpoints"
        return sorted(path.name for path in folder.glob("step-*")) if folder.exists() else []

    def test_end_the_run_with_their_name_and_leave_a_checkpoint_to_resume_from(self):
        kills = int(os.environ.get("SW_KILLS", shardwright.soak(20, 200)))
        for kill in range(kills):
            with self.subTest(kill=kill, seed=self.seed):
                process, ranks = self.start_run(*(["--resume"] if kill > 0 else []))
                victim = self.random.randrange(4)
                # A moment anywhere in the next few steps and saves.
                time.sleep(self.random.uniform(0, 0.2))
                os.kill(ranks[victim], signal.SIGKILL)
                errors = self.end(process, within=KEYS["parallel.deadline_s"] + 5)
                self.assertEqual(process.returncode, shardwright.FAILED, errors)
                verdicts = [line for line in errors.splitlines() if "killed by" in line]
                self.assertEqual(len(verdicts), 1, errors)
                self.assertRegex(
                    verdicts[0], rf"rank {victim} on {re.escape(socket.gethostname())}"
                )
                self.assertIn("signal 9", verdicts[0])
                self.assert_nothing_is_left(ranks)
                for name in self.checkpoints():
                    path = self.folder / "run" / "checkpoints" / name
                    self.command("checkpoint", "verify", path)
        # What the kills left is the run that nobody killed. (On a machine with much else to do, none
        # of them may have come after a checkpoint.)
        last = int(self.checkpoints()[-1].partition("-")[2]) if self.checkpoints() else 0
        final = {**KEYS, "train.steps": last + 2}
        self.train("run", final, "--resume", dp=2, tp=2, zero=1)
        leftovers = [p.name for p in (self.folder / "run" / "checkpoints").iterdir()]
        self.assertEqual([name for name in leftovers if not name.startswith("step-")], [])
        self.train("whole", final, dp=2, tp=2, zero=1)
        self.assertEqual(self.digests("run", last + 2), self.digests("whole", last + 2))
        self.assertEqual(self.losses("run"), self.losses("whole"))
        self.assertEqual(self.samples("run"), self.samples("whole"))

    def test_die_with_their_launcher(self):
        process, ranks = self.start_run()
        process.kill()
        process.wait()
        deadline = time.monotonic() + 10
        while any(os.path.exists(f"/proc/{rank}") for rank in ranks.values()):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assert_nothing_is_left(ranks)
        last = int(self.checkpoints()[-1].partition("-")[2]) if self.checkpoints() else 0
        self.train("run", {**KEYS, "train.steps": last + 2}, "--resume", dp=2, tp=2, zero=1)
        self.assertEqual(len(self.metrics("run")), last + 2)

    def test_that_hang_are_named_and_end_the_run(self):
        self.run_file = self.write_run({**KEYS, "parallel.deadline_s": 2}, dp=2, tp=2, zero=1)
        process, ranks = self.start_run()
        os.kill(ranks[2], signal.SIGSTOP)
        # The ranks' deadline, then as long again for those that do not end by themselves.
        errors = self.end(process, within=2 + 5)
        self.assertEqual(process.returncode, shardwright.FAILED, errors)
        (verdict,) = [line for line in errors.splitlines() if "no arrival" in line]
        self.assertIn("rank 2", verdict)
        # Which collective, the how manyth, of which group, and what the missing rank was doing.
        self.assertRegex(verdict, r"(all_reduce|reduce_scatter|all_gather) #\d+")
        self.assertIn("group", verdict)
        self.assertIn("instruction", verdict)
        self.assert_nothing_is_left(ranks)


class StoppedRuns(shardwright.SystemTest):
    def test_save_at_the_next_step_and_go_on_to_the_same_bits(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            for communicator in ("shm", "local"):
                with self.subTest(signal=number.name, communicator=communicator):
                    shutil.rmtree(self.folder / "run", ignore_errors=True)
                    keys = {**KEYS, "checkpoint.every": 1000, "parallel.communicator": communicator}
                    process = self.start("train", self.write_run(keys, dp=2), "--out", "run")
                    next(line for line in process.stderr if line.startswith("step 2/"))
                    process.send_signal(number)
                    _, errors = process.communicate(timeout=30)
                    self.assertEqual(process.returncode, shardwright.STOPPED, errors)
                    self.assertIn("--resume", errors)
                    step = len(self.metrics("run"))
                    self.digests("run", step)
                    final = {**keys, "train.steps": step + 2}
                    self.train("run", final, "--resume", dp=2)
                    shutil.rmtree(self.folder / "whole", ignore_errors=True)
                    self.train("whole", final, dp=2)
                    self.assertEqual(self.digests("run", step + 2), self.digests("whole", step + 2))
                    self.assertEqual(self.losses("run"), self.losses("whole"))


if __name__ == "__main__":
    shardwright.main()
