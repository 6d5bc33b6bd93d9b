"""Chooses a slice of the suite: `choose.py CASES.zip RESULTS.txt LIST.txt`. RESULTS is what `onnx_suite` printed. For each operator the
two smallest cases that pass and use it, none of more than 6 kB."""
import collections, sys, zipfile

import onnx

archive, results, out = sys.argv[1:]
passed = {line.split()[1] for line in open(results) if line.startswith("pass ")}
z, size = zipfile.ZipFile(archive), collections.Counter()
for i in z.infolist():
    size["/".join(i.filename.split("/")[:2])] += i.compress_size + 2 * len(i.filename) + 120
by_op = collections.defaultdict(list)
for name in sorted(passed, key=lambda n: (size[n], n)):
    model = onnx.ModelProto.FromString(z.read(f"{name}/model.onnx"))
    for op in {n.op_type for n in model.graph.node}:
        by_op[op].append(name)
chosen = {n for names in by_op.values() for n in names[:2] if size[n] <= 6000}
open(out, "w").write("\n".join(sorted(chosen)) + "\n")
print(len(chosen), "cases,", sum(size[n] for n in chosen), "bytes")
