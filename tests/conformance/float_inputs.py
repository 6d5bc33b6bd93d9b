"""Which inputs of ONNX operators take floats alone, whatever the operator set: of the packages onnx (its own domains) and
onnxruntime (com.microsoft). Writes a line an operator that has such inputs: domain, name, their positions; `3+` is 3 and all that follow.

usage: python float_inputs.py OUT   (with onnx and onnxruntime installed)
"""
import sys
from collections import defaultdict

import onnx
from onnxruntime.capi import onnxruntime_pybind11_state as ort

FLOATS = {"tensor(float)", "tensor(double)", "tensor(float16)", "tensor(bfloat16)"}


def is_repeated(formal):
    return "ariadic" in str(formal.option)


# of each version, for each input: does it take floats alone, is it repeated?
versions = defaultdict(list)
for s in onnx.defs.get_all_schemas_with_history():
    if not s.deprecated:
        versions[s.domain, s.name].append([(set(f.types) <= FLOATS, is_repeated(f)) for f in s.inputs])
for s in ort.get_all_operator_schema():
    if s.domain == "com.microsoft":
        kinds = {t.type_param_str: set(t.allowed_type_strs) for t in s.type_constraints}
        of = [kinds.get(f.typeStr, {f.typeStr}) for f in s.inputs]
        versions[s.domain, s.name].append([(types <= FLOATS, is_repeated(f)) for f, types in zip(s.inputs, of)])

lines = []
for (domain, name), all_versions in sorted(versions.items()):
    listed = []
    for at in range(max(map(len, all_versions))):
        here = [v[at] for v in all_versions if at < len(v)]
        # an input that a version repeats is at every later place too
        repeated = any(r for _, r in here)
        if all(float_only for float_only, _ in here):
            listed.append(f"{at}+" if repeated else str(at))
    if listed:
        lines.append(f"{domain or 'ai.onnx'}\t{name}\t{' '.join(listed)}\n")
with open(sys.argv[1], "w") as out:
    out.writelines(lines)
