#!/usr/bin/env python3
"""How fast whole networks run on a GPU: each with random weights, by PyTorch (as it is and compiled) and by gradloom from the ONNX file that PyTorch
writes, on the same card in one run. Floats are f32 on both sides, without tf32.

usage: networks.py [--device cuda] [--gradloom PROGRAM] [--seconds 1] [--folder FOLDER] [NAME..]

PROGRAM is the command line of gradloom, which is built if none is named. It needs torch with a GPU, onnxscript, torchvision for resnet50, and transformers for
bert and gpt2. Values are compared, relative to the largest; a ratio above 1 means that gradloom is faster than compiled PyTorch."""
import argparse
import json
import os
import subprocess
import tempfile
import time

import numpy
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
# how far values may be from PyTorch's on the GPU, relative to the largest
BOUND = 1e-3


def resnet50(batch):
    import torchvision

    return torchvision.models.resnet50(weights=None), [torch.rand(batch, 3, 224, 224)]


def bert(batch, length):
    import transformers

    config = transformers.BertConfig(attn_implementation="eager")
    model = transformers.BertModel(config, add_pooling_layer=False)

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids, attention_mask=torch.ones_like(ids)).last_hidden_state

    return Hidden(), [torch.randint(0, 30000, (batch, length))]


def gpt2(batch, length):
    import transformers

    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="eager", use_cache=False))

    class Logits(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids):
            return self.model(ids, use_cache=False).logits

    return Logits(), [torch.randint(0, 50000, (batch, length))]


NETWORKS = {
    "resnet50_b1": lambda: resnet50(1),
    "resnet50_b16": lambda: resnet50(16),
    "bert_b1_128": lambda: bert(1, 128),
    "bert_b8_128": lambda: bert(8, 128),
    "gpt2_b1_64": lambda: gpt2(1, 64),
}


def seconds(run):
    """The median time of one run, until the GPU is done with it."""
    for _ in range(3):
        run()
    times = []
    end = time.perf_counter() + 0.6
    while len(times) < 5 or time.perf_counter() < end:
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def measure(name, args):
    torch.manual_seed(0)
    model, inputs = NETWORKS[name]()
    model = model.eval()
    file = os.path.join(args.folder, f"{name}.onnx")
    names = [f"x{i}" for i in range(len(inputs))]
    with torch.no_grad():
        torch.onnx.export(model, tuple(inputs), file, input_names=names, output_names=["y"], dynamo=True, external_data=False, verbose=False)
    model, on_gpu = model.cuda(), [x.cuda() for x in inputs]
    with torch.no_grad():
        want = model(*on_gpu).float().cpu().numpy()
        eager = seconds(lambda: model(*on_gpu))
        fast = torch.compile(model, mode="reduce-overhead")
        compiled = seconds(lambda: fast(*on_gpu))
    given, expected = (os.path.join(args.folder, f"{name}.{kind}.npz") for kind in ("in", "out"))
    numpy.savez(given, **{n: x.numpy() for n, x in zip(names, inputs)})
    numpy.savez(expected, y=want)
    command = [args.gradloom, "bench", file, "--device", args.device, "--inputs", given, "--expect", expected, "--seconds", str(args.seconds), "--json", "-q", "--profile"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        return f"| {name} | {eager * 1e3:.3f} | {compiled * 1e3:.3f} | failed: {done.stderr.strip().splitlines()[-1][:120]} | | | |"
    with open(os.path.join(args.folder, f"{name}.profile.txt"), "w") as profile:
        profile.write(done.stderr)
    row = json.loads(done.stdout)
    ours = row["p50_ms"] / 1e3
    wrong = "" if row["relerr"] <= BOUND else " WRONG"
    return f"| {name} | {eager * 1e3:.3f} | {compiled * 1e3:.3f} | {ours * 1e3:.3f} | {compiled / ours:.2f} | {row['kernels']} | {row['relerr']:.1e}{wrong} |"


def main():
    args = argparse.ArgumentParser(usage=__doc__)
    args.add_argument("--device", default="cuda")
    args.add_argument("--gradloom")
    args.add_argument("--seconds", type=float, default=1)
    args.add_argument("--folder", default=tempfile.mkdtemp(prefix="gradloom-networks-"))
    args.add_argument("names", nargs="*")
    args = args.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    if not args.gradloom:
        subprocess.run(["cargo", "build", "--release", "-p", "gradloom"], cwd=ROOT, check=True)
        args.gradloom = os.path.join(ROOT, "target/release/gradloom")
    print(f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}; milliseconds\n")
    print("| network | PyTorch | compiled | gradloom | ratio | kernels | error |\n|---|---|---|---|---|---|---|")
    for name in args.names or NETWORKS:
        try:
            print(measure(name, args), flush=True)
        except Exception as e:  # one that cannot be exported leaves the others
            print(f"| {name} | {type(e).__name__}: {str(e).splitlines()[0][:150] if str(e) else ''} | | | | | |", flush=True)


if __name__ == "__main__":
    main()
