#!/usr/bin/env python3
"""optimizer_test.py PROGRAM: the update and what it remembers (cases C023, C025, C026, C029)."""

import json
import shutil

import shardwright


class LearningRate(shardwright.SystemTest):
    def test_depends_on_updates_only(self):
        columns = []
        for ranks in (1, 2, 4):
            keys = {
                "train.steps": 20,
                "optimizer.learning_rate": 1e-3,
                "optimizer.schedule": "linear",
                "optimizer.warmup_steps": 3,
            }
            self.train(f"on{ranks}", keys, dp=ranks)
            columns.append([line["learning_rate"] for line in self.metrics(f"on{ranks}")])
        self.assertEqual(columns[0], columns[1])
        self.assertEqual(columns[0], columns[2])
        # Up over 3 updates, then down to 0 after the 20th.
        self.assertEqual(max(columns[0]), 1e-3)
        self.assertLessEqual(columns[0].index(1e-3), 3)
        self.assertEqual(sorted(columns[0][3:], reverse=True), columns[0][3:])


class Resumed(shardwright.SystemTest):
    keys = {
        "optimizer.weight_decay": 0.1,
        "optimizer.no_decay": ["*norm*"],
        "optimizer.learning_rate": 1e-2,
        "optimizer.schedule": "constant",
        "checkpoint.keep": 20,
    }

    def test_updates_are_those_of_the_uninterrupted_run(self):
        for zero in (0, 1):
            with self.subTest(zero=zero):
                whole = {**self.keys, "train.steps": 15, "checkpoint.every": 1}
                self.train(f"whole{zero}", whole, dp=2, zero=zero)
                cut = {**whole, "train.steps": 5}
                self.train(f"cut{zero}", cut, dp=2, zero=zero)
                self.train(f"cut{zero}", whole, "--resume", dp=2, zero=zero)
                for step in (5, 6, 15):
                    whole_digests = self.digests(f"whole{zero}", step)
                    self.assertEqual(self.digests(f"cut{zero}", step), whole_digests)
                self.assertIn("variance/model.norm.weight", whole_digests)
                self.assertEqual(self.losses(f"cut{zero}"), self.losses(f"whole{zero}"))

    def test_does_not_take_a_moment_of_another_name(self):
        keys = {**self.keys, "train.steps": 2, "checkpoint.every": 1}
        self.train("run", keys, dp=2, zero=1)
        listing = self.checkpoint("run", 2) / "rank-00000.json"
        text = listing.read_text(encoding="utf-8")
        self.assertIn('"momentum"', text)
        listing.write_text(text.replace('"momentum"', '"momentun"', 1), encoding="utf-8")
        self.command("checkpoint", "verify", self.checkpoint("run", 2), status=shardwright.FAILED)
        resumed = self.train("run", {**keys, "train.steps": 3}, "--resume", dp=2, zero=1)
        self.assertIn("step-000002", resumed.stderr)
        self.assertIn("resuming from " + str(self.checkpoint("run", 1).resolve()), resumed.stderr)

    def test_needs_the_moments_of_its_optimizer(self):
        keys = {"train.steps": 2, "checkpoint.every": 2}
        sgd = {"optimizer.name": "sgd", "optimizer.weight_decay": 0.0}
        self.train("run", {**keys, **sgd}, dp=2)
        run = self.write_run({**keys, "train.steps": 4}, dp=2)
        refused = self.command(
            "train", run, "--out", "run", "--resume", status=shardwright.REFUSED
        )
        self.assertIn("momentum", refused.stderr)
        self.assertIn("variance", refused.stderr)
        self.assertEqual(len(self.metrics("run")), 2)


class ChangedRanks(shardwright.SystemTest):
    """Saved on four ranks at update 5, continued on others with the same global batch of 60."""

    def test_continue_with_the_same_losses(self):
        keys = {
            "data.sequence_length": 16,
            "train.steps": 10,
            "train.global_batch": 60,
            "optimizer.schedule": "constant",
            "checkpoint.every": 5,
        }
        micro_batches = {4: 5, 1: 12, 2: 6, 3: 5, 5: 4}
        self.train("four", {**keys, "train.micro_batch": 5}, dp=4, zero=1)
        expected = self.losses("four")
        for ranks, micro_batch in micro_batches.items():
            with self.subTest(ranks=ranks):
                out = f"on{ranks}"
                shutil.copytree(self.folder / "four", self.folder / out)
                shutil.rmtree(self.checkpoint(out, 10))
                changed = {**keys, "train.micro_batch": micro_batch}
                self.train(out, changed, "--resume", dp=ranks, zero=1)
                # Sums in another order: float32 rounding, grown by Adam over five updates.
                self.assert_close_losses(self.losses(out), expected, 1e-5)


class Bfloat16(shardwright.SystemTest):
    def test_keeps_masters_in_which_every_norm_weight_moves(self):
        keys = {
            "train.precision": "bfloat16",
            "train.steps": 100,
            "train.global_batch": 4,
            "optimizer.learning_rate": 1e-3,
            "optimizer.schedule": "constant",
            "optimizer.weight_decay": 0.0,
            "checkpoint.every": 100,
        }
        self.train("run", keys)
        weights = self.weights("run", 100)
        norms = {name: entry for name, entry in weights.items() if "norm" in name}
        self.assertEqual(len(norms), 5)
        for name, (_, _, values) in norms.items():
            self.assertNotIn(1.0, values, name)
            # 100 updates of at most about the learning rate each: far below what bfloat16 could
            # add to 1.0 in one of them (half its step there is 2^-8 above and 2^-9 below).
            self.assertTrue(all(abs(value - 1) < 0.2 for value in values), name)
        losses = self.losses("run")
        self.assertLess(losses[-1], losses[0])
        inspected = self.command_json("checkpoint", "inspect", self.checkpoint("run", 100))
        self.assertEqual(
            {tensor["dtype"] for tensor in inspected["tensors"]}, {"float32"}, json.dumps(inspected)
        )


if __name__ == "__main__":
    shardwright.main()
