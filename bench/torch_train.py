"""torch_train.py LAYERS WIDTH HEADS BATCH SEQUENCE PRECISION MODE STEPS: trains GPT-2 on random
tokens with PyTorch the way people do (scaled_dot_product_attention, autocast for bfloat16, foreach or
fused AdamW, gradients clipped to 1), on all cores. MODE: eager or compiled. Prints a line of JSON:
seconds of each step after the first ones, and the peak of resident memory.
"""

import json
import os
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY = 50257
POSITIONS = 1024
WARM_UP_STEPS = 2


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1 = nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        batch, sequence, width = x.shape
        q, k, v = (
            part.view(batch, sequence, self.heads, -1).transpose(1, 2)
            for part in self.attention(self.norm_1(x)).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, sequence, width))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, width, heads):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Embedding(POSITIONS, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCABULARY), labels.reshape(-1))


def main():
    layers, width, heads, batch, sequence = map(int, sys.argv[1:6])
    precision, mode, steps = sys.argv[6], sys.argv[7], int(sys.argv[8])
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(1)
    model = Gpt2(layers, width, heads)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    call = torch.compile(model) if mode == "compiled" else model
    seconds = []
    for step in range(WARM_UP_STEPS + steps):
        data = torch.randint(VOCABULARY, (batch, sequence + 1))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            loss = call(data[:, :-1], data[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        loss.item()
        if step >= WARM_UP_STEPS:
            seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
