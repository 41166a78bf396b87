#!/usr/bin/env python3
"""loss_test.py PROGRAM: the loss of a window, whatever its split (cases C001, C003, C006)."""

import math

import shardwright

# Targets per document, a completion and its end marker; the prompt fills the rest of a sample.
TARGETS = [2, 3, 5, 7, 11, 13, 17, 19]
SEQUENCE = 32
SGD = {
    "optimizer.name": "sgd",
    "optimizer.learning_rate": 1.0,
    "optimizer.schedule": "constant",
    "optimizer.gradient_clip": 0.0,
    "optimizer.weight_decay": 0.0,
}


def prompted(targets, letter):
    return ("p" * (SEQUENCE - targets - 1) + ":", letter * (targets - 1))


class TokenWeightedLoss(shardwright.SystemTest):
    def setUp(self):
        super().setUp()
        self.documents = [prompted(n, chr(ord("a") + i)) for i, n in enumerate(TARGETS)]
        self.keys = {
            **SGD,
            "data.train": [self.write_documents(self.documents)],
            "data.sequence_length": SEQUENCE,
            "train.steps": 1,
            "train.global_batch": 8,
            "checkpoint.every": 1,
        }

    def run_split(self, out, micro_batch, **sizes):
        self.train(out, {**self.keys, "train.micro_batch": micro_batch}, **sizes)
        (line,) = self.metrics(out)
        self.assertEqual(line["valid_tokens"], sum(TARGETS))
        return line["loss"]

    def test_is_the_same_update_over_accumulation_ranks_and_zero(self):
        loss = self.run_split("whole", 8)
        reference = self.weights("whole", 1)
        splits = {
            "accumulated": (1, {}),
            "two": (2, {"dp": 2, "zero": 0}),
            "four": (1, {"dp": 4, "zero": 0}),
            "two_zero": (2, {"dp": 2, "zero": 1}),
            "four_zero": (1, {"dp": 4, "zero": 1}),
            "tensor": (2, {"dp": 2, "tp": 2, "zero": 1}),
        }
        for out, (micro_batch, sizes) in splits.items():
            with self.subTest(out):
                self.assertAlmostEqual(self.run_split(out, micro_batch, **sizes), loss, delta=5e-6)
                # Float32 sums of 77 token gradients in another order.
                self.assert_close_weights(self.weights(out, 1), reference, 1e-6)

    def test_is_the_mean_over_tokens_of_each_document_alone(self):
        total = 0.0
        for i, targets in enumerate(TARGETS):
            alone = {**self.keys, "train.global_batch": 1, "checkpoint.every": 0}
            alone["data.train"] = [self.write_documents([self.documents[i]], f"{i}.jsonl")]
            self.train(f"alone{i}", {**alone, "train.micro_batch": 1})
            (line,) = self.metrics(f"alone{i}")
            self.assertEqual(line["valid_tokens"], targets)
            total += targets * line["loss"]
        loss = self.run_split("whole", 8)
        # Float32 rounding of nine losses.
        self.assertAlmostEqual(loss, total / sum(TARGETS), delta=1e-6 * loss)


class MaskedLabels(shardwright.SystemTest):
    """Samples of prompts only: no label counts."""

    keys = {
        **SGD,
        "data.add_eos": False,
        "data.sequence_length": 16,
        "data.log_samples": True,
        "train.steps": 3,
        "train.global_batch": 4,
        "checkpoint.every": 1,
    }

    def train_masked(self, out, masked, **sizes):
        """Twelve samples of 16 tokens, those in `masked` without a label."""
        documents = [
            ("q" * 15 + ".", "") if i in masked else ("p" * 8, chr(ord("a") + i) * 8)
            for i in range(12)
        ]
        data = self.write_documents(documents, f"{out}.jsonl")
        micro_batch = 4 // (sizes.get("dp", 1) * (2 if sizes else 1))
        keys = {**self.keys, "data.train": [data], "train.micro_batch": micro_batch}
        self.train(out, keys, **sizes)
        for line in self.metrics(out):
            self.assertTrue(line["loss"] is None or math.isfinite(line["loss"]), line)
        return self.samples(out)

    def test_of_a_rank_or_a_micro_batch_count_as_nothing(self):
        # One of the two pairs is a rank's samples, the other a micro-batch's.
        first = self.train_masked("order", set())[0]
        for positions in [(0, 1), (0, 2)]:
            masked = {first[position] for position in positions}
            with self.subTest(positions):
                out = "masked{}{}".format(*positions)
                self.train_masked(f"{out}one", masked)
                one = self.losses(f"{out}one")
                for zero in (0, 1):
                    self.train_masked(f"{out}{zero}", masked, dp=2, zero=zero)
                    # Rounding of three updates of learning rate 1.
                    self.assert_close_losses(self.losses(f"{out}{zero}"), one, 1e-5)
                ours, theirs = self.weights(f"{out}1", 1), self.weights(f"{out}one", 1)
                self.assert_close_weights(ours, theirs, 1e-6)

    def test_of_a_whole_window_skip_its_update_and_are_counted(self):
        second = self.train_masked("order", set())[1]
        self.train_masked("skipped", set(second), dp=2, zero=1)
        lines = self.metrics("skipped")
        self.assertEqual([line["skipped_steps"] for line in lines], [0, 1, 1])
        self.assertEqual([line["consumed_samples"] for line in lines], [4, 8, 12])
        self.assertIsNone(lines[1]["loss"])
        self.assertEqual(lines[1]["valid_tokens"], 0)
        self.assertEqual(self.digests("skipped", 1), self.digests("skipped", 2))
        self.assertNotEqual(self.digests("skipped", 2), self.digests("skipped", 3))


class PackedDocuments(shardwright.SystemTest):
    """Documents of 9 and 14 tokens in one row of 24."""

    keys = {
        **SGD,
        "data.add_eos": False,
        "data.sequence_length": 24,
        "train.steps": 1,
        "train.global_batch": 1,
        "train.micro_batch": 1,
        "checkpoint.every": 1,
    }

    def train_on(self, out, documents, **keys):
        data = self.write_documents(documents, f"{out}.jsonl")
        self.train(out, {**self.keys, "data.train": [data], **keys})
        (line,) = self.metrics(out)
        return line

    def test_have_the_loss_of_the_separate_ones(self):
        first = self.train_on("first", ["abcdefghi"])
        second = self.train_on("second", ["jklmnopqrstuvw"])
        packed = self.train_on("packed", ["abcdefghi", "jklmnopqrstuvw"])
        self.assertEqual([line["valid_tokens"] for line in (first, second, packed)], [8, 13, 21])
        expected = (8 * first["loss"] + 13 * second["loss"]) / 21
        # Float32 rounding of three losses.
        self.assertAlmostEqual(packed["loss"], expected, delta=1e-6 * expected)

    def test_do_not_see_each_other(self):
        # The first document is all prompt: only the second one's labels count.
        self.train_on("one", [("abcdefghi", ""), "jklmnopqrstuvw"])
        self.train_on("other", [("abcdXfghi", ""), "jklmnopqrstuvw"])
        self.assertEqual(self.losses("one"), self.losses("other"))
        self.assertEqual(self.digests("one", 1), self.digests("other", 1))

    def test_that_are_joined_do_see_each_other(self):
        joined = {"data.documents": "joined"}
        self.train_on("one", [("abcdefghi", ""), "jklmnopqrstuvw"], **joined)
        self.train_on("other", [("abcdXfghi", ""), "jklmnopqrstuvw"], **joined)
        self.assertNotEqual(self.digests("one", 1), self.digests("other", 1))


if __name__ == "__main__":
    shardwright.main()
