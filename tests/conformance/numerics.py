"""Writes tests/fixtures/numerics/cases.txt: what elementwise operators, casts and reductions give at the edges of their types.

Values are torch's. Functions of f32 that are not exact are computed in f64 and rounded once, so that a difference of n units in
the last place is one from the true value. Casts of floats that an integer cannot hold are not defined in torch: the nearest
integer is wanted there, and 0 of NaN, as in Rust and WebAssembly. The other values of those casts are checked against numpy.

usage: numerics.py FILE
"""
import sys
import numpy as np
import torch

INF, NAN = float("inf"), float("nan")
WHOLE = [
    0.0, -0.0, INF, -INF, NAN, 1e-45, -1e-45, 1e-40, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 16777217.0, 16777215.0,
    1e7, -1e7, 5e6, 1e30, -1e30, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 2.0, 3.0, 0.1, 1e-5, -1e-5, 1e-10, 88.7, 88.73,
    -87.4, -103.9, -104.1, 10.0, 100.0, 127.9, -126.5, -149.2, 0.99999994, 1.0000001, -0.99999994, 0.3, -0.7, 20.0, -20.0, 4.0,
    -9.0, 0.49999997, 8388609.5, 4194305.5, 2147483648.0, -2147483648.0, 4294967296.0, 1e19, 255.5, -128.5, 65520.0,
]
FEW = [0.0, -0.0, INF, -INF, NAN, 1e-45, 1.1754944e-38, 3.4028235e38, 16777217.0, 1e7, 1e30, -1.5, 0.5, 1.0, -1.0, 2.0, -3.0, 7.25]
ROWS = [
    [1.0, 2.0, 3.0, -4.0], [NAN, 1.0, 2.0, INF], [1.0, NAN, NAN, 3.0], [-INF, -INF, -INF, -INF], [INF, 1.0, INF, -1.0],
    [INF, -INF, 0.0, 1.0], [-0.0, 0.0, -0.0, 0.0], [-0.0, -0.0, -0.0, -0.0], [1e30, -1e30, 1.0, 1e-30],
    [3.4028235e38, 3.4028235e38, -1.0, 0.0], [1e-45, 1e-45, 1e-45, 0.0], [-INF, 1.0, 2.0, 2.0], [NAN, NAN, NAN, NAN],
]
UNARY = """neg abs sign ceil floor trunc round frac sqrt rsqrt reciprocal exp exp2 expm1 log log2 log10 log1p sin cos tan asin
acos atan sinh cosh tanh asinh acosh atanh erf erfc sigmoid square isnan isinf isfinite signbit nn.functional.relu
nn.functional.silu nn.functional.gelu nn.functional.softplus nn.functional.logsigmoid nn.functional.mish nn.functional.elu
nn.functional.hardswish""".split()
BINARY = """add sub mul div pow atan2 fmod remainder floor_divide maximum minimum fmax fmin eq ne lt le gt ge hypot copysign
logaddexp nextafter""".split()


def remainder(a, b):
    r = fmod(a, b)
    return torch.where((r != 0) & ((b < 0) != (r < 0)), r + b, r)


def floor_divide(a, b):
    r = fmod(a, b)
    q = (a - r) / b
    q = torch.where((r != 0) & ((b < 0) != (r < 0)), q - 1, q)
    whole = q.floor()
    whole = torch.where(q - whole > 0.5, whole + 1, whole)
    return torch.where(b == 0, a / b, torch.where(q != 0, whole, torch.copysign(torch.zeros_like(q), a / b)))


# Where torch's own are not exact: its vectorised fmod gives NaN for large quotients, and its gelu adds 1 to an error function
INSTEAD = {
    "fmod": lambda a, b: fmod(a, b), "remainder": remainder, "floor_divide": floor_divide,
    "nn.functional.gelu": lambda x: 0.5 * x * torch.erfc(-x / 2 ** 0.5),
}


def fmod(a, b):
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.fmod(a.numpy(), b.numpy()))


# what f64 would do differently
AS_THEY_ARE = {"fmod", "remainder", "floor_divide", "nextafter", "frac", "round", "signbit"}
INTEGER = "add sub mul floor_divide remainder fmod maximum minimum bitwise_and bitwise_or bitwise_xor eq lt".split()
SHIFTS = "bitwise_left_shift bitwise_right_shift".split()
TYPES = {
    "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "bool": torch.bool, "u8": torch.uint8,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
}
NAMES = {v: k for k, v in TYPES.items()}
lines, known = [], {}


def text(t):
    t = t.detach().contiguous()
    raw = t.view(torch.uint8 if t.dim() else t.dtype) if t.dim() else t.reshape(1).view(torch.uint8)
    return f"{NAMES[t.dtype]}:{','.join(map(str, t.shape))}:{bytes(raw.flatten().tolist()).hex()}"


def put(name, t):
    known[name] = t
    lines.append(f"@{name}\t{text(t)}")


def case(op, args, want):
    want = want if isinstance(want, (list, tuple)) else [want]
    lines.append(f"{op}\t{' '.join(args)}\t{' '.join(map(text, want))}")


def function(name):
    at = torch
    for part in name.split("."):
        at = getattr(at, part)
    return at


def exact(name, f, args):
    """Of f32: in f64, rounded once."""
    if name in AS_THEY_ARE:
        return f(*args)
    y = f(*[a.double() for a in args])
    return y.float() if y.dtype == torch.float64 else y


