"""How one node is written in an older operator set: what `opset_cases.py` needs to know of each operator.

`rewrite` places inputs and attributes as the older schema names them; an input that was an attribute then becomes one if its value is
known, an attribute that is not there yet is left out if it has its default. RULES has what needs more than that. What can not
be said in the older set raises Unfit.
"""
import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, defs, helper, numpy_helper

# inputs that were attributes of another name
RENAMED = {"constant_value": "value"}
Formal = defs.OpSchema.FormalParameterOption
INT, INTS, FLOAT, FLOATS = (getattr(defs.OpSchema.AttrType, n) for n in ("INT", "INTS", "FLOAT", "FLOATS"))


class Unfit(Exception):
    """The case can not be written so, and why."""


class Node:
    """A node between two schemas. `value`, `shape` and `kind` tell of an input by its name what is known of it, or None."""

    def __init__(self, proto, now, then, opset, value, shape, kind):
        self.name, self.now, self.then, self.opset = proto.op_type, now, then, opset
        self.version = then.since_version
        self.attrs = {a.name: a for a in proto.attribute}
        self.inputs, self.outputs = list(proto.input), list(proto.output)
        self.value, self.shape, self.kind = value, shape, kind
        # tensors that the older form needs
        self.added = {}

    def input(self, name):
        """The input that the newer schema names so, or None."""
        at = next((k for k, i in enumerate(self.now.inputs) if i.name == name), len(self.inputs))
        return self.inputs[at] or None if at < len(self.inputs) else None

    def known(self, name):
        """The value of that input; None where there is no input."""
        given = self.input(name)
        if given is None:
            return None
        value = self.value(given)
        if value is None:
            raise Unfit(f"{name} is not known")
        return value

    def attr(self, name):
        if name in self.attrs:
            return helper.get_attribute_value(self.attrs[name])
        default = self.now.attributes[name].default_value if name in self.now.attributes else None
        return helper.get_attribute_value(default) if default is not None and default.name else None

    def put(self, name, value):
        self.attrs[name] = helper.make_attribute(name, value)

    def drop(self, *names):
        """Leaves out attributes: what they said is not part of the older operator, and the results are others."""
        for name in names:
            self.attrs.pop(name, None)

    def set_input(self, name, new):
        at = [i.name for i in self.now.inputs].index(name)
        self.inputs += [""] * (at + 1 - len(self.inputs))
        self.inputs[at] = new

    def add(self, name, array):
        self.added[f"{name}_of_{self.outputs[0]}"] = array
        return f"{name}_of_{self.outputs[0]}"

    def need(self, holds, what):
        if not holds:
            raise Unfit(what)


def slices(n):
    if n.version < 10:
        steps = n.known("steps")
        n.need(steps is None or (steps == 1).all(), "steps")
        if steps is not None:
            n.set_input("steps", "")


def pad(n):
    axes = n.known("axes")
    if axes is not None and n.version < 18:
        rank = len(n.shape(n.inputs[0]))
        few, pads = n.known("pads"), np.zeros((2, rank), np.int64)
        pads[:, axes] = few.reshape(2, -1)
        n.set_input("axes", "")
        n.set_input("pads", n.add("pads", pads.reshape(-1)))
    n.need(n.attr("mode") != b"wrap" or n.version >= 19, "wrap")


def dropout(n):
    if n.version < 12:
        training = n.known("training_mode")
        n.need(training is None or not training, "training")
        if training is not None:
            n.set_input("training_mode", "")
        n.drop("seed")
        # nobody said what the mask is where nothing is dropped
        n.outputs = n.outputs[:1]


