"""Runs the cases of `onnx_cases.py` with onnxruntime and the tolerance of `onnx_suite`: `onnxruntime_suite.py CASES.zip [FILTER]`.

A line for each case (pass, random, refused, WRONG) and a summary, as `onnx_suite` prints. `--reference` takes the reference
evaluator of the `onnx` package instead.

So that no case fails for the harness: element types that numpy has no name for go in and out as bytes, operator sets that
onnxruntime calls unreleased are allowed, and a newer IR version than it reads is lowered to the newest that it does.
"""
import collections, ctypes, os, re, sys, zipfile

os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"
import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import onnxruntime as ort
from onnx import TensorProto, numpy_helper

ort.set_default_logger_severity(4)
# as in onnx_suite.rs
NOISE = ["node/test_dft_inverse", "node/test_dft_inverse_opset19"]
# numbers of the dtypes that ml_dtypes adds to numpy's begin here
FIRST_OWN = 256
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
    elif want.dtype.kind != "f" and not (want.dtype.num >= FIRST_OWN and "float" in want.dtype.name):
        return bool((got == want).all())
    return np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol, atol=atol, equal_nan=True)


def load(data):
    t = TensorProto.FromString(data)
    return t.name, numpy_helper.to_array(t)


def opened(model):
    """A session of onnxruntime, with the model's IR version lowered if that is why it is refused."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as e:
        newest = re.search(r"max supported IR version: (\d+)", str(e))
        if not newest:
            raise
        model.ir_version = int(newest[1])
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def as_bytes(array):
    """A tensor of a type that onnxruntime can not tell from numpy's: it takes the bytes where an array of this shape begins."""
    t = numpy_helper.from_array(array)
    room = np.zeros(max(array.size * array.itemsize, 1), np.uint8)
    room[: len(t.raw_data)] = np.frombuffer(t.raw_data, np.uint8)
    room = room[: array.size * array.itemsize].view(np.uint8 if array.itemsize == 1 else np.uint16).reshape(array.shape)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(room, t.data_type), room


def from_bytes(value):
    if not value.is_tensor() or value.element_type() == TensorProto.STRING:
        return value.numpy()
    size = value.tensor_size_in_bytes()
    t = TensorProto(data_type=value.element_type(), dims=value.shape(), raw_data=ctypes.string_at(value.data_ptr(), size) if size else b"")
    return numpy_helper.to_array(t)


def answers(session, model, feeds):
    """Outputs in order, whatever their element types."""
    named = [t.type.tensor_type.elem_type for t in [*model.graph.input, *model.graph.output] if t.type.HasField("tensor_type")]
    if all(t <= TensorProto.DOUBLE or TensorProto.UINT32 <= t <= TensorProto.COMPLEX128 for t in named):
        return session.run(None, feeds)
    alive, values = [], {}
    for name, v in feeds.items():
        if isinstance(v, np.ndarray) and v.dtype.num >= FIRST_OWN:
            values[name], room = as_bytes(v)
            alive.append(room)
        else:
            values[name] = ort.OrtValue.ortvalue_from_numpy(v)
    return [from_bytes(v) for v in session.run_with_ort_values([o.name for o in session.get_outputs()], values)]


def run(name, files, reference):
    model = onnx.ModelProto.FromString(files["model.onnx"])
    rtol, atol = map(float, files["tolerance"].split())
    atol = 1e-6 if name in NOISE else atol
    if reference:
        session = onnx.reference.ReferenceEvaluator(model)
    else:
        session = opened(model)
    random = any(r in files["model.onnx"] for r in RANDOM) or "training_dropout" in name and "zero_ratio" not in name
    sets = sorted({f.split("/")[0] for f in files if "/" in f})
    for s in sets:
        side = lambda side: [load(files[f]) for f in sorted((f for f in files if f.startswith(f"{s}/{side}_") and f.endswith(".pb")), key=lambda f: int(re.findall(r"\d+", f)[-1]))]
        ins, outs = side("in"), side("out")
        feeds = {i.name: collect(ins, i) for i in model.graph.input}
        known = {i.name for i in model.graph.initializer}
        feeds = {k: v for k, v in feeds.items() if not (v is None and k in known)}
        got = session.run(None, feeds) if reference else answers(session, model, feeds)
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


if __name__ == "__main__":
    main()
