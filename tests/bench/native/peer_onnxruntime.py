"""onnxruntime on inputs and outputs that are bound once."""
import time

import numpy as np
import onnxruntime as ort

from timing import arguments, difference, say, time_runs

model, inputs, expect, threads, seconds = arguments()
options = ort.SessionOptions()
options.intra_op_num_threads = threads
options.inter_op_num_threads = 1
start = time.perf_counter()
session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
load_ms = (time.perf_counter() - start) * 1e3
binding = session.io_binding()
for name, value in inputs.items():
    binding.bind_cpu_input(name, value)
outputs = [ort.OrtValue.ortvalue_from_numpy(np.empty_like(v)) for v in expect.values()]
for name, value in zip(expect, outputs):
    binding.bind_ortvalue_output(name, value)
times = time_runs(lambda: session.run_with_iobinding(binding), seconds)
error = difference([o.numpy() for o in outputs], expect.values())
say(f"onnxruntime {ort.__version__}", times, load_ms=round(load_ms, 1), relerr=error)
