#!/usr/bin/env python3
"""refusal_test.py PROGRAM: exit statuses, bad input and what is not in this version."""

import os
import shutil
import subprocess
import unittest

import shardwright


class RefusedRunFiles(shardwright.SystemTest):
    def assert_refused(self, keys, *parts, arguments=(), **sizes):
        """In one line with all of `parts`, before anything is written."""
        message = self.refused(keys, *arguments, **sizes)
        for part in parts:
            self.assertIn(part, message)

    def test_with_unknown_keys_suggest_the_nearest(self):
        self.assert_refused({"train.stps": 3}, "refused.toml:", "train.stps", "train.steps")
        self.assert_refused({"optimizer.lerning_rate": 1.0}, "optimizer.learning_rate")
        self.assert_refused({"paralel.tp": 2}, "refused.toml:", "paralel")
        set_key = ("--set", "parallel.zeros=1")
        self.assert_refused({}, "parallel.zeros", "parallel.zero", arguments=set_key)

    def test_with_values_of_another_kind_say_what_is_expected(self):
        self.assert_refused({"train.steps": "many"}, "train.steps", "integer")
        self.assert_refused({"train.steps": -1}, "train.steps = -1", "at least 0")
        self.assert_refused({"optimizer.name": "lion"}, "lion", "adamw", "sgd")
        self.assert_refused({"parallel.zero": 4}, "parallel.zero = 4", "at most 3")

    def test_with_contradictions_name_both_keys(self):
        self.assert_refused({"train.epochs": 2}, "train.steps", "train.epochs")
        self.assert_refused({"model.preset": "llama-tiny"}, "model.preset", "[model.config]")
        self.assert_refused({"data.validation_every": 2}, "data.validation_every = 2", "no file")
        self.assert_refused({"optimizer.momentum": 0.9}, "optimizer.momentum", "sgd", "adamw")
        self.assert_refused({"data.train": None}, "data.train")

    def test_with_sizes_that_do_not_divide_name_both_numbers_and_the_way_out(self):
        self.assert_refused({}, "tp = 3", "heads = 4", "1, 2, 4", tp=3)
        self.assert_refused({"data.sequence_length": 15}, "15", "tp = 2", tp=2)
        self.assert_refused(
            {"train.global_batch": 9}, "global_batch = 9", "global_batch = 8", "12", dp=2
        )
        self.assert_refused({}, "4 ranks", "3", arguments=("--ranks", 3), dp=4)
        self.assert_refused({"train.global_batch": 2000}, "1000", "ranks", dp=1000)

    def test_with_data_that_is_missing_empty_or_beyond_the_vocabulary(self):
        (self.folder / "empty.txt").touch()
        (self.folder / "latin.txt").write_bytes(b"caf\xe9")
        self.assert_refused({"data.train": ["nope.txt"]}, "data.train", "nope.txt")
        self.assert_refused({"data.train": ["*.nope"]}, "data.train", "*.nope")
        self.assert_refused({"data.train": ["empty.txt"]}, "data.train", "empty")
        self.assert_refused({"data.train": ["latin.txt"]}, "latin.txt", "byte")
        self.assert_refused({"data.tokenizer": "nope.json"}, "nope.json")
        self.assert_refused(
            {"model.config.vocab_size": 100}, "text.txt", "vocabulary of 100", "259"
        )
        self.assert_refused({"data.train": [], "data.validation": ["text.txt"]}, "data.train")

    def test_with_models_that_are_missing_or_cut_short(self):
        nothing = {key: None for key in shardwright.TINY if key.startswith("model.")}
        self.assert_refused({**nothing, "model.path": "nope"}, "nope")
        self.assert_refused({**nothing, "model.preset": "llama-huge"}, "llama-huge", "llama-tiny")
        self.assert_refused({"model.config.model_type": "mamba"}, "mamba", "llama")
        self.train("run", {"checkpoint.every": 4})
        self.weights("run", 4)
        model = self.folder / "run-4-exported" / "model.safetensors"
        content = model.read_bytes()
        model.write_bytes(content[:-100])
        self.assert_refused({**nothing, "model.path": "run-4-exported"}, "model.safetensors")

    def test_that_ask_for_what_is_not_in_this_version_name_it(self):
        for key, value in {
            "parallel.communicator": "mpi",
            "train.precision": "float16",
        }.items():
            with self.subTest(key):
                self.assert_refused({key: value}, key, str(value), "not in this version")

    def test_or_folders_that_hold_a_run_are_left_as_they_are(self):
        self.train("run", {"checkpoint.every": 4})
        before = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        done = self.command("train", "run.toml", "--out", "run", status=shardwright.REFUSED)
        self.assertIn("--resume", done.stderr)
        after = {path: path.read_bytes() for path in self.folder.rglob("*") if path.is_file()}
        self.assertEqual(after, before)


