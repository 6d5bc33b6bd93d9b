"""Writes tests/fixtures/numerics/edges.onnx and edges.npz: what onnxruntime's operators give at the edges of their types.

The graph has one node for each case, whose inputs are those of `cases.txt` (`numerics.py`) and whose outputs are named
`Operator|variant|type`; what onnxruntime has no kernel for on a processor is left out. `edges.npz` has its inputs and outputs.

usage: numerics_onnx.py cases.txt FOLDER
"""
import sys, zipfile, io

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

OPSET, IR = 22, 10
TYPES = {
    "f32": (np.float32, TensorProto.FLOAT), "f16": (np.float16, TensorProto.FLOAT16), "bool": (np.bool_, TensorProto.BOOL),
    "u8": (np.uint8, TensorProto.UINT8), "i8": (np.int8, TensorProto.INT8), "i16": (np.int16, TensorProto.INT16),
    "i32": (np.int32, TensorProto.INT32), "i64": (np.int64, TensorProto.INT64),
}
UNARY = """Neg Abs Sign Ceil Floor Round Sqrt Reciprocal Exp Log Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh Erf
Sigmoid IsNaN IsInf Relu Gelu Softplus Mish Elu Selu Celu HardSwish HardSigmoid Softsign LeakyRelu""".split()
BINARY = "Add Sub Mul Div Pow Max Min Equal Less Greater LessOrEqual GreaterOrEqual".split()
INTEGER = "Add Sub Mul Max Min Equal Less BitwiseAnd BitwiseOr BitwiseXor".split()
OPTIONS = ort.SessionOptions()
OPTIONS.log_severity_level = 4
nodes, inputs, outputs, left_out = [], {}, {}, []


def known(path):
    out = {}
    for line in open(path):
        if line.startswith("@"):
            name, tensor = line[1:].rstrip("\n").split("\t")
            dtype, shape, raw = tensor.split(":")
            if dtype in TYPES:
                shape = [int(n) for n in shape.split(",") if n]
                out[name] = (dtype, np.frombuffer(bytes.fromhex(raw), TYPES[dtype][0]).reshape(shape))
    return out


def value_info(name, array):
    kind = next(k for t, k in TYPES.values() if t == array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def model(nodes, inputs, outputs):
    graph = helper.make_graph(nodes, "edges", [value_info(n, a) for n, a in inputs.items()], [
        value_info(n, a) if a is not None else helper.make_empty_tensor_value_info(n) for n, a in outputs.items()
    ])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR, producer_name="numerics_onnx.py")


def case(op, variant, args, **attributes):
    """Runs it alone, so that what has no kernel is found, and nothing is fused."""
    dtype = KNOWN[args[0]][0]
    name = f"{op}|{variant}|{dtype}"
    node = helper.make_node(op, args, [name], **attributes)
    feeds = {a: KNOWN[a][1] for a in args}
    try:
        session = ort.InferenceSession(model([node], feeds, {name: None}).SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
    except Exception:
        left_out.append(name)
        return
    outputs[name] = session.run(None, feeds)[0]
    nodes.append(node)
    inputs.update(feeds)


KNOWN = known(sys.argv[1])
for suffix in ("", "f16"):
    for op in UNARY:
        case(op, "", ["u" + suffix])
    case("Gelu", "tanh", ["u" + suffix], approximate="tanh")
    for op in BINARY:
        case(op, "", ["a" + suffix, "b" + suffix])
    case("Mod", "fmod", ["a" + suffix, "b" + suffix], fmod=1)
    for to in ("f32", "f16", "bool"):
        if to != (suffix or "f32"):
            case("Cast", to, ["u" + suffix], to=TYPES[to][1])
for dt in ("u8", "i8", "i16", "i32", "i64"):
    for op in INTEGER:
        case(op, "", ["p" + dt, "q" + dt])
    case("Div", "", ["nfloor_divide" + dt, "dfloor_divide" + dt])
    case("Mod", "", ["nremainder" + dt, "dremainder" + dt])
    case("Mod", "fmod", ["nfmod" + dt, "dfmod" + dt], fmod=1)
    for op in ("Neg", "Abs", "Sign", "BitwiseNot"):
        case(op, "", ["v" + dt])
    for to in TYPES:
        if to != dt:
            case("Cast", to, ["v" + dt], to=TYPES[to][1])
for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare"):
    # the axes are an attribute in no operator set that has all of these: all of them, of each row alone
    KNOWN["row_axis"] = ("i64", np.array([1], np.int64))
    case(op, "", ["rows", "row_axis"], keepdims=0)
for op in ("Softmax", "LogSoftmax"):
    case(op, "", ["rows"], axis=1)
for op in ("ArgMax", "ArgMin"):
    case(op, "", ["rows"], axis=1, keepdims=0)
KNOWN["image"] = ("f32", np.array([[1, 2, 300, 4], [5, 1e-40, 7, 8], [-1, 0, 1, 2]], np.float32).reshape(1, 1, 3, 4))
KNOWN["scales"] = ("f32", np.array([1, 1, 2, 2], np.float32))
for mode in ("nearest", "linear", "cubic"):
    for how in ("half_pixel", "asymmetric", "align_corners"):
        KNOWN[""] = ("f32", np.zeros(0, np.float32))
        node_args = ["image", "", "scales"]
        name = f"Resize|{mode} {how}|f32"
        node = helper.make_node("Resize", node_args, [name], mode=mode, coordinate_transformation_mode=how)
        feeds = {"image": KNOWN["image"][1]}
        constant = helper.make_node("Constant", [], ["scales"], value=onnx.numpy_helper.from_array(KNOWN["scales"][1]))
        session = ort.InferenceSession(model([constant, node], feeds, {name: None}).SerializeToString(), OPTIONS, providers=["CPUExecutionProvider"])
        outputs[name] = session.run(None, feeds)[0]
        if not any(n.output[0] == "scales" for n in nodes):
            nodes.append(constant)
        nodes.append(node)
        inputs.update(feeds)

# the axes have to be known when a graph is built
axes = inputs.pop("row_axis", None)
if axes is not None:
    nodes.insert(0, helper.make_node("Constant", [], ["row_axis"], value=onnx.numpy_helper.from_array(axes)))
whole = model(nodes, inputs, outputs)
onnx.checker.check_model(whole)
with open(sys.argv[2] + "/edges.onnx", "wb") as file:
    file.write(whole.SerializeToString())
with zipfile.ZipFile(sys.argv[2] + "/edges.npz", "w", zipfile.ZIP_DEFLATED) as archive:
    for prefix, arrays in (("in/", inputs), ("out/", outputs)):
        for name, array in arrays.items():
            data = io.BytesIO()
            np.save(data, array)
            entry = zipfile.ZipInfo(prefix + name + ".npy", (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data.getvalue())
print(len(outputs), "outputs of onnxruntime", ort.__version__, "; no kernel:", *left_out)