def floats():
    put("u", torch.tensor(WHOLE, dtype=torch.float32))
    for name in UNARY:
        case(name, ["@u"], exact(name, INSTEAD.get(name, function(name)), [known["u"]]))
    case("nn.functional.gelu", ["@u", 'approximate="tanh"'],
         exact("", lambda x: x * torch.sigmoid(1.5957691216057308 * (x + 0.044715 * x ** 3)), [known["u"]]))
    a, b = torch.meshgrid(torch.tensor(FEW), torch.tensor(FEW), indexing="ij")
    put("a", a.flatten().float())
    put("b", b.flatten().float())
    for name in BINARY:
        case(name, ["@a", "@b"], exact(name, INSTEAD.get(name, function(name)), [known["a"], known["b"]]))
    for dt in ("f16", "bf16"):
        t = TYPES[dt]
        put("u" + dt, known["u"].to(t))
        for name in ("neg", "abs", "sqrt", "exp", "log", "sin", "cos", "tan", "tanh", "sigmoid", "round", "erf"):
            case(name, ["@u" + dt], function(name)(known["u" + dt].double()).to(t))
        put("a" + dt, known["a"].to(t))
        put("b" + dt, known["b"].to(t))
        for name in ("add", "mul", "div", "maximum", "minimum", "pow"):
            case(name, ["@a" + dt, "@b" + dt], function(name)(known["a" + dt].double(), known["b" + dt].double()).to(t))


def integers():
    for dt in ("u8", "i8", "i16", "i32", "i64"):
        t = TYPES[dt]
        info = torch.iinfo(t)
        v = sorted({info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, 100} | ({-1, -2, -7} if info.min else set()))
        v = torch.tensor(v, dtype=t)
        put("v" + dt, v)
        for name in ("neg", "abs", "sign", "bitwise_not", "square"):
            if (name, dt) != ("neg", "u8"):
                case(name, ["@v" + dt], function(name)(v))
        a, b = torch.meshgrid(v, v, indexing="ij")
        a, b = a.flatten(), b.flatten()
        put("p" + dt, a)
        put("q" + dt, b)
        for name in INTEGER:
            if name in ("floor_divide", "remainder", "fmod"):
                # a division by zero ends torch's program, and that of the least integer by -1 the processor's
                keep = (b != 0) & ~((a == info.min) & (b == (-1 if info.min else 0)))
                put(f"n{name}{dt}", a[keep])
                put(f"d{name}{dt}", b[keep])
                case(name, [f"@n{name}{dt}", f"@d{name}{dt}"], function(name)(a[keep], b[keep]))
            else:
                case(name, ["@p" + dt, "@q" + dt], function(name)(a, b))
        bits = torch.tensor([0, 1, 2, info.bits - 1], dtype=t)
        a, b = torch.meshgrid(v, bits, indexing="ij")
        put("s" + dt, a.flatten())
        put("by" + dt, b.flatten())
        for name in SHIFTS:
            case(name, ["@s" + dt, "@by" + dt], function(name)(a.flatten(), b.flatten()))


def casts():
    x = known["u"]
    for dt in ("f16", "bf16", "bool"):
        case("cast:" + dt, ["@u"], x.to(TYPES[dt]))
    for dt in ("u8", "i8", "i16", "i32", "i64"):
        info = torch.iinfo(TYPES[dt])
        v = [0 if np.isnan(f) else info.max if f >= info.max else info.min if f <= info.min else int(f) for f in x.tolist()]
        with np.errstate(invalid="ignore"):
            other = x.numpy().astype(dt.replace("u", "uint").replace("i", "int", 1) if dt[0] == "i" else "uint8")
        fits = [info.min <= f <= info.max for f in x.tolist()]
        assert all(o == w for o, w, ok in zip(other.tolist(), v, fits) if ok), dt
        case("cast:" + dt, ["@u"], torch.tensor(v, dtype=TYPES[dt]))
        for to in TYPES:
            if to != dt:
                case("cast:" + to, ["@v" + dt], known["v" + dt].to(TYPES[to]))


def reductions():
    put("rows", torch.tensor(ROWS, dtype=torch.float32))
    x = known["rows"]
    for name, f in [
        ("sum", lambda x: x.sum(-1)), ("prod", lambda x: x.prod(-1)), ("mean", lambda x: x.mean(-1)),
        ("amax", lambda x: x.amax(-1)), ("amin", lambda x: x.amin(-1)), ("logsumexp", lambda x: x.logsumexp(-1)),
        ("softmax", lambda x: x.softmax(-1)), ("log_softmax", lambda x: x.log_softmax(-1)),
        ("cumsum", lambda x: x.cumsum(-1)), ("cumprod", lambda x: x.cumprod(-1)),
    ]:
        case(name, ["@rows", "dim=-1"], f(x.double()).float())
    for name in ("argmax", "argmin"):
        case(name, ["@rows", "dim=-1"], getattr(x, name)(-1).to(torch.int32))
    for name in ("sort", "cummax", "cummin"):
        values, index = x.sort(dim=-1, stable=True) if name == "sort" else getattr(x, name)(-1)
        case(name, ["@rows"] + (["stable=true"] if name == "sort" else []) + ["dim=-1"], [values, index.to(torch.int32)])
    put("ints", torch.tensor([[2147483647, 1, 0], [-2147483648, -1, 5], [3, 3, 3]], dtype=torch.int32))
    for name in ("amax", "amin"):
        case(name, ["@ints", "dim=-1"], getattr(known["ints"], name)(-1))


floats()
integers()
casts()
reductions()
with open(sys.argv[1], "w") as file:
    file.write("# Written by tests/conformance/numerics.py with torch " + torch.__version__.split("+")[0] + ".\n" + "\n".join(lines) + "\n")
print(len(lines), "lines")
