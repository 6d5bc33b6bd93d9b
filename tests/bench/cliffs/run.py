#!/usr/bin/env python3
"""Hunts performance cliffs: random blocks of the kinds that networks are built of, with shapes that nobody tuned for, each in onnxruntime
and in gradloom, one after the other in one run, the least time of each. Numbers are checked. Prints the blocks where gradloom is slower.

usage: run.py [--seed 1] [--blocks 150] [--only REGEX] [--threads 1] [--device cpu] [--seconds 0.2] [--below 0.9]
              [--binary PATH] [--other PATH] [--keep FOLDER]

A ratio is onnxruntime's time over gradloom's: above 1 gradloom is faster. With `--other`, a second binary of gradloom is timed beside the
first one and takes onnxruntime's place: ratios are its time over the first one's. Exits with 1 where a number is wrong or a block fails.
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
    p.add_argument("--below", type=float, default=0.9)
    p.add_argument("--binary", default=os.path.join(ROOT, "target/release/gradloom"))
    p.add_argument("--other")
    p.add_argument("--keep", help="write the models there")
    return p.parse_args()


def save(g, outputs, path):
    infos = [helper.make_tensor_value_info(k, TYPES[v.dtype], v.shape) for k, v in g.inputs.items()]
    outs = [helper.make_empty_tensor_value_info(o) for o in outputs]
    graph = helper.make_graph(g.nodes, "block", infos, outs, g.weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path + ".onnx")
    np.savez(path + ".in.npz", **g.inputs)


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


def main():
    o = parse()
    folder = o.keep or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    rows, wrong = [], []
    for i in range(o.blocks):
        g, outputs = block(i, o.seed)
        if not re.search(o.only, g.name):
            continue
        path = os.path.join(folder, f"{o.seed}_{g.name}")
        save(g, outputs, path)
        s = session(path, o.threads)
        np.savez(path + ".out.npz", **dict(zip(outputs, s.run(None, g.inputs))))
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
        shapes = [list(v.shape) for v in g.inputs.values()]
        rows.append((theirs / ours, g.name, theirs, ours, report.get("kernels"), report.get("fallbacks"), shapes))
    rows.sort(key=lambda r: r[0])
    for ratio, name, theirs, ours, kernels, falls, shapes in rows:
        if ratio < o.below:
            more = f", {falls} opts refused" if falls else ""
            print(f"{ratio:6.2f}  {name:20} theirs {theirs:9.3f} ms, ours {ours:9.3f} ms, {kernels} kernels{more}  {shapes}")
    for line in wrong:
        print("WRONG", line)
    ratios = np.array([r[0] for r in rows])
    mean = float(np.exp(np.mean(np.log(ratios)))) if rows else float("nan")
    print(f"geometric mean {mean:.2f}, {(ratios < 0.7).sum()} of {len(rows)} below 0.7, {len(wrong)} wrong or failed")
    sys.exit(bool(wrong))


main()
