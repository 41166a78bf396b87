"""Weights under the names that published folders have.

Since version 5 the `transformers` library keeps the experts of a layer in two tensors, gate and up
projection as one; folders hold a tensor for each expert and projection.
"""

import torch


def published(name, weight, model_type):
    """Pairs of name and tensor."""
    mixtral = model_type == "mixtral"
    if mixtral:
        name = name.replace(".mlp.", ".block_sparse_moe.")
    if name.endswith(".experts.gate_up_proj"):
        prefix = name.removesuffix("gate_up_proj")
        gate, up = ("w1", "w3") if mixtral else ("gate_proj", "up_proj")
        for number, both in enumerate(weight):
            for part, tensor in zip((gate, up), torch.chunk(both, 2, dim=0)):
                yield f"{prefix}{number}.{part}.weight", tensor.contiguous()
    elif name.endswith(".experts.down_proj"):
        prefix = name.removesuffix("down_proj")
        for number, tensor in enumerate(weight):
            part = "w2" if mixtral else "down_proj"
            yield f"{prefix}{number}.{part}.weight", tensor.contiguous()
    else:
        yield name, weight.contiguous()
