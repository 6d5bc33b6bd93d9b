#!/usr/bin/env python3
"""Times gradloom beside other libraries on this machine: every contender in turn, several rounds, the least time of each.

usage: run.py [--threads 1,2] [--cases NAME,..|micro|models] [--peers gradloom,onnxruntime,torch,tinygrad] [--rounds 3]
              [--seconds 0.6] [--json FILE] [--binary PATH] [--other PATH] [--python PATH] [--device cpu] [--real-time]

A peer that is not installed is left out, and said so. `--python` names the interpreter that has torch or tinygrad. Results
are checked against onnxruntime's; a wrong one is marked and has no ratio. A ratio is the peer's time over gradloom's: above
1 gradloom is faster. Rows of one thread give processor time, rows of more wall time. With `--real-time` (Linux, as root)
contenders are timed before all other work of the machine, and all rows give wall time: two threads cannot be measured on a
busy machine otherwise. `--other` is a second binary of gradloom, such as that of the commit before, which is a peer too.
Needs numpy, onnx and onnxruntime."""
import argparse
import json
import os
import subprocess
import sys

import make_models

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
MODELS = ["mobilenetv2", "resnet50", "mobilenetv2x8", "resnet50x8", "bertmini", "minilm", "bertbase", "gpt2step", "mnist", "mnist1"]
MODELS += make_models.COMMITTED
MICRO = [name for name in make_models.BUILD if name not in MODELS]
TRAIN = "mnist_train512"
TOLERANCE = 1e-3
# 8-bit codes round differently: onnxruntime with optimisations is as far from itself without
TOLERANCES = {"style_predict_qdq": 3e-2}


def parse():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--threads", default="1,2")
    p.add_argument("--cases", default="micro,models," + TRAIN)
    p.add_argument("--peers", default="gradloom,onnxruntime,torch,tinygrad")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=0.6)
    p.add_argument("--json", default=os.path.join(ROOT, ".cache/bench/native.json"))
    p.add_argument("--models", default=os.path.join(ROOT, ".cache/bench/models"))
    p.add_argument("--binary", default=os.path.join(ROOT, "target/release/gradloom"))
    p.add_argument("--other")
    p.add_argument("--python", default=sys.executable)
    p.add_argument("--device", default="cpu")
    p.add_argument("--real-time", action="store_true")
    return p.parse_args()


def build(args):
    """The release binaries, unless a binary was named."""
    if args.binary != os.path.join(ROOT, "target/release/gradloom"):
        return
    for what in (["-p", "gradloom", "--bin", "gradloom"], ["-p", "gradloom-tests", "--example", "train_mnist"]):
        if "train_mnist" in what and TRAIN not in args.cases:
            continue
        subprocess.run(["cargo", "build", "--release", "--quiet", *what], cwd=ROOT, check=True)


def command(peer, case, threads, args):
    model, inputs, expect = (os.path.join(args.models, case + end) for end in (".onnx", ".in.npz", ".out.npz"))
    env = dict(os.environ, OMP_NUM_THREADS=str(threads))
    before = []
    if args.real_time:
        env["BENCH_REAL_TIME"] = "1"
        before = ["chrt", "-f", "5"]
    if peer in ("gradloom", "other"):
        binary = args.binary if peer == "gradloom" else args.other
        if case == TRAIN:
            beside = os.path.join(os.path.dirname(os.path.abspath(binary)), "examples/train_mnist")
            return [*before, beside, args.device, str(threads), str(args.seconds)], env
        flags = ["--inputs", inputs, "--expect", expect, "--threads", str(threads), "--device", args.device]
        return [*before, binary, "bench", model, *flags, "--seconds", str(args.seconds), "--json", "-q"], env
    if peer == "tinygrad":
        env |= {"DEV": "CPU", "CPU": "1", "NUM_CPU_THREADS": str(threads)}
    script = os.path.join(HERE, f"peer_{peer}.py")
    return [args.python, script, model, inputs, expect, str(threads), str(args.seconds)], env


def once(peer, case, threads, args):
    argv, env = command(peer, case, threads, args)
    try:
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return {"error": "no answer in 300 s"}
    except OSError as e:
        return {"error": str(e)}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        return {"error": (done.stderr.strip() or "no result").splitlines()[-1][:200]}
    return json.loads(lines[-1])


