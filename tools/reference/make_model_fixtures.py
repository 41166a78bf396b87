#!/usr/bin/env python3
"""Makes tests/fixtures/model/*: tiny models as Hugging Face folders, and what the `transformers`
library computes with them.

    python3 -m venv VENV && VENV/bin/pip install torch transformers safetensors
    VENV/bin/python tools/reference/make_model_fixtures.py [FOLDER]

Each folder holds config.json and model.safetensors as they are published, and expected.safetensors:
tokens, labels, positions, documents (int32 [B,S]), logits (float32 [B,S,V]), loss, and the gradient
of the loss for every tensor of the model ("gradient." and its name).

The weights are float32 numbers; the library computes with them in float64 (its norms and rotary
tables stay float32). Documents of a packed row are run through the library one by one, so that what
isolates them here is not what isolates them there. Made with torch 2.15 and transformers 5.24.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from published import published

# This version refuses hidden_size % num_attention_heads != 0 even when head_dim is given
# (transformers issue 46082); the model itself computes with head_dim.
LlamaConfig.__class_validators__ = [
    check for check in LlamaConfig.__class_validators__ if check.__name__ != "validate_architecture"
]

SMALL = dict(
    vocab_size=29,
    hidden_size=16,
    intermediate_size=20,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    rms_norm_eps=1e-5,
    bos_token_id=None,
    eos_token_id=None,
)

# name: (model class, config class, keys of config.json, lengths of the documents of each row)
CASES = {
    "llama-grouped": (
        LlamaForCausalLM,
        LlamaConfig,
        {**SMALL, "num_hidden_layers": 2, "rope_theta": 10000.0, "rope_scaling": None},
        [[13], [5, 8]],
    ),
    "llama-head-dim": (
        LlamaForCausalLM,
        LlamaConfig,
        {
            **SMALL,
            "hidden_size": 40,
            "num_attention_heads": 3,
            "num_key_value_heads": 1,
            "head_dim": 16,
            "intermediate_size": 8,
            "tie_word_embeddings": True,
            "attention_bias": True,
            "mlp_bias": True,
        },
        [[11]],
    ),
    "llama-rope-llama3": (
        LlamaForCausalLM,
        LlamaConfig,
        {
            **SMALL,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "rope_parameters": {
                "rope_theta": 500.0,
                "rope_type": "llama3",
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            },
        },
        [[40]],
    ),
    "llama-rope-linear": (
        LlamaForCausalLM,
        LlamaConfig,
        {**SMALL, "rope_theta": 10000, "rope_scaling": {"type": "linear", "factor": 2}},
        [[19]],
    ),
    "mistral-window": (
        MistralForCausalLM,
        MistralConfig,
        {**SMALL, "sliding_window": 5},
        [[14]],
    ),
    "qwen2": (
        Qwen2ForCausalLM,
        Qwen2Config,
        {**SMALL, "tie_word_embeddings": True},
        [[9], [9]],
    ),
    "gpt2": (
        GPT2LMHeadModel,
        GPT2Config,
        dict(
            vocab_size=29,
            n_embd=16,
            n_layer=2,
            n_inner=24,
            n_head=2,
            n_positions=16,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=None,
            eos_token_id=None,
        ),
        [[12], [7, 5]],
    ),
    "mixtral": (
        MixtralForCausalLM,
        MixtralConfig,
        {
            **SMALL,
            "num_hidden_layers": 2,
            "intermediate_size": 12,
            "sliding_window": 9,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
        [[13], [5, 8]],
    ),
    "qwen2-moe": (
        Qwen2MoeForCausalLM,
        Qwen2MoeConfig,
        {
            **SMALL,
            "num_hidden_layers": 2,
            "num_experts": 5,
            "num_experts_per_tok": 3,
            "moe_intermediate_size": 6,
            "shared_expert_intermediate_size": 10,
            "norm_topk_prob": False,
            "mlp_only_layers": [1],
        },
        [[11], [11]],
    ),
    "qwen3-moe": (
        Qwen3MoeForCausalLM,
        Qwen3MoeConfig,
        {
            **SMALL,
            "num_hidden_layers": 2,
            "head_dim": 6,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 6,
            "norm_topk_prob": True,
            "decoder_sparse_step": 2,
            "rope_theta": 100000.0,
        },
        [[12], [4, 8]],
    ),
}


def randomize(model, generator):
    """Weights large enough that every nonlinearity bends, norms and biases included."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_norm = weight.dim() == 1 and name.endswith(".weight")
            values = 0.25 * torch.randn(weight.shape, generator=generator)
            weight.copy_(values + 1 if is_norm else values)


def make_rows(lengths, vocabulary, generator):
    """Token rows with labels one further, some of them masked, as training sees them."""
    rows = len(lengths)
    length = sum(lengths[0])
    tokens = torch.randint(0, vocabulary, (rows, length), generator=generator)
    labels = torch.roll(tokens, -1, dims=1)
    labels[torch.rand((rows, length), generator=generator) < 0.2] = -1
    labels[:, -1] = -1
    positions = torch.tensor([[p for n in row for p in range(n)] for row in lengths])
    documents = torch.tensor([[d for d, n in enumerate(row) for _ in range(n)] for row in lengths])
    return tokens, labels, positions, documents


def logits_by_document(model, tokens, lengths):
    rows = []
    for row, documents in zip(tokens, lengths):
        pieces = torch.split(row, documents)
        rows.append(torch.cat([model(input_ids=piece[None]).logits[0] for piece in pieces]))
    return torch.stack(rows)


def make(folder, model_class, config_class, keys, lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    model = model_class(config_class(**keys)).eval()
    if "num_experts_per_tok" in keys:
        model.set_experts_implementation("eager")
    randomize(model, generator)
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": [model_class.__name__], "model_type": config_class.model_type, **keys}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    weights = {
        stored: tensor.clone()
        for name, weight in model.named_parameters()
        for stored, tensor in published(name, weight.detach(), config_class.model_type)
    }
    save_file(weights, folder / "model.safetensors", {"format": "pt"})

    model = model.double()
    tokens, labels, positions, documents = make_rows(lengths, keys["vocab_size"], generator)
    logits = logits_by_document(model, tokens, lengths)
    valid = labels >= 0
    loss = torch.nn.functional.cross_entropy(logits[valid], labels[valid], reduction="mean")
    loss.backward()
    expected = {
        "tokens": tokens.int(),
        "labels": labels.int(),
        "positions": positions.int(),
        "documents": documents.int(),
        "logits": logits.detach().float(),
        "loss": loss.detach().float(),
    }
    for name, weight in model.named_parameters():
        for stored, gradient in published(name, weight.grad.float(), config_class.model_type):
            expected["gradient." + stored] = gradient
    save_file(expected, folder / "expected.safetensors")


def main():
    here = pathlib.Path(__file__).resolve()
    target = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else here.parents[2] / "tests/fixtures/model"
    for seed, (name, case) in enumerate(CASES.items(), start=1):
        make(target / name, *case, seed)
        print(name)


if __name__ == "__main__":
    main()
