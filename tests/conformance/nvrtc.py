#!/usr/bin/env python3
"""Compiles kernels in CUDA C++ with NVIDIA's run-time compiler, from PyPI, without a driver: each file to a cubin for a chip.

usage: nvrtc.py sm_80 FILE.."""
import ctypes
import glob
import os
import sys

import nvidia


def library():
    folders = [os.path.join(path, kind, "lib") for path in nvidia.__path__ for kind in ("cu13", "cuda_nvrtc")]
    found = [name for folder in folders for name in glob.glob(os.path.join(folder, "libnvrtc.so.*")) if "alt" not in name]
    return ctypes.CDLL(sorted(found)[0])


def compile_file(nvrtc, chip, path):
    with open(path, "rb") as file:
        text = file.read()
    program = ctypes.c_void_p()
    made = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
    options = [b"--gpu-architecture=" + chip.encode(), b"--std=c++17", b"-w"]
    done = made or nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    size = ctypes.c_size_t()
    if done:
        nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        nvrtc.nvrtcGetProgramLog(program, log)
        lines = log.value.decode(errors="replace").splitlines()
        sys.exit(f"{path}: nvrtc refuses it for {chip} ({done})\n" + "\n".join(lines[:30]))
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return size.value


def main():
    chip, files = sys.argv[1], sys.argv[2:]
    nvrtc = library()
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    sizes = [compile_file(nvrtc, chip, path) for path in files]
    if not files or not all(sizes):
        sys.exit("nothing was compiled")
    print(f"{len(files)} files for {chip}: nvrtc {major.value}.{minor.value} takes them all, {sum(sizes)} bytes of machine code")


main()