def merge(old, new):
    """The best of both; an error only where there is nothing else."""
    if old is None or "error" in old:
        return new
    if "error" in new:
        return old
    both = dict(old)
    for key in ("ms_min", "cpu_ms", "ms_med", "first_ms", "load_ms", "compile_ms", "io_ms"):
        if key in new and key in old:
            both[key] = min(old[key], new[key])
    both["relerr"] = max(old.get("relerr") or 0, new.get("relerr") or 0)
    return both


def measure(args):
    cases = []
    for word in args.cases.split(","):
        cases += {"micro": MICRO, "models": MODELS}.get(word, [word])
    make_models.ensure([c for c in cases if c != TRAIN], args.models)
    found = importable(args)
    peers = [p for p in args.peers.split(",") if p == "gradloom" or p in found] + (["other"] if args.other else [])
    missing = [p for p in args.peers.split(",") if p not in peers]
    if missing:
        print(f"not installed, left out: {', '.join(missing)}", file=sys.stderr)
    results = {}
    for threads in map(int, args.threads.split(",")):
        for case in cases:
            row = results.setdefault(f"{case}/{threads}", {})
            for _ in range(args.rounds):
                for peer in peers:
                    if not fits(peer, case, threads) or "error" in row.get(peer, {}):
                        continue
                    row[peer] = merge(row.get(peer), once(peer, case, threads, args))
            cells = [f"{p} {v.get('ms_min', v.get('error'))}" for p, v in row.items()]
            print(f"{case} x{threads}: {', '.join(cells)}", file=sys.stderr, flush=True)
    return results, peers


def importable(args):
    out = set()
    for peer in ("onnxruntime", "torch", "tinygrad"):
        if subprocess.run([args.python, "-c", f"import {peer}"], capture_output=True).returncode == 0:
            out.add(peer)
    return out


def fits(peer, case, threads):
    if case == TRAIN:
        return peer in ("gradloom", "other", "torch")
    if peer == "torch":
        return case in MICRO
    # its CPU device runs the parts of a kernel one after the other
    return peer != "tinygrad" or threads == 1


def best(cell, threads):
    """On one thread processor time, which does not count waiting for a busy core; else wall time."""
    busy = threads == "1" and not options.real_time
    return cell.get("cpu_ms") or cell["ms_min"] if busy else cell["ms_min"]


def wrong(cell, case):
    return (cell.get("relerr") or 0) > TOLERANCES.get(case, TOLERANCE)


def number(v):
    return f"{v:.0f}" if v >= 100 else f"{v:.1f}" if v >= 10 else f"{v:.2f}" if v >= 1 else f"{v:.3f}"


def table(results, peers):
    others = [p for p in peers if p != "gradloom"]
    head = ["case", "threads", "gradloom ms", "rate"] + [f"{p} ms (ratio)" for p in others] + ["compile ms", "kernels"]
    rows = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for key, row in results.items():
        case, threads = key.split("/")
        ours = row.get("gradloom", {"error": "not run"})
        line = [case, threads]
        if "error" in ours:
            line += [ours["error"][:40], ""]
        else:
            flops, moved = make_models.WORK.get(case, (0, 0))
            ms = best(ours, threads)
            compute = flops > 20 * moved
            rate = f"{flops / ms * 1e3:.0f} GFLOP/s" if compute else f"{moved / ms * 1e3:.1f} GB/s"
            line += [("WRONG " if wrong(ours, case) else "") + number(ms), rate if flops or moved else ""]
        for p in others:
            cell = row.get(p)
            if cell is None or "error" in cell:
                line.append("" if cell is None else "fails")
            elif "error" in ours or wrong(ours, case) or wrong(cell, case):
                line.append(number(best(cell, threads)) + (" WRONG" if wrong(cell, case) else ""))
            else:
                line.append(f"{number(best(cell, threads))} (**{best(cell, threads) / best(ours, threads):.2f}**)")
        line += [number(ours["compile_ms"]) if ours.get("compile_ms") else "", str(ours.get("kernels", ""))]
        rows.append("| " + " | ".join(line) + " |")
    return "\n".join(rows)


if __name__ == "__main__":
    options = parse()
    build(options)
    everything, contenders = measure(options)
    os.makedirs(os.path.dirname(os.path.abspath(options.json)), exist_ok=True)
    with open(options.json, "w") as f:
        json.dump(everything, f, indent=1)
    print(table(everything, contenders))
