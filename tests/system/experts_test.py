#!/usr/bin/env python3
"""experts_test.py PROGRAM: every command with models of experts."""

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

    def test_are_refused_across_ranks_by_name(self):
        self.assertIn("parallel.ep = 2", self.refused(MIXTRAL, dp=2, ep=2))


if __name__ == "__main__":
    shardwright.main()
