#!/usr/bin/env python3
"""pipeline_test.py PROGRAM: what may go wrong between stages and context ranks (cases C032, C035,
C047, C049)."""

import shutil

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


class Asynchronous(PipelineTest):
    keys = {
        **PipelineTest.keys,
        "optimizer.gradient_clip": 0,
        "optimizer.schedule": "linear",
        "train.global_batch": 8,
        "train.micro_batch": 1,
        "train.steps": 4,
        "checkpoint.every": 1,
        "checkpoint.keep": 4,
    }

    def test_versions_are_recorded_as_planned_and_as_accounted(self):
        account = self.command_json("account", "staleness", "stages=4")["outputs"]
        for schedule in ("pipedream", "pipedream_2bw"):
            with self.subTest(schedule):
                self.train(schedule, self.keys, pp=4, pipeline=schedule)
                stale = account[f"{schedule}_staleness"]["value"]
                stale = stale if isinstance(stale, list) else [stale] * 4
                kept = account[f"{schedule}_kept"]["value"]
                kept = kept if isinstance(kept, list) else [kept] * 4
                for line in self.metrics(schedule):
                    self.assertEqual(line["staleness"], stale)
                plan = self.command_json("plan", f"{schedule}.toml")
                versions = [rank["versions"] for rank in plan["ranks"]]
                self.assertEqual([rank["kept"] for rank in versions], kept)
                self.assertEqual([rank["staleness"] for rank in versions], stale)
                ledger = self.ledger(schedule)
                self.assertTrue(ledger["equal"])
                for rank, recorded in zip(versions, ledger["versions"], strict=True):
                    self.assertEqual(recorded["measured"], recorded["planned"])
                    self.assertEqual(recorded["measured"], rank["micro_batches"])
                for forward, backward, _ in versions[0]["micro_batches"]:
                    self.assertEqual(forward, backward)

    def test_synchronous_training_records_none(self):
        self.train("run", self.keys, pp=2)
        self.assertNotIn("staleness", self.metrics("run")[0])
        self.assertNotIn("versions", self.ledger("run"))

    def test_runs_go_on_with_the_same_bits(self):
        for schedule in ("pipedream", "pipedream_2bw"):
            with self.subTest(schedule):
                sizes = {"pp": 2, "dp": 2, "zero": 1, "pipeline": schedule}
                self.train(schedule, self.keys, **sizes)
                expected = (self.digests(schedule, 4), self.losses(schedule))
                out = f"{schedule}-again"
                shutil.copytree(self.folder / schedule, self.folder / out)
                for later in (3, 4):
                    shutil.rmtree(self.checkpoint(out, later))
                done = self.train(out, self.keys, "--resume", **sizes)
                self.assertIn("step 3/4", done.stderr)
                self.assertEqual((self.digests(out, 4), self.losses(out)), expected)
                run = self.write_run(self.keys, **sizes)
                self.assertTrue(self.command_json("verify", run, "--resume")["equal"])

    def test_training_is_never_called_equal_to_synchronous(self):
        run = self.write_run(self.keys, pp=2, pipeline="pipedream")
        message = self.command("verify", run, status=shardwright.REFUSED).stderr
        self.assertIn("does not equal", message)
        message = self.command(
            "verify", run, "--set", "parallel.pipeline=1f1b", "--against",
            "parallel.pipeline=pipedream", status=shardwright.REFUSED
        ).stderr
        self.assertIn("does not equal", message)

    def test_updates_without_a_valid_token_are_not_made(self):
        (self.folder / "small.txt").write_text("0123456789" * 20)  # 13 samples: 8, and 5 of 8
        keys = {**self.keys, "data.train": ["small.txt"], "optimizer.learning_rate": 2**-10}
        self.train("run", keys, pp=2, pipeline="pipedream")
        lines = self.metrics("run")
        self.assertEqual([line["samples"] for line in lines], [8, 5, 8, 5])
        made = [8, 13, 21, 26]  # updates by the end of each step; the rate is that of the last
        rates = [2**-10 * (1 - (updates - 1) / (4 * 8)) for updates in made]
        self.assertEqual([line["learning_rate"] for line in lines], rates)

    def test_steps_with_what_is_not_finite_end_the_run(self):
        keys = {**self.keys, "optimizer.name": "sgd", "optimizer.learning_rate": 1e9,
                "optimizer.weight_decay": 1e6}
        self.write_run(keys, name="run.toml", pp=2, pipeline="pipedream")
        done = self.command("train", "run.toml", "--out", "run", status=shardwright.FAILED)
        self.assertIn("cannot take it back", done.stderr)


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
