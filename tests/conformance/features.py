"""Writes FEATURES.md from the lines that runs of the suites printed: what torch's operator tests say of each operator and element
type, what ONNX's backend suite says of each operator, element type and operator set, on each device, and beside them onnxruntime.

    python features.py GROUPS.txt [SUITE=CASES.zip ..] [SUITE.DEVICE=RESULTS.txt ..] > FEATURES.md

SUITE is onnx, contrib, ml, opset or torch; the first three have archives of cases; DEVICE may be onnxruntime, of the suite onnx. A line of
GROUPS.txt is a torch operator's name, a tab, and the group it is in. What was not run is left out.
"""
import collections, re, sys, zipfile

import onnx

from opset_cases import FIRST, LAST, history

HEAD = """# Features

Generated from test results: `npm run features`.

## Devices

| | runs | samples of torch's operators | cases of ONNX's operators | other cases of ONNX's suite |
|---|---|---|---|---|"""

REFERENCE = "onnxruntime"
ABOUT = {
    "CPU": "own x86-64 machine code",
    "C": "the system's C compiler",
    "WASM": "in node",
    "WGPU": "natively, on {adapter}",
    "WEBGPU": "in Chromium, on {adapter}",
    REFERENCE: "not ours, for comparison: {runtime}, its own kernels on the processor, the same cases and tolerances",
}

TORCH = """
## torch's operators

{ops} operators by torch's names, on {samples} samples of torch's own operator tests: results, and gradients where torch has them. A
cell counts operators of which every sample has torch's numbers, of those that the tests have in that element type. On shaders there
is no f64: what needs it is refused before anything runs. {wrong} The tables below have the operators one by one, with the element types
in which every sample has torch's numbers.
"""

ONNX = """
## ONNX by element type

The cases of the backend suite of `onnx` {version} (operator set {opset}) in which a tensor of the type goes in or comes out. What
does not pass is refused with an error that names the node, before anything runs; {wrong}. Types narrower than a byte, and those
of 8-bit floats, are codes: they are stored, cast and dequantised, not computed with.{runtime}
"""

RUNTIME = """ In the column of
onnxruntime what does not pass is refused, or has other numbers than the suite's tolerance allows ({bad} of all cases); it has no operators of
set 28, and StringNormalizer only where the system has the locale en_US."""

OPERATORS = """
## ONNX operators

The same for each operator that has a case of its own. *Expanded* counts the cases that write the operator as a graph of others.
What a device with f64 refuses is named in the last column; WGPU and WEBGPU refuse f64 too.
"""

OPSETS = """*Versions* are those of the operator that are in force in an operator set from {first} to {last}. Each was checked in the first and in the
last of these sets, with the suite's cases rewritten as that set has them ({cases} cases, on {devices}): {passed} of {all} versions pass, {wrong}.
One in parentheses is refused.
"""

OTHERS = """
## ONNX graphs

The other cases of the suite: graphs that PyTorch exported, in operator sets of their time, small graphs, and whole networks without their
weights (`light`: AlexNet, DenseNet, Inception, ResNet, ShuffleNet, SqueezeNet, VGG, ZFNet).
"""

DOMAINS = """
## Operators of com.microsoft and ai.onnx.ml

Cases of our own, one node each, with the results of onnxruntime; the last line counts those of the default domain. {wrong}
"""

# element types in the order of the table
TYPES = """float double float16 bfloat16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool int4 uint4 int2 uint2 float8e4m3fn
float8e4m3fnuz float8e5m2 float8e5m2fnuz float4e2m1 float8e8m0 string complex64 complex128""".split()
SHORT = {"float": "f32", "double": "f64", "float16": "f16", "bfloat16": "bf16"}
GOOD = ("pass", "random")
EXPANDED = "*expanded* and other graphs"
REST = "*of the default domain*"


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
    bad = sum(what in ("WRONG", "BROKEN") for device, rows in results.items() if device != REFERENCE for what, _ in rows)
    return "nothing gives wrong numbers" if bad == 0 else f"**{bad} give wrong numbers or break**"


