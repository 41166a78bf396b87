#!/usr/bin/env python3
"""parallel_test.py PROGRAM: splits that are awkward (cases C034, C042, C043, C045, C068)."""

import json

import shardwright


class ParallelTest(shardwright.SystemTest):
    keys = {"train.steps": 2, "optimizer.schedule": "constant", "checkpoint.every": 2}

    def assert_verifies(self, keys, **sizes):
        """Equal to one rank within the bound of verify: every gradient, weight and the loss."""
        run = self.write_run({**self.keys, **keys}, **sizes)
        result = self.command_json("verify", run)
        self.assertTrue(result["equal"])
        self.assertLessEqual(result["worst_gradient"]["relative_error"], 1e-5)
        self.assertLessEqual(result["worst_weight"]["relative_error"], 1e-5)

    def assert_trains_as_on_one_rank(self, keys, **sizes):
        keys = {**self.keys, **keys}
        self.train("one", keys)
        self.train("split", keys, **sizes)
        # Rounding of sums in another order, over two updates of Adam.
        self.assert_close_losses(self.losses("split"), self.losses("one"), 1e-5)
        ours, theirs = self.weights("split", 2), self.weights("one", 2)
        # Adam turns the rounding of a small gradient into a part of the learning rate (3e-4).
        self.assert_close_weights(ours, theirs, 2 * 3e-4)
        return ours


class Replicas(ParallelTest):
    def test_are_equal_after_each_of_ten_updates_under_sequence_parallel(self):
        run = self.write_run({"train.steps": 10}, dp=2, tp=2)
        # verify compares the copies of every weight by their bits, on both sides.
        result = self.command_json("verify", run, "--steps", 10)
        self.assertTrue(result["equal"])
        self.assertEqual(result["steps"], 10)

    def test_do_not_change_the_loss(self):
        self.assert_trains_as_on_one_rank({"train.steps": 2}, tp=2)


class Validation(ParallelTest):
    def test_sees_each_token_once_on_any_ranks(self):
        keys = {**self.keys, "data.validation": ["held.txt"], "data.validation_every": 2}
        (self.folder / "held.txt").write_text("a fox that nobody trained on", encoding="utf-8")
        results = []
        for number, sizes in enumerate([{}, {"dp": 3}, {"dp": 2, "tp": 2}]):
            batch = {"train.global_batch": 12, "train.micro_batch": 1}
            self.train(f"run{number}", {**keys, **batch}, **sizes)
            first, second = self.metrics(f"run{number}")
            self.assertNotIn("validation_loss", first)
            # 28 bytes and an end marker: every token but the first is a label.
            self.assertEqual(second["validation_tokens"], 28)
            results.append(second["validation_loss"])
        self.assert_close_losses(results[1:], [results[0]] * 2, 1e-5)


class FrozenWeights(ParallelTest):
    def test_are_named_and_stay_and_change_no_other_result(self):
        freeze = {"train.freeze": ["*embed_tokens*"], "checkpoint.every": 1}
        self.train("one", {**self.keys, **freeze})
        frozen = self.weights("one", 1)["model.embed_tokens.weight"]
        for zero in (0, 1):
            out = f"zero{zero}"
            done = self.train(out, {**self.keys, **freeze}, dp=2, zero=zero)
            self.assertIn("model.embed_tokens.weight", done.stderr)
            self.assert_close_losses(self.losses(out), self.losses("one"), 1e-5)
            self.assertEqual(self.weights(out, 2)["model.embed_tokens.weight"], frozen)
            moved = self.digests(out, 1)["lm_head.weight"]
            self.assertNotEqual(self.digests(out, 2)["lm_head.weight"], moved)


class KeyValueHeads(ParallelTest):
    def heads(self, heads, kv_heads):
        return {
            "model.config.num_attention_heads": heads,
            "model.config.num_key_value_heads": kv_heads,
            "model.config.head_dim": 8,
        }

    def test_fewer_than_tensor_ranks_train_as_on_one(self):
        self.assert_trains_as_on_one_rank(self.heads(8, 2), tp=4)
        self.assert_verifies(self.heads(2, 1), tp=2)

    def test_that_do_not_divide_are_refused_with_what_does(self):
        message = self.refused(self.heads(6, 2), tp=4)
        self.assertIn("tp = 4 does not divide the number of attention heads = 6", message)
        self.assertIn("1, 2, 3, 6", message)


class Vocabulary(ParallelTest):
    def test_of_259_splits_over_two_and_four_ranks_and_exports_its_rows(self):
        self.assert_verifies({}, tp=4)
        weights = self.assert_trains_as_on_one_rank({}, tp=2)
        self.assertEqual(weights["model.embed_tokens.weight"][1], [259, 32])
        self.assertEqual(weights["lm_head.weight"][1], [259, 32])


class HeadSize(ParallelTest):
    """Hidden 40, three heads of 16: head_dim is not hidden / heads."""

    keys = {
        **ParallelTest.keys,
        "model.config.hidden_size": 40,
        "model.config.num_attention_heads": 3,
        "model.config.num_key_value_heads": 1,
        "model.config.head_dim": 16,
        "data.sequence_length": 24,
    }

    def test_that_is_given_wins_in_training_and_in_folders(self):
        weights = self.assert_trains_as_on_one_rank({}, tp=3)
        self.assertEqual(weights["model.layers.0.self_attn.q_proj.weight"][1], [48, 40])
        self.assertEqual(weights["model.layers.0.self_attn.k_proj.weight"][1], [16, 40])
        exported = self.folder / "one-2-exported"
        config = json.loads((exported / "config.json").read_text(encoding="utf-8"))
        self.assertEqual(config["head_dim"], 16)
        # The folder goes on with the loss that the run would have had at its third step.
        self.train("one", {**self.keys, "train.steps": 3}, "--resume")
        nothing = {key: None for key in shardwright.TINY if key.startswith("model.")}
        nothing |= {key: None for key in self.keys if key.startswith("model.")}
        keys = {**self.keys, **nothing, "model.path": str(exported)}
        self.train("again", {**keys, "train.steps": 3, "optimizer.learning_rate": 0.0})
        self.assertEqual(self.losses("again")[2], self.losses("one")[2])

    def test_is_derived_when_absent_and_must_divide_then(self):
        message = self.refused({**self.keys, "model.config.head_dim": None})
        self.assertIn("hidden_size = 40", message)
        self.assertIn("num_attention_heads = 3", message)


if __name__ == "__main__":
    shardwright.main()
