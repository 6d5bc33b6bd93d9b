"""Runs what make.py made through `gradloom bench --expect` and prints a table: the largest error of any output, in units of its
largest value.

usage: python check.py FOLDER [--gradloom BINARY] [--device cpu] [--limit 1e-3] [NAME..]
"""

import argparse
import json
import os
import subprocess
import sys


def run(binary, device, folder, suffix):
    command = [binary, "bench", "--json", "--no-cache", "-q", "--device", device, "--runs", "1", "--warmup", "0", f"{folder}/model.onnx"]
    command += ["--inputs", f"{folder}/input{suffix}.npz", "--expect", f"{folder}/expected{suffix}.npz"]
    p = subprocess.run(command, capture_output=True, text=True)
    if p.returncode:
        return None, p.stderr.strip().splitlines()[-1] if p.stderr.strip() else f"exit {p.returncode}"
    report = json.loads(p.stdout)
    return report, None


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
