#!/usr/bin/env python3
"""data_order_test.py PROGRAM: which samples a run sees (cases C008 C010 C012 C015 C017 C018)."""

import json

import shardwright


class SampleOrder(shardwright.SystemTest):
    keys = {
        "data.train": ["documents.jsonl"],
        "data.sequence_length": 16,
        "data.add_eos": False,
        "data.log_samples": True,
        "train.steps": None,
        "train.epochs": 1,
    }

    def write_samples(self, count):
        """As many documents as samples: each fills one."""
        self.write_documents([f"document number {i % 10}"[:16].ljust(16) for i in range(count)])

    def test_gives_every_rank_as_many_steps_when_samples_run_out(self):
        self.write_samples(101)
        keys = {**self.keys, "train.global_batch": 8, "train.micro_batch": 4}
        for last_window, steps, seen in [("pad", 13, 101), ("drop", 12, 96)]:
            with self.subTest(last_window):
                self.train(last_window, {**keys, "data.last_window": last_window}, dp=2)
                samples = self.samples(last_window)
                self.assertEqual(len(samples), steps)
                ids = [sample for window in samples for sample in window]
                self.assertEqual(len(set(ids)), seen)
                self.assertEqual(len(ids), seen)
                self.assertLessEqual(set(ids), set(range(101)))
                lines = self.metrics(last_window)
                self.assertEqual(sum(line["unique_samples"] for line in lines), seen)

    def test_differs_between_epochs_and_not_between_layouts(self):
        self.write_samples(40)
        keys = {**self.keys, "train.epochs": 3}
        self.train("one", keys)
        self.train("two", keys, dp=2)
        one, two = self.samples("one"), self.samples("two")
        self.assertEqual(one, two)
        self.assertEqual(len(one), 15)
        epochs = [sum(one[first : first + 5], []) for first in (0, 5, 10)]
        for epoch in epochs:
            self.assertEqual(sorted(epoch), list(range(40)))
            self.assertNotEqual(epoch, list(range(40)))
        self.assertEqual(len({tuple(epoch) for epoch in epochs}), 3)

    def test_balanced_keeps_each_windows_samples_and_equals_one_rank(self):
        # Rows of one document, and rows of many short ones.
        self.write_documents(["a" * 16 * 20, *(["ab"] * 160)])
        keys = {**self.keys, "train.global_batch": 8, "train.micro_batch": 2}
        self.train("plain", keys, dp=2)
        self.train("balanced", {**keys, "data.balance": "attention"}, dp=2)
        plain, balanced = self.samples("plain"), self.samples("balanced")
        self.assertNotEqual(plain, balanced)
        self.assertEqual([sorted(window) for window in plain], [sorted(window) for window in balanced])
        self.assert_close_losses(self.losses("balanced"), self.losses("plain"), 1e-5)
        run = self.write_run({**keys, "data.balance": "tokens"}, dp=2)
        self.assertTrue(self.command_json("verify", run)["equal"])

    def test_uses_every_sample_once_across_an_interruption(self):
        self.write_samples(64)
        dropout = {
            **{f"model.config.{key}": None for key in ("hidden_size", "intermediate_size")},
            **{f"model.config.num_{key}": None for key in ("hidden_layers", "attention_heads")},
            "model.config.num_key_value_heads": None,
            "model.config.max_position_embeddings": None,
            "model.config.model_type": "gpt2",
            "model.config.n_embd": 32,
            "model.config.n_layer": 2,
            "model.config.n_head": 4,
            "model.config.n_positions": 64,
            "model.config.resid_pdrop": 0.1,
            "model.config.attn_pdrop": 0.0,
        }
        keys = {
            **self.keys,
            **dropout,
            "train.steps": 5,
            "train.epochs": 0,
            "train.global_batch": 4,
            "optimizer.schedule": "constant",
            "checkpoint.every": 5,
        }
        self.train("run", keys, dp=2)
        self.train("run", {**keys, "train.steps": 16}, "--resume", dp=2)
        ids = sum(self.samples("run"), [])
        self.assertEqual(sorted(ids), list(range(64)))
        self.train("whole", {**keys, "train.steps": 16}, dp=2)
        self.assertEqual(self.samples("run"), self.samples("whole"))
        self.assertEqual(self.losses("run"), self.losses("whole"))


