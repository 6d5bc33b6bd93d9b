"""Runs the cases of `onnx_cases.py` with onnxruntime and the tolerance of `onnx_suite`: `onnxruntime_suite.py CASES.zip [FILTER]`.

A line for each case (pass, random, refused, WRONG) and a summary, as `onnx_suite` prints. `--reference` takes the reference
evaluator of the `onnx` package instead.
"""
import collections, re, sys, zipfile

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import onnxruntime as ort
from onnx import TensorProto, numpy_helper

# as in onnx_suite.rs
NOISE = ["node/test_dft_inverse", "node/test_dft_inverse_opset19"]
RANDOM = [b"Bernoulli", b"RandomUniform", b"RandomNormal", b"Multinomial"]


def cases(path):
    z, found = zipfile.ZipFile(path), {}
    for name in z.namelist():
        kind, case, file = name.split("/", 2)
        found.setdefault(f"{kind}/{case}", {})[file] = name
    for name, files in found.items():
        yield name, {f: z.read(n) for f, n in files.items()}


def collect(tensors, info):
    """The value that one input or output takes of the named tensors, and what is left."""
    own = [t for t in tensors if re.sub(r"\[\d+\]$", "", t[0]) == info.name]
    t = info.type
    while t.WhichOneof("value") == "optional_type":
        t = t.optional_type.elem_type
    if t.WhichOneof("value") == "sequence_type":
        return [v for _, v in own]
    return own[0][1] if own else None


def close(got, want, rtol, atol):
    if want is None or got is None:
        return want is None and got is None
    if isinstance(want, list):
        return len(got) == len(want) and all(close(g, w, rtol, atol) for g, w in zip(got, want))
    got = np.asarray(got)
    if got.shape != want.shape or got.dtype != want.dtype:
        return False
    if want.dtype == ml_dtypes.bfloat16:
        rtol = max(rtol, 2**-6)
    elif want.dtype == np.float16:
        rtol = max(rtol, 2**-10)
    elif want.dtype.kind != "f":
        return bool((got == want).all())
    return np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)


def load(data):
    t = TensorProto.FromString(data)
    return t.name, numpy_helper.to_array(t)


def run(name, files, reference):
    model = onnx.ModelProto.FromString(files["model.onnx"])
    rtol, atol = map(float, files["tolerance"].split())
    atol = 1e-6 if name in NOISE else atol
    if reference:
        session = onnx.reference.ReferenceEvaluator(model)
    else:
        options = ort.SessionOptions()
        options.log_severity_level = 4
        session = ort.InferenceSession(files["model.onnx"], options, providers=["CPUExecutionProvider"])
    random = any(r in files["model.onnx"] for r in RANDOM) or "training_dropout" in name and "zero_ratio" not in name
    sets = sorted({f.split("/")[0] for f in files if "/" in f})
    for s in sets:
        side = lambda side: [load(files[f]) for f in sorted((f for f in files if f.startswith(f"{s}/{side}_") and f.endswith(".pb")), key=lambda f: int(re.findall(r"\d+", f)[-1]))]
        ins, outs = side("in"), side("out")
        feeds = {i.name: collect(ins, i) for i in model.graph.input}
        known = {i.name for i in model.graph.initializer}
        feeds = {k: v for k, v in feeds.items() if not (v is None and k in known)}
        got = session.run(None, feeds)
        want = [collect(outs, o) for o in model.graph.output]
        if random:
            return "random"
        if not all(close(g, w, rtol, atol) for g, w in zip(got, want)):
            return "WRONG"
    return "random" if random else "pass"


def main():
    args = [a for a in sys.argv[1:] if a != "--reference"]
    count = collections.Counter()
    for name, files in cases(args[0]):
        if len(args) > 1 and args[1] not in name:
            continue
        why = ""
        try:
            what = run(name, files, "--reference" in sys.argv)
        except Exception as e:
            what, why = "refused", str(e).replace("\n", " ")[:200]
        print(what, name, why, flush=True)
        count[name.split("/")[0], what] += 1
    for (kind, what), n in sorted(count.items()):
        print(f"{kind}: {n} {what}")


main()
