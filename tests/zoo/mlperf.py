"""What PyTorch makes of the networks of native/examples/mlperf: a forward pass and one step of descent, recorded for tests/it/mlperf.rs.

usage: python mlperf.py            writes tests/fixtures/mlperf/NAME.npz

Needs torch, torchvision, transformers and numpy. Weights and inputs are noise that names give, as in native/examples/mlperf/weights.rs.
"""

import itertools
import math
import os
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "../fixtures/mlperf")
RATE = 0.01


def noise(name, n):
    seed = 0
    for b in name.encode():
        seed = (seed * 31 + b) % 9973
    late = np.sin(12.9898 * np.arange(n, dtype=np.float64) + seed) * 43758.5453
    return 2 * (late - np.floor(late)) - 1


def value(name, shape):
    x = noise(name, int(np.prod(shape)))
    if len(shape) == 1:
        x = 1 + 0.1 * x if name.endswith("weight") else 0.1 * x
    else:
        x = x * math.sqrt(3 / int(np.prod(shape[1:])))
    return torch.from_numpy(x.astype(np.float32)).reshape(shape)


def given(name, *shape):
    return torch.from_numpy(noise(name, int(np.prod(shape))).astype(np.float32)).reshape(shape)


def labels(name, limit, *shape):
    x = noise(name, int(np.prod(shape)))
    return torch.from_numpy(np.minimum((x * 0.5 + 0.5) * limit, limit - 1).astype(np.int64)).reshape(shape)


def fill(net):
    for name, p in net.named_parameters():
        p.data.copy_(value(name, tuple(p.shape)))
    return net.train()


