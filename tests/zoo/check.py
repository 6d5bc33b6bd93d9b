"""Runs what make.py made through `gradloom bench --expect` (on the device wasm: in node) and prints a table: the largest error of any output, in units of its
largest value.

usage: python check.py [--gradloom BINARY] [--device cpu] [--limit 1e-3] FOLDER [NAME..]
"""

import argparse
import json
import os
import subprocess
import sys


def last_line(p):
    """Why a process failed."""
    lines = [line for line in p.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line or "E_" in line]
    return (errors or lines or [f"exit {p.returncode}"])[-1].strip()


def run(binary, device, folder, suffix):
    if device == "wasm":
        files = [f"{folder}/{name}" for name in ("model.onnx", f"input{suffix}.npz", f"expected{suffix}.npz")]
        p = subprocess.run(["node", os.path.join(os.path.dirname(__file__), "../lib/graph.mjs"), *files], capture_output=True, text=True)
        return (json.loads(p.stdout), None) if p.returncode == 0 else (None, last_line(p))
    command = [binary, "bench", "--json", "--no-cache", "-q", "--device", device, "--runs", "1", "--warmup", "0", f"{folder}/model.onnx"]
    command += ["--inputs", f"{folder}/input{suffix}.npz", "--expect", f"{folder}/expected{suffix}.npz"]
    p = subprocess.run(command, capture_output=True, text=True)
    return (json.loads(p.stdout), None) if p.returncode == 0 else (None, last_line(p))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("folder")
    p.add_argument("names", nargs="*")
    p.add_argument("--gradloom", default="target/release/gradloom")
    p.add_argument("--device", default="cpu")
    p.add_argument("--limit", type=float, default=1e-3)
    a = p.parse_args()
    failed = 0
    print("| model | exporter | kernels | compile ms | error | error, other sizes |\n|---|---|---|---|---|---|")
    for entry in sorted(os.listdir(a.folder)):
        folder = os.path.join(a.folder, entry)
        if not os.path.exists(f"{folder}/model.onnx") or (a.names and not any(entry.startswith(n) for n in a.names)):
            continue
        cells, first = [], None
        for suffix in ("", "2"):
            if not os.path.exists(f"{folder}/input{suffix}.npz"):
                cells.append("-")
                continue
            report, why = run(a.gradloom, a.device, folder, suffix)
            first = first or report
            good = why is None and report["relerr"] <= a.limit
            failed += not good
            cells.append(why if why else f"{report['relerr']:.1e}" + ("" if good else " **wrong**"))
        name, _, exporter = entry.rpartition(".")
        kernels = str(first["kernels"]) if first else "-"
        compile_ms = f"{first['compile_ms']:.0f}" if first else "-"
        print(f"| {name or exporter} | {exporter if name else '-'} | {kernels} | {compile_ms} | {' | '.join(cells)} |", flush=True)
    print(f"{failed} failed", file=sys.stderr)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
