#!/usr/bin/env python3
"""Loads an exported model folder in the `transformers` library.

    VENV/bin/python tools/reference/check_roundtrip.py EXPORTED [ORIGINAL]

The library must find every weight it needs and know every weight it finds. With ORIGINAL (the folder
the weights came from) both give the same logits, bit for bit, on the same tokens; without it the
logits must be finite. Ends with status 1 when something does not hold.
"""

import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

# See make_model_fixtures.py.
LlamaConfig.__class_validators__ = [
    check for check in LlamaConfig.__class_validators__ if check.__name__ != "validate_architecture"
]


def load(folder):
    model, info = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        output_loading_info=True,
        local_files_only=True,
        experts_implementation="eager",  # the others want rows of a multiple of 16 bytes
    )
    problems = {kind: names for kind, names in info.items() if names}
    if problems:
        sys.exit(f"{folder}: {problems}")
    return model.eval()


def logits_of(model):
    generator = torch.Generator().manual_seed(1)
    length = min(32, model.config.max_position_embeddings)
    tokens = torch.randint(0, model.config.vocab_size, (2, length), generator=generator)
    with torch.no_grad():
        return model(input_ids=tokens).logits


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    exported = logits_of(load(sys.argv[1]))
    if not torch.isfinite(exported).all():
        sys.exit(f"{sys.argv[1]}: logits are not finite")
    if len(sys.argv) == 3:
        original = logits_of(load(sys.argv[2]))
        if exported.shape != original.shape or not torch.equal(exported, original):
            sys.exit(f"{sys.argv[1]}: logits differ from those of {sys.argv[2]}")
    print(f"{sys.argv[1]}: loads, logits {'equal' if len(sys.argv) == 3 else 'finite'}")


if __name__ == "__main__":
    main()
