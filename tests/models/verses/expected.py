#!/usr/bin/env python3
"""Writes expected.json: what verses-q8_0.gguf goes on with, computed by numpy in f64 from the weights that gguf-py unpacks, with tokens of
Hugging Face's tokenizers.

    pip install numpy gguf tokenizers && python3 expected.py [FOLDER with tokenizer.json]
"""
import json
import pathlib
import sys

import gguf
import numpy as np
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else HERE)
PROMPT = "In the beginning God created"
COUNT = 64


def read(path):
    file = gguf.GGUFReader(path)
    value = lambda key: file.fields[f"llama.{key}"].contents()
    weights = {t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64) for t in file.tensors}
    return value, weights


def logits(value, w, ids):
    """Of the token that follows all these."""
    heads, kv_heads, eps = value("attention.head_count"), value("attention.head_count_kv"), value("attention.layer_norm_rms_epsilon")
    norm = lambda x, g: x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * g
    x = w["token_embd.weight"][ids]
    n, width = x.shape
    size = width // heads
    angles = np.arange(n)[:, None] * value("rope.freq_base") ** (-np.arange(0, size, 2) / size)
    turns = np.exp(1j * angles)[:, None]

    def turned(y):
        # neighbours are turned together
        z = (y[..., 0::2] + 1j * y[..., 1::2]) * turns
        return np.stack([z.real, z.imag], -1).reshape(y.shape)

    ahead = np.triu(np.full((n, n), -np.inf), 1)
    for i in range(value("block_count")):
        at = lambda name: w[f"blk.{i}.{name}.weight"]
        y = norm(x, at("attn_norm"))
        q = turned((y @ at("attn_q").T).reshape(n, heads, size))
        k, v = ((y @ at(f"attn_{c}").T).reshape(n, kv_heads, size) for c in "kv")
        k, v = (np.repeat(t, heads // kv_heads, 1) for t in (turned(k), v))
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(size) + ahead
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        chances /= chances.sum(-1, keepdims=True)
        x = x + np.einsum("hqk,khd->qhd", chances, v).reshape(n, width) @ at("attn_output").T
        y = norm(x, at("ffn_norm"))
        gate = y @ at("ffn_gate").T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ at("ffn_up").T)) @ at("ffn_down").T
    return norm(x[-1], w["output_norm.weight"]) @ w["token_embd.weight"].T


def main():
    value, weights = read(HERE / "verses-q8_0.gguf")
    tokenizer = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))
    ids = [0] + tokenizer.encode(PROMPT, add_special_tokens=False).ids
    tokens, lead = [], np.inf
    while len(tokens) < COUNT:
        y = logits(value, weights, ids + tokens)
        second, first = np.sort(y)[-2:]
        lead = min(lead, (first - second) / np.abs(y).max())
        tokens.append(int(y.argmax()))
    # nearer ones could change places by rounding
    assert lead > 1e-4, lead
    known = dict(prompt=PROMPT, ids=ids, tokens=tokens, text=tokenizer.decode(tokens, skip_special_tokens=True), lead=round(float(lead), 5))
    (HERE / "expected.json").write_text(json.dumps(known, indent=1) + "\n")
    print(known["text"], lead)


main()
