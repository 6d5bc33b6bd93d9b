"""What the Python contenders share: the timing loop and the line they print."""
import json
import os
import sys
import time

import numpy as np


def load(path):
    return dict(np.load(path))


def real_time():
    """Puts all threads of this process before others', if run.py asked for that and the system allows it."""
    if os.environ.get("BENCH_REAL_TIME"):
        for thread in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(thread), os.SCHED_FIFO, os.sched_param(5))


def time_runs(run, budget):
    """(first, least, median) milliseconds, how many runs, and the least processor time of one."""
    start = time.perf_counter()
    run()
    first = time.perf_counter() - start
    run()
    real_time()
    times, cpu, end = [], float("inf"), time.perf_counter() + budget
    while len(times) < 5 or (time.perf_counter() < end and len(times) < 300):
        busy, start = time.process_time(), time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
        cpu = min(cpu, time.process_time() - busy)
    times.sort()
    return first * 1e3, times[0] * 1e3, times[len(times) // 2] * 1e3, len(times), cpu * 1e3


def difference(got, want):
    """The largest difference of any output, relative to the largest value wanted of it."""
    worst = 0.0
    for g, w in zip(got, want):
        d = np.abs(np.asarray(g, np.float64).reshape(w.shape) - w).max() / (np.abs(w).max() + 1e-9)
        worst = max(worst, float(d)) if d == d else float("inf")
    return worst


def say(peer, times, **more):
    first, least, median, n, cpu = times
    line = dict(peer=peer, ms_min=round(least, 4), ms_med=round(median, 4), cpu_ms=round(cpu, 4), first_ms=round(first, 2), runs=n, **more)
    print(json.dumps(line), flush=True)


def arguments():
    """MODEL INPUTS EXPECT THREADS SECONDS, as run.py calls a contender."""
    model, inputs, expect, threads, seconds = sys.argv[1:6]
    return model, load(inputs), load(expect), int(threads), float(seconds)
