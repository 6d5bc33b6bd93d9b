"""Five networks that PyTorch trains from the beginning, their losses step by step, for tests/it/curves.rs and tests/node/curves.test.mjs.

usage: python curves.py      writes tests/fixtures/curves.json

Needs torch and numpy. Weights, data and noise are pseudo-random numbers that names give, the same on all sides. Each job runs in f32, whose losses
are recorded, and in f64; how far one is from the other, step by step, says what rounding alone makes of a job, and goes into the file too.
"""

import json
import math
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "../fixtures/curves.json")
STEPS = 40
BATCH, SIDE, CLASSES = 16, 12, 10
# the first pictures with which the classifier's rectifiers and pools decide nothing by rounding
FIRST = 900
CLEAR = 8e-6
TEXT = (
    "a loom holds threads under tension while others are woven through them. the threads that stay are the warp, and those that go across are "
    "the weft. each pass of the shuttle lays one thread of weft, and the reed beats it against the cloth. a pattern is a list of which threads "
    "rise at which pass, so a loom reads a program, and for a long time weavers were the only ones who wrote any."
)
LETTERS = "abcdefghijklmnopqrstuvwxyz .,"
WINDOW, WIDTH, HEADS, DEPTH = 24, 32, 4, 2
MOMENTS = 10
LATENT = 4
SEED_NOISE = 8


def numbers(name, n, lo, hi):
    """As `numbers` of tests/node/cases.mjs and `data` of tests/src/opinfo.rs: f32 from lo to hi, of a seed that the name gives."""
    seed = 0
    for b in name.encode():
        seed = (seed * 31 + b) & 0xFFFFFFFF
    h = (np.arange(n, dtype=np.uint64) * 0x9E3779B1 + seed * 0x85EBCA77 + 0x165667B1) & 0xFFFFFFFF
    h ^= h >> 15
    h = h * 0x2C1B3C6D & 0xFFFFFFFF
    h ^= h >> 12
    h = h * 0x297A2D39 & 0xFFFFFFFF
    h ^= h >> 15
    return (lo + (hi - lo) * (h.astype(np.float64) / 4294967296)).astype(np.float32)


def places(name, n, limit):
    """Integers below a limit."""
    return np.minimum(np.floor(numbers(name, n, 0, limit)), limit - 1).astype(np.int64)


def tensor(values, *shape):
    return torch.from_numpy(np.asarray(values, np.float32)).to(torch.get_default_dtype()).reshape(shape)


def normal(name, *shape):
    """Of mean 0 and variance 1, but uniform."""
    return tensor(numbers(name, math.prod(shape), -math.sqrt(3), math.sqrt(3)), *shape)


def fill(job, net):
    for name, p in net.named_parameters():
        n, shape = p.numel(), tuple(p.shape)
        limit = math.sqrt(3 / math.prod(shape[1:]))
        if len(shape) > 1:
            values = numbers(f"{job}.{name}", n, -limit, limit)
        elif name.endswith("weight"):
            values = numbers(f"{job}.{name}", n, 0.9, 1.1)
        else:
            values = numbers(f"{job}.{name}", n, -0.1, 0.1)
        p.data.copy_(tensor(values, *shape))
    return net.train()


def pictures(batch, classes=CLASSES, share=0.5):
    """Noisy pictures within -1 and 1, and of which class each is; a share of them is the class's pattern."""
    pixels, labels = [], []
    for i in range(batch * BATCH, (batch + 1) * BATCH):
        label = i % classes
        pattern = numbers(f"pattern{label}", SIDE * SIDE, -1, 1).astype(np.float64)
        pixels.append(share * pattern + (1 - share) * numbers(f"picture{i}", SIDE * SIDE, -1, 1).astype(np.float64))
        labels.append(label)
    return tensor(np.stack(pixels), BATCH, 1, SIDE, SIDE), torch.tensor(labels)


CLOSEST = []


class Relu(nn.ReLU):
    """Where rounding decides a sign, a gradient jumps, and nothing can be compared from there on: so it is noted how near that came."""

    def forward(self, x):
        CLOSEST.append(x.detach().abs().min().item())
        return super().forward(x)


