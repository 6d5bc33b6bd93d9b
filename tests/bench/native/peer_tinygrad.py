"""tinygrad on its CPU device, jitted; threads and BEAM are set by run.py in the environment."""
import os

from tinygrad import Device, Tensor, TinyJit
from tinygrad.nn.onnx import OnnxRunner

from timing import arguments, difference, say, time_runs

model, inputs, expect, threads, seconds = arguments()
runner = OnnxRunner(model)
feeds = {k: Tensor(v).realize() for k, v in inputs.items()}
jit = TinyJit(lambda **kw: tuple(o.contiguous().realize() for o in runner(kw).values()))
out = None


def run():
    global out
    out = jit(**feeds)
    Device[Device.DEFAULT].synchronize()


for _ in range(3):  # capture
    run()
times = time_runs(run, seconds)
say("tinygrad" + (f" BEAM={os.environ['BEAM']}" if os.environ.get("BEAM") else ""), times,
    relerr=difference([o.numpy() for o in out], expect.values()))