def record(name, net, run):
    fill(net)
    prediction, loss = run(net)
    loss.backward()
    names = sorted(n for n, _ in net.named_parameters())
    params = dict(net.named_parameters())
    assert all(params[n].grad is not None for n in names), [n for n in names if params[n].grad is None]
    lengths = [params[n].grad.double().norm().item() for n in names]
    flat = prediction.detach().double().reshape(-1).numpy()
    sample = [flat[i * (len(flat) - 1) // 7] for i in range(8)]
    with torch.no_grad():
        for p in params.values():
            p -= RATE * p.grad
        after = run(net)[1].item()
    print(f"{name}: loss {loss.item():.6f} then {after:.6f}, {sum(p.numel() for p in params.values())} weights")
    os.makedirs(OUT, exist_ok=True)
    text = np.frombuffer("\n".join(names).encode(), np.uint8)
    np.savez(
        os.path.join(OUT, f"{name}.npz"),
        prediction=np.array(sample),
        losses=np.array([loss.item(), after]),
        gradients=np.array(lengths),
        names=text,
    )


class Unet3d(nn.Module):
    def __init__(self, widths=(8, 16, 32), classes=3):
        super().__init__()

        def layer(i, o, stride):
            return nn.ModuleDict({"conv": nn.Conv3d(i, o, 3, stride, 1, bias=False), "norm": nn.InstanceNorm3d(o, affine=True)})

        def block(i, o, stride):
            return nn.ModuleList([layer(i, o, stride), layer(o, o, 1)])

        self.down = nn.ModuleList([block(1 if i == 0 else widths[i - 1], w, 1 if i == 0 else 2) for i, w in enumerate(widths)])
        pairs = list(zip(widths, widths[1:]))
        self.up = nn.ModuleList([nn.ModuleDict({"up": nn.ConvTranspose3d(b, a, 2, 2), "block": block(2 * a, a, 1)}) for a, b in pairs])
        self.out = nn.Conv3d(widths[0], classes, 1)

    def forward(self, x):
        def block(layers, x):
            for each in layers:
                x = F.relu(each["norm"](each["conv"](x)))
            return x

        skips = []
        for each in self.down:
            x = block(each, x)
            skips.append(x)
        x = skips.pop()
        for i in reversed(range(len(self.up))):
            x = block(self.up[i]["block"], torch.cat([self.up[i]["up"](x), skips[i]], 1))
        return self.out(x)


def unet3d():
    x, y = given("image", 2, 1, 16, 16, 16), labels("label", 3, 2, 16, 16, 16)

    def run(net):
        logits = net(x)
        truth = F.one_hot(y, 3).permute(0, 4, 1, 2, 3).float()
        guess = logits.softmax(1)
        shared, both = (guess * truth).sum((2, 3, 4)), guess.sum((2, 3, 4)) + truth.sum((2, 3, 4))
        dice = 1 - ((2 * shared + 1e-6) / (both + 1e-6)).mean()
        return logits, dice + F.cross_entropy(logits, y)

    record("unet3d", Unet3d(), run)


def small_resnet():
    from torchvision.models.resnet import Bottleneck, ResNet

    class Small(ResNet):
        """One block a stage, an eighth of the width."""

        def __init__(self):
            super().__init__(Bottleneck, [1, 1, 1, 1], num_classes=10)
            self.inplanes = 8
            self.conv1, self.bn1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8)
            self.layer1 = self._make_layer(Bottleneck, 8, 1)
            self.layer2 = self._make_layer(Bottleneck, 16, 1, stride=2)
            self.layer3 = self._make_layer(Bottleneck, 32, 1, stride=2)
            self.layer4 = self._make_layer(Bottleneck, 64, 1, stride=2)
            self.fc = nn.Linear(256, 10)

    return Small()


def resnet():
    x, y = given("image", 4, 3, 64, 64), labels("label", 10, 4)

    def run(net):
        logits = net(x)
        return logits, F.cross_entropy(logits, y, label_smoothing=0.1)

    record("resnet", small_resnet(), run)


def bert():
    from transformers import BertConfig, BertForPreTraining

    config = BertConfig(
        vocab_size=40, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, max_position_embeddings=12,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="eager",
    )
    net = BertForPreTraining(config)
    # a table of words has no row that is never learned
    net.bert.embeddings.word_embeddings.padding_idx = None
    words = labels("words", 40, 2, 12)
    place = torch.arange(12).expand(2, 12)
    mask = (place < torch.tensor([[12], [10]])).long()
    targets = torch.where(place % 3 == 1, words, -100)

    def run(net):
        out = net(
            input_ids=words, attention_mask=mask, token_type_ids=(place >= 6).long(), labels=targets, next_sentence_label=torch.tensor([0, 1])
        )
        return out.prediction_logits, out.loss

    record("bert", net, run)


class Rnnt(nn.Module):
    def __init__(self, hidden=16, features=8, symbols=11):
        super().__init__()
        self.before = nn.LSTM(features, hidden, 2, batch_first=True)
        self.after = nn.LSTM(2 * hidden, hidden, 1, batch_first=True)
        self.embed = nn.Embedding(symbols - 1, hidden)
        self.predict = nn.LSTM(hidden, hidden, 1, batch_first=True)
        self.from_sound, self.from_text, self.out = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, symbols)

    def forward(self, sound, text):
        x = self.before(sound)[0]
        x = self.after(x.reshape(x.shape[0], x.shape[1] // 2, -1))[0]
        y = self.predict(F.pad(self.embed(text), (0, 0, 1, 0)))[0]
        return self.out(F.relu(self.from_sound(x)[:, :, None] + self.from_text(y)[:, None]))


def transducer_loss(logits, text):
    """By the recursion over the lattice, place by place."""
    p = logits.log_softmax(-1)
    total = 0
    for b in range(p.shape[0]):
        alpha = {}
        for t, u in itertools.product(range(p.shape[1]), range(p.shape[2])):
            ways = []
            if t > 0:
                ways.append(alpha[t - 1, u] + p[b, t - 1, u, -1])
            if u > 0:
                ways.append(alpha[t, u - 1] + p[b, t, u - 1, text[b, u - 1]])
            alpha[t, u] = torch.logsumexp(torch.stack(ways), 0) if ways else p.new_zeros(())
        total = total - alpha[p.shape[1] - 1, p.shape[2] - 1] - p[b, -1, -1, -1]
    return total / p.shape[0]


def by_all_alignments(logits, text):
    """The same by summing over every order of blanks and letters: for small lattices."""
    p = logits.log_softmax(-1)
    moments, letters = p.shape[1], p.shape[2] - 1
    total = 0
    for b in range(p.shape[0]):
        ways = []
        for said in itertools.combinations(range(moments - 1 + letters), letters):
            t = u = 0
            way = 0
            for i in range(moments - 1 + letters):
                if i in said:
                    way = way + p[b, t, u, text[b, u]]
                    u += 1
                else:
                    way = way + p[b, t, u, -1]
                    t += 1
            ways.append(way + p[b, t, u, -1])
        total = total - torch.logsumexp(torch.stack(ways), 0)
    return total / p.shape[0]


def rnnt():
    sound, text = given("sound", 2, 12, 8), labels("text", 10, 2, 4)
    net = fill(Rnnt())
    logits = net(sound, text)
    assert abs(transducer_loss(logits, text) - by_all_alignments(logits, text)) < 1e-5

    def run(net):
        logits = net(sound, text)
        return logits, transducer_loss(logits, text)

    record("rnnt", net, run)


THINGS = [
    {"boxes": [[4, 6, 30, 28], [32, 30, 60, 62]], "labels": [1, 3]},
    {"boxes": [[10, 8, 22, 40], [40, 12, 56, 24]], "labels": [0, 2]},
]


def retinanet():
    from torchvision.models.detection._utils import Matcher
    from torchvision.models.detection.anchor_utils import AnchorGenerator
    from torchvision.models.detection.image_list import ImageList
    from torchvision.models.detection.retinanet import RetinaNetHead
    from torchvision.ops import FeaturePyramidNetwork, box_iou
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = small_resnet()
            del self.body.fc
            self.fpn = FeaturePyramidNetwork([64, 128, 256], 16, LastLevelP6P7(256, 16))
            self.head = RetinaNetHead(16, 9, 4)
            sizes = [tuple(s * 2 ** (o / 3) for o in range(3)) for s in (8, 16, 24, 32, 48)]
            self.anchors = AnchorGenerator(tuple(sizes), ((0.5, 1.0, 2.0),) * 5)

        def named_parameters(self, *a, **k):
            # those of the network for pictures have no name before theirs
            for name, p in super().named_parameters(*a, **k):
                yield name.removeprefix("body."), p

    x = given("photo", 2, 3, 64, 64)
    targets = [{"boxes": torch.tensor(t["boxes"], dtype=torch.float32), "labels": torch.tensor(t["labels"])} for t in THINGS]
    matcher = Matcher(0.5, 0.4, allow_low_quality_matches=True)

    def run(net):
        b = net.body
        c2 = b.layer1(b.maxpool(b.relu(b.bn1(b.conv1(x)))))
        c3 = b.layer2(c2)
        c4 = b.layer3(c3)
        levels = list(net.fpn({"0": c3, "1": c4, "2": b.layer4(c4)}).values())
        out = net.head(levels)
        anchors = net.anchors(ImageList(x, [(64, 64)] * 2), levels)
        found = [matcher(box_iou(t["boxes"], a)) for t, a in zip(targets, anchors)]
        losses = net.head.compute_loss(targets, out, anchors, found)
        return torch.cat([out["cls_logits"], out["bbox_regression"]], 2), sum(losses.values())

    record("retinanet", Net(), run)


ALL = {"unet3d": unet3d, "resnet": resnet, "bert": bert, "rnnt": rnnt, "retinanet": retinanet}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for each in sys.argv[1:] or ALL:
        ALL[each]()
