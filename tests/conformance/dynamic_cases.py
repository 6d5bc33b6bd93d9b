"""Writes cases whose sizes and branches depend on the data, in the format of `onnx_cases.py`, with onnxruntime's results:
`dynamic_cases.py OUT.zip`. Each has several data sets, so that what was compiled for one is used or replaced for the next."""
import sys, zipfile

import numpy as np
import onnxruntime as ort
from onnx import numpy_helper, parser

rng = np.random.default_rng(11)
WHEN = (1980, 1, 1, 0, 0, 0)
f32 = lambda *shape: rng.standard_normal(shape).astype(np.float32)
vec = lambda *v: np.array(v, np.float32)
CASES = []
HEAD = '<ir_version: 8, opset_import: ["" : 18]>\n'


def case(name, text, *sets, head=HEAD):
    """A model as text, and the inputs of each data set by name."""
    model = parser.parse_model(head + text)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    CASES.append((name, model, [(feeds, dict(zip(names, session.run(None, feeds)))) for feeds in sets]))


def flat(feeds):
    for name, v in feeds.items():
        if isinstance(v, list):
            yield from ((f"{name}[{i}]", e) for i, e in enumerate(v))
        elif v is not None:
            yield name, v


def main():
    xs = lambda *v: [{"x": np.asarray(x, np.float32)} for x in v]
    case("while", """g (float[2] x) => (float[2] y, float[n, 2] all) {
        yes = Constant<value = bool {1}>()
        trips = Constant<value = int64 {100}>()
        y, all = Loop (trips, yes, x) <body = b (int64 i, bool c, float[2] s) => (bool go, float[2] t, float[2] u) {
            two = Constant<value = float {2}>()
            t = Mul(s, two)
            u = Add(t, x)
            axes = Constant<value = int64[1] {0}>()
            sum = ReduceSum<keepdims = 0>(t, axes)
            top = Constant<value = float {50}>()
            go = Less(sum, top)
        }>
    }""", *xs([1, 2], [1, 1.5], [20, 30], [0.1, 0.2], [1, 2]))
    case("no_turn", """g (float[2] x) => (float[2] y, float[n, 2] all) {
        zero = Constant<value = float {0}>()
        sum = ReduceSum<keepdims = 0>(x)
        go = Less(zero, sum)
        trips = Constant<value = int64 {3}>()
        y, all = Loop (trips, go, x) <body = b (int64 i, bool c, float[2] s) => (bool again, float[2] t, float[2] t) {
            t = Add(s, x)
            again = Identity(c)
        }>
    }""", *xs([1, 2], [-1, -2], [2, 2]))
    case("trips", """g (float[n] x) => (float[n] y) {
        m = ReduceMax<keepdims = 0>(x)
        trips = Cast<to = 7>(m)
        yes = Constant<value = bool {1}>()
        y = Loop (trips, yes, x) <body = b (int64 i, bool c, float[n] s) => (bool again, float[n] t) {
            f = Cast<to = 1>(i)
            t = Add(s, f)
            again = Identity(c)
        }>
    }""", *xs([1, 3.5], [3, -2], [0, -1], [5, 1, 2]))
    case("uneven_if", """g (float[3] x) => (float[n] y) {
        zero = Constant<value = float {0}>()
        sum = ReduceSum<keepdims = 0>(x)
        c = Less(zero, sum)
        y = If (c) <then_branch = t () => (float[3] a) { a = Add(x, x) },
            else_branch = e () => (float[1] b) { b = ReduceMax(x) }>
    }""", *xs([1, 2, 3], [-1, -2, -3], [3, 2, 1], [-3, 0, 1]))
    case("nonzero", """g (float[3, 4] x) => (int64[2, n] at, float[n] picked, float s) {
        r = Relu(x)
        at = NonZero(r)
        rows = Transpose(at)
        picked = GatherND(r, rows)
        s = ReduceSum<keepdims = 0>(picked)
    }""", *[{"x": f32(3, 4)} for _ in range(3)], {"x": -np.ones((3, 4), np.float32)})
    case("compress", """g (float[4, 2] x) => (float[n, 2] y, float[m] flat) {
        axes = Constant<value = int64[1] {1}>()
        sum = ReduceSum<keepdims = 0>(x, axes)
        zero = Constant<value = float {0}>()
        c = Less(zero, sum)
        y = Compress<axis = 0>(x, c)
        flat = Compress(y, c)
    }""", *[{"x": np.abs(f32(4, 2)) * s} for s in (vec(1, 1), vec(1, 1))], {"x": np.abs(f32(4, 2)) * np.array([[1], [-1], [1], [1]], np.float32)})
    case("unique", """g (float[n] x) => (float[m] y, int64[m] at, int64[n] which, int64[m] counts, float[m] twice) {
        r = Round(x)
        y, at, which, counts = Unique<sorted = 1>(r)
        twice = Add(y, y)
    }""", *xs([1.1, 2.2, 0.9, -1], [5, 5, 5, 5.1], [1, 2, 3, 4], [9, 2, 9, 1], [1, 1, 1]))
    case("nms", """g (float[1, 6, 4] x, float[1, 1, 6] p) => (int64[n, 3] picked, float[n, 4] kept) {
        boxes = Abs(x)
        scores = Sigmoid(p)
        most = Constant<value = int64 {4}>()
        iou = Constant<value = float {0.5}>()
        least = Constant<value = float {0.3}>()
        picked = NonMaxSuppression(boxes, scores, most, iou, least)
        two = Constant<value = int64 {2}>()
        at = Gather<axis = 1>(picked, two)
        all = Squeeze(boxes)
        kept = Gather(all, at)
    }""", *[{"x": f32(1, 6, 4), "p": f32(1, 1, 6)} for _ in range(3)], {"x": f32(1, 6, 4), "p": -9 * np.ones((1, 1, 6), np.float32)})
    case("shapes", """g (float[2, 3] x) => (float[a, b] r, float[c, 2, 3] e, float[n] range, float[k, 3] t, float[d, 3] s, float[q, 3] tile) {
        m = ReduceMax<keepdims = 0>(x)
        i = Cast<to = 7>(m)
        one = Constant<value = int64[1] {1}>()
        i1 = Reshape(i, one)
        rest = Constant<value = int64[1] {-1}>()
        shape = Concat<axis = 0>(i1, rest)
        r = Reshape(x, shape)
        e = Expand(x, wide)
        d = Constant<value = int64[2] {2, 3}>()
        wide = Concat<axis = 0>(i1, d)
        zero = Constant<value = float {0}>()
        step = Constant<value = float {1}>()
        range = Range(zero, m, step)
        t, places = TopK<axis = 0>(x, j1)
        two = Constant<value = int64[1] {2}>()
        j1 = Min(i1, two)
        z1 = Constant<value = int64[1] {0}>()
        s = Slice(x, z1, j1)
        reps = Concat<axis = 0>(i1, one)
        tile = Tile(x, reps)
    }""", *xs([[1, 2, 3], [0, -1, 1]], [[1, 2, 1], [0, -1, 1]], [[1, 2, 3], [2, 2, 2]], [[6, 2, 1], [0, 0, 1]]))
    case("nested", """g (float[4] x) => (float[n] y, float[4] z) {
        yes = Constant<value = bool {1}>()
        trips = Constant<value = int64 {3}>()
        zero = Constant<value = float {0}>()
        big = Constant<value = float {3}>()
        one = Constant<value = float {1}>()
        none = Constant<value = float[0] {}>()
        z, y = Loop (trips, yes, x, none) <body = b (int64 i, bool c, float[4] s, float[n] l) => (bool go, float[4] t, float[m] more) {
            first = ReduceMax<keepdims = 0>(s)
            c2 = Less(first, big)
            t = If (c2) <then_branch = t1 () => (float[4] a) { a = Add(s, one) },
                else_branch = e1 () => (float[4] b) {
                    at = NonZero(s)
                    rows = Transpose(at)
                    v = GatherND(s, rows)
                    sum = ReduceSum<keepdims = 0>(v)
                    b = Sub(s, sum)
                }>
            pos = Relu(t)
            at2 = NonZero(pos)
            rows2 = Transpose(at2)
            found = GatherND(t, rows2)
            more = Concat<axis = 0>(l, found)
            go = Identity(c)
        }>
    }""".replace("z, y = Loop", "z, y = Loop"), *xs([0, 1, 0, 2], [3, 0, 0, 0], [-1, -1, -1, -1], [0, 1, 0, 1], [3, 0, 1, 0]))
    case("scan", """g (float[3, 4] x) => (float s, float[3] all) {
        zero = Constant<value = float {0}>()
        s, all = Scan<num_scan_inputs = 1, body = b (float a, float[4] row) => (float t, float v) {
            pos = Relu(row)
            at = NonZero(pos)
            rows = Transpose(at)
            found = GatherND(row, rows)
            v = ReduceSum<keepdims = 0>(found)
            t = Add(a, v)
        }>(zero, x)
    }""", *[{"x": f32(3, 4)} for _ in range(3)])
    case("sequence_loop", """g (float[3] x) => (float[n] y, int64 len) {
        m = ReduceMax<keepdims = 0>(x)
        trips = Cast<to = 7>(m)
        yes = Constant<value = bool {1}>()
        empty = SequenceEmpty()
        list = Loop (trips, yes, empty) <body = b (int64 i, bool c, seq(float[n]) l) => (bool go, seq(float[n]) r) {
            f = Cast<to = 1>(i)
            v = Mul(x, f)
            r = SequenceInsert(l, v)
            go = Identity(c)
        }>
        y = ConcatFromSequence<axis = 0>(list)
        len = SequenceLength(list)
    }""", *xs([1, 3.5, 0], [3, -2, 1], [1, 0, 0]))
    case("sequences", """g (seq(float[n]) l, float[2] x) => (seq(float[n]) r, float[n] a, seq(float[m]) parts) {
        at = Constant<value = int64 {-1}>()
        a = SequenceAt(l, at)
        r = SequenceInsert(l, x, zero)
        zero = Constant<value = int64 {0}>()
        one = Constant<value = int64 {1}>()
        parts = SplitToSequence<axis = 0>(a, one)
    }""", {"l": [vec(1), vec(2, 3)], "x": vec(7, 8)}, {"l": [vec(4), vec(5, 6)], "x": vec(1, 2)}, {"l": [vec(4), vec(5, 6), vec(1)], "x": vec(1, 2)})
    case("function", """g (float[5] x) => (float[n] y) {
        y = my.positives(x)
    }
    <domain: "my", opset_import: ["" : 18]>
    positives (v) => (r) {
        p = Relu(v)
        at = NonZero(p)
        rows = Transpose(at)
        r = GatherND(v, rows)
    }""", *[{"x": f32(5)} for _ in range(4)], head='<ir_version: 8, opset_import: ["" : 18, "my" : 1]>\n')
    case("handed_through", """g (float[2, 2] x) => (float[4] flat, float[n] y, float[2, 2] same) {
        s = Constant<value = int64[1] {4}>()
        flat = Reshape(x, s)
        at = NonZero(flat)
        rows = Transpose(at)
        y = GatherND(flat, rows)
        same = Identity(x)
    }""", *xs([[1, 0], [0, 2]], [[3, 0], [4, 0]], [[1, 1], [1, 1]]))
    with zipfile.ZipFile(sys.argv[1], "w", zipfile.ZIP_DEFLATED, compresslevel=9) as z:
        def put(name, data):
            z.writestr(zipfile.ZipInfo(name, WHEN), data, zipfile.ZIP_DEFLATED)

        for name, model, sets in CASES:
            put(f"dynamic/{name}/model.onnx", model.SerializeToString())
            put(f"dynamic/{name}/tolerance", "1e-5 1e-6")
            for n, pair in enumerate(sets):
                for side, values in zip(("in", "out"), pair):
                    for i, (k, v) in enumerate(flat(values)):
                        put(f"dynamic/{name}/{n}/{side}_{i}.pb", numpy_helper.from_array(np.asarray(v), k).SerializeToString())
    print(len(CASES), "cases")


main()
