#!/usr/bin/env python3
"""How fast a GPU does products, attention, and work that moves bytes, by gradloom and by PyTorch (cuBLAS, its fused attention, and
torch.compile for the rest) on the same card in one run.

usage: run.py [--device cuda] [--small] [--gradloom PROGRAM] [--markdown FILE] [NAME]

--small takes sizes for an emulator and checks values alone. PROGRAM is the example `gpu_speed`, which is built if none is named. PyTorch
is left out where it is missing or sees no GPU; then the table has gradloom's column alone. Rates are float operations a second, or bytes
a second for what does no product; a ratio above 1 means that gradloom is faster."""
import argparse
import json
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
# how far values may be from the evaluator's in f32, relative to the largest
BOUNDS = {"matmul_bf16": 8e-3, "matmul_f16": 1e-3, "attention": 2e-3, "attention_causal": 2e-3}
OTHER_BOUND = 5e-6
ROW, HEADS, WIDTH = 4096, 16, 128


def torch_work(torch, name, size):
    """PyTorch's function for a piece of work and its inputs, on the GPU."""
    F = torch.nn.functional
    dtypes = {"matmul_bf16": torch.bfloat16, "matmul_f16": torch.float16, "attention": torch.float16, "attention_causal": torch.float16}
    new = lambda *shape: (torch.rand(*shape, device="cuda") - 0.5).to(dtypes.get(name, torch.float32))
    if name.startswith("matmul"):
        # f32 means f32 on both sides: no tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        return torch.matmul, [new(size, size), new(size, size)]
    if name.startswith("attention"):
        causal = name.endswith("causal")
        return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), [new(1, HEADS, size, WIDTH) for _ in range(3)]
    plain = {
        "add_one": lambda x: x + 1,
        "gelu": F.gelu,
        "softmax": lambda x: F.softmax(x, -1),
        "layer_norm": lambda x: F.layer_norm(x, (ROW,)),
        "sum_rows": lambda x: x.sum(1),
    }[name]
    return torch.compile(plain), [new(size, ROW)]


def torch_seconds(torch, name, size):
    f, inputs = torch_work(torch, name, size)
    with torch.no_grad():
        for _ in range(3):
            f(*inputs)
        best = float("inf")
        for _ in range(5):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(20):
                f(*inputs)
            torch.cuda.synchronize()
            best = min(best, (time.perf_counter() - start) / 20)
    return best


def gpu_torch():
    try:
        import torch
    except ImportError:
        return None
    return torch if torch.cuda.is_available() else None


def rate(row, seconds):
    if row["flops"]:
        return f"{row['flops'] / seconds / 1e12:.2f} TFLOP/s"
    return f"{row['bytes'] / seconds / 1e9:.1f} GB/s"


def build():
    subprocess.run(["cargo", "build", "--release", "-p", "gradloom-tests", "--example", "gpu_speed"], cwd=ROOT, check=True)
    return os.path.join(ROOT, "target/release/examples/gpu_speed")


def table(rows, torch):
    head = ["work", "size", "kernels", "gradloom", *(["PyTorch", "ratio"] if torch else [])]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [row["name"], row["size"], row["kernels"], rate(row, row["seconds"])]
        if torch:
            seconds = torch_seconds(torch, row["name"], row["size"])
            cells += [rate(row, seconds), f"{seconds / row['seconds']:.2f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main():
    args = argparse.ArgumentParser(usage=__doc__)
    args.add_argument("--device", default="cuda")
    args.add_argument("--small", action="store_true")
    args.add_argument("--gradloom")
    args.add_argument("--markdown")
    args.add_argument("name", nargs="?")
    args = args.parse_args()
    command = [args.gradloom or build(), args.device, *(["--small"] if args.small else []), *([args.name] if args.name else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or not rows:
        sys.exit(f"`{' '.join(command)}` ended with status {done.returncode}")
    wrong = [r for r in rows if not r.get("off", 0) <= BOUNDS.get(r["name"], OTHER_BOUND)]
    if wrong:
        sys.exit("wrong values: " + ", ".join(f"{r['name']} {r['off']:.1e}" for r in wrong))
    torch = None if args.small else gpu_torch()
    text = table(rows, torch)
    if torch:
        text = f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}\n\n{text}"
    print(text)
    if args.markdown:
        with open(args.markdown, "w") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
