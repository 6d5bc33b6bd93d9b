"""Writes FEATURES.md from the lines that runs of the suites printed: what ONNX's backend suite says of each operator and element
type, and what torch's operator tests say, on each device.

    python features.py CASES.zip GROUPS.txt SUITE.DEVICE=RESULTS.txt [SUITE.DEVICE=RESULTS.txt ..] > FEATURES.md

SUITE is onnx or torch; a line of GROUPS.txt is a torch operator's name, a tab, and the group it is in.
"""
import collections, re, sys, zipfile

import onnx

HEAD = """# Features

Generated from test results: `npm run features`.

## Devices

| | runs | samples of torch's operators | cases of ONNX's operators |
|---|---|---|---|"""

ABOUT = {
    "CPU": "own x86-64 machine code",
    "C": "the system's C compiler",
    "WASM": "in node",
    "WGPU": "natively, on {adapter}",
    "WEBGPU": "in Chromium, on {adapter}",
}

TORCH = """
## torch's operators

{ops} operators by torch's names, on {samples} samples of torch's own operator tests: results, and gradients where torch has them. A
cell counts operators of which every sample has torch's numbers, of those that the tests have in that element type. On shaders there
is no f64: what needs it is refused before anything runs. {wrong}
"""

ONNX = """
## ONNX by element type

The cases of the backend suite of `onnx` {version} (operator set {opset}) in which a tensor of the type goes in or comes out. What
does not pass is refused with an error that names the node, before anything runs; {wrong}. Types narrower than a byte, and those
of 8-bit floats, are codes: they are stored, cast and dequantised, not computed with.
"""

OPERATORS = """
## ONNX operators

The same for each operator that has a case of its own. *Expanded* counts the cases that write the operator as a graph of others.
What a device with f64 refuses is named in the last column; WGPU and WEBGPU refuse f64 too.
"""

# element types in the order of the table
TYPES = """float double float16 bfloat16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool int4 uint4 int2 uint2 float8e4m3fn
float8e4m3fnuz float8e5m2 float8e5m2fnuz float4e2m1 float8e8m0 string complex64 complex128""".split()
SHORT = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16"}
GOOD = ("pass", "random")


def node_of(model):
    """The operator that a case is about; None for a graph of several."""
    nodes = list(model.graph.node)
    if len(nodes) != 1:
        return None
    n = nodes[0]
    return n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}.{n.op_type}"


def types_of(model):
    """The element types of what goes in and comes out."""
    found = set()
    def look(t):
        kind = t.WhichOneof("value")
        if kind == "tensor_type":
            found.add(onnx.TensorProto.DataType.Name(t.tensor_type.elem_type).lower())
        elif kind in ("sequence_type", "optional_type"):
            look(getattr(t, kind).elem_type)
    for v in [*model.graph.input, *model.graph.output]:
        look(v.type)
    return found


def lines(path):
    """Outcome and the rest of each result."""
    return [line.rstrip("\n").split(" ", 1) for line in open(path) if re.match(r"(pass|random|refused|WRONG|BROKEN) ", line)]


def table(head, rows):
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


def no_wrong(results):
    """What to say of wrong numbers."""
    bad = sum(what in ("WRONG", "BROKEN") for rows in results.values() for what, _ in rows)
    return "nothing gives wrong numbers" if bad == 0 else f"**{bad} give wrong numbers or break**"


def torch(results, group_of):
    """Per device: operators all of whose samples pass, by group and element type."""
    state, samples = collections.defaultdict(dict), set()
    for device, rows in results.items():
        for what, rest in rows:
            name, line, dtype = rest.split(" ")[:3]
            key = group_of.get(name, "other"), dtype, name
            state[key][device] = state[key].get(device, True) and what in GOOD
            samples.add((name, line))
    kinds = sorted({(g, d) for g, d, _ in state}, key=lambda k: (list(dict.fromkeys(group_of.values())).index(k[0]), "f32 f64 i32 i64 bool".split().index(k[1])))
    print(TORCH.format(ops=len({n for _, _, n in state}), samples=len(samples), wrong=no_wrong(results).capitalize() + "."))
    rows, last = [], None
    for group, dtype in kinds:
        of = [by for (g, d, _), by in state.items() if (g, d) == (group, dtype)]
        counts = [sum(by.get(device, False) for by in of) for device in results]
        rows.append([group if group != last else "", dtype, len(of), *counts])
        last = group
    table(["operators", "type", "tested", *results], rows)


def onnx_tables(cases, results):
    found = {device: {rest.split(" ", 1)[0]: (what, rest.partition(" ")[2].strip()) for what, rest in rows} for device, rows in results.items()}
    devices = list(found)
    total, passed, why = collections.Counter(), collections.Counter(), collections.defaultdict(collections.Counter)
    typed, typed_passed = collections.Counter(), collections.Counter()
    with zipfile.ZipFile(cases) as z:
        for entry in z.namelist():
            case, file = entry.rsplit("/", 1)
            if file != "model.onnx" or not case.startswith("node/"):
                continue
            model = onnx.load_from_string(z.read(entry))
            op = node_of(model) or "*expanded* and other graphs"
            total[op] += 1
            types = types_of(model)
            typed.update(types)
            for device in devices:
                what, reason = found[device].get(case, ("missing", ""))
                passed[op, device] += what in GOOD
                for t in types:
                    typed_passed[t, device] += what in GOOD
                if what == "refused" and device == devices[0]:
                    why[op][re.sub(r"\(?node `[^`]*`.*|\[E_.*|\(`[^`]*`\)", "", reason).strip(" :(")] += 1
    print(ONNX.format(version=onnx.__version__, opset=onnx.defs.onnx_opset_version(), wrong=no_wrong(results)))
    order = lambda t: (TYPES.index(t) if t in TYPES else len(TYPES), t)
    table(["type", "cases", *devices], [[SHORT.get(t, t), typed[t], *[typed_passed[t, d] for d in devices]] for t in sorted(typed, key=order)])
    print(OPERATORS)
    rows = []
    for op in sorted(total, key=lambda op: (op.startswith("*"), "." in op, op)):
        reasons = "; ".join(r for r, _ in why[op].most_common(2))
        rows.append([op, total[op], *[passed[op, d] for d in devices], reasons])
    rows.append(["**all**", f"**{sum(total.values())}**", *[f"**{sum(passed[op, d] for op in total)}**" for d in devices], ""])
    table(["operator", "cases", *devices, "refused"], rows)


def main():
    cases, groups, *runs = sys.argv[1:]
    group_of = dict(line.rstrip("\n").split("\t") for line in open(groups))
    results = {"onnx": {}, "torch": {}}
    for run in runs:
        key, path = run.split("=", 1)
        suite, device = key.split(".", 1)
        results[suite][device] = lines(path)
    print(HEAD)
    adapter = "a software driver, or the GPU that there is"
    for device in dict.fromkeys([*results["torch"], *results["onnx"]]):
        cells = []
        for suite in ("torch", "onnx"):
            rows = [r for r in results[suite].get(device, []) if suite == "torch" or r[1].startswith("node/")]
            count = collections.Counter("pass" if what in GOOD else what for what, _ in rows)
            cells.append(", ".join(f"{n} {w}" for w, n in sorted(count.items())) or "not run")
        print(f"| {device} | {ABOUT.get(device, '').format(adapter=adapter)} | {' | '.join(cells)} |")
    torch(results["torch"], group_of)
    onnx_tables(cases, results["onnx"])


main()
