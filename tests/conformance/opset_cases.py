"""Writes cases of each version of each operator, in the format of `onnx_cases.py`.

    python opset_cases.py OUT.zip [--slice SMALL.zip] [OPERATOR ..]

Every one-node case of the backend suite, and those of `opset_extra.py`, is written in the older operator sets that it fits: for each version of the
operator that is in force in a set from 7 to the newest, the first and the last of these sets. A case is named
`opset/OPERATOR.VERSION.SET.NAME`. What is expected is what the suite expects, where onnxruntime says the same of the rewritten model. Where the
operator meant something else then (MEANT), and where nobody knows yet, it is what onnxruntime says. Where onnxruntime has no such kernel, the
reference evaluator of the `onnx` package has to agree with the suite. Where the meaning is the same and onnxruntime differs from the suite, the
suite is right, and the case is printed. `--slice` writes another archive with the smallest case of each form that the newest set does not have.
"""
import argparse, collections, os, warnings, zipfile

warnings.filterwarnings("ignore")
os.environ["ALLOW_RELEASED_ONNX_OPSET_ONLY"] = "0"
import numpy as np
import onnx
import onnx.reference
from onnx import AttributeProto, TensorProto, defs, helper, numpy_helper

from onnx_cases import generated, kind_of, write
from onnxruntime_suite import answers, close, opened
from opset_extra import extra
from opset_rules import Unfit, rewrite_node

FIRST, LAST = 7, defs.onnx_opset_version()
# the newest operator set whose operators onnxruntime knows
RUNTIME = 26
# versions below these meant something else
MEANT = {"Softmax": 13, "LogSoftmax": 13, "Hardmax": 13, "Resize": 11, "RoiAlign": 16, "GroupNormalization": 21}
# what is tried instead of a type that the older operator did not take
OTHERS = "float int32 int64 bool double".split()


def history():
    """By operator: version, and the first and the last operator set in which it is in force, within the limits."""
    found = collections.defaultdict(dict)
    for s in defs.get_all_schemas_with_history():
        if s.domain == "":
            found[s.name][s.since_version] = s.deprecated
    out = {}
    for name, versions in found.items():
        order = sorted(versions)
        # deprecated from its first version on is an operator that was called so later; else the set is without it
        gone = {v for v in order if versions[v] and v != order[0]}
        out[name] = [(v, max(v, FIRST), end - 1) for v, end in zip(order, order[1:] + [LAST + 1]) if end > FIRST and v not in gone]
    return out


def type_text(t):
    which = t.WhichOneof("value")
    if which == "tensor_type":
        return f"tensor({TensorProto.DataType.Name(t.tensor_type.elem_type).lower()})"
    if which == "sequence_type":
        return f"seq({type_text(t.sequence_type.elem_type)})"
    if which == "optional_type":
        return f"optional({type_text(t.optional_type.elem_type)})"
    return which


def array(v):
    if isinstance(v, TensorProto):
        return numpy_helper.to_array(v)
    return v if v is None or isinstance(v, list) else np.asarray(v)


