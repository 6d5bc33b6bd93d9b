"""Writes the cases of ONNX's backend suite (the `onnx` package) to one zip file.

    python onnx_cases.py OUT.zip [--only LIST.txt]

Each case is a folder `KIND/NAME` with `model.onnx`, `tolerance` (rtol and atol) and for each data set N the tensors `N/in_I.pb` and
`N/out_I.pb`, whose names say what they feed: `x`, or `x[0]`, `x[1]` .. for the elements of a sequence; an optional without a value
has no file. `--only` keeps the cases listed in a file, one `KIND/NAME` a line.
"""
import argparse, glob, os, warnings, zipfile

warnings.filterwarnings("ignore")
import numpy as np
import onnx
from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper
import onnx.backend.test.case.model as model_cases
import onnx.backend.test.case.node as node_cases

DATA = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
WHEN = (1980, 1, 1, 0, 0, 0)


def kind_of(t):
    while t.WhichOneof("value") == "optional_type":
        t = t.optional_type.elem_type
    return t.WhichOneof("value")


def tensors(value, info):
    """A value as named tensors: one, those of a sequence, or none."""
    if value is None:
        return []
    if isinstance(value, TensorProto):
        value.name = info.name
        return [value]
    if kind_of(info.type) == "sequence_type":
        return [numpy_helper.from_array(np.asarray(v), f"{info.name}[{i}]") for i, v in enumerate(value)]
    return [numpy_helper.from_array(np.asarray(value), info.name)]


def load(path, info):
    with open(path, "rb") as f:
        data = f.read()
    if info.type.HasField("sequence_type"):
        return numpy_helper.to_list(SequenceProto.FromString(data))
    if info.type.HasField("optional_type"):
        return numpy_helper.to_optional(OptionalProto.FromString(data))
    return TensorProto.FromString(data)


def from_disk(kind):
    for folder in sorted(glob.glob(os.path.join(DATA, kind, "*"))):
        model = onnx.load(os.path.join(folder, "model.onnx"))
        sets = []
        for s in sorted(glob.glob(folder + "/test_data_set_*")):
            read = lambda side, infos: [load(f"{s}/{side}_{i}.pb", v) for i, v in enumerate(infos) if os.path.exists(f"{s}/{side}_{i}.pb")]
            sets.append((read("input", model.graph.input), read("output", model.graph.output)))
        yield kind, os.path.basename(folder), model, sets, 1e-3, 1e-7


def light():
    """Whole networks without their weights, fed with the numbers from 0 to 1 in order, as the suite's own runner does."""
    for file in sorted(glob.glob(os.path.join(DATA, "light", "*.onnx"))):
        model = onnx.load(file)
        weights = {t.name for t in model.graph.initializer}
        shape_of = lambda v: [d.dim_value for d in v.type.tensor_type.shape.dim]
        counted = lambda shape: (np.arange(np.prod(shape)) / np.prod(shape)).reshape(shape).astype(np.float32)
        ins = [None if v.name in weights else counted(shape_of(v)) for v in model.graph.input]
        outs = [TensorProto.FromString(open(f"{file[:-5]}_output_{i}.pb", "rb").read()) for i in range(len(model.graph.output))]
        yield "light", os.path.basename(file)[:-5], model, [(ins, outs)], 1e-3, 1e-7


def generated():
    cases = list(node_cases.collect_testcases(None)) + [c for c in model_cases.collect_testcases() if c.model is not None]
    for c in cases:
        yield c.kind, c.name, c.model, c.data_sets or [], c.rtol, c.atol


def put(archive, name, data):
    archive.writestr(zipfile.ZipInfo(name, WHEN), data, zipfile.ZIP_DEFLATED)


def write(archive, case, model, sets, rtol, atol):
    put(archive, f"{case}/model.onnx", model.SerializeToString())
    put(archive, f"{case}/tolerance", f"{rtol} {atol}")
    for n, (ins, outs) in enumerate(sets):
        for side, values, infos in (("in", ins, model.graph.input), ("out", outs, model.graph.output)):
            flat = [t for v, i in zip(values, infos) for t in tensors(v, i)]
            for i, t in enumerate(flat):
                put(archive, f"{case}/{n}/{side}_{i}.pb", t.SerializeToString())
            if not flat:
                put(archive, f"{case}/{n}/{side}_none", b"")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("out")
    args.add_argument("--only")
    args = args.parse_args()
    only = args.only and set(open(args.only).read().split())
    seen = set()
    with zipfile.ZipFile(args.out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        sources = [generated(), from_disk("pytorch-converted"), from_disk("pytorch-operator"), from_disk("simple"), light()]
        for kind, name, model, sets, rtol, atol in (c for s in sources for c in s):
            case = f"{kind}/{name}"
            if case not in seen and (not only or case in only):
                seen.add(case)
                write(z, case, model, sets, rtol, atol)
    print(len(seen), "cases")


if __name__ == "__main__":
    main()
