#!/usr/bin/env python3
"""resume_test.py PROGRAM: a run that stops and goes on is the run that did not."""

import shutil

import shardwright

STEPS = 10
KEYS = {
    "train.steps": STEPS,
    "optimizer.learning_rate": 1e-2,
    "optimizer.warmup_steps": 2,
    "checkpoint.every": 1,
    "checkpoint.keep": STEPS,
}


class ResumedRuns(shardwright.SystemTest):
    def test_give_the_same_bits_from_every_step(self):
        reference = None
        for communicator in ("shm", "local"):
            for zero in (0, 1):
                whole = f"{communicator}{zero}"
                keys = {**KEYS, "parallel.communicator": communicator}
                self.train(whole, keys, dp=2, zero=zero)
                result = (self.digests(whole, STEPS), self.losses(whole))
                # Neither the communicator nor the ZeRO level changes a bit.
                self.assertEqual(result, reference or result)
                reference = result
                for step in range(0, STEPS):
                    with self.subTest(communicator=communicator, zero=zero, step=step):
                        out = f"{whole}from{step}"
                        shutil.copytree(self.folder / whole, self.folder / out)
                        for later in range(step + 1, STEPS + 1):
                            shutil.rmtree(self.checkpoint(out, later))
                        done = self.train(out, keys, "--resume", dp=2, zero=zero)
                        self.assertIn(f"step {step + 1}/{STEPS}", done.stderr)
                        self.assertNotIn(f"step {step}/{STEPS}", done.stderr)
                        self.assertEqual((self.digests(out, STEPS), self.losses(out)), result)

    def test_that_were_finished_do_nothing_or_more_steps(self):
        self.train("run", {**KEYS, "optimizer.schedule": "constant"}, dp=2)
        before = self.digests("run", STEPS)
        self.train("run", {**KEYS, "optimizer.schedule": "constant"}, "--resume", dp=2)
        self.assertEqual(self.digests("run", STEPS), before)
        more = {**KEYS, "optimizer.schedule": "constant", "train.steps": STEPS + 2}
        self.train("run", more, "--resume", dp=2)
        self.assertEqual([line["step"] for line in self.metrics("run")], list(range(1, STEPS + 3)))

    def test_change_tensor_parallel_and_zero_as_well(self):
        keys = {**KEYS, "train.steps": 4, "checkpoint.every": 2}
        self.train("run", keys, dp=2, tp=2, zero=1)
        expected = self.losses("run")
        for number, sizes in enumerate([{"dp": 4, "zero": 0}, {"dp": 1, "tp": 4}, {}]):
            out = f"other{number}"
            shutil.copytree(self.folder / "run", self.folder / out)
            shutil.rmtree(self.checkpoint(out, 4))
            self.train(out, keys, "--resume", **sizes)
            # Two updates of Adam at 1e-2 after sums in another order.
            self.assert_close_losses(self.losses(out), expected, 1e-5)

    def test_go_past_a_damaged_checkpoint_to_the_one_before(self):
        keys = {**KEYS, "train.steps": 3}
        self.train("run", keys, dp=2)
        expected = self.digests("run", 3)
        data = self.checkpoint("run", 3) / "rank-00001.safetensors"
        content = bytearray(data.read_bytes())
        content[-1] ^= 1
        data.write_bytes(content)
        (self.checkpoint("run", 2) / "rank-00000.json").unlink()
        done = self.train("run", keys, "--resume", dp=2)
        self.assertIn("step-000003", done.stderr)
        self.assertIn("step-000002", done.stderr)
        self.assertIn("(step 1)", done.stderr)
        self.assertEqual(self.digests("run", 3), expected)


if __name__ == "__main__":
    shardwright.main()