def torch(results, group_of):
    """Per device: operators all of whose samples pass, by group and element type, and each operator with its types."""
    state, samples = collections.defaultdict(dict), collections.defaultdict(set)
    for device, rows in results.items():
        for what, rest in rows:
            name, line, dtype = rest.split(" ")[:3]
            key = group_of.get(name, "other"), dtype, name
            state[key][device] = state[key].get(device, True) and what in GOOD
            samples[name].add(line)
    groups = [*dict.fromkeys(group_of.values()), "other"]
    order = lambda dtype: "f32 f64 f16 bf16 i32 i64 bool".split().index(dtype)
    kinds = sorted({(g, d) for g, d, _ in state}, key=lambda k: (groups.index(k[0]), order(k[1])))
    print(TORCH.format(ops=len(samples), samples=sum(map(len, samples.values())), wrong=no_wrong(results).capitalize() + "."))
    rows, last = [], None
    for group, dtype in kinds:
        of = [by for (g, d, _), by in state.items() if (g, d) == (group, dtype)]
        counts = [sum(by.get(device, False) for by in of) for device in results]
        rows.append([group if group != last else "", dtype, len(of), *counts])
        last = group
    table(["operators", "type", "tested", *results], rows)
    for group in dict.fromkeys(g for g, _ in kinds):
        print(f"\n### {group[0].upper()}{group[1:]}\n")
        dtypes = [d for g, d in kinds if g == group]
        rows = []
        for name in sorted({n for g, _, n in state if g == group}):
            tested = [d for d in dtypes if (group, d, name) in state]
            cells = [" ".join(d for d in tested if state[group, d, name].get(device)) or "-" for device in results]
            rows.append([f"`{name}`", len(samples[name]), *cells])
        table(["operator", "samples", *results], rows)


def versions_of(results):
    """Per operator: what became of all cases of each of its versions in force on all devices: pass, refused or WRONG; only those with cases."""
    found = collections.defaultdict(set)
    for rows in results.values():
        for what, rest in rows:
            op, version = rest.split(" ")[0].removeprefix("opset/").split(".")[:2]
            found[op, int(version)].add("pass" if what in GOOD else what)
    worst = lambda whats: next(w for w in ("BROKEN", "WRONG", "refused", "pass") if w in whats)
    return {op: {v: worst(found[op, v]) for v, _, _ in versions if (op, v) in found} for op, versions in history().items()}


def version_text(versions):
    marks = {"pass": "{}", "refused": "({})"}
    return " ".join(marks.get(what, "**{}**").format(v) for v, what in sorted(versions.items()))


class Cases:
    """What became of the cases of the suite, by operator, by element type and by kind."""

    def __init__(self, archive, results, counts):
        """`counts` tells whether cases of a kind are of one operator and count by operator and type."""
        self.counts = counts
        self.found = {device: {rest.split(" ", 1)[0]: (what, rest.partition(" ")[2].strip()) for what, rest in rows} for device, rows in results.items()}
        counters = (collections.Counter() for _ in range(6))
        self.ops, self.ops_passed, self.types, self.types_passed, self.kinds, self.kinds_passed = counters
        self.why = collections.defaultdict(collections.Counter)
        with zipfile.ZipFile(archive) as z:
            for entry in z.namelist():
                case, file = entry.rsplit("/", 1)
                if file == "model.onnx":
                    self.count(case, onnx.load_from_string(z.read(entry)))

    def count(self, case, model):
        kind = case.split("/")[0]
        op, types = node_of(model) or EXPANDED, types_of(model)
        self.kinds[kind] += 1
        if self.counts(kind):
            self.ops[op] += 1
            self.types.update(types)
        for at, device in enumerate(self.found):
            what, reason = self.found[device].get(case, ("missing", ""))
            self.kinds_passed[kind, device] += what in GOOD
            if self.counts(kind):
                self.ops_passed[op, device] += what in GOOD
                for t in types:
                    self.types_passed[t, device] += what in GOOD
                if what == "refused" and at == 0:
                    self.why[op][re.sub(r"\(?node `[^`]*`.*|\[E_.*|\(`[^`]*`\)", "", reason).strip(" :(")] += 1


