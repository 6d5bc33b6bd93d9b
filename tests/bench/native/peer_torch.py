"""PyTorch, eager: the cases that are one operation, and the training step. It loads no ONNX."""
import os
import sys

import torch
import torch.nn.functional as F

from timing import difference, load, say, time_runs

model, inputs, expect, threads, seconds = sys.argv[1:6]
name = os.path.splitext(os.path.basename(model))[0]
torch.set_num_threads(int(threads))
peer = f"torch {torch.__version__}"


def train_step():
    """The network and the step of tests/examples/train_mnist.rs: batch 512, Adam."""
    nn = torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 32, 5), nn.ReLU(), nn.Conv2d(32, 32, 5), nn.ReLU(), nn.BatchNorm2d(32), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.BatchNorm2d(64), nn.MaxPool2d(2),
        nn.Flatten(1), nn.Linear(576, 10))
    adam = torch.optim.Adam(net.parameters())
    x, y = torch.randn(512, 1, 28, 28), torch.randint(0, 10, (512,))
    last = 0.0

    def run():
        nonlocal last
        adam.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        adam.step()
        last = loss.item()

    times = time_runs(run, float(seconds))
    say(peer, times, loss=last)


def one_operation():
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(model).graph
    weights = [torch.from_numpy(numpy_helper.to_array(w).copy()) for w in graph.initializer]
    args = [torch.from_numpy(v) for v in load(inputs).values()]
    f = {
        "matvec4096t": lambda: F.linear(args[0], weights[0]),
        "conv56": lambda: F.conv2d(args[0], weights[0], padding=1),
        "softmax4096": lambda: torch.softmax(args[0], -1),
        "layernorm4096": lambda: F.layer_norm(args[0], (4096,), weights[0], weights[1]),
        "gelu_chain16m": lambda: F.gelu(args[0] * args[1] + args[2], approximate="tanh"),
        "sum16m": lambda: args[0].sum(),
        "transpose4096": lambda: args[0].t().contiguous(),
    }.get(name)
    if name.startswith("matmul"):
        f = lambda: args[0] @ args[1]
    elif name in ("wmatmul1024", "matvec4096"):
        f = lambda: args[0] @ weights[0]
    if f is None:
        sys.exit("no such case")
    out = None

    def run():
        nonlocal out
        out = f()

    with torch.inference_mode():
        times = time_runs(run, float(seconds))
    say(peer, times, relerr=difference([out.numpy()], load(expect).values()))


train_step() if name == "mnist_train512" else one_operation()
