"""Models of transformers with random weights, exported by torch with lengths that change, and what onnxruntime makes of twenty random shapes.

usage: python lengths_torch.py FOLDER [t5] [swin] [clip]     then, with the bounds of the inputs that it prints,
       cargo run --release --example lengths -- cpu 1 FOLDER/NAME.onnx samples FOLDER/NAME.npz NAME=MIN..MAX ..

Needs torch, transformers, onnx, onnxscript, onnxruntime and numpy. Each is exported both ways that torch has: `NAME` and, by tracing, `NAME_traced`.
"""

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from torch.export import Dim
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig, SwinConfig, SwinModel, T5Config, T5ForConditionalGeneration

FOLDER, WHICH = Path(sys.argv[1]), sys.argv[2:] or ["t5", "swin", "clip"]
SAMPLES = 20
rng = np.random.default_rng(3)


class Named(torch.nn.Module):
    def __init__(self, run, model):
        super().__init__()
        self.model, self.run = model, run

    def forward(self, *inputs):
        return self.run(self.model, *inputs)


def ids(*shape):
    return rng.integers(1, 90, shape).astype(np.int64)


def noise(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def mask(batch, n):
    """The first text ends early."""
    x = np.ones((batch, n), np.int64)
    x[0, n - n // 4 :] = 0
    return x


def text(batch, n):
    x = ids(batch, n)
    x[:, -1] = 99  # the end
    return x


def pick(low, high):
    return int(rng.integers(low, high + 1))


def export(name, model, run, dims, bounds, outputs, make, shapes):
    """`dims`: of each input the names of its axes that change; `make`: inputs of a shape."""
    module = Named(run, model.eval())
    first = make(*shapes[0])
    args = tuple(torch.from_numpy(x) for x in first.values())
    lengths = {n: Dim(n, min=low, max=high) for n, (low, high) in bounds.items()}
    new = dict(dynamo=True, external_data=False, dynamic_shapes=(tuple({axis: lengths[n] for axis, n in d.items()} for d in dims),))
    old = dict(dynamo=False, opset_version=17, dynamic_axes=dict(zip(first, dims)))
    for suffix, how in [("", new), ("_traced", old)]:
        path = FOLDER / f"{name}{suffix}.onnx"
        torch.onnx.export(module, args, str(path), input_names=list(first), output_names=outputs, **how)
        session, samples = ort.InferenceSession(str(path)), {}
        for i, shape in enumerate(shapes):
            given = make(*shape)
            samples |= {f"{i}/in/{n}": x for n, x in given.items()}
            samples |= {f"{i}/out/{n}": x for n, x in zip(outputs, session.run(outputs, given))}
        np.savez(path.with_suffix(".npz"), **samples)
        print(path, *(f"{n}={low}..{high}" for n, (low, high) in bounds.items()), flush=True)


def t5():
    config = T5Config(vocab_size=100, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, attn_implementation="eager")
    model = T5ForConditionalGeneration(config)

    def encode(m, tokens, attention_mask):
        return m.encoder(input_ids=tokens, attention_mask=attention_mask).last_hidden_state

    def decode(m, tokens, states, attention_mask):
        return m(encoder_outputs=(states,), attention_mask=attention_mask, decoder_input_ids=tokens, use_cache=False).logits

    own, target = {0: "batch", 1: "length"}, {0: "batch", 1: "target"}
    shapes = [(pick(2, 4), pick(2, 48), pick(2, 48)) for _ in range(SAMPLES)]
    bounds = {"batch": (1, 4), "length": (1, 64)}

    def inputs(b, n, _):
        return dict(input_ids=ids(b, n), attention_mask=mask(b, n))

    export("t5_encoder", model, encode, [own, own], bounds, ["states"], inputs, shapes)

    def both(b, n, t):
        return dict(decoder_ids=ids(b, t), states=noise(b, n, 64), attention_mask=mask(b, n))

    export("t5_decoder", model, decode, [target, own, own], bounds | {"target": (1, 64)}, ["logits"], both, shapes)


def swin():
    config = SwinConfig(image_size=56, embed_dim=24, depths=[2, 2], num_heads=[2, 4], attn_implementation="eager")
    export(
        "swin", SwinModel(config), lambda m, x: m(x).last_hidden_state, [{0: "batch"}], {"batch": (1, 8)}, ["states"],
        lambda b: dict(pixel_values=noise(b, 3, 56, 56)), [(pick(2, 8),) for _ in range(SAMPLES)],
    )


def clip():
    small = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4)
    words = CLIPTextConfig(vocab_size=100, eos_token_id=99, bos_token_id=98, pad_token_id=1, **small)
    pictures = CLIPVisionConfig(image_size=32, patch_size=8, **small)
    config = CLIPConfig(text_config=words.to_dict(), vision_config=pictures.to_dict(), projection_dim=32, attn_implementation="eager")

    def run(m, tokens, pixels, attention_mask):
        out = m(input_ids=tokens, pixel_values=pixels, attention_mask=attention_mask)
        return out.logits_per_image, out.text_embeds, out.image_embeds

    own = {0: "texts", 1: "length"}
    export(
        "clip", CLIPModel(config), run, [own, {0: "images"}, own], {"texts": (1, 4), "length": (1, 77), "images": (1, 8)},
        ["logits", "texts_out", "images_out"],
        lambda b, n, i: dict(input_ids=text(b, n), pixel_values=noise(i, 3, 32, 32), attention_mask=np.ones((b, n), np.int64)),
        [(pick(2, 4), pick(3, 40), pick(2, 5)) for _ in range(SAMPLES)],
    )


FOLDER.mkdir(parents=True, exist_ok=True)
torch.manual_seed(0)
for each in WHICH:
    {"t5": t5, "swin": swin, "clip": clip}[each]()
