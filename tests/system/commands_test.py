#!/usr/bin/env python3
"""commands_test.py PROGRAM: what else a user does with a run: verify, convert, generate, prune."""

import os
import subprocess

import shardwright


class Commands(shardwright.SystemTest):
    keys = {"checkpoint.every": 2, "checkpoint.keep": 5}

    def test_verify_compares_two_layouts_and_saving_with_loading(self):
        run = self.write_run({}, dp=2, tp=2, zero=1)
        against = self.command_json(
            "verify", run, "--steps", 2, "--against", "parallel.zero=0", "--dump", "dump"
        )
        # The ZeRO level changes no arithmetic.
        self.assertTrue(against["bit_identical"])
        self.assertEqual(against["worst_weight"]["relative_error"], 0)
        for what in ("gradients", "weights"):
            layout, reference = (
                shardwright.read_safetensors(self.folder / "dump" / f"{side}.{what}.safetensors")
                for side in ("layout", "reference")
            )
            self.assertEqual(layout, reference)
        self.assertTrue(self.command_json("verify", run, "--resume")["bit_identical"])

    def test_verify_compares_every_split_with_one_rank(self):
        splits = {"parallel.pp": 2, "parallel.cp": 2, "parallel.context": "gather"}
        run = self.write_run({**self.keys, **splits}, dp=2)
        text = self.command("verify", run).stdout
        self.assertIn("pp 2 x dp 2 x cp 2 x tp 1", text.splitlines()[0])
        self.assertIn("against dp 1 x tp 1, ZeRO-0: equal", text.splitlines()[0])
        self.assertNotIn("bit-identical", text)
        groups = {"parallel.zero_group": 2, "parallel.zero": 3, "train.gradient_precision": "bfloat16"}
        run = self.write_run({**self.keys, **groups}, dp=4)
        self.assertTrue(self.command_json("verify", run)["equal"])

    def test_verify_ends_with_3_when_the_sides_differ(self):
        run = self.write_run({}, dp=2)
        different = ("--against", "optimizer.learning_rate=0.01")
        result = self.command_json(
            "verify", run, *different, status=shardwright.COMPARISON_FAILED
        )
        self.assertFalse(result["equal"])
        self.assertGreater(result["worst_weight"]["relative_error"], result["bound"])

    def test_verify_refuses_what_it_does_not_compare(self):
        run = self.write_run({}, dp=2)
        for arguments in (
            ("--against", "data.documents=joined"),
            ("--resume", "--against", "parallel.zero=1"),
        ):
            refused = self.command("verify", run, *arguments, status=shardwright.REFUSED)
            self.assertIn("--against", refused.stderr)

    def test_convert_goes_to_a_model_folder_and_back_without_a_changed_bit(self):
        self.train("run", self.keys, dp=2, tp=2, zero=1)
        self.command("checkpoint", "convert", self.checkpoint("run", 4), "--out", "model")
        self.command("checkpoint", "convert", "model", "--out", "imported")
        imported = self.folder / "imported" / "step-000000"
        self.command("checkpoint", "convert", imported, "--out", "again")
        model = (self.folder / "model" / "model.safetensors").read_bytes()
        self.assertEqual((self.folder / "again" / "model.safetensors").read_bytes(), model)

    def test_generate_says_the_same_from_a_run_a_checkpoint_and_a_folder(self):
        self.train("run", self.keys, dp=2, tp=2, zero=1)
        checkpoint = self.checkpoint("run", 4)
        self.command("checkpoint", "convert", checkpoint, "--out", "model")
        texts = {
            self.command_json(
                "generate", source, "--prompt", "The fox", "--tokens", 8, "--temperature", 0
            )["text"]
            for source in ("run", checkpoint, "model")
        }
        self.assertEqual(len(texts), 1)

    def test_prune_keeps_the_newest(self):
        self.train("run", self.keys)
        folder = self.folder / "run" / "checkpoints"
        self.command("checkpoint", "prune", folder, "--keep", 1)
        self.assertEqual(list(folder.iterdir()), [self.checkpoint("run", 4)])

    def test_report_shows_that_plan_and_run_agree(self):
        self.train("run", self.keys, dp=2)
        self.assertTrue(self.command_json("report", "run")["equal"])

    def test_train_refuses_to_run_under_an_outer_launcher(self):
        run = self.write_run()
        launchers = {
            "mpirun": {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},
            "torchrun": {"RANK": "0", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "none"},
            "srun": {"SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_PROCID": "0"},
        }
        for launcher, variables in launchers.items():
            with self.subTest(launcher):
                done = subprocess.run(
                    [shardwright.PROGRAM, "train", run],
                    cwd=self.folder,
                    env={**os.environ, **variables},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual(done.returncode, shardwright.REFUSED, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
                self.assertIn(launcher, done.stderr)
                self.assertIn("not in this version", done.stderr)


if __name__ == "__main__":
    shardwright.main()
