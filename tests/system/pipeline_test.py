#!/usr/bin/env python3
"""pipeline_test.py PROGRAM: what may go wrong between stages and context ranks (cases C032, C035,
C047, C049)."""

import shardwright


class PipelineTest(shardwright.SystemTest):
    keys = {
        "model.config.num_hidden_layers": 4,
        "model.config.tie_word_embeddings": False,
        "train.steps": 1,
        "optimizer.schedule": "constant",
        "checkpoint.every": 1,
    }

    def norm(self, out):
        return [line["gradient_norm"] for line in self.metrics(out)]


class GradientNorm(PipelineTest):
    def test_is_one_over_all_stages_and_clips_all_alike(self):
        keys = {**self.keys, "optimizer.gradient_clip": 0.01}
        self.train("one", keys)
        weights = self.weights("one", 1)
        norm = self.norm("one")[0]
        self.assertGreater(norm, 0.01)
        for name, sizes in {
            "two": {"pp": 2},
            "four": {"pp": 4},
            "interleaved": {"pp": 2, "pipeline": "interleaved", "virtual_stages": 2},
        }.items():
            with self.subTest(name):
                self.train(name, keys, **sizes)
                # The same gradients, whose squares are added exactly.
                self.assertEqual(self.norm(name), [norm])
                self.assertEqual(self.weights(name, 1), weights)


class TiedEmbedding(PipelineTest):
    keys = {
        **PipelineTest.keys,
        "model.config.tie_word_embeddings": True,
        "model.config.vocab_size": 261,
        "train.steps": 3,
        "checkpoint.every": 3,
    }

    def test_is_one_weight_on_two_stages(self):
        self.train("one", self.keys)
        expected = set(self.weights("one", 3))
        for number, sizes in enumerate(
            [{"pp": 2}, {"pp": 4}, {"pp": 2, "dp": 2, "zero": 1}, {"pp": 2, "tp": 2}]
        ):
            with self.subTest(sizes):
                out = f"run{number}"
                self.train(out, self.keys, **sizes)
                # Its two contributions are added in another order than on one rank.
                self.assert_close_losses(self.losses(out), self.losses("one"), 1e-5)
                names = set(self.weights(out, 3))
                self.assertEqual(names, expected)
                self.assertNotIn("lm_head.weight", names)
                # verify also holds the copies of every weight to each other, bit by bit.
                run = self.write_run(self.keys, **sizes)
                self.assertTrue(self.command_json("verify", run, "--steps", 3)["equal"])


class Layers(PipelineTest):
    def test_that_do_not_divide_train_as_on_one_stage(self):
        keys = {**self.keys, "model.config.num_hidden_layers": 5}
        self.train("one", keys)
        weights = self.weights("one", 1)
        for stages in (2, 3, 4):
            with self.subTest(stages):
                self.train(f"stages{stages}", keys, pp=stages)
                self.assertEqual(self.losses(f"stages{stages}"), self.losses("one"))
                self.assertEqual(self.weights(f"stages{stages}", 1), weights)
                plan = self.command_json("plan", f"stages{stages}.toml")
                cut = next(note for note in plan["notes"] if note.startswith("layers per segment"))
                counts = cut.split(": ")[1].split(";")[0].split(", ")
                self.assertEqual(len(counts), stages)
                self.assertEqual(sum(map(int, counts)), 5)

    def test_fewer_than_stages_are_refused_with_both_numbers(self):
        message = self.refused({**self.keys, "model.config.num_hidden_layers": 3}, pp=4)
        self.assertIn("4", message)
        self.assertIn("3", message)


class Context(PipelineTest):
    def test_is_cut_once(self):
        self.train("one", self.keys)
        for context in ("ring", "gather", "all_to_all"):
            with self.subTest(context):
                self.train(context, self.keys, cp=2, context=context)
                for key in ("tokens", "valid_tokens", "samples"):
                    self.assertEqual(self.metrics(context)[0][key], self.metrics("one")[0][key])
                self.assert_close_losses(self.losses(context), self.losses("one"), 1e-5)


if __name__ == "__main__":
    shardwright.main()
