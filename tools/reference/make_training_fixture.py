#!/usr/bin/env python3
"""Makes tests/fixtures/model/training/ and training-mixtral/: 20 AdamW steps of PyTorch on a tiny
model in float32.

    python3 -m venv VENV && VENV/bin/pip install torch transformers safetensors
    VENV/bin/python tools/reference/make_training_fixture.py [FOLDER]

Each folder holds config.json, model.safetensors (the initial weights) and training.json: the token
rows of every step ([step][row][S + 1]; inputs are the first S, labels the last S), the optimizer's
settings, and per variant (gradient clipping off, and at a norm of 1) the loss of each step before
its update and the gradient norm before clipping. Weight decay acts on the matrices and embeddings,
not on norms. Made with torch 2.15 and transformers 5.24.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM

from published import published

KEYS = dict(
    vocab_size=48,
    hidden_size=16,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=32,
    rms_norm_eps=1e-5,
    rope_theta=10000.0,
    bos_token_id=None,
    eos_token_id=None,
    initializer_range=0.1,
)
EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2)
CASES = {
    "training": (LlamaForCausalLM, LlamaConfig, KEYS),
    "training-mixtral": (MixtralForCausalLM, MixtralConfig, {**KEYS, **EXPERTS}),
}
STEPS, ROWS, LENGTH = 20, 4, 16
SETTINGS = dict(learning_rate=1e-3, betas=[0.9, 0.999], epsilon=1e-8, weight_decay=0.1)


def make_rows(generator):
    """Arithmetic sequences with some noise: there is something to learn."""
    start = torch.randint(0, 48, (STEPS, ROWS, 1), generator=generator)
    stride = torch.randint(1, 4, (STEPS, ROWS, 1), generator=generator)
    rows = (start + stride * torch.arange(LENGTH + 1)) % 48
    noise = torch.rand(rows.shape, generator=generator) < 0.1
    return torch.where(noise, torch.randint(0, 48, rows.shape, generator=generator), rows)


def train(model, rows, clip):
    matrices = [weight for weight in model.parameters() if weight.dim() > 1]
    norms = [weight for weight in model.parameters() if weight.dim() == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": SETTINGS["weight_decay"]},
            {"params": norms, "weight_decay": 0.0},
        ],
        lr=SETTINGS["learning_rate"],
        betas=SETTINGS["betas"],
        eps=SETTINGS["epsilon"],
        foreach=False,
    )
    losses, gradient_norms = [], []
    for step in rows:
        optimizer.zero_grad()
        logits = model(input_ids=step[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), step[:, 1:].flatten())
        loss.backward()
        limit = clip if clip > 0 else float("inf")
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()
        losses.append(loss.item())
        gradient_norms.append(norm.item())
    return {"gradient_clip": clip, "losses": losses, "gradient_norms": gradient_norms}


def make(folder, model_class, config_class, keys):
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(7)
    model = model_class(config_class(**keys)).train()
    if "num_experts_per_tok" in keys:
        model.set_experts_implementation("eager")
    model_type = config_class.model_type
    initial = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    stored = {}
    for name, weight in initial.items():
        stored.update((n, tensor.clone()) for n, tensor in published(name, weight, model_type))
    save_file(stored, folder / "model.safetensors", {"format": "pt"})
    config = {"architectures": [model_class.__name__], "model_type": model_type, **keys}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")

    rows = make_rows(torch.Generator().manual_seed(11))
    variants = []
    for clip in (0.0, 1.0):
        model.load_state_dict(initial)
        variants.append(train(model, rows, clip))
    result = {**SETTINGS, "rows": rows.tolist(), "variants": variants}
    (folder / "training.json").write_text(json.dumps(result) + "\n")
    for variant in variants:
        print(variant)


def main():
    here = pathlib.Path(__file__).resolve()
    default = here.parents[2] / "tests/fixtures/model"
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default
    torch.set_num_threads(1)
    for name, case in CASES.items():
        make(folder / name, *case)


if __name__ == "__main__":
    main()
