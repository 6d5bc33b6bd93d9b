#!/usr/bin/env python3
"""Hunts performance cliffs: random blocks of the kinds that networks are built of, with shapes that nobody tuned for, each in onnxruntime
and in gradloom, one after the other in one run, the least time of each. Numbers are checked. Prints the blocks where gradloom is slower.

usage: run.py [--seed 1] [--blocks 150] [--only REGEX] [--threads 1] [--device cpu] [--seconds 0.2] [--below 0.9] [--worst 10]
              [--binary PATH] [--other PATH] [--keep FOLDER] [--on node|page|webgpu] [--busy] [--networks|--scales]

A ratio is onnxruntime's time over gradloom's: above 1 gradloom is faster. With `--other`, a second binary of gradloom is timed beside the
first one and takes onnxruntime's place: ratios are its time over the first one's. `--on` times the npm package (`npm run build` makes it)
beside onnxruntime-web instead: both on WebAssembly in Node, in a page of Chromium, or both on WebGPU in a page; `--other` is another
package's tarball then, and `--busy` takes the processor's time in Node, one thread, where other work shares the machine. `--networks` takes whole
networks (networks.py) in place of blocks, `--scales` single operators at sizes that are far from those of pictures (scales.py). Exits with 1 where a number is wrong or a block fails.
Needs numpy, onnx and onnxruntime."""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from blocks import block
from make_models import TYPES
from networks import networks
from scales import scale

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
TOLERANCE = 2e-3


def parse():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--blocks", type=int, default=150)
    p.add_argument("--only", default="")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--device", default="cpu")
    p.add_argument("--seconds", type=float, default=0.2)
    p.add_argument("--below", type=float, default=0.9, help="print the blocks with a ratio below this")
    p.add_argument("--worst", type=int, default=10, help="and at least so many")
    p.add_argument("--on", choices=["native", "node", "page", "webgpu"], default="native")
    p.add_argument("--binary", default=os.path.join(ROOT, "target/release/gradloom"))
    p.add_argument("--other")
    p.add_argument("--busy", action="store_true")
    p.add_argument("--networks", action="store_true")
    p.add_argument("--scales", action="store_true")
    p.add_argument("--keep", help="write the models there")
    return p.parse_args()


def save(g, outputs, path):
    infos = [helper.make_tensor_value_info(k, TYPES[v.dtype], v.shape) for k, v in g.inputs.items()]
    outs = [helper.make_empty_tensor_value_info(o) for o in outputs]
    graph = helper.make_graph(g.nodes, "block", infos, outs, g.weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path + ".onnx")
    np.savez(path + ".in.npz", **g.inputs)


def told(g):
    """A block's operators, with what tells windows apart and the shapes of large weights."""
    shapes = {t.name: list(t.dims) for t in g.weights}
    parts = []
    for n in g.nodes:
        known = {a.name: helper.get_attribute_value(a) for a in n.attribute}
        known = {k: v.decode() if isinstance(v, bytes) else v for k, v in known.items()}
        text = n.op_type + "".join(f" {k[0]}{known[k]}" for k in ("kernel_shape", "strides", "group", "mode") if k in known)
        big = [shapes[i] for i in n.input if len(shapes.get(i, [])) > 1]
        parts.append(text.replace(" ", "") + "".join(map(str, big)).replace(" ", ""))
    return " ".join(parts)[:200]


def session(path, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(path + ".onnx", options, providers=["CPUExecutionProvider"])


def time_peer(s, feeds, seconds):
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        s.run(None, feeds)
        best = min(best, time.perf_counter() - start)
    return best * 1e3


def time_ours(binary, path, o):
    files = ["--inputs", path + ".in.npz", "--expect", path + ".out.npz"]
    limits = ["--device", o.device, "--threads", str(o.threads), "--seconds", str(o.seconds), "--json"]
    p = subprocess.run([binary, "bench", path + ".onnx", *files, *limits], capture_output=True, text=True, timeout=600)
    lines = [line for line in p.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError(p.stderr.strip()[-200:])
    return json.loads(lines[-1])


def on_native(o, blocks, folder):
    """A row for each block: (ratio, name, theirs, ours, kernels, note); and what went wrong."""
    rows, wrong = [], []
    for g, path, s in blocks:
        theirs = ours = float("inf")
        try:
            for _ in range(2):
                peer = time_ours(o.other, path, o)["min_ms"] if o.other else time_peer(s, g.inputs, o.seconds)
                report = time_ours(o.binary, path, o)
                theirs, ours = min(theirs, peer), min(ours, report["min_ms"])
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            wrong.append(f"{g.name}: {e}")
            continue
        if not (report.get("relerr") or 0) < TOLERANCE:
            wrong.append(f"{g.name}: off by {report.get('relerr')}")
        falls = report.get("fallbacks")
        rows.append((theirs / ours, g, theirs, ours, report.get("kernels"), f", {falls} opts refused" if falls else ""))
    return rows, wrong


def on_web(o, blocks, folder):
    """The same of the npm package and onnxruntime-web."""
    rows, wrong, by_file = [], [], {os.path.basename(path): g for g, path, _ in blocks}
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "web.mjs")
    flags = ["--on", o.on, "--threads", str(o.threads), "--ms", str(o.seconds * 1e3)]
    flags += (["--other", o.other] if o.other else []) + (["--busy"] if o.busy else [])
    p = subprocess.Popen(["node", script, folder, *flags, *by_file], stdout=subprocess.PIPE, text=True)
    for line in p.stdout:
        r = json.loads(line) if line.startswith("{") else {}
        g = by_file.pop(r.get("name"), None)
        if g is None:
            continue
        if "error" in r:
            wrong.append(f"{g.name}: {r['error']}")
            continue
        if r["relerr"] is None or not r["relerr"] < TOLERANCE:
            wrong.append(f"{g.name}: off by {r['relerr']}")
        rows.append((r["theirs"] / r["ours"], g, r["theirs"], r["ours"], r["launches"], ""))
    p.wait()
    return rows, wrong + [f"{g.name}: was not timed" for g in by_file.values()]


def main():
    o = parse()
    folder = o.keep or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    blocks = []
    one = scale if o.scales else block
    for g, outputs in networks() if o.networks else (one(i, o.seed) for i in range(o.blocks)):
        if not re.search(o.only, g.name):
            continue
        path = os.path.join(folder, f"{o.seed}_{g.name}")
        save(g, outputs, path)
        s = session(path, o.threads)
        np.savez(path + ".out.npz", **dict(zip(outputs, s.run(None, g.inputs))))
        blocks.append((g, path, s))
    rows, wrong = (on_native if o.on == "native" else on_web)(o, blocks, folder)
    rows.sort(key=lambda r: r[0])
    for i, (ratio, g, theirs, ours, kernels, note) in enumerate(rows):
        if ratio < o.below or i < o.worst:
            shapes = [list(v.shape) for v in g.inputs.values()]
            print(f"{ratio:6.2f}  {g.name:20} theirs {theirs:9.3f} ms, ours {ours:9.3f} ms, {kernels} kernels{note}  {shapes}  {'' if o.networks else told(g)}")
    for line in wrong:
        print("WRONG", line)
    ratios = np.array([r[0] for r in rows])
    mean = float(np.exp(np.mean(np.log(ratios)))) if rows else float("nan")
    below = ", ".join(f"{(ratios < limit).sum()} below {limit}" for limit in (0.7, 0.8, 0.9))
    print(f"geometric mean {mean:.2f} of {len(rows)}, {below}, {len(wrong)} wrong or failed")
    sys.exit(bool(wrong))


main()