class Case:
    """A model of one node of the default domain, with its data sets by name."""

    def __init__(self, name, model, sets, rtol, atol):
        self.name, self.model, self.tolerance = name, model, (rtol, atol)
        self.node = model.graph.node[0]
        self.opset = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        self.infos = {v.name: v for v in [*model.graph.input, *model.graph.output]}
        self.fixed = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        ins, outs = ([v.name for v in side] for side in (model.graph.input, model.graph.output))
        self.sets = [(dict(zip(ins, map(array, i))), dict(zip(outs, map(array, o)))) for i, o in sets]

    def value(self, name):
        """What an input is in every data set."""
        if name in self.fixed:
            return self.fixed[name]
        all_of = [i.get(name) for i, _ in self.sets]
        if not all_of or not all(isinstance(v, np.ndarray) and v.shape == all_of[0].shape and (v == all_of[0]).all() for v in all_of):
            return None
        return all_of[0]

    def shape(self, name):
        first = self.fixed.get(name, self.sets[0][0].get(name) if self.sets else None)
        return first.shape if isinstance(first, np.ndarray) else None

    def kind(self, name):
        return type_text(self.infos[name].type) if name in self.infos else None

    def older(self, opset):
        """The model in another operator set."""
        kinds = [self.kind(o) if o else None for o in self.node.output]
        node, added = rewrite_node(self.node, self.opset, opset, self.value, self.shape, self.kind, kinds)
        used = {i for i in node.input if i} | captured(node)
        # a graph has to give what the node gives, and no value that is none of its outputs
        graph = helper.make_graph(
            [node],
            self.model.graph.name,
            [v for v in self.model.graph.input if v.name in used],
            [v for v in self.model.graph.output if v.name in node.output],
            [numpy_helper.from_array(v, k) for k, v in {**self.fixed, **added}.items() if k in used],
        )
        ids = [helper.make_opsetid("", opset)]
        model = helper.make_model(graph, opset_imports=ids, ir_version=max(helper.find_min_ir_version_for(ids), 4))
        try:
            onnx.checker.check_model(model, full_check=True)
        except Exception as e:
            # of a function's body in old sets the checker knows too little
            if "is deprecated in domain_version" in str(e) or "(op_type:Constant)" in str(e):
                return model
            raise Unfit(f"the checker: {str(e).splitlines()[0]}") from e
        return model

    def retyped(self, opset):
        """The same numbers in element types that the older operator takes, if it has a form for each."""
        schema = defs.get_schema(self.node.op_type, opset, "")
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        change = {}
        for at, name in enumerate(self.node.input):
            formal = schema.inputs[min(at, len(schema.inputs) - 1)] if schema.inputs else None
            if formal is None or formal.type_str not in allowed or self.kind(name) in allowed[formal.type_str]:
                continue
            to = next((o for o in OTHERS if f"tensor({o})" in allowed[formal.type_str]), None)
            if to is None or not isinstance(self.value(name), np.ndarray) or self.value(name).dtype.kind not in "fiubV":
                raise Unfit(f"type {self.kind(name)}")
            change[formal.type_str] = to
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        made = Case(self.name, model, [], *self.tolerance)
        made.sets = [(dict(i), dict(o)) for i, o in self.sets]
        for names, formals, side in ((self.node.input, schema.inputs, 0), (self.node.output, schema.outputs, 1)):
            for at, name in enumerate(names):
                to = change.get(formals[min(at, len(formals) - 1)].type_str) if formals else None
                if not name or to is None:
                    continue
                elem = TensorProto.DataType.Value(to.upper())
                made.infos[name].type.tensor_type.elem_type = elem
                for s in made.sets:
                    s[side][name] = s[side][name].astype(helper.tensor_dtype_to_np_dtype(elem))
        return made


def captured(node):
    """Names that the bodies of a node may take from around it."""
    return {i for a in node.attribute if a.type == AttributeProto.GRAPH for n in a.g.node for i in [*n.input, *captured(n)]}


def is_random(case):
    return case.node.op_type in ("Bernoulli", "RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Multinomial")


def results(model, case, version):
    """Inputs and expected outputs of each data set, and who says so."""
    outs = [o.name for o in model.graph.output]
    feeds = [{v.name: ins[v.name] for v in model.graph.input} for ins, _ in case.sets]
    own = [[o.get(n) for n in outs] for _, o in case.sets]
    known = all(v is not None for o in own for v in o) and version >= MEANT.get(case.node.op_type, 0)
    newest = version == defs.get_schema(case.node.op_type, case.opset, "").since_version
    if is_random(case):
        return feeds, own, "suite"
    agree = lambda got: all(close(g, w, *case.tolerance) for gs, ws in zip(got, own) for g, w in zip(gs, ws))
    try:
        if version > RUNTIME:
            raise Unfit("of a newer set")
        session = opened(model)
        got = [answers(session, model, f) for f in feeds]
        if known and not agree(got):
            print(f"onnxruntime differs from the suite: {case.node.op_type}-{version}, {case.name}")
        return feeds, *((got, "onnxruntime") if not known else (own, "both" if agree(got) else "suite"))
    except Exception as e:
        why = str(e)[:120]
    try:
        session = onnx.reference.ReferenceEvaluator(model)
        got = [session.run(None, f) for f in feeds]
    except Exception as e:
        if known and newest:
            return feeds, own, "suite"
        raise Unfit(f"nobody runs it: {why}; {str(e)[:80]}") from e
    if known and not agree(got):
        if newest:
            return feeds, own, "suite"
        raise Unfit(f"the reference differs from the suite; {why}")
    return feeds, *((own, "reference and suite") if known else (got, "reference"))