def split(n):
    count = n.attr("num_outputs")
    if count is not None and n.version < 18:
        size = n.shape(n.inputs[0])[n.attr("axis")]
        part = -(-size // count)
        sizes = np.array([part] * (count - 1) + [size - part * (count - 1)], np.int64)
        n.drop("num_outputs")
        if len(set(sizes)) > 1:
            n.set_input("split", n.add("split", sizes))


def resize(n):
    if n.version < 19:
        n.need(n.attr("coordinate_transformation_mode") != b"half_pixel_symmetric", "half_pixel_symmetric")
    axes = n.attr("axes")
    if axes is not None and n.version < 18:
        shape = n.shape(n.inputs[0])
        for name, every in (("scales", np.ones(len(shape), np.float32)), ("sizes", np.array(shape, np.int64))):
            given = n.known(name)
            if given is not None:
                every[axes] = given
                n.set_input(name, n.add(name, every))
        roi = n.known("roi")
        if roi is not None:
            every = np.stack([np.zeros(len(shape)), np.ones(len(shape))]).astype(roi.dtype)
            every[:, axes] = roi.reshape(2, -1)
            n.set_input("roi", n.add("roi", every.reshape(-1)))
        n.drop("axes")
    if n.version == 11:
        for name in ("roi", "scales"):
            if n.input(name) is None:
                n.set_input(name, n.add(name, np.zeros(0, np.float32)))
    if n.version == 10:
        # it had neither coordinates nor ways to round: nearest is downwards
        n.need(n.attr("mode") != b"cubic" and n.attr("coordinate_transformation_mode") != b"tf_crop_and_resize", "of a later set")
        sizes = n.known("sizes")
        if sizes is not None:
            n.set_input("scales", n.add("scales", (sizes / np.array(n.shape(n.inputs[0]))).astype(np.float32)))
            n.set_input("sizes", "")
        if n.input("roi"):
            n.set_input("roi", "")
        n.drop("coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "exclude_outside", "extrapolation_value")


def grid_sample(n):
    if n.version < 20:
        mode = n.attr("mode")
        n.put("mode", {b"linear": "bilinear", b"cubic": "bicubic"}.get(mode, mode.decode()))
        n.need(len(n.shape(n.inputs[0])) == 4, "rank")


def group_norm(n):
    if n.version < 21:
        # one scale and bias a group
        for name in ("scale", "bias"):
            n.set_input(name, n.add(name, n.known(name)[: n.attr("num_groups")]))


def gemm(n):
    if n.version < 11 and n.input("C") is None:
        n.set_input("C", n.add("C", np.zeros(1, np.float32)))


def quantized(n):
    if n.version < 13:
        n.need(n.shape(n.inputs[1]) in ((), None), "an axis")
        n.drop("axis")


def no_broadcast(n):
    if n.version < 8:
        n.need(len({n.shape(i) for i in n.inputs}) == 1, "broadcast")


def scan(n):
    n.need(n.version >= 9 or n.now.since_version < 9, "a batch")


def constant(n):
    name = next(iter(n.attrs))
    if n.version < 12 and name.startswith("value_"):
        value, tensor = n.attr(name), {"float": np.float32, "int": np.int64}.get(name[6:].rstrip("s"))
        n.need(tensor is not None, "strings")
        n.drop(name)
        n.put("value", numpy_helper.from_array(np.asarray(value, tensor)))


def scatter(n):
    reduction = n.attr("reduction")
    n.need(n.version >= 18 or reduction in (None, b"none", b"add", b"mul"), "reduction")


def roi_align(n):
    if n.version < 16:
        n.drop("coordinate_transformation_mode")


RULES = {
    "Slice": slices, "Pad": pad, "Dropout": dropout, "Split": split, "Resize": resize, "GridSample": grid_sample, "GroupNormalization": group_norm,
    "Gemm": gemm, "QuantizeLinear": quantized, "DequantizeLinear": quantized, "Max": no_broadcast, "Min": no_broadcast, "Sum": no_broadcast,
    "Mean": no_broadcast, "Scan": scan, "Constant": constant, "ScatterElements": scatter, "ScatterND": scatter, "RoiAlign": roi_align,
}  # fmt: skip


def place(n):
    """The inputs in the older order; those that were attributes become attributes."""
    now, then = list(n.now.inputs), list(n.then.inputs)
    names, later = [f.name.lower() for f in then], {f.name.lower() for f in now}
    options = {a.lower(): a for a in n.then.attributes}
    placed, rest = [""] * len(then), []
    for at, given in enumerate(n.inputs):
        formal = now[min(at, len(now) - 1)]
        name = RENAMED.get(formal.name, formal.name).lower()
        if formal.option == Formal.Variadic:
            rest.append(given)
        elif name in names:
            placed[names.index(name)] = given
        elif name in options:
            if given:
                value = n.added.pop(given) if given in n.added else n.known(formal.name)
                if not (name == "axes" and value.size == 0):
                    n.put(options[name], as_attribute(value, n.then.attributes[options[name]].type))
        elif at < len(then) and names[at] not in later:
            placed[at] = given
        elif given:
            raise Unfit(f"{formal.name} was no input")
    if then and then[-1].option == Formal.Variadic:
        placed = placed[:-1]
    elif rest:
        raise Unfit("it had not so many inputs")
    n.inputs = placed + rest
    while n.inputs and not n.inputs[-1]:
        n.inputs.pop()
    n.need(n.then.min_input <= len(n.inputs) <= n.then.max_input, "an input is missing or too many")
    n.need(all(given or f.option == Formal.Optional for given, f in zip(n.inputs, then)), "an input was not optional")


def as_attribute(value, kind):
    flat = value.reshape(-1).tolist()
    return flat if kind in (INTS, FLOATS) else flat[0]


def options(n):
    """Only attributes that the older schema has."""
    for name in list(n.attrs):
        if name not in n.then.attributes:
            default = n.now.attributes[name].default_value
            same = default.name and helper.get_attribute_value(default) == n.attr(name)
            n.need(same, f"attribute {name}")
            n.drop(name)
    for name, a in n.then.attributes.items():
        n.need(name in n.attrs or not a.required, f"attribute {name} is missing")
    if n.opset < 11 and n.inputs:
        # counted from the front
        rank = n.shape(n.inputs[0])
        for name in ("axis", "axes"):
            if rank is not None and name in n.attrs:
                more = 1 if n.name in ("Unsqueeze", "OneHot") else 0
                of = n.attr(name)
                more = len(of) if n.name == "Unsqueeze" else more
                front = lambda a: a + len(rank) + more if a < 0 else a
                n.put(name, [front(a) for a in of] if name == "axes" else front(of))


def check_types(n, kinds_out):
    """Every type variable stands for one type that the older schema allows."""
    bound = {}
    allowed = {c.type_param_str: c.allowed_type_strs for c in n.then.type_constraints}
    for formals, kinds in ((n.then.inputs, [n.kind(i) if i else None for i in n.inputs]), (n.then.outputs, kinds_out)):
        for at, kind in enumerate(kinds):
            formal = formals[min(at, len(formals) - 1)]
            if kind is None:
                continue
            if formal.type_str not in allowed:
                n.need(kind == formal.type_str, f"type {kind}")
                continue
            n.need(kind in allowed[formal.type_str], f"type {kind}")
            if formal.option != Formal.Variadic or formal.is_homogeneous:
                n.need(bound.setdefault(formal.type_str, kind) == kind, "types that differ")


def rewrite(n, kinds_out):
    """The node in the older operator set, and the tensors that it needs by name."""
    if n.name in RULES:
        RULES[n.name](n)
    place(n)
    options(n)
    n.outputs = n.outputs[: n.then.max_output]
    check_types(n, kinds_out[: len(n.outputs)])
    made = helper.make_node(n.name, n.inputs, n.outputs)
    made.attribute.extend(n.attrs[a] for a in sorted(n.attrs))
    return made, n.added


def rewrite_graph(graph, opset, then):
    """A body in the older operator set: constants in it are known."""
    values = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    made, extra = [], {}
    for proto in graph.node:
        if proto.op_type == "Constant" and proto.attribute[0].name == "value":
            values[proto.output[0]] = numpy_helper.to_array(proto.attribute[0].t)
        node, added = rewrite_node(proto, opset, then, values.get, lambda _: None, lambda _: None, [])
        made.append(node)
        extra |= added
    out = onnx.GraphProto()
    out.CopyFrom(graph)
    del out.node[:]
    out.node.extend(made)
    out.initializer.extend(numpy_helper.from_array(v, k) for k, v in extra.items())
    return out


def rewrite_node(proto, opset, then, value, shape, kind, kinds_out):
    if not defs.has(proto.op_type, then, ""):
        raise Unfit(f"{proto.op_type} is not there yet")
    now, older = defs.get_schema(proto.op_type, opset, ""), defs.get_schema(proto.op_type, then, "")
    proto_of = onnx.NodeProto()
    proto_of.CopyFrom(proto)
    for a in proto_of.attribute:
        if a.type == AttributeProto.GRAPH:
            a.g.CopyFrom(rewrite_graph(a.g, opset, then))
    return rewrite(Node(proto_of, now, older, then, value, shape, kind), kinds_out)