def onnx_tables(archive, results, opsets):
    cases, devices = Cases(archive, results, lambda kind: kind == "node"), list(results)
    bad = sum(what == "WRONG" for what, rest in results.get(REFERENCE, []) if rest.startswith("node/"))
    runtime = RUNTIME.format(bad=bad) if REFERENCE in results else ""
    print(ONNX.format(version=onnx.__version__, opset=onnx.defs.onnx_opset_version(), wrong=no_wrong(results), runtime=runtime))
    order = lambda t: (TYPES.index(t) if t in TYPES else len(TYPES), t)
    by_type = [[SHORT.get(t, t), cases.types[t], *[cases.types_passed[t, d] for d in devices]] for t in sorted(cases.types, key=order)]
    table(["type", "cases", *devices], by_type)

    versions = versions_of(opsets) if opsets else {}
    print(OPERATORS)
    if opsets:
        every = [what for by in versions.values() for what in by.values()]
        words = {"first": FIRST, "last": LAST, "cases": len(next(iter(opsets.values()))), "devices": " and ".join(opsets)}
        print(OPSETS.format(**words, passed=every.count("pass"), all=sum(map(len, history().values())), wrong=no_wrong(opsets)))
    rows, every_op = [], {*cases.ops, *(op for op, by in versions.items() if by)}
    for op in sorted(every_op, key=lambda op: (op.startswith("*"), "." in op, op)):
        reasons = "; ".join(r for r, _ in cases.why[op].most_common(2))
        sets = [version_text(versions.get(op, {}))] if opsets else []
        counts = [cases.ops_passed[op, d] if cases.ops[op] else "" for d in devices]
        rows.append([op, cases.ops[op] or "", *counts, *sets, reasons])
    whole = [f"**{sum(cases.ops_passed[op, d] for op in cases.ops)}**" for d in devices]
    rows.append(["**all**", f"**{sum(cases.ops.values())}**", *whole, *([""] if opsets else []), ""])
    table(["operator", "cases", *devices, *(["versions"] if opsets else []), "refused"], rows)

    print(OTHERS)
    others = [k for k in sorted(cases.kinds) if k != "node"]
    table(["cases of", "cases", *devices], [[k, cases.kinds[k], *[cases.kinds_passed[k, d] for d in devices]] for k in others])


def domain_table(archives, results):
    """The operators of other domains, from the suites contrib and ml."""
    devices = [d for d in dict.fromkeys(d for by in results.values() for d in by) if all(d in by for by in results.values())]
    total, passed = collections.Counter(), collections.Counter()
    for suite, by in results.items():
        cases = Cases(archives[suite], {d: by[d] for d in devices}, lambda _: True)
        for op, n in cases.ops.items():
            name = op if "." in op else REST
            total[name] += n
            for d in devices:
                passed[name, d] += cases.ops_passed[op, d]
    both = {d: [r for by in results.values() for r in by[d]] for d in devices}
    print(DOMAINS.format(wrong=no_wrong(both).capitalize() + "."))
    table(["operator", "cases", *devices], [[op, total[op], *[passed[op, d] for d in devices]] for op in sorted(total, key=lambda op: (op == REST, op))])


def outcomes(rows):
    count = collections.Counter("pass" if what in GOOD else "other numbers" if what == "WRONG" else what for what, _ in rows)
    return ", ".join(f"{n} {w}" for w, n in sorted(count.items(), key=lambda c: (c[0] != "pass", c[0]))) or "not run"


def runtime_version():
    try:
        import onnxruntime
    except ImportError:
        return REFERENCE
    return f"{REFERENCE} {onnxruntime.__version__}"


def main():
    groups, *runs = sys.argv[1:]
    group_of = dict(line.rstrip("\n").split("\t") for line in open(groups))
    results, archives = collections.defaultdict(dict), {}
    for run in runs:
        key, path = run.split("=", 1)
        suite, _, device = key.partition(".")
        if device:
            results[suite][device] = lines(path)
        else:
            archives[suite] = path
    print(HEAD)
    words = {"adapter": "a software driver, or the GPU that there is", "runtime": runtime_version()}
    for device in dict.fromkeys([*results["torch"], *results["onnx"]]):
        onnx_rows = results["onnx"].get(device, [])
        own, other = ([r for r in onnx_rows if r[1].startswith("node/") == node] for node in (True, False))
        samples = "" if device == REFERENCE else outcomes(results["torch"].get(device, []))
        print(f"| {device} | {ABOUT.get(device, '').format(**words)} | {samples} | {outcomes(own)} | {outcomes(other)} |")
    if results["torch"]:
        torch(results["torch"], group_of)
    if results["onnx"]:
        onnx_tables(archives["onnx"], results["onnx"], results["opset"])
    domains = {suite: results[suite] for suite in ("contrib", "ml") if results[suite]}
    if domains:
        domain_table(archives, domains)


main()
