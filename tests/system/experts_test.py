#!/usr/bin/env python3
"""experts_test.py PROGRAM: every command with models of experts."""

import json
import shutil

import shardwright

MIXTRAL = {
    "model.config.model_type": "mixtral",
    "model.config.num_local_experts": 4,
    "model.config.num_experts_per_tok": 2,
    "checkpoint.every": 2,
    "optimizer.schedule": "constant",
}
QWEN = {
    **MIXTRAL,
    "model.config.model_type": "qwen3_moe",
    "model.config.num_local_experts": None,
    "model.config.num_experts": 5,
    "model.config.moe_intermediate_size": 24,
    "model.config.norm_topk_prob": True,
    "model.config.mlp_only_layers": [0],
}
LAYOUT = {"dp": 2, "tp": 2, "zero": 2}
EXPERTS = "model.layers.1.block_sparse_moe.experts."


class Experts(shardwright.SystemTest):
    def test_train_as_on_one_rank_and_report_what_was_planned(self):
        for name, keys in {"mixtral": MIXTRAL, "qwen": QWEN}.items():
            with self.subTest(name):
                run = self.write_run(keys, **LAYOUT)
                self.assertTrue(self.command_json("verify", run)["equal"])
                self.train(f"{name}-one", keys)
                self.train(name, keys, **LAYOUT)
                self.assertTrue(self.command_json("report", name)["equal"])
                self.assert_close_losses(self.losses(name), self.losses(f"{name}-one"), 1e-5)

    def test_go_to_a_model_folder_with_a_tensor_each_and_back(self):
        self.train("run", MIXTRAL, **LAYOUT)
        self.command("checkpoint", "convert", self.checkpoint("run", 4), "--out", "model")
        tensors = shardwright.read_safetensors(self.folder / "model" / "model.safetensors")
        experts = {name: shape for name, (_, shape, _) in tensors.items() if EXPERTS in name}
        self.assertEqual(
            experts,
            {
                f"{EXPERTS}{number}.{weight}.weight": shape
                for number in range(4)
                for weight, shape in {"w1": [64, 32], "w2": [32, 64], "w3": [64, 32]}.items()
            },
        )
        self.command("checkpoint", "convert", "model", "--out", "imported")
        imported = self.folder / "imported" / "step-000000"
        self.command("checkpoint", "convert", imported, "--out", "again")
        model = (self.folder / "model" / "model.safetensors").read_bytes()
        self.assertEqual((self.folder / "again" / "model.safetensors").read_bytes(), model)
        texts = {
            self.command_json(
                "generate", source, "--prompt", "The fox", "--tokens", 8, "--temperature", 0
            )["text"]
            for source in ("run", self.checkpoint("run", 4), "model")
        }
        self.assertEqual(len(texts), 1)

    def test_stay_where_they_are_when_frozen_and_so_does_the_router(self):
        for pattern in ("*block_sparse_moe.gate*", "*experts*"):
            with self.subTest(pattern):
                keys = {**MIXTRAL, "train.freeze": [pattern], "checkpoint.keep": 5}
                out = "router" if "gate" in pattern else "experts"
                self.train(out, keys, **LAYOUT)
                first, last = self.weights(out, 2), self.weights(out, 4)
                same = {name for name, value in first.items() if value == last[name]}
                frozen = "block_sparse_moe.gate." if out == "router" else ".experts."
                self.assertEqual(same, {name for name in first if frozen in name})

    def test_report_how_slots_are_shared_out_the_same_in_every_layout(self):
        keys = {**QWEN, "model.z_loss": 0.01, "model.balance_loss": 0.1}
        # As many tokens in a micro-batch, of which the balance loss is.
        self.train("one", {**keys, "train.micro_batch": 4})
        self.train("many", keys, **LAYOUT)
        self.train("stages", {**keys, "train.micro_batch": 4}, pp=2)
        lines = self.metrics("one")
        for line in lines:  # of two layers one has experts, and a token two slots there
            self.assertEqual(sum(line["expert_load"]), 2 * line["valid_tokens"])
            self.assertEqual(len(line["expert_load"]), 5)
            self.assertGreaterEqual(line["hottest_expert"], 1)
            self.assertGreaterEqual(line["idle_experts"], 0)
            self.assertGreater(line["z_loss"], 0)
            self.assertGreater(line["balance_loss"], 0)
        for out in ("many", "stages"):
            for ours, theirs in zip(self.metrics(out), lines, strict=True):
                for key in ("expert_load", "hottest_expert", "idle_experts"):
                    self.assertEqual(ours[key], theirs[key])

    def test_choose_with_biases_that_are_state(self):
        keys = {**MIXTRAL, "model.balance_bias": 0.05, "checkpoint.keep": 5}
        self.train("whole", keys, **LAYOUT)
        inspected = self.command_json("checkpoint", "inspect", self.checkpoint("whole", 4))
        biases = [t for t in inspected["tensors"] if t["tensor"].endswith("score_correction_bias")]
        self.assertEqual([bias["shape"] for bias in biases], [[4], [4]])
        shutil.copytree(self.folder / "whole", self.folder / "resumed")
        shutil.rmtree(self.checkpoint("resumed", 4))
        self.train("resumed", keys, "--resume", **LAYOUT)
        self.assertEqual(self.digests("resumed", 4), self.digests("whole", 4))
        self.train("one", keys)
        loads = [[line["expert_load"] for line in self.metrics(out)] for out in ("one", "whole")]
        self.assertEqual(loads[0], loads[1])
        digests = [self.digests(out, 4) for out in ("one", "whole")]
        for bias in biases:
            self.assertEqual(digests[0][bias["name"]], digests[1][bias["name"]])
        self.command_json("generate", "whole", "--prompt", "The fox", "--tokens", 2)
        source = self.checkpoint("whole", 4)
        done = self.command(
            "checkpoint", "convert", source, "--out", "hf", status=shardwright.REFUSED
        )
        self.assertIn("model.balance_bias", done.stderr)
        self.assertFalse((self.folder / "hf").exists())

    def test_are_refused_across_ranks_that_cannot_have_them(self):
        keys = {**MIXTRAL, "train.global_batch": 6}
        self.assertIn("values that do: 1, 2, 4", self.refused(keys, dp=3, ep=3))
        self.assertIn("this model has none", self.refused({}, dp=2, ep=2))

    def test_with_a_capacity_drop_and_count_what_is_beyond(self):
        keys = {**MIXTRAL, "model.expert_capacity": 0.5}
        self.train("run", keys, dp=2, ep=2)
        for line in self.metrics("run"):
            self.assertEqual(
                line["dropped_slots"] + sum(line["expert_load"]), 2 * 2 * line["valid_tokens"]
            )
            self.assertGreater(line["dropped_slots"], line["valid_tokens"])
        run = self.write_run(keys, dp=2)
        said = self.command("verify", run, status=shardwright.REFUSED).stderr
        self.assertIn("depends on the layout", said)
        self.assertIn("depends on the layout", self.command("plan", run).stdout)
        self.assertIn("keep one", self.refused({**keys, "model.balance_bias": 0.1}))

    def test_that_all_tokens_choose_leave_the_other_rank_without_any(self):
        """A router of zeros scores all experts alike, and of equals the first are chosen: those of
        the first rank (C039)."""
        self.train("start", MIXTRAL)
        self.command("checkpoint", "convert", self.checkpoint("start", 4), "--out", "model")
        file = self.folder / "model" / "model.safetensors"
        data = bytearray(file.read_bytes())
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:begin])
        for name, tensor in header.items():
            if name.endswith("block_sparse_moe.gate.weight"):
                first, last = tensor["data_offsets"]
                data[begin + first : begin + last] = bytes(last - first)
        file.write_bytes(data)
        keys = {
            **{key: None for key in {**shardwright.TINY, **MIXTRAL} if key.startswith("model.")},
            "model.path": "model",
            "train.steps": 20,
            "train.freeze": ["*gate.weight"],
        }
        self.train("one", keys)
        for layout in ({"dp": 2}, {"dp": 2, "zero": 3}, {"dp": 4, "zero": 1}):
            with self.subTest(layout):
                out = f"dp{layout['dp']}zero{layout.get('zero', 0)}"
                self.train(out, keys, ep=2, **layout)
                self.assertTrue(self.command_json("report", out)["equal"])
                self.assert_close_losses(self.losses(out), self.losses("one"), 1e-5)


if __name__ == "__main__":
    shardwright.main()
