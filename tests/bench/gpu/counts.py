#!/usr/bin/env python3
"""What the kernels of the benchmark models do on a GPU, counted without one: launches, accesses by width, float operations,
barriers, and bytes beside the unfused minimum (each ONNX node reads its inputs and writes its outputs once). The device is a
target that only writes shaders. Needs the gradloom binary; numpy, onnx and onnxruntime for models that are not built yet.

usage: counts.py [--gradloom PATH] [--device null:wgsl] [--models FOLDER] [--json FILE] [NAME..]"""
import argparse
import json
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
SHAPES = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Shape", "Constant", "Identity", "Dropout", "ConstantOfShape"}


def unfused_bytes(path, arrays):
    """Bytes that the nodes of a model move if each runs alone; None where shapes are not known."""
    import onnx
    from onnx import helper, shape_inference

    model = onnx.load(path)
    for value in model.graph.input:
        if value.name in arrays:
            dims = value.type.tensor_type.shape
            del dims.dim[:]
            for n in arrays[value.name].shape:
                dims.dim.add().dim_value = n
    model = shape_inference.infer_shapes(model, data_prop=True)
    size = {}
    for t in model.graph.initializer:
        size[t.name] = int(helper.tensor_dtype_to_np_dtype(t.data_type).itemsize)
        for n in t.dims:
            size[t.name] *= n
    for value in [*model.graph.value_info, *model.graph.input, *model.graph.output]:
        kind = value.type.tensor_type
        dims = [d.dim_value if d.HasField("dim_value") else 0 for d in kind.shape.dim]
        if value.name in size or not kind.elem_type or 0 in dims:
            continue
        size[value.name] = int(helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize)
        for n in dims:
            size[value.name] *= n
    total = 0
    for node in model.graph.node:
        if node.op_type in SHAPES:
            continue
        names = [n for n in [*node.input, *node.output] if n]
        if any(n not in size for n in names):
            return None
        total += sum(size[n] for n in names)
    return total


def widths(kernels, key):
    """`width:count` summed over kernels."""
    total = {}
    for k in kernels:
        for part in k[key].split():
            width, n = part.split(":")
            total[int(width)] = total.get(int(width), 0) + int(n)
    return total


def short(n):
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return str(n)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--gradloom", default=os.path.join(ROOT, "target/release/gradloom"))
    p.add_argument("--device", default="null:wgsl")
    p.add_argument("--models", default=os.path.join(ROOT, ".cache/bench/models"))
    p.add_argument("--json", help="the counts of each kernel")
    p.add_argument("names", nargs="*", default=["wmatmul1024", "conv56", "matvec4096", "matvec4096t", "softmax4096",
                                                "layernorm4096", "mobilenetv2", "resnet50", "minilm", "gpt2step"])
    a = p.parse_args()
    maker = os.path.join(ROOT, "tests/bench/native/make_models.py")
    missing = [n for n in a.names if not os.path.exists(os.path.join(a.models, f"{n}.onnx"))]
    if missing:
        subprocess.run([sys.executable, maker, a.models, *missing], check=True)
    import numpy as np

    print("| model | launches | loads, vec4 | stores, vec4 | GFLOP | barriers | moved | at least | unfused |")
    print("|---|---|---|---|---|---|---|---|---|")
    everything = {}
    for name in a.names:
        path = os.path.join(a.models, f"{name}.onnx")
        inputs = os.path.join(a.models, f"{name}.in.npz")
        command = [a.gradloom, "kernels", path, "--device", a.device, "--counts", "--no-cache", "-q", "--json"]
        run = subprocess.run([*command, "--inputs", inputs], capture_output=True, text=True)
        if run.returncode:
            print(f"| {name} | {run.stderr.strip().splitlines()[-1]} |")
            continue
        kernels = everything[name] = json.loads(run.stdout)["list"]
        with np.load(inputs) as arrays:
            unfused = unfused_bytes(path, dict(arrays))
        cells = [name, str(len(kernels))]
        for key in ("loads", "stores"):
            by = widths(kernels, key)
            total = sum(w * n for w, n in by.items())
            cells.append(f"{short(sum(by.values()))}, {100 * 4 * by.get(4, 0) // max(total, 1)}%")
        cells.append(f"{sum(k['counted_flops'] for k in kernels) / 1e9:.3g}")
        cells.append(short(sum(k["barriers"] for k in kernels)))
        cells += [f"{short(sum(k[key] for k in kernels))}B" for key in ("moved_bytes", "bytes")]
        cells.append("?" if unfused is None else f"{short(unfused)}B")
        print("| " + " | ".join(cells) + " |")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(everything, f, indent=1)


if __name__ == "__main__":
    main()