class MaxPool(nn.MaxPool2d):
    """The same of which of four numbers is the largest, where that is above 0, since a rectifier follows."""

    def forward(self, x):
        first, second = F.pixel_unshuffle(x.detach().flatten(0, 1)[:, None], 2).topk(2, 1).values.unbind(1)
        CLOSEST.append((first - second)[first > 0].min().item())
        return super().forward(x)


class Record:
    """What a job gives: rows of losses, and the size of each of its tensors after the last step."""

    def __init__(self):
        self.losses, self.sizes = [], {}

    def row(self, *losses):
        self.losses.append([each.item() for each in losses])

    def end(self, net):
        for name, t in net.state_dict().items():
            # keys' biases change no softmax: their gradients are rounding, of which Adam makes steps
            if t.is_floating_point() and not name.endswith("in_proj_bias"):
                self.sizes[name] = t.detach().double().norm().item()
        return self


def classifier():
    net = fill("classifier", nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), MaxPool(2), Relu(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(16), Relu(), nn.Flatten(), nn.Linear(144, CLASSES),
    ))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    record = Record()
    for step in range(STEPS):
        x, y = pictures(FIRST + step, share=0.25)
        loss = F.cross_entropy(net(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        record.row(loss)
    # by the running means, on pictures that it has not seen
    x, y = pictures(FIRST + STEPS, share=0.25)
    record.row(F.cross_entropy(net.eval()(x), y))
    return record.end(net)


class Letters(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(WINDOW, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, DEPTH, nn.LayerNorm(WIDTH), enable_nested_tensor=False)

    def forward(self, x):
        seen = nn.Transformer.generate_square_subsequent_mask(WINDOW)
        h = self.encoder(self.letters(x) + self.places.weight, mask=seen, is_causal=True)
        return h @ self.letters.weight.T


def letters():
    net = fill("letters", Letters())
    codes = np.array([LETTERS.index(c) for c in TEXT])
    optimiser = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=0.1)
    warm = torch.optim.lr_scheduler.LinearLR(optimiser, start_factor=1 / 5, total_iters=4)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=STEPS - 5)
    rate = torch.optim.lr_scheduler.SequentialLR(optimiser, [warm, cosine], milestones=[5])
    record = Record()
    for step in range(STEPS):
        starts = places(f"letters.start{step}", BATCH, len(TEXT) - WINDOW)
        windows = torch.from_numpy(np.stack([codes[s : s + WINDOW + 1] for s in starts]))
        loss = F.cross_entropy(net(windows[:, :-1]).flatten(0, 1), windows[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        length = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        rate.step()
        record.row(loss, length)
    return record.end(net)


class Sums(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(2, 16, batch_first=True), nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.gru(self.lstm(x)[0])[0][:, -1])


def sums():
    """Of ten numbers two are marked, whose sum is asked for."""
    net = fill("sums", Sums())
    optimiser = torch.optim.Adam(net.parameters(), lr=0.01)
    record = Record()
    for step in range(STEPS):
        values = numbers(f"sums.value{step}", BATCH * MOMENTS, -1, 1).reshape(BATCH, MOMENTS)
        marks = np.zeros((BATCH, MOMENTS), np.float32)
        first, second = places(f"sums.first{step}", BATCH, 5), places(f"sums.second{step}", BATCH, 5)
        marks[np.arange(BATCH), first] = marks[np.arange(BATCH), 5 + second] = 1
        wanted = (values.astype(np.float64) * marks).sum(1)
        loss = F.mse_loss(net(tensor(np.stack([values, marks], 2), BATCH, MOMENTS, 2)), tensor(wanted, BATCH, 1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        record.row(loss)
    return record.end(net)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.up, self.out = nn.Linear(SIDE * SIDE, 32), nn.Linear(LATENT, 32), nn.Linear(32, SIDE * SIDE)
        self.mean, self.log_var = nn.Linear(32, LATENT), nn.Linear(32, LATENT)


def vae():
    net = fill("vae", Vae())
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3, betas=(0.9, 0.99), weight_decay=1e-3)
    record = Record()
    for step in range(STEPS):
        x = pictures(step % 4, 4)[0].flatten(1) * 0.5 + 0.5
        h = torch.tanh(net.hidden(x))
        mean, log_var = net.mean(h), net.log_var(h)
        z = mean + torch.exp(0.5 * log_var) * normal(f"vae.noise{step}", BATCH, LATENT)
        logits = net.out(Relu()(net.up(z)))
        told = F.binary_cross_entropy_with_logits(logits, x, reduction="none").sum(1).mean()
        apart = 0.5 * (mean.square() + log_var.exp() - log_var - 1).sum(1).mean()
        loss = told + apart
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        record.row(loss, apart)
    return record.end(net)


class Gan(nn.Module):
    def __init__(self):
        super().__init__()
        self.made = nn.Sequential(
            nn.Linear(SEED_NOISE, 72, bias=False), nn.Unflatten(1, (8, 3, 3)), nn.BatchNorm2d(8), nn.SiLU(),
            nn.ConvTranspose2d(8, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.SiLU(), nn.ConvTranspose2d(8, 1, 4, 2, 1), nn.Tanh(),
        )
        self.told = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), nn.ELU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ELU(), nn.Flatten(), nn.Linear(144, 1),
        )


def gan():
    net = fill("gan", Gan())
    first = torch.optim.RMSprop(net.told.parameters(), lr=5e-4, alpha=0.9, momentum=0.5)
    second = torch.optim.AdamW(net.made.parameters(), lr=2e-3, betas=(0.5, 0.999), weight_decay=0.01)
    record = Record()
    for step in range(STEPS):
        real = pictures(step % 4)[0]
        made = net.made(normal(f"gan.noise{step}", BATCH, SEED_NOISE))
        told = (F.softplus(-net.told(real)) + F.softplus(net.told(made.detach()))).mean()
        first.zero_grad()
        told.backward()
        first.step()
        fooled = F.softplus(-net.told(made)).mean()
        second.zero_grad()
        fooled.backward()
        second.step()
        record.row(told, fooled)
    return record.end(net)


def main():
    torch.set_num_threads(1)
    out = {"text": TEXT, "letters": LETTERS, "jobs": {}}
    for job in (classifier, letters, sums, vae, gan):
        torch.set_default_dtype(torch.float32)
        one = job()
        torch.set_default_dtype(torch.float64)
        CLOSEST.clear()
        two = job()
        closest = min(CLOSEST, default=math.inf)
        assert closest > CLEAR, f"{job.__name__}: a kink is {closest:.1e} away"
        off = [max(abs(a - b) / abs(b) for a, b in zip(*rows)) for rows in zip(one.losses, two.losses)]
        sizes = max((abs(one.sizes[k] - two.sizes[k]) / two.sizes[k], k) for k in one.sizes)
        print(f"{job.__name__}: {one.losses[0]} to {one.losses[STEPS - 1]}; off f64: first ten {max(off[:10]):.1e}, all {max(off):.1e}, sizes {sizes[0]:.1e} of {sizes[1]}")
        short = lambda x: float(f"{x:.9g}")
        out["jobs"][job.__name__] = {
            "losses": [[short(x) for x in row] for row in one.losses],
            "rounding": [float(f"{x:.1e}") for x in off],
            "sizes": {k: short(v) for k, v in sorted(one.sizes.items())},
        }
    with open(OUT, "w") as f:
        jobs = out.pop("jobs")
        lines = [f'"{k}": {json.dumps(v)}' for k, v in out.items()]
        parts = [f'  "{k}": {{\n' + ",\n".join(f'    "{a}": {json.dumps(b)}' for a, b in v.items()) + "\n  }" for k, v in jobs.items()]
        f.write("{\n" + ",\n".join(lines) + ',\n"jobs": {\n' + ",\n".join(parts) + "\n}\n}\n")


if __name__ == "__main__":
    main()
