"""A network that PyTorch exports and fine-tunes: its file, its batches, and the losses of each way of training, for tests/it/finetune.rs and tests/node/finetune.test.mjs.

usage: python finetune.py      writes tests/fixtures/finetune/{network.onnx,losses.npz}

Needs torch, onnx and numpy. Weights and batches are noise that names give, as in mlperf.py. Norms use the running means of the file.
"""

import os
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from mlperf import given, labels, noise, value

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "../fixtures/finetune")
STEPS = 30
BATCHES = 3
BATCH, SIDE, WORDS, CLASSES, WIDTH = 8, 12, 20, 4, 16
RANK, ALPHA = 2, 6.0


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.query, self.key, self.values = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        n = self.norm(x)
        scores = self.query(n) @ self.key(n).transpose(1, 2) / WIDTH**0.5
        return x + self.out(scores.softmax(-1) @ self.values(n))


class Net(nn.Module):
    """A picture and some words to a class."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, WIDTH, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.depth = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH, bias=False)
        self.point = nn.Conv2d(WIDTH, WIDTH, 1)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.attention = Attention()
        self.up, self.head = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(3 * WIDTH, CLASSES)

    def forward(self, image, words):
        x = F.relu(self.norm(self.stem(image)))
        x = F.max_pool2d(F.silu(self.point(self.depth(x))), 2)
        x = torch.cat([x.flatten(2).transpose(1, 2), self.words(words)], 1)
        return self.head(F.gelu(self.up(self.attention(x).mean(1))))


def network():
    net = Net()
    for name, p in net.named_parameters():
        p.data.copy_(value(name, tuple(p.shape)))
    net.norm.running_mean.copy_(torch.from_numpy(0.1 * noise("running_mean", WIDTH)).float())
    net.norm.running_var.copy_(torch.from_numpy(0.3 + 0.1 * noise("running_var", WIDTH)).float())
    return net.eval()


def batch(i):
    i %= BATCHES
    image = given(f"image{i}", BATCH, 1, SIDE, SIDE)
    return image, labels(f"words{i}", WORDS, BATCH, 3), labels(f"labels{i}", CLASSES, BATCH)


def losses(net, params, optimiser, weights=lambda: {}):
    out = []
    for step in range(STEPS):
        image, words, wanted = batch(step)
        loss = F.cross_entropy(torch.func.functional_call(net, weights(), (image, words)), wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        out.append(loss.item())
    assert sum(out[-BATCHES:]) < 0.9 * sum(out[:BATCHES]), out
    print(f"{len(params)} tensors: loss {out[0]:.5f} to {out[-1]:.5f}")
    return np.array(out)


def everything():
    net = network()
    params = list(net.parameters())
    return losses(net, params, torch.optim.Adam(params, lr=0.003))


def some():
    net = network()
    params = [*net.up.parameters(), *net.head.parameters()]
    return losses(net, params, torch.optim.SGD(params, lr=0.05, momentum=0.9, nesterov=True))


def lora():
    """What matrix products and convolutions without groups multiply with gets adapters; names and values of those are PEFT's and noise's."""
    net = network()
    chosen = {n: p for n, p in net.named_parameters() if p.dim() > 1 and not n.startswith(("words", "depth"))}
    adapters = {}
    for name, p in chosen.items():
        kernel = tuple(p.shape[2:])
        adapters[name] = (
            nn.Parameter(value(f"{name}.lora_A", (RANK, p.shape[1], *kernel))),
            nn.Parameter(torch.zeros(p.shape[0], RANK, *(1 for _ in kernel))),
        )
    params = [p for pair in adapters.values() for p in pair]

    def weights():
        return {n: p.detach() + ALPHA / RANK * (adapters[n][1].flatten(1) @ adapters[n][0].flatten(1)).view(p.shape) for n, p in chosen.items()}

    first = {f"{n}.lora_A": a.detach().numpy().copy() for n, (a, _) in adapters.items()}
    return losses(net, params, torch.optim.AdamW(params, lr=0.01, weight_decay=0.02), weights), first


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    image, words, _ = batch(0)
    path = os.path.join(OUT, "network.onnx")
    warnings.simplefilter("ignore")
    # norms stay as they are, and no weight is turned beforehand
    torch.onnx.export(
        network(), (image, words), path, dynamo=False, opset_version=17, do_constant_folding=False, training=torch.onnx.TrainingMode.PRESERVE,
        input_names=["image", "words"], output_names=["logits"],
    )
    with torch.no_grad():
        logits = network()(image, words).numpy()
    batches = {f"{name}{i}": t.numpy() for i in range(BATCHES) for name, t in zip(("image", "words", "labels"), batch(i))}
    adapted, adapters = lora()
    np.savez(os.path.join(OUT, "losses.npz"), logits=logits, everything=everything(), some=some(), lora=adapted, **batches, **adapters)
