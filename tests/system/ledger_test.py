#!/usr/bin/env python3
"""ledger_test.py PROGRAM: what a run sends and holds is what its plan says, to the byte."""

import math

import shardwright

STEPS = 2
BATCH = {"train.global_batch": 12, "train.micro_batch": 1, "train.steps": STEPS}
BLOCK = 1024  # elements
LAYOUTS = [
    {},
    {"dp": 2, "zero": 0},
    {"dp": 2, "zero": 1},
    {"dp": 3, "zero": 1},
    {"dp": 4, "zero": 0, "algorithm": "ring"},
    {"tp": 2, "sequence_parallel": False},
    {"tp": 4},
    {"dp": 2, "tp": 2, "zero": 1},
    {"dp": 2, "tp": 2, "zero": 2, "recompute": "selective"},
    {"dp": 3, "zero": 3, "recompute": "full"},
    {"pp": 2, "dp": 2, "zero": 1},
    {"cp": 2, "dp": 2, "context": "gather", "zero": 2},
    {"cp": 2, "dp": 2, "context": "ring", "zero": 2},
    {"cp": 2, "dp": 2, "context": "all_to_all", "zero": 1},
    {"cp": 4, "zero": 3},
    {"pp": 2, "tp": 2, "pipeline": "zero_bubble", "zero": 0},
]


class Ledger(shardwright.SystemTest):
    def train_layout(self, out, keys=None, **sizes):
        self.train(out, {**BATCH, **(keys or {})}, **sizes)
        ledger = self.ledger(out)
        self.assertTrue(ledger["equal"])
        self.assertEqual(ledger["steps"], STEPS)
        return ledger

    def sent(self, ledger, kind, axis):
        """Bytes that all ranks sent in one step."""
        entries = [
            entry["measured"]["sent_bytes"]
            for entry in ledger["collectives"]
            if (entry["kind"], entry["axis"]) == (kind, axis)
        ]
        total = sum(entries)
        self.assertEqual(total % STEPS, 0)
        return total // STEPS

    def test_is_planned_and_measured_as_the_same_integers_in_every_layout(self):
        for number, sizes in enumerate(LAYOUTS):
            for communicator in ("shm", "local"):
                with self.subTest(**sizes, communicator=communicator):
                    out = f"run{number}{communicator}"
                    ledger = self.train_layout(
                        out, {"parallel.communicator": communicator}, **sizes
                    )
                    ranks = math.prod(sizes.get(axis, 1) for axis in ("pp", "dp", "cp", "tp"))
                    self.assertEqual(len(ledger["collectives"]) > 0, ranks > 1)
                    for entry in ledger["collectives"]:
                        for key, planned in entry["planned"].items():
                            self.assertIsInstance(planned, int)
                            self.assertEqual(entry["measured"][key], planned, (entry, key))
                        self.assertGreater(entry["planned"]["sent_bytes"], 0)
                    self.assertEqual(len(ledger["memory"]), ranks)
                    for line in ledger["memory"]:
                        self.assertEqual(line["measured_peak"], line["planned_peak"])
                    self.assert_matches_plan(f"{out}.toml", ledger)

    def assert_matches_plan(self, run, ledger):
        """The plan command alone predicts it: per step, times the steps."""
        plan = self.command_json("plan", run)
        predicted = {
            (entry["kind"], entry["axis"]): {
                key: entry[key] * STEPS for key in ("calls", "sent_bytes_per_rank", "sent_bytes")
            }
            for entry in plan["collectives"]
        }
        planned = {(e["kind"], e["axis"]): e["planned"] for e in ledger["collectives"]}
        self.assertEqual(planned, predicted)
        self.assertEqual(
            [rank["memory"]["peak"] for rank in plan["ranks"]],
            [line["planned_peak"] for line in ledger["memory"]],
        )

    def test_of_data_parallel_gradients_is_the_closed_form(self):
        # The count of valid tokens (int64) and the loss (float32) are summed over dp as well.
        sums = 8 + 4
        for n in (2, 3, 4):
            with self.subTest(ranks=n):
                plan = self.command_json("plan", self.write_run(BATCH, dp=n, zero=0))
                memory = plan["ranks"][0]["memory"]
                gradients, parameters = memory["gradients"], memory["parameters"]
                # 2 (n-1)/n of the gradients from each of n ranks.
                reduced = self.train_layout(f"zero0on{n}", dp=n, zero=0)
                sent = self.sent(reduced, "all_reduce", "dp")
                self.assertEqual(sent, 2 * (n - 1) * (gradients + sums))
                # (n-1)/n of the gradients, then (n-1)/n of the weights.
                sharded = self.train_layout(f"zero1on{n}", dp=n, zero=1)
                self.assertEqual(self.sent(sharded, "all_reduce", "dp"), 2 * (n - 1) * sums)
                self.assertEqual(self.sent(sharded, "reduce_scatter", "dp"), (n - 1) * gradients)
                self.assertEqual(self.sent(sharded, "all_gather", "dp"), (n - 1) * parameters)
        self.assert_holds_the_model(gradients)

    def assert_holds_the_model(self, gradients):
        """Four bytes for each weight, weights padded to blocks and units to blocks of each rank."""
        self.train("one", {"train.steps": 1, "checkpoint.every": 1})
        sizes = [len(values) for _, _, values in self.weights("one", 1).values()]
        self.assertGreaterEqual(gradients, 4 * sum(sizes))
        blocks = sum(-(-size // BLOCK) for size in sizes)
        units = len(sizes)  # at most one a weight
        self.assertLessEqual(gradients, 4 * BLOCK * (blocks + units * (4 - 1)))


class Choices(shardwright.SystemTest):
    """What does not change the arithmetic changes no bit."""

    def test_of_threads_buckets_overlap_and_communicator_change_no_bit(self):
        keys = {"train.steps": 3, "checkpoint.every": 3}
        choices = [
            {},
            {},
            {"parallel.threads_per_rank": 1},
            {"parallel.threads_per_rank": 2},
            {"parallel.bucket_mib": 0.01},
            {"parallel.overlap": False},
            {"parallel.communicator": "local"},
            {"parallel.zero": 0},
            {"parallel.zero": 3, "parallel.reduce_gradients": "window"},
            {"parallel.recompute": "full"},
            {"checkpoint.background": False},
        ]
        results = []
        for number, choice in enumerate(choices):
            layout = shardwright.layout(dp=2, tp=2)
            run = self.write_run({**keys, **layout, **choice}, f"{number}.toml")
            self.command("train", run, "--out", f"run{number}")
            digests = self.digests(f"run{number}", 3)
            results.append((digests, self.losses(f"run{number}")))
            self.assertEqual(results[-1], results[0], choice)


if __name__ == "__main__":
    shardwright.main()
