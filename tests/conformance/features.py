"""Writes FEATURES.md: what ONNX's backend suite says of each operator, from the lines that runs of the suite printed.

    python features.py CASES.zip DEVICE=RESULTS.txt [DEVICE=RESULTS.txt ..] > FEATURES.md
"""
import collections, re, sys, zipfile

import onnx

HEAD = """# Features

Generated from test results: `npm run features`.

## ONNX operators

The cases of the backend suite of `onnx` {version} (operator set {opset}) that pass, of all that there are, for each operator that
has a case of its own. What does not pass is refused with an error that names the node, before anything runs; nothing gives
wrong numbers. *Expanded* counts the cases that write the operator as a graph of others.
"""


def node_of(model):
    """The operator that a case is about; None for a graph of several."""
    nodes = list(model.graph.node)
    if len(nodes) != 1:
        return None
    n = nodes[0]
    return n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}.{n.op_type}"


def main():
    cases, *runs = sys.argv[1:]
    results = {}
    for run in runs:
        device, path = run.split("=", 1)
        lines = (line.split(" ", 2) for line in open(path) if re.match(r"(pass|random|refused|WRONG|BROKEN) ", line))
        results[device] = {name: (what, why[0].strip() if why else "") for what, name, *why in lines}
    devices = list(results)
    total, passed, why = collections.Counter(), collections.Counter(), collections.defaultdict(collections.Counter)
    with zipfile.ZipFile(cases) as z:
        for entry in z.namelist():
            case, file = entry.rsplit("/", 1)
            if file != "model.onnx" or not case.startswith("node/"):
                continue
            op = node_of(onnx.load_from_string(z.read(entry)))
            if op is None:
                op = "*expanded* and other graphs"
            total[op] += 1
            for device in devices:
                what, reason = results[device].get(case, ("missing", ""))
                passed[op, device] += what in ("pass", "random")
                if what == "refused" and device == devices[0]:
                    why[op][re.sub(r"\(?node `[^`]*`.*|\[E_.*|\(`[^`]*`\)", "", reason).strip(" :(")] += 1
    print(HEAD.format(version=onnx.__version__, opset=onnx.defs.onnx_opset_version()))
    print(f"| operator | cases | {' | '.join(devices)} | refused |")
    print(f"|---|---|{'---|' * len(devices)}---|")
    for op in sorted(total, key=lambda op: (op.startswith("*"), "." in op, op)):
        counts = [passed[op, d] for d in devices]
        reasons = "; ".join(r for r, _ in why[op].most_common(2))
        print(f"| {op} | {total[op]} | {' | '.join(map(str, counts))} | {reasons} |")
    sums = [sum(passed[op, d] for op in total) for d in devices]
    print(f"| **all** | **{sum(total.values())}** | {' | '.join(f'**{n}**' for n in sums)} | |")


main()