class Usage(shardwright.SystemTest):
    def test_that_is_wrong_ends_with_status_2(self):
        for arguments in (
            ["train"],
            ["retrain", "run.toml"],
            ["train", "nope.toml"],
            ["plan", "nope.toml"],
            ["verify", "nope.toml"],
            ["report", "nope"],
            ["checkpoint", "inspect", "nope"],
            ["generate", "nope", "--prompt", "x"],
        ):
            with self.subTest(arguments):
                done = self.command(*arguments, status=shardwright.REFUSED)
                self.assertEqual(done.stdout, "")
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_of_json_prints_one_document(self):
        run = self.write_run({"checkpoint.every": 4})
        self.command("train", run, "--out", "run")
        checkpoint = self.checkpoint("run", 4)
        for arguments in (
            ["plan", run],
            ["verify", run],
            ["report", "run"],
            ["checkpoint", "inspect", checkpoint],
            ["checkpoint", "verify", self.folder / "run" / "checkpoints"],
            ["account", "ring", "message=1000", "ranks=4"],
        ):
            with self.subTest(arguments):
                self.command_json(*arguments)

    def test_of_an_empty_folder_of_checkpoints_finds_none(self):
        (self.folder / "none").mkdir()
        inspected = self.command("checkpoint", "verify", "none")
        self.assertIn("0 checkpoints", inspected.stdout)


@unittest.skipIf(os.geteuid() != 0, "mounting a small disk needs root")
class FullDisk(shardwright.SystemTest):
    def mount(self, kibibytes):
        disk = self.folder / "disk"
        disk.mkdir()
        options = f"size={kibibytes}k"
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "none", str(disk)],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode != 0:
            self.skipTest(f"cannot mount a small disk here: {mounted.stderr.strip()}")
        self.addCleanup(subprocess.run, ["umount", "--lazy", str(disk)], check=True)
        return disk

    def test_ends_the_run_with_path_and_bytes_and_spares_the_last_checkpoint(self):
        keys = {"train.steps": 20, "checkpoint.every": 1, "checkpoint.keep": 20}
        keys["optimizer.schedule"] = "constant"
        # A checkpoint has 3 x 4 bytes for each of 35,000 parameters: a few fit, twenty do not.
        self.mount(1800)
        run = self.write_run(keys, dp=2, zero=1)
        done = self.command("train", run, "--out", "disk/run", status=shardwright.FAILED)
        errors = [line for line in done.stderr.splitlines() if line.startswith("shardwright:")]
        self.assertRegex(errors[-1], r"disk/run/checkpoints/\S+")
        self.assertRegex(errors[-1], r"\d+ bytes")
        self.assertIn("No space left", errors[-1])
        kept = sorted((self.folder / "disk/run/checkpoints").glob("step-*"))
        self.assertGreater(len(kept), 0)
        for checkpoint in kept:
            self.command("checkpoint", "verify", checkpoint)
        # With room again, the run goes on from there to the bits of a run with room enough.
        last = int(kept[-1].name.partition("-")[2])
        shutil.copytree(self.folder / "disk/run", self.folder / "roomy")
        final = {**keys, "train.steps": last + 2}
        self.train("roomy", final, "--resume", dp=2, zero=1)
        self.train("whole", final, dp=2, zero=1)
        self.assertEqual(self.digests("roomy", last + 2), self.digests("whole", last + 2))


if __name__ == "__main__":
    shardwright.main()