def old_form(node, opset):
    """What tells a form of an operator from others, if it is none of the newest set."""
    newest, version = defs.get_schema(node.op_type, LAST, ""), defs.get_schema(node.op_type, opset, "").since_version
    attrs = tuple(sorted(a.name for a in node.attribute))
    meant = version < MEANT.get(node.op_type, 0)
    modes = node.op_type == "GridSample" and any(a.s.startswith(b"bi") for a in node.attribute)
    if meant or modes or newest.deprecated or set(attrs) - set(newest.attributes) or not newest.min_input <= len(node.input) <= newest.max_input:
        return node.op_type, len(node.input), attrs
    return None


def cases_of(op, versions, cases):
    """Name, operator set, model, data sets, tolerances and who knows what is right, for each version; None for one without a case."""
    for version, first, last in versions:
        found, why = False, []
        for retype in (False, True):
            for case in cases if not found else []:
                if version > defs.get_schema(op, case.opset, "").since_version:
                    continue
                for opset in sorted({first, last}):
                    try:
                        own = case.retyped(opset) if retype else case
                        model = own.older(opset)
                        feeds, wants, by = results(model, own, version)
                    except Unfit as e:
                        why.append(f"{case.name}: {e}")
                        continue
                    found = True
                    sets = [(list(f.values()), w) for f, w in zip(feeds, wants)]
                    yield f"opset/{op}.{version}.{opset}.{case.name}", opset, model, sets, case.tolerance, by
        if not found:
            print(f"no case: {op}-{version}; {'; '.join(why[:2])}")
            yield None


def main():
    args = argparse.ArgumentParser()
    args.add_argument("out")
    args.add_argument("only", nargs="*")
    args.add_argument("--slice")
    args = args.parse_args()
    cases = collections.defaultdict(list)
    for name, model, sets, rtol, atol in [c[1:] for c in generated() if c[0] == "node"] + list(extra()):
        n = model.graph.node
        if len(n) == 1 and n[0].domain in ("", "ai.onnx") and not model.functions and (not args.only or n[0].op_type in args.only):
            cases[n[0].op_type].append(Case(name, model, sets, rtol, atol))
    who, missing, small = collections.Counter(), 0, {}
    with zipfile.ZipFile(args.out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        for op, versions in sorted(history().items()):
            for found in cases_of(op, versions, cases[op]) if not args.only or op in args.only else []:
                if found is None:
                    missing += 1
                    continue
                name, opset, model, sets, (rtol, atol), by = found
                before, entry = z.fp.tell(), (name, model, sets, rtol, max(atol, 1e-6))
                write(z, *entry)
                who[by] += 1
                form, size = old_form(model.graph.node[0], opset), z.fp.tell() - before
                # of the newest set that has the form: there a wrong limit shows
                if form and size < 4000 and "empty" not in name:
                    small[form] = min(small.get(form, (-opset, size, entry)), (-opset, size, entry), key=lambda s: s[:2])
    print(f"{missing} versions without a case; {sum(who.values())} cases, what is expected is of " + ", ".join(f"{k} {n}" for k, n in who.items()))
    if args.slice:
        with zipfile.ZipFile(args.slice, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
            for _, _, entry in sorted(small.values(), key=lambda s: s[2][0]):
                write(z, *entry)
        print(f"{len(small)} forms in {args.slice}")


if __name__ == "__main__":
    main()