class SmallDatasets(shardwright.SystemTest):
    def keys(self, count, last_window):
        data = self.write_documents([f"document number{i}" for i in range(count)], f"{count}.jsonl")
        return {
            "data.train": [data],
            "data.sequence_length": 16,
            "data.add_eos": False,
            "data.last_window": last_window,
            "train.steps": 2,
            "checkpoint.every": 1,
        }

    def test_without_a_whole_window_are_refused_with_both_numbers(self):
        for count in (1, 7):
            message = self.refused(self.keys(count, "drop"))
            self.assertRegex(message, rf"\b{count}\b.*\b8\b|\b8\b.*\b{count}\b")
            self.assertIn("last_window", message)

    def test_train_in_a_padded_window(self):
        for count in (1, 7):
            out = f"padded{count}"
            self.train(out, self.keys(count, "pad"), dp=2)
            for line in self.metrics(out):
                self.assertEqual(line["unique_samples"], count)
                self.assertGreater(line["loss"], 0)
            self.assertNotEqual(self.digests(out, 1), self.digests(out, 2))

    def test_without_a_document_are_empty(self):
        for last_window in ("pad", "drop"):
            self.assertIn("is empty", self.refused(self.keys(0, last_window)))


class EmptyDocuments(shardwright.SystemTest):
    def test_are_left_out_and_counted(self):
        self.write_documents(["", "hello world", "", " \t ", "good night", ""])
        tokenized = self.command(
            "tokenize", "documents.jsonl", "--tokenizer", "bytes", "--out", "documents.tokens"
        )
        # Two documents of 11 and 10 bytes and their end markers.
        self.assertIn("23 tokens of 2 documents", tokenized.stdout)
        self.assertIn("4 empty documents", tokenized.stdout)
        keys = {"train.steps": 1, "checkpoint.every": 1}
        self.train("text", {**keys, "data.train": ["documents.jsonl"]})
        self.train("tokens", {**keys, "data.train": ["documents.tokens"]})
        self.assertEqual(self.digests("text", 1), self.digests("tokens", 1))

    def test_alone_are_an_empty_dataset(self):
        self.write_documents(["", "  ", "\n"])
        message = self.refused({"data.train": ["documents.jsonl"]})
        self.assertIn("is empty", message)
        self.assertIn("3 empty document(s)", message)


class BrokenLines(shardwright.SystemTest):
    good = [json.dumps({"text": f"line {i}"}) for i in range(1, 101)]

    def write_lines(self, lines, name="lines.jsonl"):
        text = "\n".join(lines) + "\n"
        (self.folder / name).write_bytes(text.encode())
        return {"data.train": [name], "train.steps": 1}

    def test_stop_with_file_line_offset_and_excerpt(self):
        offset = sum(len(line) + 1 for line in self.good[:49])
        broken = {
            "a brace": "{",
            "a NUL": '{"text": "a\0b"}',
            "no text": '{"title": "x"}',
            "a number": '{"text": 17}',
            "null": '{"text": null}',
            "a key twice": '{"text": "a", "text": "b"}',
            "a list": '["text"]',
        }
        for what, line in broken.items():
            with self.subTest(what):
                message = self.refused(
                    self.write_lines([*self.good[:49], line, *self.good[50:]])
                )
                self.assertIn("lines.jsonl: line 50, which starts at byte " + str(offset), message)
                self.assertIn(line[:5].partition("\0")[0], message)

    def test_that_are_cut_short_at_the_end_stop_too(self):
        keys = self.write_lines([])
        text = "\n".join(self.good)
        (self.folder / "lines.jsonl").write_text(text[:-4], encoding="utf-8")
        self.assertIn("line 100", self.refused(keys))

    def test_are_skipped_and_counted_on_request_and_shift_nothing(self):
        lines = list(self.good)
        for at, line in [(9, "{"), (49, '{"text": null}'), (98, '{"title": "x"}')]:
            lines[at] = line
        kept = [line for line in lines if line in self.good]
        keys = {"data.bad_lines": "skip", "checkpoint.every": 1}
        skipped = self.train("skipped", {**self.write_lines(lines), **keys})
        self.train("kept", {**self.write_lines(kept, "kept.jsonl"), **keys})
        self.assertEqual(self.digests("skipped", 1), self.digests("kept", 1))
        self.assertIn("3 bad lines", skipped.stderr)

    def test_are_not_those_with_a_byte_order_mark_carriage_returns_or_no_last_newline(self):
        keys = {"checkpoint.every": 1}
        self.train("plain", {**self.write_lines(self.good), **keys})
        self.write_lines([])
        text = "\ufeff" + "\r\n".join(self.good)
        (self.folder / "lines.jsonl").write_bytes(text.encode())
        self.train("windows", {"data.train": ["lines.jsonl"], "train.steps": 1, **keys})
        self.assertEqual(self.digests("plain", 1), self.digests("windows", 1))


if __name__ == "__main__":
    shardwright.main()
